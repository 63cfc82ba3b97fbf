//! Loads, stores, addresses.

use super::Decoder;
use crate::ptx::builder::Symbol;
use crate::ptx::error::Refusal;
use crate::ptx::operand::Raw;
use crate::ptx::program::{Access, Addr, Op};
use crate::ptx::types::{Kind, Order, Scope, Space, Type};

const ADDRESS: Type = Type { kind: Kind::Bits, bits: 64 };

/// Hints about caches: they change no result.
const CACHE_HINTS: [&str; 15] = [
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "L1::no_allocate",
    "L1::evict_first",
    "L1::evict_last",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L2::64B",
    "L2::128B",
    "L2::256B",
];

impl<'a> Decoder<'_, 'a, '_, '_> {
    /// `ld` and `st`.
    pub(super) fn access(&mut self) -> Result<(), Refusal> {
        let is_load = self.opcode == "ld";
        let ty = self.ty()?;
        if ty.kind == Kind::Pred {
            return Err(self.no_type(ty));
        }
        let vector = self.take_map(|modifier| match modifier {
            "v2" => Some(2),
            "v4" => Some(4),
            _ => None,
        });
        let (order, scope) = self.order(is_load)?;
        let space = self.space(true);
        if self.take("nc") && !(is_load && space == Space::Global && order == Order::Weak) {
            return Err(super::modifier_refused(self.opcode, "nc"));
        }
        self.take_map(|modifier| CACHE_HINTS.contains(&modifier).then_some(()));
        let count = vector.unwrap_or(1);
        if u32::from(count) * u32::from(ty.bytes()) > 16 {
            return Err(self.no_type(ty));
        }
        let [first, second] = self.take_operands()?;
        let (addr, values) = if is_load { (second, first) } else { (first, second) };
        let bytes = u32::from(ty.bytes()) * u32::from(count);
        let addr = self.addr(addr, space, bytes)?;
        let single = std::slice::from_ref(values);
        let values = match values {
            Raw::Vector(values) if vector.is_some() => &values[..],
            _ => single,
        };
        if values.len() != usize::from(count) {
            return Err(Refusal::Operands(format!("{} values, {count} are expected", values.len())));
        }
        // Bits in memory have no sign; a float register is as wide as its type.
        let bits = Type { kind: if ty.is_float() { Kind::Float } else { Kind::Bits }, ..ty };
        let mut access = Access {
            addr,
            order,
            scope,
            bytes: ty.bytes(),
            signed: ty.is_signed(),
            count,
            slots: [0; 4],
            slot_bits: [0; 4],
        };
        for (at, value) in values.iter().enumerate() {
            if is_load {
                (access.slots[at], access.slot_bits[at]) = self.builder.dst_at_least(value, bits, true)?;
            } else {
                access.slots[at] = self.builder.src_at_least(value, bits, true)?;
            }
        }
        let accesses = &mut self.builder.state.program.accesses;
        let index = accesses.len() as u32;
        accesses.push(access);
        self.builder.emit(if is_load { Op::Load { access: index } } else { Op::Store { access: index } });
        Ok(())
    }

    fn order(&mut self, is_load: bool) -> Result<(Order, Scope), Refusal> {
        if self.take("weak") {
            return Ok((Order::Weak, Scope::Cta));
        }
        if self.take("volatile") {
            return Ok((Order::Relaxed, Scope::Sys));
        }
        let order = if self.take("relaxed") {
            Order::Relaxed
        } else if is_load && self.take("acquire") {
            Order::Acquire
        } else if !is_load && self.take("release") {
            Order::Release
        } else {
            return Ok((Order::Weak, Scope::Cta));
        };
        let scope = self.scope().ok_or_else(|| self.needs("a scope"))?;
        Ok((order, scope))
    }

    /// Takes the state space; `Generic` where none is named.
    pub(super) fn space(&mut self, params: bool) -> Space {
        let space = self.take_map(|modifier| match modifier {
            "global" => Some(Space::Global),
            "shared" | "shared::cta" => Some(Space::Shared),
            "local" => Some(Space::Local),
            "param" if params => Some(Space::Param),
            _ => None,
        });
        space.unwrap_or(Space::Generic)
    }

    /// The address operand of an access to `bytes` bytes in `space`.
    pub(super) fn addr(&mut self, raw: &Raw<'a>, space: Space, bytes: u32) -> Result<Addr, Refusal> {
        let Raw::Addr(base, offset) = raw else {
            return Err(Refusal::Operands("an address in brackets is expected".into()));
        };
        let (offset, raw) = (*offset, &**base);
        let base = match raw {
            Raw::Name(name) => match self.builder.lookup(name) {
                Some(Symbol::Reg(slot, ty)) if matches!(ty.bits, 32 | 64) => slot,
                Some(Symbol::Reg(..)) => return Err(Refusal::Operands(format!("`{name}` is no address"))),
                Some(symbol) => {
                    check_variable(name, symbol, space, offset, bytes)?;
                    self.builder.address_of(symbol, ADDRESS)?
                }
                None => return Err(Refusal::Undeclared((*name).to_owned())),
            },
            other => self.builder.src(other, ADDRESS)?,
        };
        Ok(Addr { space, base, offset })
    }
}

/// A variable is accessed in its own space (a global one generically as well), a parameter inside its bytes.
fn check_variable(name: &str, symbol: Symbol, space: Space, offset: i64, bytes: u32) -> Result<(), Refusal> {
    let fits = match symbol {
        Symbol::Global(_) => matches!(space, Space::Global | Space::Generic),
        Symbol::Shared(_) => space == Space::Shared,
        Symbol::Local(_) => space == Space::Local,
        Symbol::Param { bytes: size, .. } => {
            space == Space::Param && offset >= 0 && offset + i64::from(bytes) <= i64::from(size)
        }
        Symbol::Reg(..) => true,
    };
    if fits {
        Ok(())
    } else {
        Err(Refusal::Operands(format!("`{name}` has no {bytes} bytes at {offset} in {space:?} space")))
    }
}

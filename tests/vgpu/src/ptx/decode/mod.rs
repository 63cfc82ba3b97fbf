//! Instructions: opcode, modifiers and operands -> typed operations. One file a family.

mod asynchronous;
mod atomic;
mod control;
mod convert;
mod float;
mod integer;
mod memory;
mod moves;
pub(super) mod special;
mod warp;

use super::builder::Builder;
use super::error::Refusal;
use super::operand::Raw;
use super::program::Slot;
use super::types::{Scope, Type};

/// An instruction as it is written.
pub(super) struct Instruction<'a> {
    opcode: &'a str,
    modifiers: Vec<&'a str>,
    operands: Vec<Raw<'a>>,
}

impl<'a> Instruction<'a> {
    pub(super) fn new(opcode: &'a str, modifiers: Vec<&'a str>, operands: Vec<Raw<'a>>) -> Self {
        Self { opcode, modifiers, operands }
    }

    /// The label of a `bra`.
    pub(super) fn branch_label(&self) -> Result<&'a str, Refusal> {
        if let Some(modifier) = self.modifiers.iter().find(|&&modifier| modifier != "uni") {
            return Err(modifier_refused(self.opcode, modifier));
        }
        match self.operands[..] {
            [Raw::Name(label)] => Ok(label),
            _ => Err(Refusal::Operands("`bra` takes a label".into())),
        }
    }
}

fn modifier_refused(opcode: &str, modifier: &str) -> Refusal {
    Refusal::Modifier { opcode: opcode.to_owned(), modifier: modifier.to_owned() }
}

/// Decodes `instruction` and adds it to the function.
pub(super) fn decode(instruction: &Instruction<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let mut decoder = Decoder {
        opcode: instruction.opcode,
        modifiers: instruction.modifiers.clone(),
        operands: &instruction.operands,
        builder,
    };
    decoder.dispatch()?;
    decoder.all_taken()
}

/// An instruction while it is decoded: modifiers are taken one by one, and none may be left.
struct Decoder<'i, 'a, 'b, 's> {
    opcode: &'a str,
    modifiers: Vec<&'a str>,
    operands: &'i [Raw<'a>],
    builder: &'b mut Builder<'s>,
}

impl<'i, 'a> Decoder<'i, 'a, '_, '_> {
    fn dispatch(&mut self) -> Result<(), Refusal> {
        match self.opcode {
            "add" | "sub" | "mul" | "mad" | "fma" | "div" | "min" | "max" | "abs" | "neg" => {
                self.arithmetic()
            }
            "addc" | "subc" => self.carry(),
            "rem" | "shl" | "shr" => self.integer_binary(),
            "and" | "or" | "xor" | "not" | "cnot" => self.logic(),
            "clz" | "popc" | "brev" => self.counting(),
            "prmt" | "shf" | "bfe" | "bfi" | "lop3" => self.bit_fields(),
            "sqrt" | "rcp" => self.float_unary(),
            "mov" => self.mov(),
            "setp" => self.setp(),
            "selp" => self.selp(),
            "cvt" => self.cvt(),
            "cvta" => self.cvta(),
            "ld" | "st" => self.access(),
            "atom" | "red" => self.rmw(),
            "fence" | "membar" => self.fence(),
            "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "nanosleep" => self.control(),
            "bar" | "barrier" => self.bar(),
            "shfl" | "vote" | "activemask" => self.warp(),
            "mbarrier" => self.mbarrier(),
            "cp" => self.bulk(),
            other => Err(Refusal::Opcode(other.to_owned())),
        }
    }

    fn all_taken(&self) -> Result<(), Refusal> {
        match self.modifiers.first() {
            None => Ok(()),
            Some(modifier) => Err(modifier_refused(self.opcode, modifier)),
        }
    }

    /// Takes `modifier` if it is there.
    fn take(&mut self, modifier: &str) -> bool {
        let found = self.modifiers.iter().position(|&m| m == modifier);
        found.map(|at| self.modifiers.remove(at)).is_some()
    }

    /// Takes the first modifier that `parse` understands.
    fn take_map<T>(&mut self, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (at, value) = self.modifiers.iter().enumerate().find_map(|(at, m)| Some((at, parse(m)?)))?;
        self.modifiers.remove(at);
        Some(value)
    }

    /// Takes the scope.
    fn scope(&mut self) -> Option<Scope> {
        self.take_map(Scope::parse)
    }

    /// Takes the type at the end.
    fn ty(&mut self) -> Result<Type, Refusal> {
        let ty = self.modifiers.last().and_then(|modifier| Type::parse(modifier));
        let Some(ty) = ty else { return Err(self.needs("a type")) };
        self.modifiers.pop();
        Ok(ty)
    }

    fn needs(&self, needs: &'static str) -> Refusal {
        Refusal::MissingModifier { opcode: self.opcode.to_owned(), needs }
    }

    /// Refuses the type `ty` with this opcode.
    fn no_type(&self, ty: Type) -> Refusal {
        Refusal::Operands(format!(
            "`{}` at type {:?} of {} bits is not interpreted",
            self.opcode, ty.kind, ty.bits
        ))
    }

    /// The operands, which must be as many.
    fn take_operands<const N: usize>(&self) -> Result<&'i [Raw<'a>; N], Refusal> {
        let operands = self.operands;
        <&[Raw<'a>; N]>::try_from(operands)
            .map_err(|_| Refusal::Operands(format!("{} operands, {N} are expected", operands.len())))
    }

    /// Slots of a destination and two sources of type `ty`.
    fn binary(&mut self, ty: Type) -> Result<(Slot, Slot, Slot), Refusal> {
        let [d, a, b] = self.take_operands()?;
        Ok((self.builder.dst(d, ty)?, self.builder.src(a, ty)?, self.builder.src(b, ty)?))
    }

    /// Slots of a destination and a source of type `ty`.
    fn unary(&mut self, ty: Type) -> Result<(Slot, Slot), Refusal> {
        let [d, a] = self.take_operands()?;
        Ok((self.builder.dst(d, ty)?, self.builder.src(a, ty)?))
    }
}

//! `mbarrier` and `cp.async.bulk`.

use super::Decoder;
use crate::ptx::error::Refusal;
use crate::ptx::operand::Raw;
use crate::ptx::program::{Addr, Async};
use crate::ptx::types::{Kind, Scope, Space, Type};

const U32: Type = Type { kind: Kind::Unsigned, bits: 32 };
const B64: Type = Type { kind: Kind::Bits, bits: 64 };
/// Bytes of an `mbarrier`.
const BARRIER_BYTES: u32 = 8;

impl<'a> Decoder<'_, 'a, '_, '_> {
    /// The `mbarrier` operand.
    fn barrier(&mut self, raw: &Raw<'a>, space: Space) -> Result<Addr, Refusal> {
        self.addr(raw, space, BARRIER_BYTES)
    }

    /// `mbarrier.init`, `.inval`, `.arrive{.expect_tx}`, `.expect_tx`, `.try_wait.parity`, `.test_wait.parity`.
    pub(super) fn mbarrier(&mut self) -> Result<(), Refusal> {
        let space = self.space(false);
        if !matches!(space, Space::Shared | Space::Generic) {
            return Err(self.needs("shared memory"));
        }
        if self.take("try_wait") || self.take("test_wait") {
            return self.mbarrier_wait(space);
        }
        let arrives = self.take("arrive");
        let expects = self.take("expect_tx");
        if !arrives && expects {
            if !(self.take("relaxed") && matches!(self.scope(), Some(Scope::Cta | Scope::Cluster))) {
                return Err(self.needs("`.relaxed.cta`"));
            }
        } else if arrives && self.take("release") {
            self.scope().filter(|&scope| scope <= Scope::Cluster).ok_or_else(|| self.needs("`.cta`"))?;
        }
        let ty = self.ty()?;
        if ty != B64 {
            return Err(self.no_type(ty));
        }
        if arrives {
            return self.mbarrier_arrive(space, expects);
        }
        if expects {
            let [bar, bytes] = self.take_operands()?;
            let (bar, bytes) = (self.barrier(bar, space)?, self.builder.src(bytes, U32)?);
            return self.add_async(Async::Expect { bar, bytes });
        }
        if self.take("init") {
            let [bar, count] = self.take_operands()?;
            let (bar, count) = (self.barrier(bar, space)?, self.builder.src(count, U32)?);
            return self.add_async(Async::Init { bar, count });
        }
        if self.take("inval") {
            let [bar] = self.take_operands()?;
            let bar = self.barrier(bar, space)?;
            return self.add_async(Async::Inval { bar });
        }
        Err(self.needs("an operation that is interpreted"))
    }

    fn mbarrier_arrive(&mut self, space: Space, expects: bool) -> Result<(), Refusal> {
        let (d, bar, last) = match self.operands {
            [d, bar] if !expects => (d, bar, None),
            [d, bar, last] => (d, bar, Some(last)),
            _ => return Err(Refusal::Operands("a state, a barrier and a count are expected".into())),
        };
        let dst = match d {
            Raw::Name("_") => None,
            d => Some(self.builder.dst(d, B64)?),
        };
        let bar = self.barrier(bar, space)?;
        let one = self.builder.literal(1)?;
        let last = last.map(|last| self.builder.src(last, U32)).transpose()?;
        let (count, expect) = if expects { (one, last) } else { (last.unwrap_or(one), None) };
        self.add_async(Async::Arrive { bar, dst, count, expect })
    }

    /// Behind `try_wait` or `test_wait`. The limit of the suspension is a hint.
    fn mbarrier_wait(&mut self, space: Space) -> Result<(), Refusal> {
        if !self.take("parity") {
            return Err(self.needs("`.parity`"));
        }
        if self.take("acquire") {
            self.scope().filter(|&scope| scope <= Scope::Cluster).ok_or_else(|| self.needs("`.cta`"))?;
        }
        let ty = self.ty()?;
        if ty != B64 {
            return Err(self.no_type(ty));
        }
        let (d, bar, parity) = match self.operands {
            [d, bar, parity] => (d, bar, parity),
            [d, bar, parity, hint] => {
                self.builder.src(hint, U32)?;
                (d, bar, parity)
            }
            _ => return Err(Refusal::Operands("a predicate, a barrier and a parity are expected".into())),
        };
        let dst = self.builder.dst(d, Type::PRED)?;
        let (bar, parity) = (self.barrier(bar, space)?, self.builder.src(parity, U32)?);
        self.add_async(Async::TryWait { bar, dst, parity })
    }

    /// `cp.async.bulk`: copies both ways, `commit_group`, `wait_group`.
    pub(super) fn bulk(&mut self) -> Result<(), Refusal> {
        if !(self.take("async") && self.take("bulk")) {
            return Err(self.needs("`.async.bulk`"));
        }
        if self.take("commit_group") {
            let [] = self.take_operands()?;
            return self.add_async(Async::Commit);
        }
        if self.take("wait_group") {
            let read = self.take("read");
            let [pending] = self.take_operands()?;
            let Raw::Int(pending) = pending else {
                return Err(Refusal::Operands("the number of groups is a literal".into()));
            };
            let pending = u32::try_from(*pending).map_err(|_| Refusal::TooLarge(pending.to_string()))?;
            return self.add_async(Async::Wait { pending, read });
        }
        // The destination's space comes first.
        match self.modifiers[..] {
            ["shared::cluster" | "shared::cta", "global", "mbarrier::complete_tx::bytes"] => {
                self.modifiers.clear();
                let [dst, src, bytes, bar] = self.take_operands()?;
                let (dst, src) = (self.addr(dst, Space::Shared, 16)?, self.addr(src, Space::Global, 16)?);
                let (bytes, bar) = (self.builder.src(bytes, U32)?, self.barrier(bar, Space::Shared)?);
                self.add_async(Async::Load { dst, src, bytes, bar })
            }
            ["global", "shared::cta", "bulk_group"] => {
                self.modifiers.clear();
                let [dst, src, bytes] = self.take_operands()?;
                let (dst, src) = (self.addr(dst, Space::Global, 16)?, self.addr(src, Space::Shared, 16)?);
                let bytes = self.builder.src(bytes, U32)?;
                self.add_async(Async::Store { dst, src, bytes })
            }
            _ => Err(self.needs("a direction that is interpreted")),
        }
    }
}

//! Read-modify-writes and fences.

use super::Decoder;
use crate::ptx::error::Refusal;
use crate::ptx::operation::RmwOp;
use crate::ptx::program::{Async, Op, Rmw};
use crate::ptx::types::{Kind, RmwOrder, Scope, Space, Type};

impl Decoder<'_, '_, '_, '_> {
    /// `atom` and `red`.
    pub(super) fn rmw(&mut self) -> Result<(), Refusal> {
        let ty = self.ty()?;
        let order = self.take_map(|modifier| match modifier {
            "relaxed" => Some(RmwOrder::Relaxed),
            "acquire" => Some(RmwOrder::Acquire),
            "release" => Some(RmwOrder::Release),
            "acq_rel" => Some(RmwOrder::AcqRel),
            _ => None,
        });
        let scope = self.scope().unwrap_or(Scope::Gpu);
        let space = self.space(false);
        if space == Space::Local {
            return Err(super::modifier_refused(self.opcode, "local"));
        }
        let returns = self.opcode == "atom";
        let op = self.take_map(|modifier| operation(modifier, ty, returns));
        let Some(op) = op else { return Err(self.needs("an operation of this type")) };
        let operands = self.operands;
        let (d, rest) = match operands {
            [d, rest @ ..] if returns => (Some(d), rest),
            rest => (None, rest),
        };
        let (addr, b, c) = match (rest, op) {
            ([addr, b], _) if op != RmwOp::Cas => (addr, b, None),
            ([addr, b, c], RmwOp::Cas) => (addr, b, Some(c)),
            _ => return Err(Refusal::Operands("too many or too few".into())),
        };
        let addr = self.addr(addr, space, u32::from(ty.bytes()))?;
        let b = self.builder.src(b, ty)?;
        let c = c.map(|c| self.builder.src(c, ty)).transpose()?.unwrap_or(b);
        let dst = d.map(|d| self.builder.dst(d, ty)).transpose()?;
        let order = order.unwrap_or(RmwOrder::Relaxed);
        let rmws = &mut self.builder.state.program.rmws;
        let rmw = rmws.len() as u32;
        rmws.push(Rmw { addr, op, order, scope, bytes: ty.bytes(), dst, b, c });
        self.builder.emit(Op::Rmw { rmw });
        Ok(())
    }

    /// `fence` and `membar`.
    pub(super) fn fence(&mut self) -> Result<(), Refusal> {
        if !self.operands.is_empty() {
            return Err(Refusal::Operands("a fence has none".into()));
        }
        if self.opcode == "membar" {
            let scope = self.take_map(|modifier| match modifier {
                "gl" => Some(Scope::Gpu),
                "cta" | "sys" => Scope::parse(modifier),
                _ => None,
            });
            let scope = scope.ok_or_else(|| self.needs("a scope"))?;
            self.builder.emit(Op::Fence { sc: true, scope });
            return Ok(());
        }
        if self.take("proxy") {
            if !self.take("async") {
                return Err(self.needs("`.async`: other proxies are not interpreted"));
            }
            // The narrower forms fence one space only; this fences all, so they are refused by what is left.
            return self.add_async(Async::Fence);
        }
        if self.take("mbarrier_init") {
            if !(self.take("release") && self.take("cluster")) {
                return Err(self.needs("`.release.cluster`"));
            }
            self.builder.emit(Op::Nop);
            return Ok(());
        }
        let sc = self.take("sc");
        if !sc {
            // Without a word it is `.acq_rel`.
            self.take("acq_rel");
        }
        let scope = self.scope().ok_or_else(|| self.needs("a scope"))?;
        self.builder.emit(Op::Fence { sc, scope });
        Ok(())
    }

    /// Adds an asynchronous operation.
    pub(super) fn add_async(&mut self, operation: Async) -> Result<(), Refusal> {
        let asyncs = &mut self.builder.state.program.asyncs;
        let index = asyncs.len() as u32;
        asyncs.push(operation);
        self.builder.emit(Op::Async { index });
        Ok(())
    }
}

/// The operation called `name` at type `ty`.
fn operation(name: &str, ty: Type, returns: bool) -> Option<RmwOp> {
    if ty.bits < 32 || ty.is_float() {
        return None;
    }
    let (bits, unsigned, signed) =
        (ty.kind == Kind::Bits, ty.kind == Kind::Unsigned, ty.kind == Kind::Signed);
    let word = ty.bits == 32;
    match name {
        "and" if bits => Some(RmwOp::And),
        "or" if bits => Some(RmwOp::Or),
        "xor" if bits => Some(RmwOp::Xor),
        "exch" if bits && returns => Some(RmwOp::Exch),
        "cas" if bits && returns => Some(RmwOp::Cas),
        "add" if unsigned || (signed && word) => Some(RmwOp::Add),
        "inc" if unsigned && word => Some(RmwOp::Inc),
        "dec" if unsigned && word => Some(RmwOp::Dec),
        "min" if unsigned => Some(RmwOp::MinU),
        "min" if signed => Some(RmwOp::MinS),
        "max" if unsigned => Some(RmwOp::MaxU),
        "max" if signed => Some(RmwOp::MaxS),
        _ => None,
    }
}

//! What the lanes of a warp do together.

use super::Decoder;
use crate::ptx::error::Refusal;
use crate::ptx::operand::Raw;
use crate::ptx::operation::WarpOp;
use crate::ptx::program::{Op, Warp};
use crate::ptx::types::{Kind, Type};

const U32: Type = Type { kind: Kind::Unsigned, bits: 32 };

impl Decoder<'_, '_, '_, '_> {
    /// `shfl.sync`, `vote.sync`, `activemask`.
    pub(super) fn warp(&mut self) -> Result<(), Refusal> {
        let ty = self.ty()?;
        if self.opcode == "activemask" {
            if ty.kind != Kind::Bits || ty.bits != 32 {
                return Err(self.no_type(ty));
            }
            let [d] = self.take_operands()?;
            let d = self.builder.dst(d, ty)?;
            self.builder.emit(Op::ActiveMask { d });
            return Ok(());
        }
        if !self.take("sync") {
            return Err(self.needs("`.sync`"));
        }
        if self.opcode == "vote" { self.vote(ty) } else { self.shfl(ty) }
    }

    fn shfl(&mut self, ty: Type) -> Result<(), Refusal> {
        if ty.kind != Kind::Bits || ty.bits != 32 {
            return Err(self.no_type(ty));
        }
        let op = self.take_map(|modifier| match modifier {
            "up" => Some(WarpOp::ShflUp),
            "down" => Some(WarpOp::ShflDown),
            "bfly" => Some(WarpOp::ShflBfly),
            "idx" => Some(WarpOp::ShflIdx),
            _ => None,
        });
        let Some(op) = op else { return Err(self.needs("one of `.up`, `.down`, `.bfly`, `.idx`")) };
        let [d, a, b, c, mask] = self.take_operands()?;
        let (d, p) = match d {
            Raw::Pair(d, p) => (Raw::Name(d), Some(self.builder.dst(&Raw::Name(p), Type::PRED)?)),
            other => (other.clone(), None),
        };
        let dst = Some(self.builder.dst(&d, ty)?);
        let (a, b) = (self.builder.src(a, ty)?, self.builder.src(b, U32)?);
        let (c, mask) = (self.builder.src(c, U32)?, self.builder.src(mask, U32)?);
        self.add_warp(Warp { op, dst, in_range: p, a, negate: false, b, c, mask })
    }

    fn vote(&mut self, ty: Type) -> Result<(), Refusal> {
        let op = self.take_map(|modifier| match modifier {
            "all" => Some(WarpOp::VoteAll),
            "any" => Some(WarpOp::VoteAny),
            "uni" => Some(WarpOp::VoteUni),
            "ballot" => Some(WarpOp::VoteBallot),
            _ => None,
        });
        let result =
            if op == Some(WarpOp::VoteBallot) { Type { kind: Kind::Bits, bits: 32 } } else { Type::PRED };
        let Some(op) = op.filter(|_| ty == result) else { return Err(self.no_type(ty)) };
        let [d, a, mask] = self.take_operands()?;
        let (a, negate) = match a {
            Raw::Not(name) => (Raw::Name(name), true),
            other => (other.clone(), false),
        };
        let dst = Some(self.builder.dst(d, ty)?);
        let (a, mask) = (self.builder.src(&a, Type::PRED)?, self.builder.src(mask, U32)?);
        self.add_warp(Warp { op, dst, in_range: None, a, negate, b: a, c: a, mask })
    }

    /// `bar.warp.sync mask`.
    pub(super) fn bar_warp(&mut self) -> Result<(), Refusal> {
        if !self.take("sync") {
            return Err(self.needs("`.sync`"));
        }
        let [mask] = self.take_operands()?;
        let mask = self.builder.src(mask, U32)?;
        let op = WarpOp::Sync;
        self.add_warp(Warp { op, dst: None, in_range: None, a: mask, negate: false, b: mask, c: mask, mask })
    }

    fn add_warp(&mut self, instruction: Warp) -> Result<(), Refusal> {
        let warps = &mut self.builder.state.program.warps;
        let warp = warps.len() as u32;
        warps.push(instruction);
        self.builder.emit(Op::Warp { warp });
        Ok(())
    }
}

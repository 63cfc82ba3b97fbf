//! Moves, comparisons, selections, address conversions.

use super::{Decoder, special};
use crate::ptx::error::Refusal;
use crate::ptx::operand::Raw;
use crate::ptx::operation::{BinOp, Cmp, Comparison, UnOp};
use crate::ptx::program::Op;
use crate::ptx::types::{Kind, Space, Type};

impl<'a> Decoder<'_, 'a, '_, '_> {
    pub(super) fn mov(&mut self) -> Result<(), Refusal> {
        let ty = self.ty()?;
        match self.take_operands()? {
            [Raw::Vector(parts), a] => self.unpack(ty, parts, a),
            [d, Raw::Vector(parts)] => self.pack(ty, d, parts),
            [d, Raw::Name(name)] if special::clock(name).is_some() => {
                let d = self.builder.dst(d, ty)?;
                match special::clock(name) {
                    Some((clock, bits)) if bits == ty.bits => self.builder.emit(Op::Clock { clock, d }),
                    _ => return Err(self.no_type(ty)),
                }
                Ok(())
            }
            [d, a] => {
                let (d, a) = (self.builder.dst(d, ty)?, self.builder.src(a, ty)?);
                self.builder.emit(Op::Mov { d, a });
                Ok(())
            }
        }
    }

    fn part(&self, ty: Type, parts: usize) -> Result<Type, Refusal> {
        let bits = ty.bits / parts.max(1) as u8;
        if ty.kind != Kind::Bits || !matches!(parts, 2 | 4) || bits < 8 {
            return Err(self.no_type(ty));
        }
        Ok(Type { kind: Kind::Bits, bits })
    }

    fn unpack(&mut self, ty: Type, parts: &[Raw<'a>], a: &Raw<'a>) -> Result<(), Refusal> {
        let part = self.part(ty, parts.len())?;
        // A part may be the source's own register: the source is read from a copy.
        let whole = self.builder.scratch()?;
        let a = self.builder.src(a, ty)?;
        self.builder.emit(Op::Mov { d: whole, a });
        for (index, d) in parts.iter().enumerate() {
            let d = self.builder.dst(d, part)?;
            self.builder.emit(Op::Extract { from: index as u8 * part.bits, bits: part.bits, d, a: whole });
        }
        Ok(())
    }

    fn pack(&mut self, ty: Type, d: &Raw<'a>, parts: &[Raw<'a>]) -> Result<(), Refusal> {
        let part = self.part(ty, parts.len())?;
        let whole = self.builder.scratch()?;
        let zero = self.builder.literal(0)?;
        self.builder.emit(Op::Mov { d: whole, a: zero });
        for (index, a) in parts.iter().enumerate() {
            let a = self.builder.src(a, part)?;
            self.builder.emit(Op::Insert { to: index as u8 * part.bits, bits: part.bits, d: whole, a });
        }
        let d = self.builder.dst(d, ty)?;
        self.builder.emit(Op::Mov { d, a: whole });
        Ok(())
    }

    /// `setp.cmp{.bool}.type p{|q}, a, b{, {!}c}`.
    pub(super) fn setp(&mut self) -> Result<(), Refusal> {
        let ty = self.ty()?;
        if ty.kind == Kind::Pred || ty.bits < 16 {
            return Err(self.no_type(ty));
        }
        let Some(comparison) = self.take_map(|modifier| comparison(modifier, ty)) else {
            return Err(self.needs("a comparison of this type"));
        };
        let combine = match (self.take("and"), self.take("or"), self.take("xor")) {
            (false, false, false) => None,
            (true, false, false) => Some(BinOp::And),
            (false, true, false) => Some(BinOp::Or),
            _ => Some(BinOp::Xor),
        };
        let (d, a, b, c) = match (self.operands, combine) {
            ([d, a, b], None) => (d, a, b, None),
            ([d, a, b, c], Some(combine)) => (d, a, b, Some((combine, c))),
            _ => return Err(Refusal::Operands("`setp` compares two".into())),
        };
        let (p, q) = match d {
            Raw::Pair(p, q) => (Raw::Name(p), Some(Raw::Name(q))),
            other => (other.clone(), None),
        };
        let (a, b) = (self.builder.src(a, ty)?, self.builder.src(b, ty)?);
        let p = self.builder.dst(&p, Type::PRED)?;
        let truth = self.builder.scratch()?;
        if q.is_none() && c.is_none() {
            self.builder.emit(Op::Setp { comparison, d: p, a, b });
            return Ok(());
        }
        self.builder.emit(Op::Setp { comparison, d: truth, a, b });
        let falsity = self.builder.scratch()?;
        self.builder.emit(Op::Un { op: UnOp::Not, bits: 1, d: falsity, a: truth });
        if let Some((op, c)) = c {
            let c = self.predicate(c)?;
            self.builder.emit(Op::Bin { op, bits: 1, d: truth, a: truth, b: c });
            self.builder.emit(Op::Bin { op, bits: 1, d: falsity, a: falsity, b: c });
        }
        self.builder.emit(Op::Mov { d: p, a: truth });
        if let Some(q) = q {
            let q = self.builder.dst(&q, Type::PRED)?;
            self.builder.emit(Op::Mov { d: q, a: falsity });
        }
        Ok(())
    }

    /// The slot of `%p` or `!%p`.
    fn predicate(&mut self, raw: &Raw<'a>) -> Result<u16, Refusal> {
        let Raw::Not(name) = raw else { return self.builder.src(raw, Type::PRED) };
        let a = self.builder.src(&Raw::Name(name), Type::PRED)?;
        let d = self.builder.scratch()?;
        self.builder.emit(Op::Un { op: UnOp::Not, bits: 1, d, a });
        Ok(d)
    }

    pub(super) fn selp(&mut self) -> Result<(), Refusal> {
        let ty = self.ty()?;
        if ty.bits < 16 {
            return Err(self.no_type(ty));
        }
        let [d, a, b, p] = self.take_operands()?;
        let (d, a, b) = (self.builder.dst(d, ty)?, self.builder.src(a, ty)?, self.builder.src(b, ty)?);
        let p = self.builder.src(p, Type::PRED)?;
        self.builder.emit(Op::Selp { d, a, b, p });
        Ok(())
    }

    /// `cvta.space.u64` to generic, `cvta.to.space.u64` from generic.
    pub(super) fn cvta(&mut self) -> Result<(), Refusal> {
        let ty = self.ty()?;
        if ty.kind != Kind::Unsigned || ty.bits != 64 {
            return Err(self.no_type(ty));
        }
        let from_generic = self.take("to");
        let space = self.take_map(|modifier| match modifier {
            "global" => Some(Space::Global),
            "shared" | "shared::cta" => Some(Space::Shared),
            "local" => Some(Space::Local),
            "param" => Some(Space::Param),
            _ => None,
        });
        let Some(space) = space else { return Err(self.needs("a state space")) };
        let (d, a) = self.unary(ty)?;
        self.builder.emit(match from_generic {
            true => Op::FromGeneric { space, d, a },
            false => Op::ToGeneric { space, d, a },
        });
        Ok(())
    }
}

/// The comparison called `name` for operands of type `ty`.
fn comparison(name: &str, ty: Type) -> Option<Comparison> {
    let signed = |cmp| (ty.kind != Kind::Bits).then_some((cmp, false));
    let unsigned = |cmp| (ty.kind == Kind::Unsigned).then_some((cmp, false));
    let unordered = |cmp| ty.is_float().then_some((cmp, true));
    let (cmp, unordered) = match name {
        "eq" => Some((Cmp::Eq, false)),
        "ne" => Some((Cmp::Ne, false)),
        "lt" => signed(Cmp::Lt),
        "le" => signed(Cmp::Le),
        "gt" => signed(Cmp::Gt),
        "ge" => signed(Cmp::Ge),
        "lo" => unsigned(Cmp::Lt),
        "ls" => unsigned(Cmp::Le),
        "hi" => unsigned(Cmp::Gt),
        "hs" => unsigned(Cmp::Ge),
        "equ" => unordered(Cmp::Eq),
        "neu" => unordered(Cmp::Ne),
        "ltu" => unordered(Cmp::Lt),
        "leu" => unordered(Cmp::Le),
        "gtu" => unordered(Cmp::Gt),
        "geu" => unordered(Cmp::Ge),
        "num" => ty.is_float().then_some((Cmp::Num, false)),
        "nan" => ty.is_float().then_some((Cmp::Nan, false)),
        _ => None,
    }?;
    Some(Comparison { cmp, unordered, ty })
}

//! Floating-point arithmetic: round to nearest even only; nothing approximate.

use super::Decoder;
use crate::ptx::error::Refusal;
use crate::ptx::operation::{FloatOp, FloatUnOp};
use crate::ptx::program::Op;
use crate::ptx::types::Type;

impl Decoder<'_, '_, '_, '_> {
    /// `add` to `neg` at a float type, which was taken.
    pub(super) fn float_arithmetic(&mut self, ty: Type) -> Result<(), Refusal> {
        let nan = matches!(self.opcode, "min" | "max") && self.take("NaN");
        let op = match self.opcode {
            "fma" => return self.fma(ty),
            // At f32 and f64 `mad` is `fma`.
            "mad" => return self.fma(ty),
            "abs" => return self.emit_float_unary(FloatUnOp::Abs, ty),
            "neg" => return self.emit_float_unary(FloatUnOp::Neg, ty),
            "add" => FloatOp::Add,
            "sub" => FloatOp::Sub,
            "mul" => FloatOp::Mul,
            "div" => FloatOp::Div,
            "min" if nan => FloatOp::MinNan,
            "min" => FloatOp::Min,
            "max" if nan => FloatOp::MaxNan,
            _ => FloatOp::Max,
        };
        match op {
            // Without `.rn` a division is approximate.
            FloatOp::Div if !self.take("rn") => return Err(self.needs("`.rn`")),
            FloatOp::Add | FloatOp::Sub | FloatOp::Mul => drop(self.take("rn")),
            _ => {}
        }
        let (d, a, b) = self.binary(ty)?;
        self.builder.emit(Op::Float { op, bits: ty.bits, d, a, b });
        Ok(())
    }

    fn fma(&mut self, ty: Type) -> Result<(), Refusal> {
        if !self.take("rn") {
            return Err(self.needs("`.rn`"));
        }
        let [d, a, b, c] = self.take_operands()?;
        let (d, a) = (self.builder.dst(d, ty)?, self.builder.src(a, ty)?);
        let (b, c) = (self.builder.src(b, ty)?, self.builder.src(c, ty)?);
        self.builder.emit(Op::Fma { bits: ty.bits, d, a, b, c });
        Ok(())
    }

    fn emit_float_unary(&mut self, op: FloatUnOp, ty: Type) -> Result<(), Refusal> {
        let (d, a) = self.unary(ty)?;
        self.builder.emit(Op::FloatUn { op, bits: ty.bits, d, a });
        Ok(())
    }

    /// `sqrt.rn`, `rcp.rn`.
    pub(super) fn float_unary(&mut self) -> Result<(), Refusal> {
        let ty = self.ty()?;
        if !ty.is_float() {
            return Err(self.no_type(ty));
        }
        if !self.take("rn") {
            return Err(self.needs("`.rn`"));
        }
        let op = if self.opcode == "sqrt" { FloatUnOp::Sqrt } else { FloatUnOp::Rcp };
        self.emit_float_unary(op, ty)
    }
}

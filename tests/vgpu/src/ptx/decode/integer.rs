//! Integer arithmetic, logic and bit fields.

use super::Decoder;
use crate::ptx::error::Refusal;
use crate::ptx::operand::Raw;
use crate::ptx::operation::{BinOp, TerOp, UnOp};
use crate::ptx::program::Op;
use crate::ptx::types::{Kind, Type};

const U32: Type = Type { kind: Kind::Unsigned, bits: 32 };

impl Decoder<'_, '_, '_, '_> {
    /// What exists for integers and floats.
    pub(super) fn arithmetic(&mut self) -> Result<(), Refusal> {
        let ty = self.ty()?;
        if ty.is_float() {
            return self.float_arithmetic(ty);
        }
        if !matches!(ty.kind, Kind::Signed | Kind::Unsigned) || ty.bits < 16 {
            return Err(self.no_type(ty));
        }
        let signed = ty.is_signed();
        if matches!(self.opcode, "add" | "sub") && self.take("cc") {
            return self.carry_chain(ty, self.opcode == "sub", false, true);
        }
        let op = match self.opcode {
            "add" => BinOp::Add,
            "sub" => BinOp::Sub,
            "div" if signed => BinOp::DivS,
            "div" => BinOp::DivU,
            "min" if signed => BinOp::MinS,
            "min" => BinOp::MinU,
            "max" if signed => BinOp::MaxS,
            "max" => BinOp::MaxU,
            "mul" | "mad" => return self.product(ty),
            "abs" if signed => return self.integer_unary(UnOp::Abs, ty),
            "neg" if signed => return self.integer_unary(UnOp::Neg, ty),
            _ => return Err(self.no_type(ty)),
        };
        self.emit_binary(op, ty)
    }

    fn emit_binary(&mut self, op: BinOp, ty: Type) -> Result<(), Refusal> {
        let (d, a, b) = self.binary(ty)?;
        self.builder.emit(Op::Bin { op, bits: ty.bits, d, a, b });
        Ok(())
    }

    fn integer_unary(&mut self, op: UnOp, ty: Type) -> Result<(), Refusal> {
        let (d, a) = self.unary(ty)?;
        self.builder.emit(Op::Un { op, bits: ty.bits, d, a });
        Ok(())
    }

    /// `mul` and `mad`.
    fn product(&mut self, ty: Type) -> Result<(), Refusal> {
        let wide = self.take("wide");
        let signed = ty.is_signed();
        let op = match (wide, self.take("hi"), self.take("lo")) {
            (true, false, false) if ty.bits < 64 && signed => BinOp::MulWideS,
            (true, false, false) if ty.bits < 64 => BinOp::MulWideU,
            (false, true, false) if signed => BinOp::MulHiS,
            (false, true, false) => BinOp::MulHiU,
            (false, false, true) => BinOp::MulLo,
            _ => return Err(self.needs("one of `.lo`, `.hi`, `.wide`")),
        };
        let result = if wide { Type { bits: ty.bits * 2, ..ty } } else { ty };
        if self.opcode == "mad" {
            let [d, a, b, c] = self.take_operands()?;
            let (a, b) = (self.builder.src(a, ty)?, self.builder.src(b, ty)?);
            let (c, d) = (self.builder.src(c, result)?, self.builder.dst(d, result)?);
            self.builder.emit(Op::Ter { op: TerOp::Mad(op), bits: ty.bits, d, a, b, c });
            return Ok(());
        }
        let [d, a, b] = self.take_operands()?;
        let (a, b) = (self.builder.src(a, ty)?, self.builder.src(b, ty)?);
        let d = self.builder.dst(d, result)?;
        self.builder.emit(Op::Bin { op, bits: ty.bits, d, a, b });
        Ok(())
    }

    /// `addc`, `subc`.
    pub(super) fn carry(&mut self) -> Result<(), Refusal> {
        let ty = self.ty()?;
        let writes = self.take("cc");
        self.carry_chain(ty, self.opcode == "subc", true, writes)
    }

    fn carry_chain(&mut self, ty: Type, subtract: bool, reads: bool, writes: bool) -> Result<(), Refusal> {
        if !matches!(ty.kind, Kind::Signed | Kind::Unsigned) || ty.bits < 32 {
            return Err(self.no_type(ty));
        }
        let (d, a, b) = self.binary(ty)?;
        self.builder.emit(Op::Carry { subtract, reads, writes, bits: ty.bits, d, a, b });
        Ok(())
    }

    /// `rem`, `shl`, `shr`.
    pub(super) fn integer_binary(&mut self) -> Result<(), Refusal> {
        let ty = self.ty()?;
        if !ty.is_int() || ty.bits < 16 {
            return Err(self.no_type(ty));
        }
        let op = match (self.opcode, ty.kind) {
            ("rem", Kind::Signed) => BinOp::RemS,
            ("rem", Kind::Unsigned) => BinOp::RemU,
            ("shl", Kind::Bits) => BinOp::Shl,
            ("shr", Kind::Signed) => BinOp::ShrS,
            ("shr", _) => BinOp::ShrU,
            _ => return Err(self.no_type(ty)),
        };
        if self.opcode == "rem" {
            return self.emit_binary(op, ty);
        }
        let [d, a, b] = self.take_operands()?;
        let (d, a) = (self.builder.dst(d, ty)?, self.builder.src(a, ty)?);
        // The amount is a u32 whatever the type.
        let b = self.builder.src(b, U32)?;
        self.builder.emit(Op::Bin { op, bits: ty.bits, d, a, b });
        Ok(())
    }

    /// `and`, `or`, `xor`, `not`, `cnot`.
    pub(super) fn logic(&mut self) -> Result<(), Refusal> {
        let ty = self.ty()?;
        let word = ty.kind == Kind::Bits && ty.bits >= 16;
        let fits = word || (ty == Type::PRED && self.opcode != "cnot");
        if !fits {
            return Err(self.no_type(ty));
        }
        match self.opcode {
            "and" => self.emit_binary(BinOp::And, ty),
            "or" => self.emit_binary(BinOp::Or, ty),
            "xor" => self.emit_binary(BinOp::Xor, ty),
            "not" => self.integer_unary(UnOp::Not, ty),
            _ => self.integer_unary(UnOp::Cnot, ty),
        }
    }

    /// `clz`, `popc`, `brev`.
    pub(super) fn counting(&mut self) -> Result<(), Refusal> {
        let ty = self.ty()?;
        if ty.kind != Kind::Bits || ty.bits < 32 {
            return Err(self.no_type(ty));
        }
        let op = match self.opcode {
            "clz" => UnOp::Clz,
            "popc" => UnOp::Popc,
            _ => return self.integer_unary(UnOp::Brev, ty),
        };
        let [d, a] = self.take_operands()?;
        let (d, a) = (self.builder.dst(d, U32)?, self.builder.src(a, ty)?);
        self.builder.emit(Op::Un { op, bits: ty.bits, d, a });
        Ok(())
    }

    /// `prmt`, `shf`, `bfe`, `bfi`, `lop3`.
    pub(super) fn bit_fields(&mut self) -> Result<(), Refusal> {
        let ty = self.ty()?;
        match self.opcode {
            "bfi" => return self.bfi(ty),
            "lop3" => return self.lop3(ty),
            "bfe" => return self.bfe(ty),
            _ => {}
        }
        if ty.kind != Kind::Bits || ty.bits != 32 {
            return Err(self.no_type(ty));
        }
        let op = if self.opcode == "prmt" {
            TerOp::Prmt
        } else {
            let left = self.take("l");
            if !left && !self.take("r") {
                return Err(self.needs("`.l` or `.r`"));
            }
            let wrap = self.take("wrap");
            if !wrap && !self.take("clamp") {
                return Err(self.needs("`.wrap` or `.clamp`"));
            }
            match (left, wrap) {
                (true, true) => TerOp::ShfLeftWrap,
                (true, false) => TerOp::ShfLeftClamp,
                (false, true) => TerOp::ShfRightWrap,
                (false, false) => TerOp::ShfRightClamp,
            }
        };
        let [d, a, b, c] = self.take_operands()?;
        let (d, a) = (self.builder.dst(d, ty)?, self.builder.src(a, ty)?);
        let (b, c) = (self.builder.src(b, ty)?, self.builder.src(c, U32)?);
        self.builder.emit(Op::Ter { op, bits: 32, d, a, b, c });
        Ok(())
    }

    fn bfe(&mut self, ty: Type) -> Result<(), Refusal> {
        let op = match ty.kind {
            Kind::Signed if ty.bits >= 32 => TerOp::BfeS,
            Kind::Unsigned if ty.bits >= 32 => TerOp::BfeU,
            _ => return Err(self.no_type(ty)),
        };
        let [d, a, b, c] = self.take_operands()?;
        let (d, a) = (self.builder.dst(d, ty)?, self.builder.src(a, ty)?);
        let (b, c) = (self.builder.src(b, U32)?, self.builder.src(c, U32)?);
        self.builder.emit(Op::Ter { op, bits: ty.bits, d, a, b, c });
        Ok(())
    }

    fn bfi(&mut self, ty: Type) -> Result<(), Refusal> {
        if ty.kind != Kind::Bits || ty.bits < 32 {
            return Err(self.no_type(ty));
        }
        let [d, a, b, c, e] = self.take_operands()?;
        let (d, a, b) = (self.builder.dst(d, ty)?, self.builder.src(a, ty)?, self.builder.src(b, ty)?);
        let (c, e) = (self.builder.src(c, U32)?, self.builder.src(e, U32)?);
        self.builder.emit(Op::Bfi { bits: ty.bits, d, a, b, c, e });
        Ok(())
    }

    fn lop3(&mut self, ty: Type) -> Result<(), Refusal> {
        if ty.kind != Kind::Bits || ty.bits != 32 {
            return Err(self.no_type(ty));
        }
        let [d, a, b, c, table] = self.take_operands()?;
        let Raw::Int(table) = table else { return Err(Refusal::Operands("the table is a literal".into())) };
        let table = u8::try_from(*table).map_err(|_| Refusal::TooLarge(table.to_string()))?;
        let (d, a) = (self.builder.dst(d, ty)?, self.builder.src(a, ty)?);
        let (b, c) = (self.builder.src(b, ty)?, self.builder.src(c, ty)?);
        self.builder.emit(Op::Lop3 { table, d, a, b, c });
        Ok(())
    }
}

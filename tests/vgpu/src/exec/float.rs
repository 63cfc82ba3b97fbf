//! Floating-point operations: round to nearest even, denormals kept, one NaN.

use std::cmp::Ordering;

use crate::ptx::operation::{Cmp, Comparison, FloatOp, FloatUnOp};

use super::integer;

/// The NaN that operations at f32 return.
const NAN32: u32 = 0x7FFF_FFFF;
/// The NaN that operations at f64 return.
const NAN64: u64 = 0x7FF8_0000_0000_0000;

/// The bits of an f32 result.
pub(crate) fn bits32(value: f32) -> u64 {
    u64::from(if value.is_nan() { NAN32 } else { value.to_bits() })
}

/// The bits of an f64 result.
pub(crate) fn bits64(value: f64) -> u64 {
    if value.is_nan() { NAN64 } else { value.to_bits() }
}

/// An f32 operand.
pub(crate) fn f32_of(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

macro_rules! operations {
    ($float:ty, $binary:ident, $unary:ident) => {
        fn $binary(op: FloatOp, a: $float, b: $float) -> $float {
            // Of two zeros the negative one is smaller. A NaN loses against a number.
            let smaller = |a: $float, b: $float| match a.partial_cmp(&b) {
                Some(Ordering::Less) => a,
                Some(Ordering::Greater) => b,
                Some(Ordering::Equal) => {
                    if a.is_sign_negative() {
                        a
                    } else {
                        b
                    }
                }
                None => {
                    if a.is_nan() {
                        b
                    } else {
                        a
                    }
                }
            };
            match op {
                FloatOp::Add => a + b,
                FloatOp::Sub => a - b,
                FloatOp::Mul => a * b,
                FloatOp::Div => a / b,
                FloatOp::MinNan | FloatOp::MaxNan if a.is_nan() || b.is_nan() => <$float>::NAN,
                FloatOp::Min | FloatOp::MinNan => smaller(a, b),
                FloatOp::Max | FloatOp::MaxNan => -smaller(-a, -b),
            }
        }

        fn $unary(op: FloatUnOp, a: $float) -> $float {
            match op {
                FloatUnOp::Neg => -a,
                FloatUnOp::Abs => a.abs(),
                FloatUnOp::Sqrt => a.sqrt(),
                FloatUnOp::Rcp => 1.0 / a,
            }
        }
    };
}

operations!(f32, binary32, unary32);
operations!(f64, binary64, unary64);

/// An operation of two operands.
pub(crate) fn binary(op: FloatOp, bits: u8, a: u64, b: u64) -> u64 {
    if bits == 32 {
        return bits32(binary32(op, f32_of(a), f32_of(b)));
    }
    bits64(binary64(op, f64::from_bits(a), f64::from_bits(b)))
}

/// An operation of one operand.
pub(crate) fn unary(op: FloatUnOp, bits: u8, a: u64) -> u64 {
    if bits == 32 {
        return bits32(unary32(op, f32_of(a)));
    }
    bits64(unary64(op, f64::from_bits(a)))
}

/// `a * b + c`, rounded once.
pub(crate) fn fma(bits: u8, a: u64, b: u64, c: u64) -> u64 {
    if bits == 32 {
        return bits32(f32_of(a).mul_add(f32_of(b), f32_of(c)));
    }
    bits64(f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)))
}

/// A comparison of any type.
pub(crate) fn compare(comparison: Comparison, a: u64, b: u64) -> bool {
    let Comparison { cmp, unordered, ty } = comparison;
    let order = if ty.is_float() {
        // An f32 has the same order as an f64.
        let value = |bits| if ty.bits == 32 { f64::from(f32_of(bits)) } else { f64::from_bits(bits) };
        match value(a).partial_cmp(&value(b)) {
            Some(_) if cmp == Cmp::Num => return true,
            Some(_) if cmp == Cmp::Nan => return false,
            Some(order) => order,
            None => return unordered || cmp == Cmp::Nan,
        }
    } else if ty.is_signed() {
        integer::signed(ty.bits, a).cmp(&integer::signed(ty.bits, b))
    } else {
        a.cmp(&b)
    };
    match cmp {
        Cmp::Eq => order.is_eq(),
        Cmp::Ne => order.is_ne(),
        Cmp::Lt => order.is_lt(),
        Cmp::Le => order.is_le(),
        Cmp::Gt => order.is_gt(),
        Cmp::Ge => order.is_ge(),
        Cmp::Num | Cmp::Nan => false,
    }
}

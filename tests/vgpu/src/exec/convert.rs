//! `cvt`.

use crate::ptx::operation::{Convert, Rounding};
use crate::ptx::types::Type;

use super::float::{bits32, bits64, f32_of};
use super::integer::{mask, signed};

/// The converted bits.
pub(crate) fn convert(convert: Convert, a: u64) -> u64 {
    let Convert { to, from, .. } = convert;
    let a = a & mask(from.bits);
    match (from.is_float(), to.is_float()) {
        (false, false) => int_to_int(convert, a),
        (true, false) => extended(float_to_int(convert, a) as u64, convert),
        (false, true) => int_to_float(convert, a),
        (true, true) => float_to_float(convert, a),
    }
}

fn value_of(ty: Type, a: u64) -> i128 {
    if ty.is_signed() { i128::from(signed(ty.bits, a)) } else { i128::from(a) }
}

/// The smallest and the largest value of an integer type.
fn range(ty: Type) -> (i128, i128) {
    if ty.is_signed() { (-(1 << (ty.bits - 1)), (1 << (ty.bits - 1)) - 1) } else { (0, (1 << ty.bits) - 1) }
}

/// An integer result, extended to its register by its own sign.
fn extended(value: u64, convert: Convert) -> u64 {
    let value = value & mask(convert.to.bits);
    if convert.to.is_signed() {
        return signed(convert.to.bits, value) as u64 & mask(convert.to_bits);
    }
    value
}

fn int_to_int(convert: Convert, a: u64) -> u64 {
    let mut value = value_of(convert.from, a);
    if convert.saturate {
        let (least, most) = range(convert.to);
        value = value.clamp(least, most);
    }
    extended(value as u64, convert)
}

fn rounded(rounding: Rounding, value: f64) -> f64 {
    match rounding {
        Rounding::None => value,
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

/// An f32 as an f64 is the same number, so both are rounded as f64.
fn widened(ty: Type, a: u64) -> f64 {
    if ty.bits == 32 { f64::from(f32_of(a)) } else { f64::from_bits(a) }
}

/// Out of range: the nearest value of the type. NaN: 0, or the highest bit alone where one side has 64 bits.
fn float_to_int(convert: Convert, a: u64) -> i128 {
    let value = widened(convert.from, a);
    if value.is_nan() {
        let wide = convert.from.bits == 64 || convert.to.bits == 64;
        return if wide { 1 << (convert.to.bits - 1) } else { 0 };
    }
    let (least, most) = range(convert.to);
    (rounded(convert.rounding, value) as i128).clamp(least, most)
}

fn int_to_float(convert: Convert, a: u64) -> u64 {
    let value = value_of(convert.from, a);
    // Rust rounds these to nearest even.
    if convert.to.bits == 32 {
        let value = value as f32;
        return bits32(if convert.saturate { value.clamp(0.0, 1.0) } else { value });
    }
    let value = value as f64;
    bits64(if convert.saturate { value.clamp(0.0, 1.0) } else { value })
}

fn float_to_float(convert: Convert, a: u64) -> u64 {
    let mut value = widened(convert.from, a);
    if convert.integral {
        value = rounded(convert.rounding, value);
    }
    if convert.saturate {
        // Saturation makes NaN a zero, and of the zeros the positive one.
        value = if value > 0.0 { value.min(1.0) } else { 0.0 };
    }
    if convert.to.bits == 32 { bits32(value as f32) } else { bits64(value) }
}

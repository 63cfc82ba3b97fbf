//! Floats, comparisons, conversions and moves against Rust, on random operands and on those at the edges.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use proptest::prelude::*;
use support::operands::{canonical, check, f, operands, s};

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn comparisons_follow_sign_and_nan(cases in operands()) {
        for (kind, n, suffix) in [('h', 16u32, "16"), ('r', 32, "32"), ('d', 64, "64")] {
            let kinds = format!("p{kind}{kind}");
            for (name, holds) in [
                ("eq", [false, true, false]), ("ne", [true, false, true]), ("lt", [true, false, false]),
                ("le", [true, true, false]), ("gt", [false, false, true]), ("ge", [false, true, true]),
            ] {
                let is = |order: std::cmp::Ordering| u64::from(holds[(order as i8 + 1) as usize]);
                check(&format!("setp.{name}.s{suffix}"), &kinds, &cases, |x, y, _| is(s(x, n).cmp(&s(y, n))))?;
                check(&format!("setp.{name}.u{suffix}"), &kinds, &cases, |x, y, _| is(x.cmp(&y)))?;
                if kind == 'r' {
                    check(&format!("setp.{name}.f32"), &kinds, &cases, |x, y, _| f(x).partial_cmp(&f(y)).map_or(0, is))?;
                    check(&format!("setp.{name}u.f32"), &kinds, &cases, |x, y, _| f(x).partial_cmp(&f(y)).map_or(1, is))?;
                }
            }
        }
        check("setp.num.f32", "prr", &cases, |x, y, _| u64::from(!f(x).is_nan() && !f(y).is_nan()))?;
        check("setp.nan.f32", "prr", &cases, |x, y, _| u64::from(f(x).is_nan() || f(y).is_nan()))?;
        check("setp.lo.u32", "prr", &cases, |x, y, _| u64::from(x < y))?;
        check("setp.lt.and.u32", "prrp", &cases, |x, y, z| u64::from(x < y) & z)?;
        check("setp.lt.xor.u32 %p4|%p0, %r1, %r2, !%p3; //$", "prrp", &cases, |x, y, z| u64::from(x >= y) ^ (1 - z))?;
        check("selp.b64", "dddp", &cases, |x, y, z| if z == 1 { x } else { y })?;
    }

    #[test]
    fn floats_round_to_nearest_even_and_have_one_nan(cases in operands()) {
        check("add.rn.f32", "rrr", &cases, |x, y, _| canonical(f(x) + f(y)))?;
        check("sub.f32", "rrr", &cases, |x, y, _| canonical(f(x) - f(y)))?;
        check("mul.rn.f32", "rrr", &cases, |x, y, _| canonical(f(x) * f(y)))?;
        check("div.rn.f32", "rrr", &cases, |x, y, _| canonical(f(x) / f(y)))?;
        check("fma.rn.f32", "rrrr", &cases, |x, y, z| canonical(f(x).mul_add(f(y), f(z))))?;
        check("sqrt.rn.f32", "rr", &cases, |x, _, _| canonical(f(x).sqrt()))?;
        check("rcp.rn.f32", "rr", &cases, |x, _, _| canonical(1.0 / f(x)))?;
        check("neg.f32", "rr", &cases, |x, _, _| canonical(-f(x)))?;
        check("abs.f32", "rr", &cases, |x, _, _| canonical(f(x).abs()))?;
        let least = |x: u64, y: u64| match (f(x).is_nan(), f(y).is_nan()) {
            (true, true) => 0x7FFF_FFFF,
            (true, false) => y,
            (false, true) => x,
            // Ordered by value, the negative zero below the positive one.
            _ if f(x).total_cmp(&f(y)).is_le() => x,
            _ => y,
        };
        check("min.f32", "rrr", &cases, |x, y, _| least(x, y))?;
        let flip = |bits: u64| if f(bits).is_nan() { bits } else { bits ^ 0x8000_0000 };
        check("max.f32", "rrr", &cases, |x, y, _| flip(least(flip(x), flip(y))))?;
        let nan = |x: u64, y: u64, value: u64| if f(x).is_nan() || f(y).is_nan() { 0x7FFF_FFFF } else { value };
        check("min.NaN.f32", "rrr", &cases, |x, y, _| nan(x, y, least(x, y)))?;
        check("max.NaN.f32", "rrr", &cases, |x, y, _| nan(x, y, flip(least(flip(x), flip(y)))))?;
        let double = |value: f64| if value.is_nan() { 0x7FF8_0000_0000_0000 } else { value.to_bits() };
        check("add.f64", "ddd", &cases, |x, y, _| double(f64::from_bits(x) + f64::from_bits(y)))?;
        check("div.rn.f64", "ddd", &cases, |x, y, _| double(f64::from_bits(x) / f64::from_bits(y)))?;
    }

    #[test]
    fn conversions_round_saturate_and_extend(cases in operands()) {
        check("cvt.u64.u32", "dr", &cases, |x, _, _| x)?;
        check("cvt.s64.s32", "dr", &cases, |x, _, _| s(x, 32) as u64)?;
        check("cvt.u32.u64", "rd", &cases, |x, _, _| x)?;
        check("cvt.u16.u64", "hd", &cases, |x, _, _| x)?;
        check("cvt.u32.u16", "rh", &cases, |x, _, _| x)?;
        check("cvt.s32.s16", "rh", &cases, |x, _, _| s(x, 16) as u64)?;
        // The destination register is wider: its upper bits are the sign, or zeros.
        check("cvt.s8.s32", "rr", &cases, |x, _, _| s(x, 8) as u64)?;
        check("cvt.u8.u32", "rr", &cases, |x, _, _| x & 255)?;
        check("cvt.s16.s64", "dd", &cases, |x, _, _| s(x, 16) as u64)?;
        check("cvt.sat.u8.s32", "hr", &cases, |x, _, _| s(x, 32).clamp(0, 255) as u64)?;
        check("cvt.sat.s8.s64", "rd", &cases, |x, _, _| (x as i64).clamp(-128, 127) as u64)?;
        check("cvt.sat.s32.u64", "rd", &cases, |x, _, _| x.min(i32::MAX as u64))?;
        check("cvt.sat.u64.s64", "dd", &cases, |x, _, _| (x as i64).max(0) as u64)?;
        check("cvt.rn.f32.s32", "rr", &cases, |x, _, _| canonical(x as i32 as f32))?;
        check("cvt.rn.f32.u64", "rd", &cases, |x, _, _| canonical(x as f32))?;
        check("cvt.rn.f32.s64", "rd", &cases, |x, _, _| canonical(x as i64 as f32))?;
        check("cvt.rn.f32.s16", "rh", &cases, |x, _, _| canonical(x as i16 as f32))?;
        check("cvt.rn.f64.u64", "dd", &cases, |x, _, _| (x as f64).to_bits())?;
        // Rust's casts clamp and make 0 of NaN, as PTX does where no side has 64 bits.
        check("cvt.rzi.s32.f32", "rr", &cases, |x, _, _| f(x) as i32 as u64)?;
        check("cvt.rzi.u32.f32", "rr", &cases, |x, _, _| u64::from(f(x) as u32))?;
        check("cvt.rzi.u16.f32", "hr", &cases, |x, _, _| u64::from(f(x) as u16))?;
        check("cvt.rni.s32.f32", "rr", &cases, |x, _, _| f(x).round_ties_even() as i32 as u64)?;
        check("cvt.rmi.s32.f32", "rr", &cases, |x, _, _| f(x).floor() as i32 as u64)?;
        check("cvt.rpi.u32.f32", "rr", &cases, |x, _, _| u64::from(f(x).ceil() as u32))?;
        check("cvt.rzi.s64.f32", "dr", &cases, |x, _, _| {
            if f(x).is_nan() { 1 << 63 } else { f(x) as i64 as u64 }
        })?;
        check("cvt.rzi.u64.f64", "dd", &cases, |x, _, _| {
            let value = f64::from_bits(x);
            if value.is_nan() { 1 << 63 } else { value as u64 }
        })?;
        check("cvt.rn.f32.f64", "rd", &cases, |x, _, _| canonical(f64::from_bits(x) as f32))?;
        check("cvt.f64.f32", "dr", &cases, |x, _, _| {
            if f(x).is_nan() { 0x7FF8_0000_0000_0000 } else { f64::from(f(x)).to_bits() }
        })?;
        check("cvt.rni.f32.f32", "rr", &cases, |x, _, _| canonical(f(x).round_ties_even()))?;
        check("cvt.sat.f32.f32", "rr", &cases, |x, _, _| {
            if f(x) > 0.0 { canonical(f(x).min(1.0)) } else { 0 }
        })?;
    }

    #[test]
    fn moves_take_words_apart_and_put_them_together(cases in operands()) {
        check("mov.b64 {%r4, %r5}, %d1;\nmov.b64 %d0, {%r5, %r4};\n//$", "dd", &cases, |x, _, _| x.rotate_left(32))?;
        check("mov.b64 {_, %r0}, %d1;\n//$", "rd", &cases, |x, _, _| x >> 32)?;
        check("mov.b32 {%h4, %h5}, %r1;\nmov.b32 %r0, {%h5, %h4};\n//$", "rr", &cases, |x, _, _| x >> 16 | x << 16)?;
        check("mov.b64 {%h1, %h2, %h3, %h4}, %d1;\nmov.b64 %d0, {%h4, %h3, %h2, %h1};\n//$", "dd", &cases, |x, _, _| {
            (0..4).fold(0, |d, i| d | (x >> (16 * i) & 0xFFFF) << (48 - 16 * i))
        })?;
    }
}

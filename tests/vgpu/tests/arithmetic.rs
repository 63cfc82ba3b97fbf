//! Every integer opcode against Rust, on random operands and on those at the edges.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use proptest::prelude::*;
use support::operands::{check, operands, s, shift};

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn integers_wrap_and_widen(cases in operands()) {
        for (kind, n, suffix) in [('h', 16u32, "16"), ('r', 32, "32"), ('d', 64, "64")] {
            let kinds = format!("{kind}{kind}{kind}");
            check(&format!("add.s{suffix}"), &kinds, &cases, |x, y, _| x.wrapping_add(y))?;
            check(&format!("sub.u{suffix}"), &kinds, &cases, |x, y, _| x.wrapping_sub(y))?;
            check(&format!("mul.lo.s{suffix}"), &kinds, &cases, |x, y, _| x.wrapping_mul(y))?;
            check(&format!("mul.hi.u{suffix}"), &kinds, &cases, |x, y, _| {
                ((u128::from(x) * u128::from(y)) >> n) as u64
            })?;
            check(&format!("mul.hi.s{suffix}"), &kinds, &cases, |x, y, _| {
                ((i128::from(s(x, n)) * i128::from(s(y, n))) >> n) as u64
            })?;
            check(&format!("mad.lo.u{suffix}"), &format!("{kinds}{kind}"), &cases, |x, y, z| {
                x.wrapping_mul(y).wrapping_add(z)
            })?;
            check(&format!("min.s{suffix}"), &kinds, &cases, |x, y, _| s(x, n).min(s(y, n)) as u64)?;
            check(&format!("max.u{suffix}"), &kinds, &cases, |x, y, _| x.max(y))?;
            check(&format!("min.u{suffix}"), &kinds, &cases, |x, y, _| x.min(y))?;
            check(&format!("max.s{suffix}"), &kinds, &cases, |x, y, _| s(x, n).max(s(y, n)) as u64)?;
            check(&format!("neg.s{suffix}"), &kinds[..2], &cases, |x, _, _| x.wrapping_neg())?;
            check(&format!("abs.s{suffix}"), &kinds[..2], &cases, |x, _, _| s(x, n).wrapping_abs() as u64)?;
        }
        check("mul.wide.u16", "rhh", &cases, |x, y, _| x * y)?;
        check("mul.wide.s16", "rhh", &cases, |x, y, _| (s(x, 16) * s(y, 16)) as u64)?;
        check("mul.wide.u32", "drr", &cases, |x, y, _| x * y)?;
        check("mul.wide.s32", "drr", &cases, |x, y, _| (s(x, 32) * s(y, 32)) as u64)?;
        check("mad.wide.u32", "drrd", &cases, |x, y, z| (x * y).wrapping_add(z))?;
        check("mad.wide.s32", "drrd", &cases, |x, y, z| ((s(x, 32) * s(y, 32)) as u64).wrapping_add(z))?;
        check("mad.hi.u32", "rrrr", &cases, |x, y, z| ((x * y) >> 32).wrapping_add(z))?;
    }

    #[test]
    fn divisions_truncate(cases in operands()) {
        // Division by zero is a fault, tested elsewhere.
        let cases: Vec<_> = cases.into_iter().map(|[x, y, z]| [x, y | 1, z]).collect();
        for (kind, n, suffix) in [('h', 16u32, "16"), ('r', 32, "32"), ('d', 64, "64")] {
            let kinds = format!("{kind}{kind}{kind}");
            check(&format!("div.u{suffix}"), &kinds, &cases, |x, y, _| x / y)?;
            check(&format!("rem.u{suffix}"), &kinds, &cases, |x, y, _| x % y)?;
            check(&format!("div.s{suffix}"), &kinds, &cases, |x, y, _| s(x, n).wrapping_div(s(y, n)) as u64)?;
            check(&format!("rem.s{suffix}"), &kinds, &cases, |x, y, _| s(x, n).wrapping_rem(s(y, n)) as u64)?;
        }
    }

    #[test]
    fn shifts_clamp_their_amount(cases in operands()) {
        for (kind, n, suffix) in [('h', 16u32, "16"), ('r', 32, "32"), ('d', 64, "64")] {
            let kinds = format!("{kind}{kind}r");
            check(&format!("shl.b{suffix}"), &kinds, &cases, |x, y, _| x.checked_shl(shift(y)).unwrap_or(0))?;
            check(&format!("shr.u{suffix}"), &kinds, &cases, |x, y, _| x.checked_shr(shift(y)).unwrap_or(0))?;
            check(&format!("shr.s{suffix}"), &kinds, &cases, |x, y, _| (s(x, n) >> shift(y).min(63)) as u64)?;
        }
        check("shf.l.wrap.b32", "rrrr", &cases, |x, y, z| (y << 32 | x) << (z & 31) >> 32)?;
        check("shf.r.wrap.b32", "rrrr", &cases, |x, y, z| (y << 32 | x) >> (z & 31))?;
        check("shf.l.clamp.b32", "rrrr", &cases, |x, y, z| if z >= 32 { x } else { (y << 32 | x) << z >> 32 })?;
        check("shf.r.clamp.b32", "rrrr", &cases, |x, y, z| if z >= 32 { y } else { (y << 32 | x) >> z })?;
    }

    #[test]
    fn bits_are_counted_moved_and_combined(cases in operands()) {
        for (kind, n, suffix) in [('h', 16u32, "16"), ('r', 32, "32"), ('d', 64, "64")] {
            let kinds = format!("{kind}{kind}{kind}");
            check(&format!("and.b{suffix}"), &kinds, &cases, |x, y, _| x & y)?;
            check(&format!("or.b{suffix}"), &kinds, &cases, |x, y, _| x | y)?;
            check(&format!("xor.b{suffix}"), &kinds, &cases, |x, y, _| x ^ y)?;
            check(&format!("not.b{suffix}"), &kinds[..2], &cases, |x, _, _| !x)?;
            check(&format!("cnot.b{suffix}"), &kinds[..2], &cases, |x, _, _| u64::from(x == 0))?;
            if n > 16 {
                let counted = format!("r{kind}");
                check(&format!("clz.b{suffix}"), &counted, &cases, |x, _, _| u64::from(x.leading_zeros() + n - 64))?;
                check(&format!("popc.b{suffix}"), &counted, &cases, |x, _, _| u64::from(x.count_ones()))?;
                check(&format!("brev.b{suffix}"), &kinds[..2], &cases, |x, _, _| x.reverse_bits() >> (64 - n))?;
                let naive_bfe = |x: u64, y: u64, z: u64, signed: bool| {
                    let (pos, len, msb) = (y & 255, z & 255, u64::from(n) - 1);
                    let sign = signed && len > 0 && x >> (pos + len - 1).min(msb) & 1 == 1;
                    (0..=msb).fold(0, |d, i| {
                        let bit = if i < len && pos + i <= msb { x >> (pos + i) & 1 } else { u64::from(sign) };
                        d | bit << i
                    })
                };
                let fields = format!("{kind}{kind}rr");
                check(&format!("bfe.u{suffix}"), &fields, &cases, |x, y, z| naive_bfe(x, y, z, false))?;
                check(&format!("bfe.s{suffix}"), &fields, &cases, |x, y, z| naive_bfe(x, y, z, true))?;
                let insert = format!("bfi.b{suffix} $, %r4;");
                check(&format!("mov.b32 %r4, 5;\n{insert}"), &format!("{kind}{kind}{kind}r"), &cases, |x, y, z| {
                    let pos = z & 255;
                    (0..5).filter(|i| pos + i < u64::from(n)).fold(y, |d, i| {
                        d & !(1 << (pos + i)) | (x >> i & 1) << (pos + i)
                    })
                })?;
            }
        }
        check("prmt.b32", "rrrr", &cases, |x, y, z| {
            (0..4).fold(0, |d, i| {
                let selector = z >> (4 * i) & 15;
                let byte = (y << 32 | x) >> (8 * (selector & 7)) & 255;
                let byte = if selector < 8 { byte } else if byte >= 128 { 255 } else { 0 };
                d | byte << (8 * i)
            })
        })?;
        check("lop3.b32 $, 0xE8;", "rrrr", &cases, |x, y, z| x & y | x & z | y & z)?;
        check("lop3.b32 $, 0x1B;", "rrrr", &cases, |x, y, z| {
            (0..32).fold(0, |d, i| d | (0x1B >> ((x >> i & 1) * 4 + (y >> i & 1) * 2 + (z >> i & 1)) & 1) << i)
        })?;
    }

    #[test]
    fn carries_chain(cases in operands()) {
        check("add.cc.u64 %d8, %d1, %d2;\naddc.cc.u64 %d8, %d2, %d3;\naddc.u64 %d0, %d1, %d3; //$", "dddd", &cases, |x, y, z| {
            let low = u128::from(x) + u128::from(y);
            let middle = u128::from(y) + u128::from(z) + (low >> 64);
            x.wrapping_add(z).wrapping_add((middle >> 64) as u64)
        })?;
        check("sub.cc.u32 %r8, %r1, %r2;\nsubc.cc.u32 %r8, %r2, %r3;\nsubc.u32 %r0, %r1, %r3; //$", "rrrr", &cases, |x, y, z| {
            let low = x < y;
            let middle = y < z + u64::from(low);
            x.wrapping_sub(z).wrapping_sub(u64::from(middle))
        })?;
    }
}

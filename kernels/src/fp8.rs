//! fp8 e4m3 (the "fn" form: no infinity, one NaN a sign): conversion from f32 and bf16.

/// The largest finite e4m3 value.
pub const E4M3_MAX: f32 = 448.0;

/// Converts to e4m3: round to nearest even, saturating (infinities too), NaN kept with its sign.
#[inline(always)]
pub const fn f32_to_e4m3(value: f32) -> u8 {
    let bits = value.to_bits();
    let sign = (bits >> 24 & 0x80) as u8;
    let magnitude = bits & 0x7fff_ffff;
    // Normal e4m3 (>= 2^-6): round away 20 mantissa bits, to even on a tie; rebias the exponent from 127 to 7.
    let rounded = magnitude + 0x7_ffff + (magnitude >> 20 & 1);
    let normal = (rounded >> 20).wrapping_sub(120 << 3);
    // Subnormal: adding 2^14 leaves one unit in the last place = 2^-9, the subnormal step; the addition rounds.
    let subnormal = (f32::from_bits(magnitude) + 16384.0).to_bits().wrapping_sub(0x4680_0000);
    let is_subnormal = magnitude < 0x3c80_0000;
    let finite = if is_subnormal { subnormal } else { normal };
    // 448 is 0x7e; everything that rounds past it saturates.
    let code = if magnitude > 0x7f80_0000 {
        0x7f
    } else if magnitude >= 0x43e0_0000 {
        0x7e
    } else {
        finite
    };
    sign | code as u8
}

/// The f32 with the bits of a bf16.
#[inline(always)]
pub const fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// The magnitude of a bf16, as bits; 0 for infinity and NaN. Magnitudes order like their bits.
#[inline(always)]
pub const fn finite_magnitude(key: u16) -> u16 {
    let magnitude = key & 0x7fff;
    if magnitude < 0x7f80 { magnitude } else { 0 }
}

/// The scale of a row whose largest finite magnitude is `largest`, as bf16 bits: over 448; 0 where it is 0.
#[inline(always)]
pub fn scale_of(largest: u16) -> f32 {
    bf16_to_f32(largest) / E4M3_MAX
}

/// Quantises one key of a row: `key / scale` in e4m3. A scale of 0 divides by 1 instead: zeros stay 0, infinities
/// saturate, NaN stays NaN.
#[inline(always)]
pub fn quantise(key: u16, scale: f32) -> u8 {
    let divisor = if scale == 0.0 { 1.0 } else { scale };
    // The sign is the key's own: a GPU's division returns NaN without one.
    f32_to_e4m3(bf16_to_f32(key & 0x7fff) / divisor) | (key >> 8 & 0x80) as u8
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;

    use super::*;

    /// The value of an e4m3 code by its definition: sign, 4 exponent bits (bias 7), 3 mantissa bits.
    fn value_of(code: u8) -> f64 {
        let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
        let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
        if code & 0x7f == 0x7f {
            f64::NAN
        } else if exponent == 0 {
            sign * mantissa / 8.0 * 2f64.powi(-6)
        } else {
            sign * (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7)
        }
    }

    /// The nearest code by search over all of them; on a tie the one with an even mantissa.
    fn nearest(value: f64) -> u8 {
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        if value.is_nan() {
            return sign | 0x7f;
        }
        let magnitude = value.abs().min(448.0);
        let distance = |code: u8| (value_of(code) - magnitude).abs();
        let best =
            (0..=0x7e).min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
        sign | best.unwrap()
    }

    #[test]
    fn every_bf16_converts_to_the_nearest_code() {
        for bits in 0..=u16::MAX {
            let value = half::bf16::from_bits(bits);
            assert_eq!(f32_to_e4m3(bf16_to_f32(bits)), nearest(value.to_f64()), "bf16 {bits:#06x} = {value}");
        }
    }

    #[test]
    fn ties_between_codes_go_to_even_and_just_off_ties_do_not() {
        for code in 0..0x7e {
            let middle = ((value_of(code) + value_of(code + 1)) / 2.0) as f32;
            assert_eq!(f32_to_e4m3(middle), code + (code & 1), "between {code:#x} and the next");
            assert_eq!(f32_to_e4m3(f32::from_bits(middle.to_bits() + 1)), code + 1);
            assert_eq!(f32_to_e4m3(f32::from_bits(middle.to_bits() - 1)), code);
        }
    }

    fn row_scale(keys: &[u16; 128]) -> f32 {
        scale_of(keys.iter().map(|&key| finite_magnitude(key)).max().unwrap())
    }

    fn quantise_row(keys: &[u16; 128], scale: f32, out: &mut [u8; 128]) {
        *out = keys.map(|key| quantise(key, scale));
    }

    #[test]
    fn scale_is_the_largest_magnitude_over_448() {
        let mut keys = [half::bf16::from_f32(0.25).to_bits(); 128];
        keys[77] = half::bf16::from_f32(-3.5).to_bits();
        assert_relative_eq!(row_scale(&keys), 3.5 / 448.0, max_relative = 1e-7);
        let mut out = [0; 128];
        quantise_row(&keys, row_scale(&keys), &mut out);
        assert_eq!(out[77], 0xfe);
        assert_eq!(value_of(out[0]), 32.0);
    }

    #[test]
    fn a_row_of_zeros_gives_scale_and_bytes_zero() {
        let keys = [0; 128];
        let mut out = [9; 128];
        assert_eq!(row_scale(&keys).to_bits(), 0);
        quantise_row(&keys, row_scale(&keys), &mut out);
        assert_eq!(out, [0; 128]);
    }

    #[test]
    fn infinities_and_nans_do_not_disturb_the_scale() {
        let mut keys = [half::bf16::ONE.to_bits(); 128];
        keys[0] = half::bf16::INFINITY.to_bits();
        keys[1] = half::bf16::NEG_INFINITY.to_bits();
        keys[2] = 0xffc0;
        let scale = row_scale(&keys);
        assert_relative_eq!(scale, 1.0 / 448.0, max_relative = 1e-7);
        let mut out = [0; 128];
        quantise_row(&keys, scale, &mut out);
        assert_eq!(out[..4], [0x7e, 0xfe, 0xff, 0x7e]);
    }

    #[test]
    fn the_smallest_rows_still_have_a_scale() {
        let mut keys = [0; 128];
        keys[5] = 1;
        let scale = row_scale(&keys);
        assert!(scale > 0.0);
        let mut out = [0; 128];
        quantise_row(&keys, scale, &mut out);
        assert_relative_eq!(value_of(out[5]), 448.0, max_relative = 0.04);
    }
}

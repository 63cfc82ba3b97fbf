//! Integer operations. Values are zero-extended to 64 bits; every operation computes at a width of 1 to 64 bits.

use crate::ptx::operation::{BinOp, TerOp, UnOp};

/// All ones at this width.
pub(crate) const fn mask(bits: u8) -> u64 {
    u64::MAX >> (64 - bits)
}

/// `value`, whose width is `bits`, sign-extended.
pub(crate) const fn signed(bits: u8, value: u64) -> i64 {
    let unused = 64 - bits;
    ((value << unused) as i64) >> unused
}

/// An operation of one operand.
pub(crate) fn unary(op: UnOp, bits: u8, a: u64) -> u64 {
    let value = match op {
        UnOp::Not => !a,
        UnOp::Neg => a.wrapping_neg(),
        UnOp::Abs => signed(bits, a).unsigned_abs(),
        UnOp::Clz => u64::from(a.leading_zeros()) - u64::from(64 - bits),
        UnOp::Popc => u64::from(a.count_ones()),
        UnOp::Brev => a.reverse_bits() >> (64 - bits),
        UnOp::Cnot => u64::from(a == 0),
    };
    value & mask(bits)
}

/// An operation of two operands. `None`: division by zero, which PTX does not define.
pub(crate) fn binary(op: BinOp, bits: u8, a: u64, b: u64) -> Option<u64> {
    let (sa, sb) = (signed(bits, a), signed(bits, b));
    let value = match op {
        BinOp::Add => a.wrapping_add(b),
        BinOp::Sub => a.wrapping_sub(b),
        BinOp::MulLo => a.wrapping_mul(b),
        BinOp::MulHiU => ((u128::from(a) * u128::from(b)) >> bits) as u64,
        BinOp::MulHiS => ((i128::from(sa) * i128::from(sb)) >> bits) as u64,
        BinOp::MulWideU => return Some(a.wrapping_mul(b)),
        BinOp::MulWideS => return Some(sa.wrapping_mul(sb) as u64 & mask(bits * 2)),
        BinOp::DivU => a.checked_div(b)?,
        BinOp::DivS if sb == 0 => return None,
        BinOp::DivS => sa.wrapping_div(sb) as u64,
        BinOp::RemU => a.checked_rem(b)?,
        BinOp::RemS if sb == 0 => return None,
        BinOp::RemS => sa.wrapping_rem(sb) as u64,
        BinOp::MinU => a.min(b),
        BinOp::MinS => sa.min(sb) as u64,
        BinOp::MaxU => a.max(b),
        BinOp::MaxS => sa.max(sb) as u64,
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Shl => a.checked_shl(amount(b, bits)).unwrap_or(0),
        BinOp::ShrU => a.checked_shr(amount(b, bits)).unwrap_or(0),
        BinOp::ShrS => (sa >> amount(b, bits - 1)) as u64,
    };
    Some(value & mask(bits))
}

/// A shift amount: beyond `limit` it counts as `limit`.
fn amount(b: u64, limit: u8) -> u32 {
    b.min(u64::from(limit)) as u32
}

/// An operation of three operands; `None` as for [`binary`].
pub(crate) fn ternary(op: TerOp, bits: u8, a: u64, b: u64, c: u64) -> Option<u64> {
    let value = match op {
        TerOp::Mad(product) => {
            let wide = matches!(product, BinOp::MulWideU | BinOp::MulWideS);
            let sum = binary(product, bits, a, b)?.wrapping_add(c);
            sum & mask(if wide { bits * 2 } else { bits })
        }
        TerOp::Prmt => u64::from(permute(a as u32, b as u32, c as u32)),
        TerOp::ShfLeftWrap => (b << 32 | a) << (c & 31) >> 32,
        TerOp::ShfLeftClamp => (b << 32 | a) << c.min(32) >> 32,
        TerOp::ShfRightWrap => (b << 32 | a) >> (c & 31) & mask(32),
        TerOp::ShfRightClamp => (b << 32 | a) >> c.min(32) & mask(32),
        TerOp::BfeU => field(bits, a, b, c, false),
        TerOp::BfeS => field(bits, a, b, c, true),
    };
    Some(value)
}

/// `prmt`: every nibble of `selector` picks a byte of `b:a`, or that byte's sign.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    let picked = std::array::from_fn(|at| {
        let nibble = selector >> (4 * at) & 0xF;
        let byte = bytes[(nibble & 7) as usize];
        if nibble & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 }
    });
    u32::from_le_bytes(picked)
}

/// `bfe`: `len` bits of `a` from `pos` on. Positions beyond the end read the sign bit, or zero.
fn field(bits: u8, a: u64, pos: u64, len: u64, is_signed: bool) -> u64 {
    let (pos, len, msb) = (pos & 0xFF, len & 0xFF, u64::from(bits) - 1);
    if len == 0 {
        return 0;
    }
    let sign = is_signed && a >> (pos + len - 1).min(msb) & 1 == 1;
    let fill = if sign { u64::MAX } else { 0 };
    let value = if pos > msb { fill } else { a >> pos | if pos == 0 { 0 } else { fill << (msb + 1 - pos) } };
    let value = if len > msb { value } else { value & ((1 << len) - 1) | fill << len };
    value & mask(bits)
}

/// `bfi`: `b` with `len` of its bits from `pos` on replaced by those of `a`.
pub(crate) fn insert(bits: u8, a: u64, b: u64, pos: u64, len: u64) -> u64 {
    let (pos, len) = (pos & 0xFF, len & 0xFF);
    if len == 0 || pos >= u64::from(bits) {
        return b;
    }
    let low = if len >= 64 { u64::MAX } else { (1 << len) - 1 };
    let field = low << pos & mask(bits);
    b & !field | a << pos & field
}

/// `lop3`: bit by bit, `table` looked up at `a:b:c`.
pub(crate) fn lop3(table: u8, a: u64, b: u64, c: u64) -> u64 {
    (0..32).fold(0, |value, at| {
        let index = (a >> at & 1) << 2 | (b >> at & 1) << 1 | (c >> at & 1);
        value | (u64::from(table) >> index & 1) << at
    })
}

/// Addition or subtraction with carry (borrow) in and out.
pub(crate) fn carry(subtract: bool, bits: u8, a: u64, b: u64, carry: bool) -> (u64, bool) {
    let (a, b, carry) = (u128::from(a), u128::from(b), u128::from(carry));
    if subtract {
        return (a.wrapping_sub(b + carry) as u64 & mask(bits), a < b + carry);
    }
    let sum = a + b + carry;
    (sum as u64 & mask(bits), sum >> bits != 0)
}

//! Instructions on many operands at a time, against Rust.

use cpkv_vgpu::machine::Sharing;
use proptest::prelude::*;

use super::{TestMemory, bytes_of, kernel, run};

/// Threads of a launch, each with its own operands.
const CASES: usize = 128;

fn operand() -> impl Strategy<Value = u64> {
    let edges = [
        0,
        1,
        2,
        31,
        32,
        33,
        63,
        64,
        65,
        255,
        256,
        0x7F,
        0x80,
        0x7FFF,
        0x8000,
        0xFFFF,
        0x7FFF_FFFF,
        0x8000_0000,
        0xFFFF_FFFF,
        0x1_0000_0000,
        i64::MAX as u64,
        1 << 63,
        u64::MAX,
        u64::MAX - 1,
    ];
    // As f32: zeros, ones, infinities, NaNs, subnormals, integral limits, ties.
    let floats = [
        0x8000_0000u64,
        0x3F80_0000,
        0xBF80_0000,
        0x7F80_0000,
        0xFF80_0000,
        0x7FC0_0000,
        0xFFC0_1234,
        0x7F80_0001,
        1,
        0x8000_0001,
        0x007F_FFFF,
        0x0080_0000,
        0x7F7F_FFFF,
        0x4F00_0000,
        0xCF00_0000,
        0x4EFF_FFFF,
        0x3F00_0000,
        0x3FC0_0000,
        0x4020_0000,
        0xBF00_0000,
        0x5F00_0000,
        0x477F_FF00,
        0x437F_0000,
        0x4F80_0000,
    ];
    let doubles =
        [1.5f64, -2.5, 0.1, -0.0, f64::NAN, f64::INFINITY, 1e300, 9.3e18, -9.3e18, 2147483647.5, 1e-310];
    prop_oneof![
        any::<u64>(),
        any::<u64>().prop_map(|value| value >> 32 & 0xFFFF),
        (-1000f32..1000.0).prop_map(|value| u64::from(value.to_bits())),
        (-1000f64..1000.0).prop_map(f64::to_bits),
        prop::sample::select(edges.to_vec()),
        prop::sample::select(floats.to_vec()),
        prop::sample::select(doubles.map(f64::to_bits).to_vec()),
    ]
}

pub(crate) fn operands() -> impl Strategy<Value = Vec<[u64; 3]>> {
    prop::collection::vec([operand(), operand(), operand()], CASES)
}

/// Registers by width: the destination is number 0, the operands 1 to 3; `p` is a predicate.
fn register(kind: char, number: usize) -> String {
    let name = match kind {
        'h' => "h",
        'r' => "r",
        'd' => "d",
        _ => "p",
    };
    format!("%{name}{number}")
}

fn bits(kind: char) -> u32 {
    match kind {
        'h' => 16,
        'r' => 32,
        'd' => 64,
        _ => 1,
    }
}

/// Runs `opcode` on the operands, whose registers `kinds` names (the destination first); compares with `expected`.
pub(crate) fn check(
    opcode: &str,
    kinds: &str,
    cases: &[[u64; 3]],
    expected: impl Fn(u64, u64, u64) -> u64,
) -> Result<(), TestCaseError> {
    let kinds: Vec<char> = kinds.chars().collect();
    let mut body = String::from(
        "mov.u32 %r9, %tid.x;\nmul.wide.u32 %d9, %r9, 24;\nadd.s64 %a, %a, %d9;\nmul.wide.u32 %d9, %r9, 8;\nadd.s64 %b, %b, %d9;\n",
    );
    for (at, &kind) in kinds.iter().enumerate().skip(1) {
        let (from, to) = (8 * (at - 1), register(kind, at));
        body += &match kind {
            'p' => {
                format!("ld.global.u32 %r8, [%a+{from}];\nand.b32 %r8, %r8, 1;\nsetp.ne.u32 {to}, %r8, 0;\n")
            }
            kind => format!("ld.global.b{} {to}, [%a+{from}];\n", bits(kind)),
        };
    }
    let registers: Vec<String> = kinds.iter().enumerate().map(|(at, &kind)| register(kind, at)).collect();
    let instruction = if opcode.contains('$') {
        opcode.replace('$', &registers.join(", "))
    } else {
        format!("{opcode} {};", registers.join(", "))
    };
    body += &format!("{instruction}\n");
    body += &match kinds[0] {
        'p' => "selp.u32 %r0, 1, 0, %p0;\nst.global.u32 [%b], %r0;".to_owned(),
        kind => format!("st.global.b{} [%b], {};", bits(kind), register(kind, 0)),
    };
    let mut memory = TestMemory::default();
    let a = memory.table(cases);
    let b = memory.holding(bytes_of(&vec![0u64; cases.len()]), Sharing::Private);
    run(&kernel(&body), &memory, (1, cases.len() as u32), (a, b))
        .map_err(|fault| TestCaseError::fail(fault.to_string()))?;
    let mask = |kind, value: u64| value & (u64::MAX >> (64 - bits(kind)));
    for (at, case) in cases.iter().enumerate() {
        let arg = |n: usize| mask(kinds.get(n + 1).copied().unwrap_or('d'), case[n]);
        let (x, y, z) = (arg(0), arg(1), arg(2));
        let expected = mask(kinds[0], expected(x, y, z));
        let found = memory.read_u64(b + 8 * at as u64);
        prop_assert!(
            found == expected,
            "{opcode} of {x:#x}, {y:#x}, {z:#x} is {found:#x}, not {expected:#x}"
        );
    }
    Ok(())
}

/// The NaN of every f32 result.
pub(crate) fn canonical(value: f32) -> u64 {
    if value.is_nan() { 0x7FFF_FFFF } else { u64::from(value.to_bits()) }
}

pub(crate) fn f(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

pub(crate) fn shift(amount: u64) -> u32 {
    amount.min(64) as u32
}

/// `value`'s lowest `bits` bits as a signed number.
pub(crate) fn s(value: u64, bits: u32) -> i64 {
    (value as i64) << (64 - bits) >> (64 - bits)
}

//! Spaces, widths, vectors, variables, calls.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use cpkv_vgpu::exec::{Execution, FaultKind, LaunchError, Rules};
use cpkv_vgpu::machine::Sharing;
use cpkv_vgpu::ptx::Param;
use support::{TestMemory, bytes_of, fault_of, finish, kernel, launch, parse, run};

/// What `body` leaves in 64 bytes at `b`, with `a` at 64 known bytes.
fn results(body: &str) -> Vec<u8> {
    let mut memory = TestMemory::default();
    let a = memory.holding(&(0..64).map(source).collect::<Vec<u8>>(), Sharing::Private);
    let b = memory.holding(&[0; 64], Sharing::Private);
    run(&kernel(body), &memory, (1, 1), (a, b)).unwrap_or_else(|fault| panic!("{fault}"));
    memory.read(b, 64)
}

fn source(at: usize) -> u8 {
    (at as u8).wrapping_mul(37).wrapping_add(200)
}

#[test]
fn narrow_loads_extend_by_their_type_to_the_width_of_the_register() {
    let found = results(
        "ld.u8 %d1, [%a];\nst.b64 [%b], %d1;\nld.s8 %d1, [%a];\nst.b64 [%b+8], %d1;\nld.global.s16 %r1, [%a];\n\
         st.b32 [%b+16], %r1;\nld.b16 %r1, [%a];\nst.b32 [%b+20], %r1;\nld.s8 %h1, [%a];\nst.b16 [%b+24], %h1;\n\
         ld.b8 %h1, [%a];\nst.b16 [%b+26], %h1;\nld.s32 %d1, [%a+4];\nst.b64 [%b+32], %d1;",
    );
    let (byte, half) = (source(0), i16::from_le_bytes([source(0), source(1)]));
    let word = i32::from_le_bytes([source(4), source(5), source(6), source(7)]);
    let mut expected = Vec::new();
    expected.extend(u64::from(byte).to_le_bytes());
    expected.extend((byte as i8 as i64).to_le_bytes());
    expected.extend((half as i32).to_le_bytes());
    expected.extend(u32::from(half as u16).to_le_bytes());
    expected.extend((byte as i8 as i16).to_le_bytes());
    expected.extend(u16::from(byte).to_le_bytes());
    expected.extend([0; 4]);
    expected.extend((word as i64).to_le_bytes());
    assert_eq!(found[..40], expected);
}

#[test]
fn narrow_stores_write_only_their_bytes() {
    let found = results(
        "mov.b64 %d1, -1;\nst.b8 [%b+1], %d1;\nst.global.b16 [%b+4], %d1;\nst.b32 [%b+8], %d1;\nst.v2.b8 [%b+14], {%r1, %d1};",
    );
    let mut expected = [0; 64];
    for at in [1, 4, 5, 8, 9, 10, 11, 15] {
        expected[at] = 0xFF;
    }
    assert_eq!(found, expected);
}

#[test]
fn vectors_move_their_elements_in_order_and_sinks_swallow() {
    let found = results(
        "ld.global.L1::no_allocate.v4.u32 {%r1, %r2, _, %r4}, [%a];\nst.global.v2.u32 [%b], {%r4, %r2};\n\
         ld.v2.b64 {%d1, %d2}, [%a+16];\nst.v2.b64 [%b+16], {%d2, %d1};\nld.v4.b8 {%h1, %h2, %h3, %h4}, [%a+4];\n\
         st.v4.b8 [%b+8], {%h4, %h3, %h2, %h1};\nld.v2.b16 {%h1, %r3}, [%a];\nst.v2.b16 [%b+12], {%r3, %h1};",
    );
    let order = [12, 13, 14, 15, 4, 5, 6, 7, 7, 6, 5, 4, 2, 3, 0, 1];
    let order = order.into_iter().chain(24..32).chain(16..24);
    let expected: Vec<u8> = order.map(source).collect();
    assert_eq!(found[..32], expected);
}

#[test]
fn generic_addresses_reach_every_space_and_come_back() {
    let module = parse(
        ".shared .align 8 .b8 sh[16];\n.visible .entry k(.param .u64 pa, .param .u64 pb) {\n.local .align 8 .b8 lo[16];\n\
         .reg .b64 %d<9>;\n.reg .b32 %r<9>;\n.reg .b64 %SP, %SPL;\nmov.b64 %SPL, lo;\ncvta.local.u64 %SP, %SPL;\nld.param.u64 %d1, [pb];\n\
         mov.u64 %d2, sh;\ncvta.shared.u64 %d3, %d2;\nst.u32 [%d3+4], 11;\nst.u32 [%SP+8], 22;\n\
         ld.shared.u32 %r1, [sh+4];\nld.local.u32 %r2, [%SPL+8];\nmov.b64 %d4, pa;\ncvta.param.u64 %d4, %d4;\n\
         ld.u64 %d5, [%d4];\ncvta.to.shared.u64 %d6, %d3;\nld.shared.u32 %r3, [%d6+4];\ncvta.to.global.u64 %d7, %d1;\n\
         st.global.v4.u32 [%d7], {%r1, %r2, %r3, 33};\nst.u64 [%d1+16], %d5;\nmov.u32 %r4, sh;\nst.shared.u32 [%r4], 44;\n\
         ld.shared.u32 %r5, [%d2];\ncvta.to.local.u64 %d8, %SP;\nsub.u64 %d8, %d8, %SPL;\nst.v2.u32 [%d1+24], {%r5, 55};\nst.u64 [%d1+32], %d8;\nret;\n}",
    );
    let mut memory = TestMemory::default();
    let b = memory.holding(&[0; 64], Sharing::Private);
    run(&module, &memory, (1, 1), (0xABCD_EF01_2345, b)).unwrap();
    let words: Vec<u32> = (0..4).map(|at| memory.read_u32(b + 4 * at)).collect();
    assert_eq!(words, [11, 22, 11, 33]);
    assert_eq!(memory.read_u64(b + 16), 0xABCD_EF01_2345);
    assert_eq!([memory.read_u32(b + 24), memory.read_u32(b + 28)], [44, 55]);
    assert_eq!(memory.read_u64(b + 32), 0);
}

#[test]
fn accesses_outside_shared_local_and_parameter_memory_are_illegal() {
    let memory = TestMemory::default();
    for body in [
        ".shared .b32 s[4];\nmov.u32 %r1, s;\nst.shared.b32 [%r1+16], %r1;",
        "st.shared.b32 [0], %r1;",
        ".local .b32 l[4];\nmov.u32 %r1, l;\nld.local.b32 %r1, [%r1+16];",
        ".local .b32 l[4];\nmov.u64 %d1, l;\nld.local.b32 %r1, [%d1+-4];",
        "mov.b64 %d1, pa;\nld.param.b32 %r1, [%d1+16];",
        ".shared .b32 s[4];\nmov.u64 %d1, s;\nst.b32 [%d1], %r1;",
        "mov.b64 %d1, 1024;\ncvta.shared.u64 %d1, %d1;\ncvta.to.local.u64 %d1, %d1;\nld.local.b32 %r1, [%d1];",
    ] {
        let (kind, text) = fault_of(body, &memory, 0, 0);
        assert_eq!(kind, FaultKind::IllegalAddress, "{text}");
    }
    let (kind, text) =
        fault_of(".shared .b32 s[4];\nmov.u32 %r1, s;\nld.shared.b64 %d1, [%r1+4];", &memory, 0, 0);
    assert_eq!(kind, FaultKind::Misaligned, "{text}");
}

#[test]
fn variables_have_their_bytes_and_the_addresses_the_driver_gave() {
    let module = parse(
        ".global .align 4 .b8 bytes[6] = {1, 2, 0xFF};\n.global .u32 word = 7;\n.global .align 8 .u64 table[2] = {generic(word)+4, -2};\n\
         .global .s16 pair[2] = {-1, 3};\n.global .f32 one = 0f3F800000;\n\
         .visible .entry k(.param .u64 pa, .param .u64 pb) {\n.reg .b64 %d<3>;\n.reg .b32 %r<3>;\nld.global.u32 %r1, [word];\n\
         add.u32 %r1, %r1, 1;\nst.global.u32 [word], %r1;\nmov.u64 %d1, bytes;\nst.u8 [%d1+5], 9;\nret;\n}",
    );
    let globals = module.globals();
    let inits: Vec<&[u8]> = globals.iter().map(|global| &global.init[..]).collect();
    assert_eq!(inits[0], [1, 2, 0xFF, 0, 0, 0]);
    assert_eq!(inits[1], [7, 0, 0, 0]);
    assert_eq!(inits[2], [&[0; 8][..], &(-2i64).to_le_bytes()].concat());
    assert_eq!(inits[3], [0xFF, 0xFF, 3, 0]);
    assert_eq!(inits[4], 1f32.to_le_bytes());
    assert_eq!((globals[0].align, globals[0].bytes), (4, 6));
    let relocation = &globals[2].relocations[0];
    assert_eq!((relocation.offset, &relocation.symbol[..], relocation.addend), (0, "word", 4));

    let mut memory = TestMemory::default();
    let mut launch = launch(1, 1, bytes_of(&[0u64, 0]));
    for global in globals {
        let address = memory.holding(&global.init, Sharing::Private);
        launch.globals.insert(global.name.clone(), address);
    }
    let (word, bytes) = (launch.globals["word"], launch.globals["bytes"]);
    let mut execution = Execution::new(module.clone(), "k", launch, Rules::default()).unwrap();
    finish(&mut execution, &memory).unwrap();
    assert_eq!(memory.read_u32(word), 8);
    assert_eq!(memory.read(bytes, 6), [1, 2, 0xFF, 0, 0, 9]);
    let unplaced = support::launch(1, 1, bytes_of(&[0u64, 0]));
    let refused = Execution::new(module, "k", unplaced, Rules::default()).unwrap_err();
    assert_eq!(refused, LaunchError::NotPlaced("bytes".into()));
}

#[test]
fn functions_take_and_return_values_and_have_their_own_registers_and_locals() {
    let module = parse(
        ".func (.param .b64 out) mix (.param .b32 x, .param .align 16 .b8 s[16]);\n\
         .func (.param .b32 o) twice (.param .b32 x) {\n.reg .b32 %r<3>;\n.local .b32 slot;\nld.param.b32 %r1, [x];\n\
         st.local.b32 [slot], %r1;\nadd.u32 %r1, %r1, %r1;\nst.param.b32 [o], %r1;\nret;\n}\n\
         .func (.param .b64 out) mix (.param .b32 x, .param .align 16 .b8 s[16]) {\n.reg .b32 %r<3>;\n.reg .b64 %d<4>;\n\
         .local .b32 slot;\nld.param.b32 %r1, [x];\nst.local.b32 [slot], 5;\n{\n.param .b32 p;\n.param .b32 q;\nst.param.b32 [p], %r1;\n\
         call.uni (q), twice, (p);\nld.param.b32 %r2, [q];\n}\nld.local.b32 %r1, [slot];\nadd.u32 %r2, %r2, %r1;\n\
         cvt.u64.u32 %d1, %r2;\nld.param.v2.b64 {%d2, %d3}, [s];\nmad.lo.u64 %d1, %d2, %d3, %d1;\nst.param.b64 [out], %d1;\nret;\n}\n\
         .visible .entry k(.param .u64 pa, .param .u64 pb) {\n.reg .b64 %d<4>;\n.reg .b32 %r<4>;\nld.param.u64 %d1, [pb];\nmov.u32 %r1, %tid.x;\n\
         {\n.param .b32 p;\n.param .align 16 .b8 s[16];\n.param .b64 q;\nst.param.b32 [p], %r1;\nst.param.b64 [s], 100;\nst.param.b64 [s+8], 1000;\n\
         call.uni (q), mix, (p, s);\nld.param.b64 %d2, [q];\n}\nmad.wide.u32 %d1, %r1, 8, %d1;\nst.global.u64 [%d1], %d2;\nret;\n}",
    );
    let mut memory = TestMemory::default();
    let b = memory.holding(&[0; 64], Sharing::Private);
    run(&module, &memory, (1, 8), (0, b)).unwrap();
    for x in 0..8 {
        assert_eq!(memory.read_u64(b + 8 * x), 100_000 + 2 * x + 5);
    }
    assert_eq!(module.kernel("k").unwrap().local_bytes(), 32);
}

#[test]
fn a_kernel_describes_its_parameters_and_its_memory() {
    let module = parse(
        ".extern .shared .align 64 .b8 dynamic[];\n.shared .b8 unused[512];\n.shared .align 16 .b8 used[20];\n\
         .visible .entry barrier(.param .u8 a, .param .align 8 .b8 b[12], .param .u64 .ptr .global .align 4 c) .maxntid 64 {\n\
         .reg .b32 %r<7>;\nmov.u32 %r1, used;\nmov.u32 %r2, dynamic;\nret;\n}\n.visible .entry empty() .reqntid 32, 2 { ret; }",
    );
    let names: Vec<&str> = module.kernels().map(|kernel| kernel.name()).collect();
    assert_eq!(names, ["barrier", "empty"]);
    let kernel = module.kernel("barrier").unwrap();
    let param = |offset, bytes, align| Param { offset, bytes, align };
    assert_eq!(kernel.params(), [param(0, 1, 1), param(8, 12, 8), param(24, 8, 8)]);
    assert_eq!((kernel.params_bytes(), kernel.static_shared_bytes(), kernel.num_regs()), (32, 64, 7));
    assert_eq!(kernel.max_threads(), Some(64));
    assert_eq!(module.kernel("empty").unwrap().params_bytes(), 0);
    let refused = |name: &str, launch| Execution::new(module.clone(), name, launch, Rules::default()).err();
    assert!(matches!(refused("none", launch(1, 1, &[])), Some(LaunchError::NoKernel(_))));
    assert!(matches!(refused("barrier", launch(1, 65, &[0; 32])), Some(LaunchError::Shape { .. })));
    assert!(matches!(refused("barrier", launch(0, 1, &[0; 32])), Some(LaunchError::Shape { .. })));
    assert!(matches!(
        refused("barrier", launch(1, 1, &[0; 31])),
        Some(LaunchError::Params { given: 31, wanted: 32 })
    ));
    assert!(matches!(refused("empty", launch(1, 64, &[])), Some(LaunchError::Shape { .. })));
    let mut large = launch(1, 1, &[0; 32]);
    large.dynamic_shared_bytes = 227 * 1024 - 63;
    assert!(matches!(refused("barrier", large), Some(LaunchError::Shared { .. })));
}

#[test]
fn atomics_return_the_old_value_and_store_the_new_one() {
    type Update = fn(u32) -> u32;
    let operations: [(&str, Update); 11] = [
        ("atom.add.u32 %r1, [%a], 5;", |old| old.wrapping_add(5)),
        ("atom.relaxed.sys.global.and.b32 %r1, [%a], 0xF0F0F0F0;", |old| old & 0xF0F0_F0F0),
        ("atom.acquire.gpu.or.b32 %r1, [%a], 3;", |old| old | 3),
        ("atom.xor.b32 %r1, [%a], -1;", |old| !old),
        ("atom.exch.b32 %r1, [%a], 77;", |_| 77),
        ("atom.min.s32 %r1, [%a], -3;", |old| (old as i32).min(-3) as u32),
        ("atom.max.s32 %r1, [%a], 3;", |old| (old as i32).max(3) as u32),
        ("atom.min.u32 %r1, [%a], 9;", |old| old.min(9)),
        ("atom.max.u32 %r1, [%a], 9;", |old| old.max(9)),
        ("atom.inc.u32 %r1, [%a], 7;", |old| if old >= 7 { 0 } else { old + 1 }),
        ("atom.dec.u32 %r1, [%a], 7;", |old| if old == 0 || old > 7 { 7 } else { old - 1 }),
    ];
    for (body, expected) in operations {
        for old in [0u32, 1, 6, 7, 8, 0x7FFF_FFFF, 0x8000_0000, u32::MAX] {
            for space in ["", ".shared"] {
                let mut memory = TestMemory::default();
                let (a, b) = (memory.table(&[old]), memory.holding(&[0; 8], Sharing::Private));
                let body = if space.is_empty() {
                    format!("{body}\nld.b32 %r2, [%a];\nst.v2.b32 [%b], {{%r1, %r2}};")
                } else {
                    let body = body.replace(".global", "").replace("[%a]", "[%d1]");
                    format!(
                        ".shared .b32 s;\nld.b32 %r2, [%a];\nst.shared.b32 [s], %r2;\nmov.u64 %d1, s;\ncvta.shared.u64 %d1, %d1;\n{body}\nld.shared.b32 %r2, [s];\nst.v2.b32 [%b], {{%r1, %r2}};"
                    )
                };
                run(&kernel(&body), &memory, (1, 1), (a, b)).unwrap();
                assert_eq!(
                    [memory.read_u32(b), memory.read_u32(b + 4)],
                    [old, expected(old)],
                    "{body} of {old:#x}"
                );
            }
        }
    }
    for (expected, old) in [(5u64, 5u64), (6, 5)] {
        let mut memory = TestMemory::default();
        let (a, b) = (memory.table(&[old]), memory.holding(&[0; 8], Sharing::Private));
        run(
            &kernel(&format!("atom.acq_rel.gpu.cas.b64 %d1, [%a], {expected}, 9;\nst.b64 [%b], %d1;")),
            &memory,
            (1, 1),
            (a, b),
        )
        .unwrap();
        assert_eq!((memory.read_u64(b), memory.read_u64(a)), (old, if expected == old { 9 } else { old }));
    }
}

#[test]
fn branches_tables_guards_and_scopes_go_where_they_say() {
    let body = "mov.u32 %r1, %tid.x;\nmul.wide.u32 %d1, %r1, 4;\nadd.s64 %b, %b, %d1;\nmov.b32 %r2, 0;\n\
                $T: .branchtargets\n$one,\n$two, $three;\nsetp.gt.u32 %p1, %r1, 2;\n@%p1 bra.uni $out;\nbrx.idx %r1, $T;\n\
                $two: mov.b32 %r2, 20;\nbra $out;\n$one: mov.b32 %r2, 10;\nbra.uni $out;\n$three:\n{\n.reg .b32 %r1;\nmov.b32 %r1, 30;\nmov.b32 %r2, %r1;\n}\n\
                $out: setp.eq.u32 %p2, %r1, 4;\n@!%p2 add.u32 %r2, %r2, 1;\n@%p2 mov.b32 %r2, 99; st.global.b32 [%b], %r2;";
    let mut memory = TestMemory::default();
    let b = memory.holding(&[0; 32], Sharing::Private);
    run(&kernel(body), &memory, (1, 6), (0, b)).unwrap();
    let found: Vec<u32> = (0..6).map(|x| memory.read_u32(b + 4 * x)).collect();
    assert_eq!(found, [11, 21, 31, 1, 99, 1]);
}

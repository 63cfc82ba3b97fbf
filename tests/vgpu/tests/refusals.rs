//! What is not interpreted is refused at load, with its line and text.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use cpkv_vgpu::ptx::{Module, PtxError, Refusal};
use support::kernel_text;

fn refusal(text: &str) -> PtxError {
    match Module::parse(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(error) => error,
    }
}

/// Why a kernel whose body is `body` is refused. The refusal names the body's line.
fn of_body(body: &str) -> Refusal {
    let text = kernel_text(body);
    let error = refusal(&text);
    let first = text.lines().position(|line| line == body.lines().next().unwrap()).unwrap() as u32 + 1;
    let lines = first..=first + body.lines().count() as u32;
    assert!(lines.contains(&error.line), "{error} is not in lines {lines:?} of\n{text}");
    assert!(text.lines().nth(error.line as usize - 1).unwrap().contains(&error.text), "{error}");
    error.what
}

#[test]
fn unknown_opcodes_are_refused() {
    for body in [
        "wgmma.fence.sync.aligned;",
        "tex.2d.v4.f32.f32 %r1;",
        "ex2.approx.f32 %r1, %r2;",
        "mad24.lo.u32 %r1, %r1, %r1, %r1;",
    ] {
        assert!(matches!(of_body(body), Refusal::Opcode(_)), "{body}");
    }
}

#[test]
fn unknown_modifiers_are_refused() {
    for body in [
        "add.sat.s32 %r1, %r1, %r2;",
        "add.rz.f32 %r1, %r1, %r2;",
        "add.ftz.f32 %r1, %r1, %r2;",
        "ld.mmio.relaxed.sys.global.u32 %r1, [%a];",
        "ld.global.L2::cache_hint.b32 %r1, [%a];",
        "ld.nc.b32 %r1, [%a];",
        "bra.never L; L:",
        "fence.proxy.async.global;",
        "st.global.nc.b32 [%a], %r1;",
        "setp.eq.ftz.f32 %p1, %r1, %r2;",
    ] {
        assert!(matches!(of_body(body), Refusal::Modifier { .. }), "{body}");
    }
}

#[test]
fn a_modifier_that_is_missing_is_missed() {
    for body in [
        "mul.s32 %r1, %r1, %r1;",
        "div.f32 %r1, %r1, %r1;",
        "fma.f32 %r1, %r1, %r1, %r1;",
        "ld.acquire.global.b32 %r1, [%a];",
        "cvt.f32.s32 %r1, %r1;",
        "cvt.rn.s32.f32 %r1, %r1;",
        "shfl.bfly.b32 %r1, %r1, 1, 31;",
        "setp.lt.b32 %p1, %r1, %r2;",
        "atom.sub.u32 %r1, [%a], 1;",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%a], %r2, [%r3], %h1;",
        "mbarrier.try_wait.shared::cta.b64 %p1, [%r1], %d1;",
        "fence.proxy.alias;",
    ] {
        assert!(matches!(of_body(body), Refusal::MissingModifier { .. }), "{body}: {}", of_body(body));
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    for body in [
        "add.s32 %r1, %r1;",
        "add.s32 %r1, %r1, %r2, %r3;",
        "add.s32 %d1, %r1, %r2;",
        "add.s64 %d1, %d1, %r2;",
        "add.s32 %p1, %r1, %r2;",
        "st.b64 [%a], %r1;",
        "ld.b64 %r1, [%a];",
        "ld.b32 %r1, %a;",
        "ld.v2.b32 {%r1, %r2, %r3}, [%a];",
        "ld.v4.b64 {%d1, %d2, %d3, %d4}, [%a];",
        "ld.b32 %r1, [%h1];",
        "mov.b32 3, %r1;",
        "selp.b32 %r1, %r2, %r3, %r4;",
        "ld.param.b64 %d1, [pa+4];",
        "ld.param.b8 %r1, [pa+8];",
        "ld.global.b64 %d1, [pa];",
        "popc.b64 %d1, %d2;",
        "trap 1;",
        "mov.b64 {%r1, %r2, %r3}, %d1;",
    ] {
        assert!(
            matches!(of_body(body), Refusal::Operands(_) | Refusal::Undeclared(_)),
            "{body}: {}",
            of_body(body)
        );
    }
}

#[test]
fn what_is_not_declared_is_refused() {
    for body in [
        "mov.b32 %r1, %x9;",
        "bra NOWHERE;",
        "@%p1 bra NOWHERE;",
        "call.uni nobody, ();",
        "brx.idx %r1, no_table;",
        "mov.u32 %r1, %clusterid.x;",
    ] {
        assert!(matches!(of_body(body), Refusal::Undeclared(_)), "{body}: {}", of_body(body));
    }
    // A label or a register of an inner scope is not seen outside it.
    assert!(matches!(of_body("{ .reg .b32 %inner; }\nmov.b32 %r1, %inner;"), Refusal::Undeclared(_)));
    assert!(matches!(of_body("{ L: }\nbra L;"), Refusal::Undeclared(_)));
}

#[test]
fn what_is_declared_twice_is_refused() {
    for body in [".reg .b32 %r1;", "L: L:"] {
        assert!(matches!(of_body(body), Refusal::Redeclared(_)), "{body}");
    }
}

#[test]
fn unknown_directives_are_refused() {
    for body in [".reg .f16x2 %x;", ".pragma \"other\";", ".alias a, b;", ".param .b128 %x;"] {
        assert!(matches!(of_body(body), Refusal::Directive(_)), "{body}");
    }
    for text in [
        ".version 8.3\n.const .b32 x = 1;",
        ".address_size 32",
        ".extern .global .b32 x;",
        ".tex .u64 t;",
        ".visible .entry k() .reqnctapercluster 2 { ret; }",
    ] {
        assert!(matches!(refusal(text).what, Refusal::Directive(_)), "{text}");
    }
}

#[test]
fn unreadable_text_is_refused() {
    for text in [
        "#",
        ".version 8.3\n/* never closed",
        ".file 1 \"open\n",
        ".visible .entry k() { mov.b32 %r1, 0xZZ; }",
        ". ",
    ] {
        assert!(matches!(refusal(text).what, Refusal::Unreadable(_)), "{text}");
    }
    assert!(matches!(refusal(".visible .entry k() { ret;").what, Refusal::Expected { .. }));
    assert!(matches!(refusal(".visible .entry k() { ret }").what, Refusal::Expected { .. }));
    assert!(matches!(refusal("ret;").what, Refusal::Expected { .. }));
}

#[test]
fn recursion_and_functions_without_a_body_are_refused() {
    let recursive = ".func f ();\n.func g () { call.uni f, (); ret; }\n.func f () { call.uni g, (); ret; }\n.visible .entry k() { call.uni f, (); ret; }";
    assert!(matches!(refusal(recursive).what, Refusal::TooLarge(_)));
    let external = ".extern .func vprintf ();\n.visible .entry k() { call.uni vprintf, (); ret; }";
    assert!(matches!(refusal(external).what, Refusal::Undeclared(_)));
    let arguments =
        ".func f (.param .b32 x) { ret; }\n.visible .entry k() { .param .b64 y; call.uni f, (y); ret; }";
    assert!(matches!(refusal(arguments).what, Refusal::Operands(_)));
}

#[test]
fn a_refusal_prints_line_text_and_reason() {
    let error = refusal(
        ".version 8.3\n.visible .entry k() {\n\t.reg .b32 %r<3>;\n\tadd.cosine.s32 \t%r1, %r1, %r2;\n\tret;\n}",
    );
    assert_eq!(error.line, 4);
    let text = error.to_string();
    for part in ["PTX line 4", "add.cosine.s32", "the modifier `.cosine` of `add`"] {
        assert!(text.contains(part), "{text}");
    }
}

//! The rules of this code base that a machine can check, each proven on a planted violation.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;

use source::{Source, code_only, tree};

type Rule = fn(&Source) -> Vec<String>;

/// Holds `rule` against every file.
fn check(rule: Rule) {
    let sources = tree();
    let is_there = |path: &str| sources.iter().any(|source| source.path == path);
    assert!(is_there("host/src/lib.rs") && is_there("kernels/src/lib.rs") && is_there("tests/tidy.rs"));
    let violations: Vec<String> = sources.iter().flat_map(rule).collect();
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

/// The lines of `text`, as file `path`, that violate `rule`.
fn lines(rule: Rule, path: &str, text: &str) -> Vec<usize> {
    let violations = rule(&Source::new(path, text));
    let line = |violation: &String| violation.strip_prefix(path)?.split(':').nth(1)?.parse().ok();
    violations.iter().map(|violation| line(violation).expect("path:line: message")).collect()
}

const NONE: [usize; 0] = [];

#[test]
fn files_are_short() {
    check(rules::too_long);
    let file = |num_lines| "//! Long.\n".repeat(num_lines);
    assert_eq!(lines(rules::too_long, "host/src/a.rs", &file(400)), NONE);
    assert_eq!(lines(rules::too_long, "host/src/a.rs", &file(401)), [401]);
}

#[test]
fn files_say_what_they_are() {
    check(rules::without_doc);
    assert_eq!(lines(rules::without_doc, "tests/a.rs", "//! A file.\n"), NONE);
    for text in ["", "// A file.\n", "use a::b;\n//! A file.\n"] {
        assert_eq!(lines(rules::without_doc, "tests/a.rs", text), [1], "{text}");
    }
}

#[test]
fn nothing_is_left_over() {
    check(rules::unfinished);
    let planted =
        "fn f() {\n    todo!()\n}\n#[ignore = \"slow\"]\nfn g() { dbg!(1); }\nfn h() { unimplemented!() }\n";
    let mut found = lines(rules::unfinished, "host/src/a.rs", planted);
    found.sort_unstable();
    assert_eq!(found, [2, 4, 5, 6]);
    let harmless = "// todo!()\nconst A: &str = \"dbg!(1) #[ignore]\";\nfn f() { my_todo!() }\n";
    assert_eq!(lines(rules::unfinished, "host/src/a.rs", harmless), NONE);
}

#[test]
fn unsafe_is_proven() {
    check(rules::unproven);
    let found = |text: &str| lines(rules::unproven, "kernels/src/a.rs", text);
    let proven = [
        "// SAFETY: it is.\nunsafe { f() };\n",
        "// SAFETY: it is,\n// and will be.\nlet a = f(\n    1,\n    unsafe { g() },\n);\n",
        "/// A type.\n// SAFETY: it is.\nunsafe impl Send for A {}\n",
        "let a = unsafe { f() }; // SAFETY: it is.\n",
        "unsafe fn f();\nunsafe extern \"C\" {}\n// unsafe {}\nlet a = \"unsafe {}\";\n",
    ];
    for text in &proven[..4] {
        assert_eq!(found(text), NONE, "{text}");
    }
    // A block of foreign functions is declared, not entered.
    assert_eq!(found(proven[4]), NONE);
    assert_eq!(found("fn f() {\n    unsafe { g() }\n}\n"), [2]);
    assert_eq!(found("unsafe\nimpl Send for A {}\n"), [1]);
    assert_eq!(found("// SAFETY: it is.\nunsafe { f() };\nunsafe { g() };\n"), [3]);
    assert_eq!(found("// SAFETY: it is.\nf();\n\nlet a = unsafe { g() };\n"), [4]);
    assert_eq!(found("let a = (\"SAFETY:\", unsafe { g() });\n"), [1]);
}

#[test]
fn imports_point_down() {
    check(imports::upward);
    let found = |path: &str, text: &str| lines(imports::upward, path, text);
    assert_eq!(found("host/src/plan/a.rs", "use crate::pages::A;\nuse crate::compose::B;\n"), [2]);
    assert_eq!(
        found("host/src/plan/a.rs", "use crate::{\n    pages::{A, group},\n    device::B,\n};\n"),
        [3]
    );
    assert_eq!(found("host/src/plan/a.rs", "fn f(a: &crate::group::A) {}\n"), [1]);
    assert_eq!(found("host/src/plan/a.rs", "use super::super::symm::A;\nuse super::symm::B;\n"), [1]);
    assert_eq!(found("host/src/plan/mod.rs", "use super::symm::A;\n"), [1]);
    assert_eq!(found("host/src/group/a.rs", "use crate::symm::A;\nuse crate::plan::B;\n"), NONE);
    assert_eq!(found("host/src/units.rs", "pub use crate::error::UnitError;\n"), NONE);
    assert_eq!(found("host/src/error.rs", "use crate::units::Rank;\n"), [1]);
    assert_eq!(found("host/src/new/mod.rs", "//! No layer yet.\n"), [1]);
}

#[test]
fn compose_and_transfer_are_strangers_and_nothing_imports_ffi() {
    let found = |path: &str, text: &str| lines(imports::upward, path, text);
    assert_eq!(found("host/src/compose/a.rs", "use crate::transfer::A;\n"), [1]);
    assert_eq!(found("host/src/transfer/mod.rs", "use crate::{compose::A, group::B};\n"), [1]);
    assert_eq!(
        found("host/src/bin/cpkv/a.rs", "use cpkv::ffi::A;\nuse cpkv::compose::B;\nuse crate::ffi;\n"),
        [1]
    );
    assert_eq!(found("host/src/compose/a.rs", "use crate::ffi::A;\n"), [1]);
}

#[test]
fn pure_modules_are_pure() {
    check(imports::impure);
    let found = |text: &str| lines(imports::impure, "host/src/workload/a.rs", text);
    for text in [
        "use std::thread;\n",
        "use std::{io, net::TcpStream};\n",
        "use std::time::Instant;\n",
        "use std::os::unix::net::UnixStream;\n",
        "use rustix::fs;\n",
        "use cpkv_kernels::{abi::ByteRange, Kernel};\n",
        "fn f() { cpkv_kernels::now_ns(); }\n",
    ] {
        assert_eq!(found(text)[..1], [1], "{text}");
    }
    assert_eq!(
        found("use std::sync::Arc;\nuse std::io;\nuse cpkv_kernels::abi::A;\nlet instant = Instants;\n"),
        NONE
    );
    assert_eq!(lines(imports::impure, "host/src/device/a.rs", "use std::thread;\n"), NONE);
}

#[test]
fn mpi_cuda_and_nixl_stay_where_they_belong() {
    check(imports::escaped);
    let found =
        |path: &str| lines(imports::escaped, path, "use mpi::traits::A;\nuse crate::group::mpi::B;\n");
    assert_eq!(found("host/src/group/mpi/a.rs"), NONE);
    assert_eq!(found("host/src/collective/mpi.rs"), NONE);
    assert_eq!(found("host/src/group/threads.rs"), [1, 2]);
    assert_eq!(lines(imports::escaped, "host/src/symm/a.rs", "use cust::memory::A;\n"), [1]);
    assert_eq!(lines(imports::escaped, "host/src/symm/ipc.rs", "use cust::memory::A;\n"), NONE);
    let nixl = |path: &str| lines(imports::escaped, path, "use nixl_sys::Agent;\n");
    assert_eq!(nixl("host/src/transfer/engine/nixl/a.rs"), NONE);
    assert_eq!(nixl("host/src/transfer/engine/mod.rs"), [1]);
}

#[test]
fn only_code_counts() {
    let text = "a /* b /* c */ d */ e // f\n\"g\\\"h\" i r#\"j\"k\"# l 'm' '\\'' n<'o> r#p b\"q\"\n";
    let code: String = code_only(text).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(code, "a e i l n<'o> r#p b");
    assert_eq!(code_only(text).lines().count(), 2);
}

//! The machine code of the kernels, as NVIDIA's assembler makes it of the PTX that is shipped: what must be in it, what
//! must not, and that the checks notice when it is spoilt.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "sass/copies.rs"]
mod copies;
#[path = "sass/kernels.rs"]
mod kernels;
#[path = "sass/listing.rs"]
mod listing;
#[path = "sass/order.rs"]
mod order;
#[path = "sass/ptx.rs"]
mod ptx;
#[path = "sass/tools.rs"]
mod tools;
#[path = "sass/usage.rs"]
mod usage;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use copies::{check_bulk, check_copy, check_usage, check_zero};
use kernels::Expected;
use listing::Function;
use order::{check_acquires, check_barrier, check_poison, check_scopes};
use tools::{Assembled, Tools};

/// The module that the library loads.
const PTX: &str = include_str!(env!("CPKV_PTX"));

static TOOLS: LazyLock<Result<Tools, String>> = LazyLock::new(Tools::find);
static SHIPPED: LazyLock<Assembled> = LazyLock::new(|| assemble(PTX, &[]));
static KERNELS: LazyLock<Vec<Expected>> = LazyLock::new(kernels::all);

fn assemble(text: &str, options: &[&str]) -> Assembled {
    TOOLS.as_ref().unwrap().assemble(text, options).unwrap()
}

fn shipped(name: &str) -> &'static Function {
    SHIPPED.function(name).unwrap()
}

fn num_releases(name: &str) -> usize {
    ptx::entries(PTX).unwrap().iter().find(|entry| entry.name == name).unwrap().num_releases()
}

/// Changes the PTX of one kernel, assembles it, and returns what `check` says of it.
fn spoilt(
    name: &str,
    change: impl Fn(&str) -> String,
    check: impl Fn(&Function) -> Result<(), String>,
) -> Result<(), String> {
    // Only this kernel.
    let assembled = assemble(&ptx::changed(PTX, name, change).unwrap(), &["--entry", name]);
    check(assembled.function(name).unwrap())
}

/// Whether `text` says `wanted`.
#[track_caller]
fn complains(result: Result<(), String>, wanted: &str) {
    let said = result.expect_err("the check takes the spoilt kernel for a good one");
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn entry_points_are_those_the_host_launches_with_its_parameters() {
    let found: BTreeMap<_, _> =
        ptx::entries(PTX).unwrap().into_iter().map(|entry| (entry.name, entry.params_bytes)).collect();
    let wanted: BTreeMap<_, _> = KERNELS.iter().map(|kernel| (&*kernel.name, kernel.params_bytes)).collect();
    assert_eq!(found, wanted);
    assert_eq!(SHIPPED.functions.len(), KERNELS.len());
}

#[test]
fn registers_suffice() {
    for Expected { name, max_registers, .. } in &*KERNELS {
        check_usage(shipped(name), SHIPPED.usage(name).unwrap(), *max_registers).unwrap();
    }
}

#[test]
fn spills_are_noticed() {
    let few = assemble(PTX, &["-maxrregcount=24"]);
    let check = |name: &str, max_registers: u32| {
        check_usage(few.function(name).unwrap(), few.usage(name).unwrap(), max_registers)
    };
    complains(check("cpkv_gather", 64), "spill");
    complains(check("cpkv_zero", 8), "registers, 8 are allowed");
}

#[test]
fn every_kernel_synchronises_at_system_scope() {
    for kernel in &*KERNELS {
        check_scopes(shipped(&kernel.name)).unwrap();
        check_acquires(shipped(&kernel.name)).unwrap();
    }
}

/// Its adds are what it probes links with.
#[test]
fn probe_adds_at_system_scope() {
    let check = |function: &Function| {
        assert!(function.all("REDG").next().is_some());
        check_scopes(function)
    };
    check(shipped("cpkv_probe")).unwrap();
    let weaker = |body: &str| body.replace(".sys", ".gpu");
    complains(spoilt("cpkv_probe", weaker, check), "not at system scope");
}

#[test]
fn barrier_releases_and_acquires() {
    check_barrier(shipped("cpkv_barrier"), num_releases("cpkv_barrier")).unwrap();
}

#[test]
fn a_weaker_barrier_is_noticed() {
    let of = |from: &'static str, to: &'static str| {
        let check = |function: &Function| check_barrier(function, num_releases("cpkv_barrier"));
        spoilt("cpkv_barrier", move |body| body.replace(from, to), check)
    };
    complains(of("red.release.sys", "red.release.gpu"), "not at system scope");
    complains(of("red.relaxed.sys", "red.relaxed.gpu"), "not at system scope");
    complains(of("ld.acquire.sys", "ld.acquire.gpu"), "not at system scope");
    complains(of("st.release.sys", "st.release.gpu"), "not at system scope");
    complains(of("atom.relaxed.sys", "atom.relaxed.gpu"), "not at system scope");
    complains(of("ld.acquire.sys", "ld.relaxed.sys"), "does not acquire");
    complains(of("red.release.sys", "red.relaxed.sys"), "fences for");
    complains(of("st.release.sys", "st.relaxed.sys"), "fences for");
    complains(of("red.relaxed.sys", "red.release.sys"), "fences for");
}

/// What Rust's own atomics would have become.
#[test]
fn an_add_without_order_and_scope_is_noticed() {
    let check = |function: &Function| check_barrier(function, num_releases("cpkv_barrier"));
    let plain = |body: &str| body.replace("red.release.sys.global", "red.global");
    complains(spoilt("cpkv_barrier", plain, check), "not at system scope");
}

#[test]
fn kernels_behind_the_barrier_look_at_the_poison_word_first() {
    // These are what makes the word, or set it.
    let others = ["cpkv_barrier", "cpkv_poison", "cpkv_probe"];
    for kernel in KERNELS.iter().filter(|kernel| !others.contains(&&*kernel.name)) {
        check_poison(shipped(&kernel.name)).unwrap();
    }
}

#[test]
fn a_weaker_look_at_the_poison_word_is_noticed() {
    let of = |name, to: &'static str| {
        spoilt(name, move |body| body.replace("ld.acquire.sys.global", to), check_poison)
    };
    for name in ["cpkv_gather", "cpkv_fill_rows"] {
        complains(of(name, "ld.acquire.gpu.global"), "not at system scope");
        complains(of(name, "ld.relaxed.sys.global"), "does not acquire");
        complains(of(name, "ld.global"), "before the look");
    }
}

#[test]
fn copies_are_wide_and_several_loads_are_in_flight() {
    for name in ["cpkv_gather", "cpkv_fill_pages", "cpkv_fill_rows"] {
        check_copy(shipped(name)).unwrap();
    }
}

#[test]
fn narrower_copies_are_noticed() {
    for name in ["cpkv_gather", "cpkv_fill_pages", "cpkv_fill_rows"] {
        complains(spoilt(name, ptx::narrow_loads, check_copy), "no loop loads 128 bits");
        complains(spoilt(name, ptx::narrow_stores, check_copy), "in a loop that copies 128 bits");
        complains(spoilt(name, ptx::loads_next_to_stores, check_copy), "loads in flight");
    }
}

#[test]
fn zeros_are_written_wide() {
    for name in ["cpkv_zero", "cpkv_gather", "cpkv_gather_bulk"] {
        check_zero(shipped(name)).unwrap();
        complains(spoilt(name, ptx::narrow_stores, check_zero), "no loop zeroes 128 bits");
    }
}

#[test]
fn bulk_gather_uses_the_copy_engine_both_ways() {
    check_bulk(shipped("cpkv_gather_bulk")).unwrap();
    let without = |what: &'static str| {
        let change = move |body: &str| ptx::each_line(body, |line| line.contains(what).then(String::new));
        spoilt("cpkv_gather_bulk", change, check_bulk)
    };
    complains(without("cp.async.bulk.shared"), "into shared memory");
    complains(without("cp.async.bulk.global"), "out of shared memory");
    complains(without("mbarrier.arrive"), "announces bytes");
    complains(check_bulk(shipped("cpkv_gather")), "into shared memory");
}

//! The machine code's properties: the checks of the test `sass`, on changed kernels.

use std::path::Path;

#[path = "../sass/copies.rs"]
#[allow(dead_code, reason = "the test `sass` uses the rest; so below")]
mod copies;
#[path = "../sass/listing.rs"]
#[allow(dead_code, unused_imports, reason = "as above; its own tests run there")]
mod listing;
#[path = "../sass/order.rs"]
#[allow(dead_code, reason = "as above")]
mod order;
#[path = "../sass/ptx.rs"]
#[allow(dead_code, unused_imports, reason = "as above; its own tests run there")]
mod ptx;
#[path = "../sass/tools.rs"]
#[allow(dead_code, reason = "as above")]
mod tools;
#[path = "../sass/usage.rs"]
#[allow(dead_code, unused_imports, reason = "as above; its own tests run there")]
mod usage;

use copies::{check_bulk, check_copy, check_zero};
use order::{check_acquires, check_barrier, check_poison, check_scopes};

/// Assembles the kernels in `module` and checks them; panics where something is wrong.
pub(crate) fn look(module: &Path) {
    let text = std::fs::read_to_string(module).expect("the kernels can be read");
    let assembled = tools::Tools::find().unwrap().assemble(&text, &[]).unwrap();
    let function = |name: &str| assembled.function(name).unwrap();
    for function in &assembled.functions {
        check_scopes(function).unwrap();
        check_acquires(function).unwrap();
    }
    // As many releases as the kernels that ship have.
    let shipped = ptx::entries(include_str!(env!("CPKV_PTX"))).unwrap();
    let barrier = shipped.iter().find(|entry| entry.name == "cpkv_barrier").unwrap();
    check_barrier(function("cpkv_barrier"), barrier.num_releases()).unwrap();
    // The lanes' vote waits for them; what each acquired is only ordered by this.
    let meets = function("cpkv_barrier").all("BAR").count();
    assert!(meets > 0, "the barrier's lanes vote, but what they acquired is not ordered before lane 0");
    for name in ["cpkv_gather", "cpkv_fill_pages", "cpkv_fill_rows"] {
        check_poison(function(name)).unwrap();
        check_copy(function(name)).unwrap();
    }
    for name in ["cpkv_zero", "cpkv_gather", "cpkv_gather_bulk"] {
        check_zero(function(name)).unwrap();
    }
    let bulk = function("cpkv_gather_bulk");
    check_bulk(bulk).unwrap();
    // `fence.proxy.async`, behind the making of the mbarriers. The assembler puts one of its own before that.
    let is_made = |instruction: &listing::Instruction| instruction.is("SYNCS") && instruction.has("EXCH");
    let made = bulk.instructions.iter().rposition(is_made).expect("the mbarriers are made");
    let mut behind = bulk.instructions[made..].iter().take_while(|instruction| !instruction.is("UBLKCP"));
    assert!(
        behind.any(|instruction| instruction.is("FENCE")),
        "no fence between mbarriers and the copy engine"
    );
}

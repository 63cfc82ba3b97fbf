//! What the machine code of copying must look like.
//!
//! A wide copy loop is recognised as an innermost loop that loads 128 bits. (Addresses or lengths that are no multiples
//! of 16 take narrower loops beside it, which these checks leave alone.)

use super::listing::{Function, Instruction, Loop};
use super::usage::Usage;

/// Loads of a thread that must be in flight together.
const MIN_IN_FLIGHT: usize = 4;
/// Registers of 128 bits.
const QUAD: u32 = 4;

fn is_wide(instruction: &Instruction, opcode: &str) -> bool {
    instruction.is(opcode) && instruction.width_bytes() == 16
}

/// The most 128-bit loads that are under way at one point of the loop: issued, and no register of theirs named since.
fn most_in_flight(body: &[Instruction]) -> usize {
    let (mut in_flight, mut most): (Vec<u32>, usize) = (Vec::new(), 0);
    for instruction in body {
        in_flight.retain(|&first| !instruction.names_register(first, QUAD));
        if is_wide(instruction, "LDG") {
            in_flight.extend(instruction.first_register());
        }
        most = most.max(in_flight.len());
    }
    most
}

/// The stores of the loop that store what a 128-bit load of it loaded.
fn num_copies(body: &[Instruction]) -> usize {
    let loaded: Vec<u32> =
        body.iter().filter(|i| is_wide(i, "LDG")).filter_map(Instruction::first_register).collect();
    let copies = |store: &&Instruction| {
        let data = store.operands.get(1).map(|data| format!("{data},"));
        is_wide(store, "STG") && data.is_some_and(|data| loaded.iter().any(|r| data == format!("R{r},")))
    };
    body.iter().filter(copies).count()
}

fn narrow_access<'a>(of: &Loop<'a>) -> Option<&'a Instruction> {
    of.body.iter().find(|i| i.accesses_memory() && !is_wide(i, "LDG") && !is_wide(i, "STG"))
}

/// Copies by 128 bits, with four loads in flight.
pub(crate) fn check_copy(function: &Function) -> Result<(), String> {
    let name = &function.name;
    let mut wide = function.innermost_loops();
    wide.retain(|l| l.body.iter().any(|i| is_wide(i, "LDG")));
    if wide.is_empty() {
        return Err(format!("{name}: no loop loads 128 bits"));
    }
    if let Some(narrow) = wide.iter().find_map(narrow_access) {
        return Err(format!(
            "{name}+{:#x}: {} in a loop that copies 128 bits",
            narrow.address,
            narrow.name()
        ));
    }
    let fits = |l: &&Loop<'_>| most_in_flight(l.body) >= MIN_IN_FLIGHT && num_copies(l.body) >= MIN_IN_FLIGHT;
    if !wide.iter().any(|l| fits(&l)) {
        let most = wide.iter().map(|l| most_in_flight(l.body)).max().unwrap_or(0);
        return Err(format!("{name}: at most {most} loads in flight, {MIN_IN_FLIGHT} are wanted"));
    }
    Ok(())
}

/// Zeroes by 128 bits: an innermost loop that only stores, 128 bits of zero at a time.
pub(crate) fn check_zero(function: &Function) -> Result<(), String> {
    let zeroes = |l: &Loop<'_>| {
        let mut accesses = l.body.iter().filter(|i| i.accesses_memory()).peekable();
        accesses.peek().is_some()
            && accesses.all(|i| is_wide(i, "STG") && i.operands.get(1).is_some_and(|data| data == "RZ"))
    };
    let found = function.innermost_loops().iter().any(zeroes);
    found.then_some(()).ok_or(format!("{}: no loop zeroes 128 bits at a time", function.name))
}

/// A question about an instruction.
type Is = fn(&Instruction) -> bool;

/// The copy engine goes both ways in a loop, and the way in is waited for by a barrier object.
pub(crate) fn check_bulk(function: &Function) -> Result<(), String> {
    let name = &function.name;
    let in_a_loop = |what: Is| function.loops().iter().any(|l| l.body.iter().any(what));
    let wanted: [(&str, Is); 4] = [
        ("bulk copies into shared memory", |i| i.is("UBLKCP") && i.modifiers == ["S", "G"]),
        ("bulk copies out of shared memory", |i| i.is("UBLKCP") && i.modifiers == ["G", "S"]),
        ("announces bytes", |i| i.is("SYNCS") && i.has("ARRIVE")),
        ("waits for a phase", |i| i.is("SYNCS") && i.has("PHASECHK")),
    ];
    match wanted.iter().find(|(_, what)| !in_a_loop(*what)) {
        Some((what, _)) => Err(format!("{name}: no loop {what}")),
        None => Ok(()),
    }
}

/// Registers within a bound, and nothing in local memory.
pub(crate) fn check_usage(function: &Function, usage: &Usage, max_registers: u32) -> Result<(), String> {
    let Usage { registers, stack_bytes, spill_store_bytes, spill_load_bytes, .. } = usage;
    if stack_bytes + spill_store_bytes + spill_load_bytes > 0 {
        return Err(format!("{}: registers spill, or something has an address: {usage:?}", function.name));
    }
    if *registers > max_registers {
        return Err(format!("{}: {registers} registers, {max_registers} are allowed", function.name));
    }
    match function.instructions.iter().find(|i| i.is("LDL") || i.is("STL")) {
        Some(local) => {
            Err(format!("{}+{:#x}: {} of local memory", function.name, local.address, local.name()))
        }
        None => Ok(()),
    }
}

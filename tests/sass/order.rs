//! What the machine code of synchronisation must look like.
//!
//! How PTX appears in it: a release at system scope is a `MEMBAR.ALL.SYS` before a `STRONG.SYS` write, with no other
//! access to memory between them; an acquire is a `STRONG.SYS` load with a `CCTL.IVALL` (which empties L1) behind it,
//! again with no access between them; relaxed is `STRONG.SYS` alone.

use super::listing::{Function, Instruction};

/// Whether other processors take part in it.
fn synchronises(instruction: &Instruction) -> bool {
    instruction.has("STRONG")
        || instruction.opcode.starts_with("RED")
        || instruction.opcode.starts_with("ATOM")
}

fn writes(instruction: &Instruction) -> bool {
    ["REDG", "ATOMG", "STG"].iter().any(|opcode| instruction.is(opcode))
}

/// `text` with the function and the place.
fn at(function: &Function, instruction: &Instruction, text: &str) -> String {
    format!("{}+{:#x}: {}: {text}", function.name, instruction.address, instruction.name())
}

/// Every synchronising instruction has system scope, and is a kind that the seam has.
pub(crate) fn check_scopes(function: &Function) -> Result<(), String> {
    for instruction in function.instructions.iter().filter(|instruction| synchronises(instruction)) {
        if !["REDG", "ATOMG", "LDG", "STG"].iter().any(|opcode| instruction.is(opcode)) {
            return Err(at(function, instruction, "a synchronising instruction of another kind"));
        }
        if !(instruction.has("STRONG") && instruction.has("SYS")) {
            return Err(at(function, instruction, "not at system scope"));
        }
    }
    Ok(())
}

/// Every synchronising load acquires.
pub(crate) fn check_acquires(function: &Function) -> Result<(), String> {
    for (i, load) in function.instructions.iter().enumerate() {
        if !(load.is("LDG") && load.has("STRONG")) {
            continue;
        }
        let mut behind = function.instructions[i + 1..].iter();
        let next = behind.find(|next| next.accesses_memory() || next.is("CCTL"));
        if !next.is_some_and(|next| next.is("CCTL") && next.has("IVALL")) {
            return Err(at(function, load, "does not acquire"));
        }
    }
    Ok(())
}

/// The writes that release: those behind a fence. Every fence must be at system scope, and have one.
fn releases(function: &Function) -> Result<Vec<&Instruction>, String> {
    let mut releases = Vec::new();
    for (i, fence) in function.instructions.iter().enumerate().filter(|(_, fence)| fence.is("MEMBAR")) {
        if !fence.has("SYS") {
            return Err(at(function, fence, "not at system scope"));
        }
        let mut behind = function.instructions[i + 1..].iter();
        let next = behind.find(|next| next.accesses_memory() || next.is("MEMBAR"));
        match next {
            Some(next) if writes(next) && next.has("STRONG") && next.has("SYS") => releases.push(next),
            _ => return Err(at(function, fence, "no releasing write behind it")),
        }
    }
    Ok(releases)
}

/// The barrier: `num_releases` releases as in its PTX, each with a fence; an add that releases and one that is
/// relaxed; polls that acquire; and besides them only claims of a record, each completed by a release.
pub(crate) fn check_barrier(function: &Function, num_releases: usize) -> Result<(), String> {
    check_scopes(function)?;
    check_acquires(function)?;
    let releases = releases(function)?;
    if releases.len() != num_releases {
        return Err(format!("{}: {} fences for {num_releases} releases", function.name, releases.len()));
    }
    let num_adds = function.all("REDG").count();
    let num_released_adds = releases.iter().filter(|release| release.is("REDG")).count();
    if num_released_adds == 0 || num_released_adds == num_adds {
        let counts = format!("{num_released_adds} of {num_adds} adds release");
        return Err(format!("{}: {counts}, the peer's must and the own must not", function.name));
    }
    if let Some(add) = function.all("REDG").find(|add| !add.has("ADD")) {
        return Err(at(function, add, "not an add"));
    }
    if let Some(atomic) = function.all("ATOMG").find(|atomic| !atomic.has("CAS")) {
        return Err(at(function, atomic, "not the claim of a record"));
    }
    let (num_claims, num_stores) = (function.all("ATOMG").count(), releases.len() - num_released_adds);
    if num_claims == 0 || num_claims != num_stores {
        return Err(format!(
            "{}: {num_claims} claims of a record, {num_stores} releases of one",
            function.name
        ));
    }
    let polls = |l: &super::listing::Loop<'_>| l.body.iter().any(|i| i.is("LDG") && i.has("STRONG"));
    if !function.loops().iter().any(polls) {
        return Err(format!("{}: no loop polls a word", function.name));
    }
    Ok(())
}

/// A kernel behind the barrier: the first access to memory acquires the poison word.
pub(crate) fn check_poison(function: &Function) -> Result<(), String> {
    check_scopes(function)?;
    check_acquires(function)?;
    match function.instructions.iter().find(|instruction| instruction.accesses_memory()) {
        Some(first) if first.is("LDG") && first.has("STRONG") => Ok(()),
        Some(first) => Err(at(function, first, "comes before the look at the poison word")),
        None => Err(format!("{}: does not look at the poison word", function.name)),
    }
}

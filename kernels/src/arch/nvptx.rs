//! Hopper GPUs, and all inline PTX there is. A block has one dimension and whole warps; a team is a warp.
//!
//! Addresses that bodies pass on are those of device memory, this rank's or a mapped peer's. Their generic and their
//! global form are the same number, so they stand in `.global` instructions as they are.

use core::arch::asm;
use core::arch::nvptx::{_block_dim_x, _block_idx_x, _grid_dim_x, _syncthreads, _thread_idx_x};

mod bulk;
mod copy;
mod words;

pub(crate) use bulk::*;
pub(crate) use copy::*;
pub(crate) use words::*;

/// This thread's position in its block. A block shares a barrier, or a page.
#[inline(always)]
pub(crate) fn lane() -> u32 {
    // SAFETY: reads a register.
    unsafe { _thread_idx_x() }
}

/// Threads of a block, a multiple of [`TEAM_LANES`].
#[inline(always)]
pub(crate) fn num_lanes() -> u32 {
    // SAFETY: reads a register.
    unsafe { _block_dim_x() }
}

/// This block's position in the grid.
#[inline(always)]
pub(crate) fn block() -> u32 {
    // SAFETY: reads a register.
    unsafe { _block_idx_x() }
}

/// Blocks of the grid.
#[inline(always)]
pub(crate) fn num_blocks() -> u32 {
    // SAFETY: reads a register.
    unsafe { _grid_dim_x() }
}

/// Waits for all lanes of the block: what each acquired before is ordered before what any does after. Lanes that
/// have ended are not waited for, but what they saw is then ordered before nothing: let every lane come here.
#[inline(always)]
pub(crate) fn sync_lanes() {
    // SAFETY: hardware barrier 0 serves nothing else.
    unsafe { _syncthreads() }
}

/// Threads of a team: a warp. A team shares a row.
pub(crate) const TEAM_LANES: usize = 32;

/// This thread's position in its team.
#[inline(always)]
pub(crate) fn team_lane() -> usize {
    lane() as usize % TEAM_LANES
}

/// This team's position in the grid.
#[inline(always)]
pub(crate) fn team() -> u32 {
    (block() * num_lanes() + lane()) / TEAM_LANES as u32
}

/// Teams of the grid.
#[inline(always)]
pub(crate) fn num_teams() -> u32 {
    num_blocks() * num_lanes() / TEAM_LANES as u32
}

/// The largest of the team's values; every lane gets it. All lanes of the team call it together.
#[inline(always)]
pub(crate) fn team_max(value: u16) -> u16 {
    let mut largest = u32::from(value);
    // One block of text: the five exchanges cannot come apart.
    // SAFETY: exchanges registers among the lanes of a warp, which are all here.
    unsafe {
        asm!(
            "{{",
            ".reg .b32 %other;",
            "shfl.sync.bfly.b32 %other, {largest}, 16, 31, 0xffffffff;",
            "max.u32 {largest}, {largest}, %other;",
            "shfl.sync.bfly.b32 %other, {largest}, 8, 31, 0xffffffff;",
            "max.u32 {largest}, {largest}, %other;",
            "shfl.sync.bfly.b32 %other, {largest}, 4, 31, 0xffffffff;",
            "max.u32 {largest}, {largest}, %other;",
            "shfl.sync.bfly.b32 %other, {largest}, 2, 31, 0xffffffff;",
            "max.u32 {largest}, {largest}, %other;",
            "shfl.sync.bfly.b32 %other, {largest}, 1, 31, 0xffffffff;",
            "max.u32 {largest}, {largest}, %other;",
            "}}",
            largest = inout(reg32) largest,
        );
    }
    largest as u16
}

/// Whether any lane of the team says so; every lane gets it. All lanes of the team call it together. Orders no memory.
#[inline(always)]
pub(crate) fn team_any(value: bool) -> bool {
    let mut any = u32::from(value);
    // SAFETY: exchanges registers among the lanes of a warp, which are all here.
    unsafe {
        asm!(
            "{{",
            ".reg .pred %any;",
            "setp.ne.u32 %any, {any}, 0;",
            "vote.sync.any.pred %any, %any, 0xffffffff;",
            "selp.u32 {any}, 1, 0, %any;",
            "}}",
            any = inout(reg32) any,
        );
    }
    any != 0
}

/// Nanoseconds of the GPU's global timer.
#[inline(always)]
pub fn now_ns() -> u64 {
    let now_ns: u64;
    // SAFETY: reads a register. Not `pure`: every call reads it again.
    unsafe { asm!("mov.u64 {now_ns}, %globaltimer;", now_ns = out(reg64) now_ns) };
    now_ns
}

/// Called between two polls. Sleeps about 20 ns: the load that follows takes longer than that anyway.
#[inline(always)]
pub(crate) fn pause(_num_polls: u32, _num_spins: u32) {
    // SAFETY: changes nothing.
    unsafe { asm!("nanosleep.u32 20;") };
}

/// Ends the whole grid with an error that the host's next call reports.
#[inline(always)]
pub(crate) fn trap() -> ! {
    // SAFETY: nothing runs after it.
    unsafe { core::arch::nvptx::trap() }
}

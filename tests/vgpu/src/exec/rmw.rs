//! Read-modify-writes.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::machine::Sharing;
use crate::ptx::operation::RmwOp;
use crate::ptx::program::Rmw;
use crate::ptx::types::{RmwOrder, Scope, Space};

use super::access::{elements, put};
use super::block::range;
use super::fault::{Cause, FaultKind};
use super::global::Place;
use super::integer::signed;
use super::step::Slice;

impl Slice<'_, '_> {
    pub(super) fn rmw(&mut self, rmw: &Rmw) -> Result<(), Box<Cause>> {
        let (space, address) = self.address(rmw.addr);
        let (b, c) = (self.thread.regs[usize::from(rmw.b)], self.thread.regs[usize::from(rmw.c)]);
        let size = u64::from(rmw.bytes);
        let old = match space {
            Space::Global | Space::Generic => {
                let place = self.globals.place(address, size, size, size)?;
                self.check_rules(rmw, &place)?;
                place.shadow.check_init(self.globals.reports_uninitialised())?;
                place.shadow.synchronise(true);
                self.thread.fenced = false;
                place.rmw(rmw, b, c)
            }
            Space::Shared => {
                self.common.check_store(address, size)?;
                let memory = self.common.bytes_mut(address, size, size)?;
                let old = apply_to(memory, rmw, b, c);
                self.common.note_write(address, size, self.now, self.thread.ids.linear);
                old
            }
            Space::Local => {
                let range =
                    range(self.thread.local.len(), 0, address, size, size, "the thread's local memory")?;
                apply_to(&mut self.thread.local[range], rmw, b, c)
            }
            Space::Param => {
                return Err(Cause::at(FaultKind::IllegalAddress, address, "parameters are not modified"));
            }
        };
        if let Some(dst) = rmw.dst {
            self.thread.regs[usize::from(dst)] = old;
        }
        Ok(())
    }

    /// What x86, whose every read-modify-write is of system scope and ordered, would hide.
    fn check_rules(&self, rmw: &Rmw, place: &Place) -> Result<(), Box<Cause>> {
        if place.sharing == Sharing::Private {
            return Ok(());
        }
        if rmw.scope != Scope::Sys {
            let what = format!(
                "a read-modify-write of {:?} scope on memory that others share: use `.sys`",
                rmw.scope
            );
            return Err(Cause::at(FaultKind::Ordering, place.address, what));
        }
        let releases = matches!(rmw.order, RmwOrder::Release | RmwOrder::AcqRel) || self.thread.fenced;
        if place.sharing == Sharing::Peer && rmw.op != RmwOp::Cas && !releases {
            let what = "a read-modify-write of a peer's word without release, and without a fence of system scope \
                        since this thread's last store: what was written before may be seen after it";
            return Err(Cause::at(FaultKind::Ordering, place.address, what));
        }
        Ok(())
    }
}

/// What a word becomes.
fn apply(op: RmwOp, bits: u8, old: u64, b: u64, c: u64) -> u64 {
    let value = match op {
        RmwOp::Add => old.wrapping_add(b),
        RmwOp::And => old & b,
        RmwOp::Or => old | b,
        RmwOp::Xor => old ^ b,
        RmwOp::Exch => b,
        RmwOp::Cas => {
            if old == b {
                c
            } else {
                old
            }
        }
        RmwOp::MinU => old.min(b),
        RmwOp::MaxU => old.max(b),
        RmwOp::MinS => {
            if signed(bits, old) < signed(bits, b) {
                old
            } else {
                b
            }
        }
        RmwOp::MaxS => {
            if signed(bits, old) > signed(bits, b) {
                old
            } else {
                b
            }
        }
        RmwOp::Inc => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        RmwOp::Dec => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
    };
    value & super::integer::mask(bits)
}

/// Modifies memory that one thread at a time touches; returns the old value.
fn apply_to(memory: &mut [u8], rmw: &Rmw, b: u64, c: u64) -> u64 {
    let old = elements(memory, rmw.bytes)[0];
    put(memory, rmw.bytes, [apply(rmw.op, rmw.bytes * 8, old, b, c), 0, 0, 0]);
    old
}

impl Place {
    /// Modifies the word; returns the old value.
    fn rmw(&self, rmw: &Rmw, b: u64, c: u64) -> u64 {
        let (success, failure) = match rmw.order {
            RmwOrder::Relaxed => (Ordering::Relaxed, Ordering::Relaxed),
            RmwOrder::Acquire => (Ordering::Acquire, Ordering::Acquire),
            RmwOrder::Release => (Ordering::Release, Ordering::Relaxed),
            RmwOrder::AcqRel => (Ordering::AcqRel, Ordering::Acquire),
        };
        if rmw.bytes == 4 {
            // SAFETY: `place` checked bounds and alignment; all processes access these bytes by atomics alone.
            let word = unsafe { AtomicU32::from_ptr(self.data.cast()) };
            let old = match rmw.op {
                RmwOp::Add => word.fetch_add(b as u32, success),
                RmwOp::Exch => word.swap(b as u32, success),
                RmwOp::Cas => match word.compare_exchange(b as u32, c as u32, success, failure) {
                    Ok(old) | Err(old) => old,
                },
                op => {
                    let update = |old: u32| Some(apply(op, 32, u64::from(old), b, c) as u32);
                    match word.fetch_update(success, failure, update) {
                        Ok(old) | Err(old) => old,
                    }
                }
            };
            return u64::from(old);
        }
        // SAFETY: as above.
        let word = unsafe { AtomicU64::from_ptr(self.data.cast()) };
        match rmw.op {
            RmwOp::Add => word.fetch_add(b, success),
            RmwOp::Exch => word.swap(b, success),
            RmwOp::Cas => match word.compare_exchange(b, c, success, failure) {
                Ok(old) | Err(old) => old,
            },
            op => match word.fetch_update(success, failure, |old| Some(apply(op, 64, old, b, c))) {
                Ok(old) | Err(old) => old,
            },
        }
    }
}

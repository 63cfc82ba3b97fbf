//! The lanes of a warp meet: `shfl.sync`, `vote.sync`, `bar.warp.sync`.

use crate::ptx::operation::WarpOp;
use crate::ptx::program::Warp;

use super::fault::{Cause, FaultKind};
use super::thread::{Thread, WARP_LANES};

/// The lanes of a warp that wait for others.
#[derive(Debug, Default)]
pub(crate) struct Meeting {
    /// Lane, member mask, instruction.
    waiting: Vec<(u32, u32, Warp)>,
}

impl Meeting {
    /// Lane `lane` arrives.
    pub(crate) fn arrive(&mut self, lane: u32, mask: u32, warp: Warp) -> Result<(), Box<Cause>> {
        if mask >> lane & 1 == 0 {
            let what = format!("lane {lane} is not in its own member mask {mask:#x}");
            return Err(Cause::plain(FaultKind::Other, what));
        }
        self.waiting.push((lane, mask, warp));
        Ok(())
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Completes one meeting whose members, as far as they live, have all come; returns its lanes.
    pub(crate) fn complete(&mut self, lanes: &mut [Thread]) -> Result<Vec<u32>, Box<Cause>> {
        let live = live_mask(lanes);
        let met = |&(_, mask, warp): &(u32, u32, Warp)| {
            let here = self.waiting.iter().filter(|(_, m, w)| *m == mask && w.op == warp.op);
            let here = here.fold(0u32, |here, (lane, ..)| here | 1 << lane);
            here & mask & live == mask & live
        };
        let Some(&(_, mask, Warp { op, .. })) = self.waiting.iter().find(|waiting| met(waiting)) else {
            return Ok(Vec::new());
        };
        let is_member = |(_, m, w): &(u32, u32, Warp)| *m == mask && w.op == op;
        let members: Vec<_> = self.waiting.iter().filter(|waiting| is_member(waiting)).copied().collect();
        self.waiting.retain(|waiting| !is_member(waiting));
        exchange(op, &members, lanes)?;
        Ok(members.into_iter().map(|(lane, ..)| lane).collect())
    }
}

/// The lanes that have not exited.
pub(crate) fn live_mask(lanes: &[Thread]) -> u32 {
    lanes.iter().enumerate().filter(|(_, lane)| !lane.exited).fold(0, |mask, (lane, _)| mask | 1 << lane)
}

fn exchange(op: WarpOp, members: &[(u32, u32, Warp)], lanes: &mut [Thread]) -> Result<(), Box<Cause>> {
    let value = |lane: u32, slot: u16, lanes: &[Thread]| lanes[lane as usize].regs[usize::from(slot)];
    if op == WarpOp::Sync {
        return Ok(());
    }
    let mut results = Vec::with_capacity(members.len());
    if matches!(op, WarpOp::ShflUp | WarpOp::ShflDown | WarpOp::ShflBfly | WarpOp::ShflIdx) {
        for &(lane, _, warp) in members {
            let (b, c) = (value(lane, warp.b, lanes) as u32, value(lane, warp.c, lanes) as u32);
            let (source, in_range) = source_lane(op, lane, b, c);
            let Some((_, _, from)) = members.iter().find(|(member, ..)| *member == source) else {
                let what = format!("lane {lane} reads lane {source}, which does not take part");
                return Err(Cause::plain(FaultKind::Other, what));
            };
            results.push((value(source, from.a, lanes), in_range));
        }
    } else {
        let holds = |&(lane, _, warp): &(u32, u32, Warp)| (value(lane, warp.a, lanes) != 0) != warp.negate;
        let ballot =
            members.iter().filter(|member| holds(member)).fold(0u64, |mask, (lane, ..)| mask | 1 << lane);
        let all = members.iter().fold(0u64, |mask, (lane, ..)| mask | 1 << lane);
        let result = match op {
            WarpOp::VoteAll => u64::from(ballot == all),
            WarpOp::VoteAny => u64::from(ballot != 0),
            WarpOp::VoteUni => u64::from(ballot == 0 || ballot == all),
            _ => ballot,
        };
        results.resize(members.len(), (result, false));
    }
    for (&(lane, _, warp), (result, in_range)) in members.iter().zip(results) {
        let regs = &mut lanes[lane as usize].regs;
        if let Some(dst) = warp.dst {
            regs[usize::from(dst)] = result;
        }
        if let Some(p) = warp.in_range {
            regs[usize::from(p)] = u64::from(in_range);
        }
    }
    Ok(())
}

/// The lane that `lane` reads, and whether the wanted one was in range; if not, it is the own one.
fn source_lane(op: WarpOp, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (segment, clamp, b) = (c >> 8 & 31, c & 31, b & 31);
    let most = lane & segment | clamp & !segment;
    let (source, in_range) = match op {
        WarpOp::ShflUp => (lane.wrapping_sub(b), lane as i32 - b as i32 >= most as i32),
        WarpOp::ShflDown => (lane + b, lane + b <= most),
        WarpOp::ShflBfly => (lane ^ b, lane ^ b <= most),
        _ => {
            let source = lane & segment | b & !segment;
            (source, source <= most)
        }
    };
    if in_range { (source % WARP_LANES, true) } else { (lane, false) }
}

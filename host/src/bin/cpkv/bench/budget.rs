//! What is measured how often, in the time there is. Pure.

use std::time::Duration;

/// Rounds of a case, at least; one with fewer is left out.
pub(crate) const MIN_ROUNDS: u32 = 3;
/// Rounds of a case, at most.
pub(crate) const MAX_ROUNDS: u32 = 200;

/// How the whole time is dealt out. The sweep has what the others leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    pub(crate) barrier: Duration,
    pub(crate) gather: Duration,
    pub(crate) transfer: Duration,
    pub(crate) plans: Duration,
}

impl Shares {
    pub(crate) fn of(total: Duration) -> Self {
        let share = |percent: u32| total * percent / 100;
        Self { barrier: share(10), gather: share(8), transfer: share(8), plans: share(5) }
    }
}

/// Whether a case is tried at all: `bytes` of it, where `measured` (bytes, milliseconds a round) tells what bytes cost, must
/// leave room for its rounds in `left_ms`.
pub(crate) fn may_try(bytes: u64, measured: Option<(u64, f64)>, left_ms: f64) -> bool {
    let Some((known_bytes, known_ms)) = measured.filter(|(bytes, _)| *bytes > 0) else {
        return left_ms > 0.0;
    };
    let expected_ms = known_ms * bytes as f64 / known_bytes as f64;
    expected_ms * f64::from(1 + MIN_ROUNDS) <= left_ms
}

/// Which cases have time for [`MIN_ROUNDS`] in `left_ms`, where a round of each costs `costs_ms`. The most expensive ones go
/// first.
pub(crate) fn fitting(costs_ms: &[f64], left_ms: f64) -> Vec<bool> {
    let mut fits = vec![true; costs_ms.len()];
    loop {
        let kept = || fits.iter().zip(costs_ms).enumerate().filter(|(_, (fits, _))| **fits);
        let needed_ms: f64 = kept().map(|(_, (_, cost))| cost * f64::from(MIN_ROUNDS)).sum();
        let dearest = kept().max_by(|(_, a), (_, b)| a.1.total_cmp(b.1)).map(|(at, _)| at);
        match dearest.and_then(|at| fits.get_mut(at)) {
            Some(dearest) if needed_ms > left_ms => *dearest = false,
            _ => return fits,
        }
    }
}

/// Rounds of each case beside the first [`MIN_ROUNDS`], in equal shares of `left_ms`, where one of them costs `costs_ms`.
pub(crate) fn more_rounds(costs_ms: &[f64], left_ms: f64) -> Vec<u32> {
    const MOST: u32 = MAX_ROUNDS - MIN_ROUNDS;
    let mut rounds = vec![0; costs_ms.len()];
    // Cases that are at the most leave their shares to the others.
    for _ in 0..4 {
        let used_ms: f64 = rounds.iter().zip(costs_ms).map(|(rounds, cost)| f64::from(*rounds) * cost).sum();
        let num_open = rounds.iter().filter(|rounds| **rounds < MOST).count();
        let share_ms = ((left_ms - used_ms) / num_open.max(1) as f64).max(0.0);
        for (rounds, cost) in rounds.iter_mut().zip(costs_ms).filter(|(rounds, _)| **rounds < MOST) {
            *rounds = MOST.min(*rounds + (share_ms / cost.max(1e-3)) as u32);
        }
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_leave_most_of_the_time_to_the_sweep() {
        let total = Duration::from_secs(100);
        let Shares { barrier, gather, transfer, plans } = Shares::of(total);
        assert!(barrier + gather + transfer + plans <= total * 2 / 5);
    }

    #[test]
    fn the_most_expensive_cases_go_where_time_is_short() {
        assert_eq!(fitting(&[10.0, 1000.0, 20.0], 90.0), [true, false, true]);
        assert_eq!(fitting(&[10.0, 1000.0, 20.0], 89.0), [true, false, false]);
        assert_eq!(fitting(&[10.0, f64::INFINITY], 30.0), [true, false]);
        assert_eq!(fitting(&[10.0], 29.0), [false]);
        assert!(fitting(&[], 5.0).is_empty());
    }

    #[test]
    fn what_is_left_is_dealt_out_and_never_exceeded() {
        let costs = [1.0, 10.0, 100.0];
        let dealt = more_rounds(&costs, 3000.0);
        let used: f64 = dealt.iter().zip(costs).map(|(rounds, cost)| f64::from(*rounds) * cost).sum();
        assert!((2500.0..=3000.0).contains(&used), "{used} ms by {dealt:?}");
        assert!(dealt.iter().all(|rounds| *rounds > 0));
        assert_eq!(more_rounds(&[1e-9, 0.0], 1e9), [MAX_ROUNDS - MIN_ROUNDS; 2]);
        assert_eq!(more_rounds(&[1.0, 2.0], -1.0), [0, 0]);
    }

    #[test]
    fn a_case_is_tried_where_its_bytes_let_expect_that_it_fits() {
        assert!(may_try(100, None, 1.0));
        assert!(!may_try(100, None, 0.0));
        assert!(may_try(100, Some((50, 10.0)), 80.0));
        assert!(!may_try(100, Some((50, 10.0)), 79.0));
    }
}

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

/// Rounds of each case in `left_ms`, where a round of it costs `costs_ms`; `None`: left out. The most expensive ones go first;
/// what is left then is dealt out in equal shares.
pub(crate) fn rounds(costs_ms: &[f64], left_ms: f64) -> Vec<Option<u32>> {
    let mut rounds = vec![Some(MIN_ROUNDS); costs_ms.len()];
    let total = |rounds: &[Option<u32>]| -> f64 {
        let each = rounds.iter().zip(costs_ms);
        each.map(|(rounds, cost)| rounds.map_or(0.0, |rounds| f64::from(rounds) * cost)).sum()
    };
    while total(&rounds) > left_ms {
        let kept = (0..rounds.len()).filter(|&at| rounds[at].is_some());
        let Some(dearest) = kept.max_by(|&a, &b| costs_ms[a].total_cmp(&costs_ms[b])) else { break };
        rounds[dearest] = None;
    }
    // Cases that are at the most leave their shares to the others.
    for _ in 0..4 {
        let open = |rounds: &Option<u32>| rounds.is_some_and(|rounds| rounds < MAX_ROUNDS);
        let num_open = rounds.iter().filter(|rounds| open(rounds)).count();
        let share_ms = (left_ms - total(&rounds)) / num_open.max(1) as f64;
        for (rounds, cost) in rounds.iter_mut().zip(costs_ms).filter(|(rounds, _)| open(rounds)) {
            let more = (share_ms / cost.max(1e-3)).floor().clamp(0.0, f64::from(MAX_ROUNDS)) as u32;
            *rounds = rounds.map(|rounds| (rounds + more).min(MAX_ROUNDS));
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
        assert_eq!(rounds(&[10.0, 1000.0, 20.0], 90.0), [Some(3), None, Some(3)]);
        assert_eq!(rounds(&[10.0], 29.0), [None]);
        assert_eq!(rounds(&[], 5.0), []);
    }

    #[test]
    fn what_is_left_is_dealt_out_and_never_exceeded() {
        let costs = [1.0, 10.0, 100.0];
        let dealt = rounds(&costs, 3000.0);
        let used: f64 = dealt.iter().zip(costs).map(|(rounds, cost)| f64::from(rounds.unwrap()) * cost).sum();
        assert!((2500.0..=3000.0).contains(&used), "{used} ms by {dealt:?}");
        assert!(dealt.iter().all(|rounds| rounds.unwrap() > MIN_ROUNDS));
        assert_eq!(rounds(&[1e-9, 0.0], 1e9), [Some(MAX_ROUNDS); 2]);
    }

    #[test]
    fn a_case_is_tried_where_its_bytes_let_expect_that_it_fits() {
        assert!(may_try(100, None, 1.0));
        assert!(!may_try(100, None, 0.0));
        assert!(may_try(100, Some((50, 10.0)), 80.0));
        assert!(!may_try(100, Some((50, 10.0)), 79.0));
    }
}

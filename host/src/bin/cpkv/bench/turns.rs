//! Whose turn it is in a round: what costs much more than the rest takes part in every `k`-th round only, so that it does not
//! eat the time of the others. Pure: from times that are the same on every rank, so are the turns.

use super::budget::MIN_ROUNDS;

/// What costs more than this many times the fastest is slow.
const SLOW: f64 = 4.0;

/// What one way costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) ms: f64,
    /// Does the batch's whole work: the fastest of those is what others are measured by.
    pub(crate) is_whole: bool,
    /// May miss rounds.
    pub(crate) may_miss: bool,
}

/// When a way takes part in rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// One of so many rounds.
    pub(crate) every: u32,
    /// Its place among the slow ones: they take part in different rounds, where they can.
    place: u32,
}

impl Turn {
    pub(crate) const ALWAYS: Self = Self { every: 1, place: 0 };

    /// Whether it takes part in `round`. The first [`MIN_ROUNDS`] are everybody's.
    pub(crate) const fn is_due(self, round: u32) -> bool {
        round < MIN_ROUNDS || (round - MIN_ROUNDS + self.place + 1).is_multiple_of(self.every)
    }
}

/// The turns of ways that cost `costs`: a slow one takes, over its rounds, about as long as the mean of those that are not.
pub(crate) fn turns(costs: &[Cost]) -> Vec<Turn> {
    let whole = costs.iter().filter(|cost| cost.is_whole && cost.ms > 0.0);
    let fastest = whole.map(|cost| cost.ms).fold(f64::INFINITY, f64::min);
    let is_slow = |cost: &Cost| cost.may_miss && cost.ms > SLOW * fastest;
    let others: Vec<f64> = costs.iter().filter(|cost| !is_slow(cost)).map(|cost| cost.ms).collect();
    let fair_ms = others.iter().sum::<f64>() / others.len().max(1) as f64;
    let mut place = 0;
    let turn = |cost: &Cost| {
        if !is_slow(cost) || fair_ms <= 0.0 {
            return Turn::ALWAYS;
        }
        place += 1;
        Turn { every: (cost.ms / fair_ms).ceil() as u32, place: place - 1 }
    };
    costs.iter().map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn cost(ms: f64) -> Cost {
        Cost { ms, is_whole: true, may_miss: true }
    }

    fn every(costs: &[Cost]) -> Vec<u32> {
        turns(costs).iter().map(|turn| turn.every).collect()
    }

    #[test]
    fn four_times_the_fastest_takes_part_always_and_more_does_so_at_a_fair_share() {
        assert_eq!(every(&[cost(10.0), cost(12.0), cost(40.0)]), [1, 1, 1]);
        assert_eq!(every(&[cost(10.0), cost(12.0), cost(41.0), cost(110.0)]), [1, 1, 4, 10]);
        assert_eq!(every(&[cost(10.0)]), [1]);
        assert!(turns(&[]).is_empty());
    }

    #[test]
    fn the_default_and_the_yardsticks_take_part_always() {
        let default = Cost { may_miss: false, ..cost(100.0) };
        let yardstick = Cost { is_whole: false, may_miss: false, ms: 1.0 };
        assert_eq!(every(&[default, cost(10.0), yardstick]), [1, 1, 1]);
        // A yardstick that is faster than all makes nobody slow.
        assert_eq!(every(&[cost(10.0), cost(12.0), yardstick]), [1, 1, 1]);
    }

    #[test]
    fn times_of_zero_make_nobody_slow() {
        assert_eq!(every(&[cost(0.0), cost(0.0)]), [1, 1]);
        assert_eq!(every(&[cost(0.0), cost(5.0)]), [1, 1]);
    }

    #[test]
    fn all_take_part_in_the_first_rounds_and_slow_ones_then_in_rounds_of_their_own() {
        let turns = turns(&[cost(1.0), cost(5.0), cost(5.0)]);
        let rounds = |turn: &Turn| (0..13).filter(|&round| turn.is_due(round)).collect::<Vec<_>>();
        assert_eq!(rounds(&turns[0]), (0..13).collect::<Vec<_>>());
        assert_eq!(rounds(&turns[1]), [0, 1, 2, 7, 12]);
        assert_eq!(rounds(&turns[2]), [0, 1, 2, 6, 11]);
    }
}

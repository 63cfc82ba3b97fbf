//! Rounds until a share of the time is used up.

use std::time::{Duration, Instant};

/// Rounds that count, at least and at most.
const LEAST: u32 = 3;
const MOST: u32 = 500;

/// Runs `round` until `share` is over, told whether it counts: the first one warms up.
pub(crate) fn run<E>(share: Duration, mut round: impl FnMut(bool) -> Result<(), E>) -> Result<(), E> {
    round(false)?;
    let begun = Instant::now();
    for done in 0..MOST {
        if done >= LEAST && begun.elapsed() >= share {
            break;
        }
        round(true)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_time_there_are_still_a_warm_up_and_three_rounds() {
        let mut counted = Vec::new();
        let outcome: Result<(), ()> = run(Duration::ZERO, |counts| {
            counted.push(counts);
            Ok(())
        });
        assert_eq!((outcome, counted), (Ok(()), vec![false, true, true, true]));
    }

    #[test]
    fn a_round_that_fails_is_the_last() {
        let mut num_rounds = 0;
        let outcome = run(Duration::from_secs(60), |_| {
            num_rounds += 1;
            if num_rounds == 2 { Err("no") } else { Ok(()) }
        });
        assert_eq!((outcome, num_rounds), (Err("no"), 2));
    }
}

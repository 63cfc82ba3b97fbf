//! Who is odd: what a rank concludes from everyone's answers, the same on every rank. Pure.

use crate::units::{Rank, RankSet};

/// The answer most ranks gave (the lowest rank's among equals) as the first rank that gave it, and who differs.
pub fn majority<T: PartialEq>(answers: &[T]) -> (Rank, RankSet) {
    let votes = |answer: &T| answers.iter().filter(|other| *other == answer).count();
    let mut best = 0;
    for (rank, answer) in answers.iter().enumerate() {
        if votes(answer) > votes(&answers[best]) {
            best = rank;
        }
    }
    let odd = answers.iter().enumerate().filter(|(_, answer)| **answer != answers[best]);
    (Rank(best as u32), odd.map(|(rank, _)| Rank(rank as u32)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odd_one_out_is_named() {
        assert_eq!(majority(&[9, 9, 9, 10, 9, 9, 9, 9]), (Rank(0), [Rank(3)].into_iter().collect()));
        assert_eq!(majority(&[10, 9, 9]), (Rank(1), [Rank(0)].into_iter().collect()));
        assert!(majority(&[1, 1]).1.is_empty());
    }

    #[test]
    fn between_two_the_lower_rank_is_the_reference() {
        assert_eq!(majority(&["a", "b"]), (Rank(0), [Rank(1)].into_iter().collect()));
    }
}

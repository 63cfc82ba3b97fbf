//! Agreement: ranks compare plan and epoch before the first launch, so that the odd one is named and nobody hangs.

use super::ComposeError;
use crate::deadline::Deadline;
use crate::group::{Bootstrap, majority};
use crate::plan::Fingerprint;
use crate::units::{Epoch, Rank};

/// One rank's answer: 16 bytes of fingerprint, 8 of epoch; or its refusal, as text behind a marker.
const REFUSED: u8 = 1;
const PLANNED: u8 = 0;

/// Compares `mine` (or says that this rank refuses, and why) with all ranks'. Collective.
pub(super) fn agree(
    bootstrap: &dyn Bootstrap,
    mine: Result<(Fingerprint, Epoch), &ComposeError>,
    deadline: Deadline,
) -> Result<(), ComposeError> {
    let blob = match mine {
        Ok((fingerprint, epoch)) => {
            let (plan, epoch) = (fingerprint.0.to_le_bytes(), epoch.0.to_le_bytes());
            [&[PLANNED][..], &plan, &epoch].concat()
        }
        Err(refusal) => [&[REFUSED][..], refusal.to_string().as_bytes()].concat(),
    };
    let blobs = bootstrap.all_gather("agree on the plan", &blob, deadline)?;
    if mine.is_err() {
        return Ok(());
    }
    let mut answers = Vec::with_capacity(blobs.len());
    for (rank, blob) in (0..).map(Rank).zip(&blobs) {
        answers.push(decode(rank, blob)?);
    }
    compare(&answers)
}

fn decode(rank: Rank, blob: &[u8]) -> Result<(Fingerprint, Epoch), ComposeError> {
    let refused =
        |text: &[u8]| ComposeError::PeerRefused { rank, reason: String::from_utf8_lossy(text).into_owned() };
    let Some((&PLANNED, answer)) = blob.split_first() else {
        return Err(refused(blob.get(1..).unwrap_or_default()));
    };
    let (plan, epoch) = answer.split_at_checked(16).ok_or_else(|| refused(b"it sent a malformed answer"))?;
    let plan = plan.try_into().map(u128::from_le_bytes);
    let epoch = epoch.try_into().map(u64::from_le_bytes);
    match (plan, epoch) {
        (Ok(plan), Ok(epoch)) => Ok((Fingerprint(plan), Epoch(epoch))),
        _ => Err(refused(b"it sent a malformed answer")),
    }
}

fn compare(answers: &[(Fingerprint, Epoch)]) -> Result<(), ComposeError> {
    let plans: Vec<_> = answers.iter().map(|answer| answer.0).collect();
    let (reference, odd) = majority(&plans);
    if let Some(first) = odd.iter().next() {
        let (expected, got) = (plans[reference.idx()].to_string(), plans[first.idx()].to_string());
        return Err(ComposeError::PlansDiffer { odd, reference, first, expected, got });
    }
    let epochs: Vec<_> = answers.iter().map(|answer| answer.1).collect();
    let (reference, odd) = majority(&epochs);
    match odd.iter().next() {
        None => Ok(()),
        Some(first) => Err(ComposeError::EpochsDiffer {
            odd,
            reference,
            first,
            expected: epochs[reference.idx()],
            got: epochs[first.idx()],
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(odd: u32) -> crate::units::RankSet {
        [Rank(odd)].into_iter().collect()
    }

    #[test]
    fn the_rank_with_another_plan_is_named_by_all() {
        let mut answers = vec![(Fingerprint(9), Epoch(4)); 8];
        answers[3].0 = Fingerprint(10);
        let error = compare(&answers).unwrap_err();
        assert!(matches!(error, ComposeError::PlansDiffer { odd, first: Rank(3), .. } if odd == ranks(3)));
    }

    #[test]
    fn the_rank_at_another_epoch_is_named_by_all() {
        let mut answers = vec![(Fingerprint(9), Epoch(4)); 8];
        answers[6].1 = Epoch(3);
        let error = compare(&answers).unwrap_err();
        let expected = ComposeError::EpochsDiffer {
            odd: ranks(6),
            reference: Rank(0),
            first: Rank(6),
            expected: Epoch(4),
            got: Epoch(3),
        };
        assert_eq!(error, expected);
        assert_eq!(compare(&answers[..6]), Ok(()));
    }

    #[test]
    fn answers_of_another_version_are_refused() {
        for blob in [&[][..], &[PLANNED], &[PLANNED; 9], &[PLANNED; 26], &[7; 25]] {
            let error = decode(Rank(2), blob).unwrap_err();
            assert!(matches!(error, ComposeError::PeerRefused { rank: Rank(2), .. }), "{blob:?}");
        }
    }
}

//! What the ranks tell each other while they register a region.

use super::error::RegisterError;
use super::record::{RegistrationRecord, first_difference};
use crate::deadline::Deadline;
use crate::group::{Bootstrap, majority};
use crate::units::Rank;

/// The exchanges of one registration.
pub(crate) struct Exchange<'a> {
    pub(crate) name: &'a str,
    pub(crate) bootstrap: &'a dyn Bootstrap,
    pub(crate) deadline: Deadline,
}

impl Exchange<'_> {
    pub(super) fn all_gather(&self, call: &'static str, blob: &[u8]) -> Result<Vec<Vec<u8>>, RegisterError> {
        let wrap = |problem| RegisterError::Bootstrap { region: self.name.to_owned(), problem };
        self.bootstrap.all_gather(call, blob, self.deadline).map_err(wrap)
    }

    pub(super) fn compare(&self, record: &RegistrationRecord) -> Result<(), RegisterError> {
        let unreadable = |rank| RegisterError::Message { region: self.name.to_owned(), rank: Rank(rank) };
        let blob = serde_json::to_vec(record).unwrap_or_default();
        let blobs = self.all_gather("register: record", &blob)?;
        let records: Vec<RegistrationRecord> = (0..)
            .zip(&blobs)
            .map(|(rank, blob)| serde_json::from_slice(blob).map_err(|_| unreadable(rank)))
            .collect::<Result<_, _>>()?;
        let (reference, odd) = majority(&records);
        let Some(rank) = odd.iter().next() else { return Ok(()) };
        let difference = first_difference(&records[reference.idx()], &records[rank.idx()]);
        let (field, expected, got) = difference.unwrap_or_default();
        Err(RegisterError::Mismatch { region: self.name.to_owned(), rank, field, expected, got })
    }

    /// Everyone's failure, by rank.
    pub(super) fn outcomes(
        &self,
        call: &'static str,
        failure: Option<&impl ToString>,
    ) -> Result<Vec<(Rank, String)>, RegisterError> {
        let mut text = failure.map(ToString::to_string).unwrap_or_default();
        if failure.is_some() && text.is_empty() {
            text.push('?');
        }
        let texts = self.all_gather(call, text.as_bytes())?;
        let texts = (0..).map(Rank).zip(texts).filter(|(_, text)| !text.is_empty());
        Ok(texts.map(|(rank, text)| (rank, String::from_utf8_lossy(&text).into_owned())).collect())
    }

    /// An error on every rank if any rank failed. The failing rank reports its own error itself.
    pub(crate) fn all_or_none(
        &self,
        call: &'static str,
        failure: Option<&impl ToString>,
    ) -> Result<(), RegisterError> {
        let failures = self.outcomes(call, failure)?;
        match failures.into_iter().next() {
            Some((rank, reason)) if failure.is_none() => {
                Err(RegisterError::Peer { region: self.name.to_owned(), rank, reason })
            }
            _ => Ok(()),
        }
    }
}

/// Compares the ranks' records. Collective.
///
/// # Errors
/// [`RegisterError::Mismatch`], on every rank, naming the odd one and the field.
pub fn compare_records(
    name: &str,
    bootstrap: &dyn Bootstrap,
    record: &RegistrationRecord,
    deadline: Deadline,
) -> Result<(), RegisterError> {
    Exchange { name, bootstrap, deadline }.compare(record)
}

/// Who failed and why, as one line.
pub(crate) fn describe_failures(failures: &[(Rank, String)]) -> String {
    let lines: Vec<_> = failures.iter().map(|(rank, reason)| format!("rank {rank}: {reason}")).collect();
    lines.join("; ")
}

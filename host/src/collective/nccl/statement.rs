//! What a rank says of itself before NCCL is used, and what all conclude from it: the same on every rank. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::library::Version;
use crate::group::majority;
use crate::units::{Rank, RankSet};

/// Longest reason a rank gives.
const MAX_REASON_CHARS: usize = 1024;

/// What one rank has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// The version of its NCCL, or why it cannot use it.
    pub library: Result<Version, String>,
    /// The UUID of its GPU.
    pub gpu: [u8; 16],
}

impl Statement {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut statement = self.clone();
        statement.library = statement.library.map_err(|reason| shortened(&reason));
        // A statement has nothing that JSON cannot say. Nothing at all would be read as no statement.
        serde_json::to_vec(&statement).unwrap_or_default()
    }

    pub(super) fn decode(blob: &[u8]) -> Option<Self> {
        serde_json::from_slice(blob).ok()
    }
}

/// `reason`, short enough for an exchange.
pub(super) fn shortened(reason: &str) -> String {
    reason.chars().take(MAX_REASON_CHARS).collect()
}

/// Whether all ranks use NCCL, from what they say, by rank. The reason names the ranks.
///
/// # Errors
/// Why none of them does.
pub fn decide(statements: &[Statement]) -> Result<(), String> {
    let without = |rank: &usize| statements[*rank].library.is_err();
    let lacking: Vec<usize> = (0..statements.len()).filter(without).collect();
    if let Some((first, reason)) =
        lacking.first().and_then(|&first| Some((first, statements[first].library.as_ref().err()?)))
    {
        let others: RankSet = lacking[1..].iter().map(|&rank| Rank(rank as u32)).collect();
        let others = if others.is_empty() { String::new() } else { format!(" (nor can ranks {others})") };
        return Err(format!("rank {first} cannot use NCCL{others}: {reason}"));
    }
    let versions: Vec<&Result<Version, String>> =
        statements.iter().map(|statement| &statement.library).collect();
    let (most, odd) = majority(&versions);
    if let (Some(rank), Ok(expected)) = (odd.iter().next(), versions[most.idx()])
        && let Ok(found) = versions[rank.idx()]
    {
        return Err(format!(
            "rank {rank} has NCCL {found}, rank {most} has {expected}: install the same version for all ranks"
        ));
    }
    shared_gpu(statements).map_or(Ok(()), Err)
}

/// The first GPU that several ranks are on.
fn shared_gpu(statements: &[Statement]) -> Option<String> {
    statements.iter().enumerate().find_map(|(first, statement)| {
        let on_it = statements.iter().enumerate().filter(|(_, other)| other.gpu == statement.gpu);
        let ranks: RankSet = on_it.map(|(rank, _)| Rank(rank as u32)).collect();
        (ranks.iter().count() > 1 && ranks.iter().next() == Some(Rank(first as u32))).then(|| {
            format!(
                "several ranks share a GPU: ranks {ranks} are on {}, and NCCL takes one rank a GPU",
                Uuid(statement.gpu)
            )
        })
    })
}

/// As `nvidia-smi -L` prints it.
struct Uuid([u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-")?;
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks that can all use NCCL, each on its own GPU.
    fn able(num_ranks: u8) -> Vec<Statement> {
        (0..num_ranks).map(|rank| Statement { library: Ok(Version(23203)), gpu: [rank; 16] }).collect()
    }

    fn reason(statements: &[Statement]) -> String {
        decide(statements).unwrap_err()
    }

    #[test]
    fn ranks_that_all_can_use_it() {
        for num_ranks in [1, 2, 8, 64] {
            assert_eq!(decide(&able(num_ranks)), Ok(()));
        }
    }

    #[test]
    fn a_rank_without_the_library_is_named_with_its_reason_and_the_others_that_lack_it() {
        let mut statements = able(4);
        statements[2].library = Err("no libnccl.so".to_owned());
        assert_eq!(reason(&statements), "rank 2 cannot use NCCL: no libnccl.so");
        statements[3].library = Err("too old".to_owned());
        assert_eq!(reason(&statements), "rank 2 cannot use NCCL (nor can ranks [3]): no libnccl.so");
    }

    #[test]
    fn the_rank_with_the_odd_version_is_named_with_both_versions() {
        let mut statements = able(4);
        statements[0].library = Ok(Version(22005));
        let said = reason(&statements);
        assert!(said.contains("rank 0 has NCCL 2.20.5, rank 1 has 2.32.3"), "{said}");
    }

    #[test]
    fn ranks_on_one_gpu_are_named_with_the_gpu() {
        let mut statements = able(5);
        statements[4].gpu = statements[1].gpu;
        let said = reason(&statements);
        assert!(said.contains("several ranks share a GPU: ranks [1, 4]"), "{said}");
        assert!(said.contains("GPU-01010101-0101-0101-0101-010101010101"), "{said}");
    }

    #[test]
    fn a_missing_library_explains_more_than_a_shared_gpu() {
        let mut statements = able(2);
        statements[1] = Statement { library: Err("none".to_owned()), ..statements[0].clone() };
        assert!(reason(&statements).contains("rank 1 cannot use NCCL"));
    }

    #[test]
    fn a_statement_travels_whole_and_a_long_reason_is_cut() {
        for statement in able(1) {
            assert_eq!(Statement::decode(&statement.encode()), Some(statement));
        }
        let long = Statement { library: Err("x".repeat(100_000)), gpu: [7; 16] };
        let blob = long.encode();
        assert!(blob.len() < 2 * MAX_REASON_CHARS);
        assert_eq!(Statement::decode(&blob).map(|statement| statement.gpu), Some([7; 16]));
        assert_eq!(Statement::decode(&blob[1..]), None);
        assert_eq!(Statement::decode(&[]), None);
    }
}

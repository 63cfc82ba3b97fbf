//! The six ways to compose a layer.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

/// How a layer is composed. Every strategy gives the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// One all-reduce for each request span and buffer.
    PerSpan,
    /// Local fill, then one all-reduce of the whole dense buffer.
    FusedAllReduce,
    /// One gather of all prefix pages, one all-reduce of the packed current pages.
    GatherCompact,
    /// Each rank writes its pages into its own, symmetric, dense buffer; barrier; gather of the peers' pages.
    SymmDense,
    /// Own pages are written dense, published to staging; barrier; gather of the peers' pages.
    StagingPublish,
    /// Rows are written straight into staging; barrier; one gather for everything.
    StagingFill,
}

impl Strategy {
    /// All strategies, the simplest first.
    pub const ALL: [Self; 6] = [
        Self::PerSpan,
        Self::FusedAllReduce,
        Self::GatherCompact,
        Self::SymmDense,
        Self::StagingPublish,
        Self::StagingFill,
    ];

    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PerSpan => "per_span",
            Self::FusedAllReduce => "fused_all_reduce",
            Self::GatherCompact => "gather_compact",
            Self::SymmDense => "symm_dense",
            Self::StagingPublish => "staging_publish",
            Self::StagingFill => "staging_fill",
        }
    }

    /// Whether it reads peers' memory.
    pub const fn needs_peer_access(self) -> bool {
        !matches!(self, Self::PerSpan | Self::FusedAllReduce)
    }

    /// Whether it uses a collective.
    pub const fn needs_collective(self) -> bool {
        matches!(self, Self::PerSpan | Self::FusedAllReduce | Self::GatherCompact)
    }

    /// Whether every current page must have exactly one writer.
    pub const fn needs_page_aligned(self) -> bool {
        self.needs_peer_access()
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no strategy has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "no strategy is called `{name}`: choose per_span, fused_all_reduce, gather_compact, symm_dense, staging_publish or \
     staging_fill"
)]
pub struct StrategyError {
    /// The name.
    pub name: String,
}

impl FromStr for Strategy {
    type Err = StrategyError;

    fn from_str(name: &str) -> Result<Self, StrategyError> {
        Self::ALL
            .into_iter()
            .find(|strategy| strategy.name() == name)
            .ok_or_else(|| StrategyError { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_strategy() {
        for strategy in Strategy::ALL {
            assert_eq!(strategy.name().parse(), Ok(strategy));
        }
        assert!("fast".parse::<Strategy>().unwrap_err().to_string().contains("`fast`"));
    }
}

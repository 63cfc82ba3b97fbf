//! What is timed on a batch: the strategies, and what they are compared with. Pure.

use cpkv::plan::Strategy;

use super::cases::Case;
use super::report::Kind;

/// A strategy or a yardstick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Strategy(Strategy),
    /// The work of `staging_fill` without its barrier.
    Ideal,
    /// As many dense bytes within each rank.
    Memcpy,
    /// MPI moves the same bytes.
    AllGather,
    /// MPI sums the current pages.
    AllReduce,
}

impl Way {
    /// All that `strategies` and the yardsticks are, in the order of the report.
    pub(crate) fn all(strategies: &[Strategy]) -> Vec<Self> {
        let yardsticks = [Self::Ideal, Self::Memcpy, Self::AllGather, Self::AllReduce];
        strategies.iter().copied().map(Self::Strategy).chain(yardsticks).collect()
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Strategy(strategy) => strategy.name(),
            Self::Ideal => "ideal",
            Self::Memcpy => "memcpy",
            Self::AllGather => "mpi_allgatherv",
            Self::AllReduce => "mpi_allreduce",
        }
    }

    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Strategy(_) => Kind::Strategy,
            Self::Ideal | Self::Memcpy => Kind::Yardstick,
            Self::AllGather | Self::AllReduce => Kind::Mpi,
        }
    }

    /// Whether it leaves the batch's whole dense buffers on every rank. The sum of the current pages does where there is no
    /// prefix.
    pub(crate) const fn is_whole(self, case: &Case) -> bool {
        match self {
            Self::Strategy(_) | Self::AllGather => true,
            Self::Ideal | Self::Memcpy => false,
            Self::AllReduce => case.prefix_tokens == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_compared_does_the_whole_work() {
        let is_whole = |prefix_tokens| {
            let case = Case { prefix_tokens, new_tokens: 1024, requests: 1 };
            let ways = Way::all(&[Strategy::PerSpan]);
            ways.into_iter().filter(|way| way.is_whole(&case)).map(Way::name).collect::<Vec<_>>()
        };
        assert_eq!(is_whole(1024), ["per_span", "mpi_allgatherv"]);
        assert_eq!(is_whole(0), ["per_span", "mpi_allgatherv", "mpi_allreduce"]);
    }
}

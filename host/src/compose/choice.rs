//! Which strategy a batch takes. Pure, and the same on every rank: all it depends on was compared at registration.

use super::ComposeError;
use super::options::StrategyChoice;
use super::stats::Path;
use crate::plan::{SlotPlan, Strategy};

/// What the ranks agreed on, and what a batch is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions<'a> {
    /// Why peers' memory is out of reach; `None` where it is not.
    pub(super) unreachable: Option<&'a str>,
    /// Whether a collective was given at registration.
    pub(super) has_collective: bool,
    /// Whether symmetric dense buffers were registered.
    pub(super) has_symm_dense: bool,
    /// Whether every current page of the batch has exactly one producer.
    pub(super) page_aligned: bool,
}

impl Conditions<'_> {
    /// Why `strategy` cannot be used; `None` where it can.
    fn hindrance(self, strategy: Strategy) -> Option<String> {
        if strategy.needs_collective() && !self.has_collective {
            return Some("no collective was given at registration".to_owned());
        }
        if strategy.needs_page_aligned() && !self.page_aligned {
            return Some("a prefix of the batch ends inside a page".to_owned());
        }
        if let Some(reason) = self.unreachable.filter(|_| strategy.needs_peer_access()) {
            return Some(format!("the ranks cannot read each other's memory ({reason})"));
        }
        (strategy == Strategy::SymmDense && !self.has_symm_dense)
            .then(|| "no symmetric dense buffer was registered (symm_dense_slots)".to_owned())
    }

    /// The path of a batch.
    pub(super) fn choose(self, choice: StrategyChoice) -> Result<Path, ComposeError> {
        let (strategy, reason) = match choice {
            StrategyChoice::Exactly(strategy) => (strategy, String::new()),
            StrategyChoice::Auto => match self.hindrance(Strategy::StagingFill) {
                None => (Strategy::StagingFill, String::new()),
                Some(reason) => (Strategy::FusedAllReduce, reason),
            },
        };
        match self.hindrance(strategy) {
            None => Ok(Path { strategy, reason }),
            Some(hindrance) => {
                let because = if reason.is_empty() { hindrance } else { format!("{reason}; {hindrance}") };
                Err(ComposeError::StrategyUnavailable { strategy, reason: because })
            }
        }
    }
}

/// The path that [`StrategyChoice::Auto`] takes for the batch that `slots` lays out, where the ranks can read each other's
/// memory and a collective was given. What a machine can do, only a registration tells.
///
/// # Errors
/// None today: a collective takes every batch.
pub fn expected_path(slots: &SlotPlan) -> Result<Path, ComposeError> {
    let page_aligned = slots.page_aligned();
    let machine = Conditions { unreachable: None, has_collective: true, has_symm_dense: false, page_aligned };
    machine.choose(StrategyChoice::Auto)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Conditions<'_> =
        Conditions { unreachable: None, has_collective: true, has_symm_dense: true, page_aligned: true };

    #[test]
    fn the_default_is_taken_wherever_it_can_be() {
        let path = GOOD.choose(StrategyChoice::Auto).unwrap();
        assert_eq!((path.strategy, path.reason.as_str()), (Strategy::StagingFill, ""));
        for strategy in Strategy::ALL {
            assert_eq!(GOOD.choose(StrategyChoice::Exactly(strategy)).unwrap().strategy, strategy);
        }
    }

    #[test]
    fn a_fallback_says_why_and_an_explicit_choice_is_never_replaced() {
        let bad = [
            (Conditions { unreachable: Some("no luck"), ..GOOD }, "no luck"),
            (Conditions { page_aligned: false, ..GOOD }, "inside a page"),
        ];
        for (conditions, word) in bad {
            let path = conditions.choose(StrategyChoice::Auto).unwrap();
            assert_eq!(path.strategy, Strategy::FusedAllReduce);
            assert!(path.reason.contains(word));
            let error = conditions.choose(StrategyChoice::Exactly(Strategy::StagingFill)).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
            let alone = Conditions { has_collective: false, ..conditions };
            let error = alone.choose(StrategyChoice::Auto).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("no collective"), "{error}");
        }
        let no_dense = Conditions { has_symm_dense: false, ..GOOD };
        assert!(no_dense.choose(StrategyChoice::Exactly(Strategy::SymmDense)).is_err());
    }
}

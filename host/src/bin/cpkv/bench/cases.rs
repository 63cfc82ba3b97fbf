//! The sweep's batches: which of a grid are measured, and what memory they need. Pure.

use std::fmt;

use cpkv::model::ModelSpec;
use cpkv::units::GroupSize;
use serde::Serialize;

use super::figures::tokens;

/// One batch of the sweep; tokens are of the whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Case {
    /// Tokens that are in the pool already.
    pub(crate) prefix_tokens: u32,
    /// Tokens that the batch computes.
    pub(crate) new_tokens: u32,
    /// Its requests.
    pub(crate) requests: u32,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix_tokens, new_tokens, requests } = *self;
        let plural = if requests == 1 { "" } else { "s" };
        write!(f, "{} new, {} prefix, {requests} request{plural}", tokens(new_tokens), tokens(prefix_tokens))
    }
}

/// The values of each axis, and the case that the others differ from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) prefix_tokens: &'static [u32],
    pub(crate) new_tokens: &'static [u32],
    pub(crate) requests: &'static [u32],
    pub(crate) centre: Case,
}

const K: u32 = 1024;

/// The grid of a whole run.
pub(crate) const FULL: Grid = Grid {
    prefix_tokens: &[0, 8 * K, 32 * K, 128 * K],
    new_tokens: &[K, 4 * K, 16 * K, 64 * K],
    requests: &[1, 8, 32],
    centre: Case { prefix_tokens: 8 * K, new_tokens: 4 * K, requests: 8 },
};

/// The grid of `--quick`.
pub(crate) const QUICK: Grid = Grid {
    prefix_tokens: &[0, 4 * K],
    new_tokens: &[K, 4 * K],
    requests: &[1, 8],
    centre: Case { prefix_tokens: 4 * K, new_tokens: K, requests: 8 },
};

impl Grid {
    /// The cases that are measured: the centre, then those that differ from it in one number, then the smallest batch.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let centre = self.centre;
        let mut cases = vec![centre];
        cases.extend(self.new_tokens.iter().map(|&new_tokens| Case { new_tokens, ..centre }));
        cases.extend(self.prefix_tokens.iter().map(|&prefix_tokens| Case { prefix_tokens, ..centre }));
        cases.extend(self.requests.iter().map(|&requests| Case { requests, ..centre }));
        let least = |values: &[u32]| values.iter().copied().min().unwrap_or(1);
        cases.push(Case {
            prefix_tokens: least(self.prefix_tokens),
            new_tokens: least(self.new_tokens),
            requests: least(self.requests),
        });
        let mut distinct: Vec<Case> = Vec::with_capacity(cases.len());
        for case in cases {
            if !distinct.contains(&case) {
                distinct.push(case);
            }
        }
        distinct
    }

    /// What is not measured of the grid, and why: how many cases, and the reason; `None` where all are.
    pub(crate) fn thinned(&self) -> Option<(usize, String)> {
        let all = self.prefix_tokens.len() * self.new_tokens.len() * self.requests.len();
        let left_out = all - self.cases().len();
        let why = format!(
            "the grid is thinned: measured are the centre ({}), what differs from it in one number, and the smallest batch",
            self.centre
        );
        (left_out > 0).then_some((left_out, why))
    }
}

/// Memory of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Pages of the group-wide pool.
    pub(crate) pool_pages: u32,
    /// Dense slots of the largest batch.
    pub(crate) max_slots: u32,
    /// Current pages of the batch with most of them, with a partial one a request.
    pub(crate) max_current: u32,
    pub(crate) max_new_tokens: u32,
    pub(crate) max_requests: u32,
}

impl Footprint {
    /// What `cases` need together: memory is registered once for all.
    pub(crate) fn of(cases: &[Case], page_size: u32) -> Self {
        let mut needs = Self::default();
        for case in cases {
            let current = case.new_tokens.div_ceil(page_size) + case.requests;
            let slots = case.prefix_tokens.div_ceil(page_size) + current;
            needs.pool_pages = needs.pool_pages.max(slots);
            needs.max_slots = needs.max_slots.max(slots);
            needs.max_current = needs.max_current.max(current);
            needs.max_new_tokens = needs.max_new_tokens.max(case.new_tokens);
            needs.max_requests = needs.max_requests.max(case.requests);
        }
        needs
    }

    /// About how many bytes that is on one machine, over all ranks: pool, dense buffers and their symmetric halves, staging,
    /// memory of the yardsticks.
    pub(crate) fn bytes(&self, model: &ModelSpec, size: GroupSize) -> u64 {
        let page_bytes: u64 = model.buffers.iter().map(|buffer| buffer.spec.page_bytes()).sum();
        let dense = u64::from(self.max_slots) * page_bytes;
        let staging = 2 * u64::from(self.max_current) * page_bytes;
        let per_rank = 5 * dense + staging + u64::from(self.max_current) * page_bytes;
        u64::from(self.pool_pages) * model.page_bytes_all_layers() + u64::from(size.get()) * per_rank
    }
}

/// `cases` without the largest ones, until they need `budget_bytes` at most; and those that went.
pub(crate) fn fit_memory(
    mut cases: Vec<Case>,
    model: &ModelSpec,
    size: GroupSize,
    budget_bytes: u64,
) -> (Vec<Case>, Vec<Case>) {
    let mut gone = Vec::new();
    while Footprint::of(&cases, model.page_size).bytes(model, size) > budget_bytes {
        let largest = (0..cases.len()).max_by_key(|&at| {
            let alone = cases.get(at..=at).unwrap_or_default();
            Footprint::of(alone, model.page_size).bytes(model, size)
        });
        let Some(largest) = largest else { break };
        gone.push(cases.remove(largest));
    }
    (cases, gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_each_axis_is_measured_once_and_the_rest_is_said_to_be_left_out() {
        for (grid, num_cases, num_left_out) in [(FULL, 10, 38), (QUICK, 5, 3)] {
            let cases = grid.cases();
            assert_eq!(cases.len(), num_cases);
            assert_eq!(cases[0], grid.centre);
            let has = |value: u32, of: fn(&Case) -> u32| cases.iter().any(|case| of(case) == value);
            assert!(grid.prefix_tokens.iter().all(|&tokens| has(tokens, |case| case.prefix_tokens)));
            assert!(grid.new_tokens.iter().all(|&tokens| has(tokens, |case| case.new_tokens)));
            assert!(grid.requests.iter().all(|&requests| has(requests, |case| case.requests)));
            let (left_out, why) = grid.thinned().unwrap();
            assert_eq!(left_out, num_left_out);
            assert!(why.contains(&grid.centre.to_string()), "{why}");
        }
    }

    #[test]
    fn the_largest_batches_go_first_where_memory_is_short() {
        let model = ModelSpec::preset("mla-fp8-78").unwrap().take_layers(2).unwrap();
        let size = GroupSize::new(8).unwrap();
        let all = FULL.cases();
        let whole = Footprint::of(&all, 64).bytes(&model, size);
        assert_eq!(fit_memory(all.clone(), &model, size, whole), (all.clone(), vec![]));
        let (kept, gone) = fit_memory(all.clone(), &model, size, whole - 1);
        assert_eq!(gone, [Case { prefix_tokens: 128 * K, ..FULL.centre }]);
        assert_eq!(kept.len() + 1, all.len());
        let (kept, gone) = fit_memory(all.clone(), &model, size, 0);
        assert_eq!((kept.len(), gone.len()), (0, all.len()));
    }

    #[test]
    fn a_footprint_counts_a_partial_page_a_request() {
        let case = Case { prefix_tokens: 128, new_tokens: 65, requests: 3 };
        let needs = Footprint::of(&[case], 64);
        assert_eq!((needs.max_current, needs.max_slots, needs.pool_pages), (2 + 3, 2 + 2 + 3, 7));
    }
}

//! Which rows a page holds: runs of rows of one origin, zero behind the last.

use crate::units::{PageId, Rank};

/// A run of rows of one origin, from the end of the run before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRun {
    /// One past its last row.
    pub end_row: u32,
    /// The page the rows were computed for.
    pub page: PageId,
    /// The rank that computed them.
    pub writer: Rank,
    /// The compose that computed them.
    pub generation: u64,
}

/// The rows of a page. A page nobody wrote has none: it is all zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRows {
    runs: Vec<RowRun>,
}

impl PageRows {
    /// The first `num_rows` rows of this page.
    #[must_use]
    pub fn head(&self, num_rows: u32) -> Self {
        let mut start = 0;
        let mut runs = Vec::new();
        for run in &self.runs {
            if start < num_rows {
                runs.push(RowRun { end_row: run.end_row.min(num_rows), ..*run });
            }
            start = run.end_row;
        }
        Self { runs }
    }

    /// Adds a run behind the others.
    pub fn push(&mut self, run: RowRun) {
        self.runs.push(run);
    }

    /// The origin of `row`; `None` where it is zero.
    pub fn origin(&self, row: u32) -> Option<RowRun> {
        self.runs.iter().find(|run| row < run.end_row).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_page_cuts_runs_and_rows_behind_are_zero() {
        let run = |end_row, page| RowRun { end_row, page: PageId(page), writer: Rank(0), generation: 0 };
        let mut rows = PageRows::default();
        rows.push(run(3, 1));
        rows.push(run(8, 2));
        let head = rows.head(5);
        assert_eq!([0, 2, 3, 4].map(|row| head.origin(row).unwrap().page.0), [1, 1, 2, 2]);
        assert_eq!(head.origin(5), None);
        assert_eq!(rows.head(2).origin(2), None);
    }
}

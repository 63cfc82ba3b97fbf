//! A table of a report: cells, of which each figure says where in the JSON it stands. Pure.

use super::figures::{bytes, short, tokens};

/// A table with its heading.
pub(crate) struct Table {
    /// Which part it belongs to: `barrier`, `gather`, ...
    pub(crate) part: &'static str,
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Whether column `at` holds figures.
    pub(crate) fn is_number(&self, at: usize) -> bool {
        self.rows.iter().any(|row| row.get(at).is_some_and(|cell| cell.figure.is_some()))
    }
}

/// What is special about a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mark {
    #[default]
    None,
    /// Ours, and another is faster.
    Lost,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) figure: Option<PathValue>,
    pub(crate) mark: Mark,
}

/// A number, and its JSON pointer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PathValue {
    pub(crate) path: String,
    pub(crate) value: f64,
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    pub(crate) fn written(text: String, value: f64, path: String) -> Self {
        Self { text, figure: Some(PathValue { path, value }), mark: Mark::None }
    }

    pub(crate) fn number(value: f64, path: String) -> Self {
        Self::written(short(value), value, path)
    }

    pub(crate) fn count(value: usize, path: String) -> Self {
        Self::written(value.to_string(), value as f64, path)
    }

    pub(crate) fn bytes(value: u64, path: String) -> Self {
        Self::written(bytes(value), value as f64, path)
    }

    pub(crate) fn tokens(value: u32, path: String) -> Self {
        Self::written(tokens(value), f64::from(value), path)
    }

    pub(crate) fn lost_if(self, is_lost: bool) -> Self {
        Self { mark: if is_lost { Mark::Lost } else { Mark::None }, ..self }
    }
}

//! What a check came to: values that travel from its process to the report.

use serde::{Deserialize, Serialize};

/// Whatever went wrong, with its message.
pub(crate) type Problem = Box<dyn std::error::Error + Send + Sync>;

/// The GPU could not be opened, though the program saw it before: no other check can open it either.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Gone(pub(crate) String);

/// What a check came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// All was as it must be.
    Passed {
        /// What was seen.
        detail: String,
        /// What was measured.
        tables: Vec<Figures>,
    },
    /// Something was not.
    Failed {
        /// What.
        reason: String,
    },
    /// The GPU could not be opened, though the program saw it before.
    DeviceGone {
        /// The driver's answer.
        reason: String,
    },
    /// It cannot be checked here.
    Skipped {
        /// Why.
        reason: String,
    },
}

impl Outcome {
    /// Passed, without figures.
    pub(crate) fn passed(detail: impl Into<String>) -> Self {
        Self::Passed { detail: detail.into(), tables: Vec::new() }
    }

    /// Failed.
    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into() }
    }

    /// Skipped.
    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self::Skipped { reason: reason.into() }
    }

    /// One word.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Passed { .. } => "passed",
            Self::Failed { .. } | Self::DeviceGone { .. } => "FAILED",
            Self::Skipped { .. } => "skipped",
        }
    }

    /// What there is to say.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Passed { detail, .. } => detail,
            Self::Failed { reason } | Self::DeviceGone { reason } | Self::Skipped { reason } => reason,
        }
    }
}

/// Figures of a benchmark, one row a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// What was measured.
    pub(crate) title: String,
    /// Names of the columns, units included.
    pub(crate) columns: Vec<String>,
    /// `[cases, columns]`.
    pub(crate) rows: Vec<Vec<Cell>>,
    /// How, and what was aimed at.
    pub(crate) notes: Vec<String>,
}

/// One cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Cell {
    /// A count.
    Count(u64),
    /// A measurement.
    Number(f64),
    /// Words.
    Text(String),
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Figures {
    /// No case yet.
    pub(crate) fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        let columns = columns.iter().map(ToString::to_string).collect();
        Self { title: title.into(), columns, rows: Vec::new(), notes: Vec::new() }
    }

    /// Adds a case.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }
}

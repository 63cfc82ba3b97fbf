//! Errors of the units. Each other boundary has its own enum beside its code.

use thiserror::Error;

/// A number outside its unit's range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnitError {
    /// A group of no rank, or of more ranks than a 64-bit mask can name.
    #[error("group size {got} is outside 1..=64: choose between 1 and 64 ranks")]
    GroupSize {
        /// The refused number.
        got: u32,
    },
}

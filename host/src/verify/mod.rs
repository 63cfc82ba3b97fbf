//! Verification: stamped rows, and the oracle that says which bytes every dense slot must hold.

mod oracle;
mod page_rows;
mod stamp;

pub use oracle::{Difference, Oracle};
pub use page_rows::{PageRows, RowRun};
pub use stamp::{RowId, Stamps};

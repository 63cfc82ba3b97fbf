//! How long a page of the prefill side stays taken. Every rank keeps the same list of free pages, so a page is freed by all
//! ranks together, when none of them sends it any more.
//!
//! 1. [`HeldPages::hold`], before the first write of a request: on every rank, with all pages of the request.
//! 2. The rank's own transfer of it ends, or is confirmed quiet.
//! 3. [`agree_quiet`]: all ranks meet, and learn which requests have come so far everywhere.
//! 4. [`HeldPages::release`] for those, in the order of the answer: the pages that are free now, the same on every rank.

mod held_pages;
mod quiet;

pub use held_pages::HeldPages;
pub use quiet::agree_quiet;

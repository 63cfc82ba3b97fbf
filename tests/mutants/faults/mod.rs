//! The faults that are planted.

mod barrier;
mod bulk;
mod copies;
mod pages;
mod rows;
mod words;

use crate::fault::Fault;

/// All faults.
pub(crate) fn all() -> Vec<&'static Fault> {
    [words::FAULTS, barrier::FAULTS, pages::FAULTS, rows::FAULTS, copies::FAULTS, bulk::FAULTS]
        .into_iter()
        .flatten()
        .collect()
}

/// Those whose names contain one of `words`; where there are none, `all` or the quick ones.
pub(crate) fn chosen(all_of_them: bool, words: &[&str]) -> Vec<&'static Fault> {
    let mut chosen = all();
    chosen.retain(|fault| match words {
        [] => all_of_them || fault.is_quick,
        words => words.iter().any(|word| fault.name.contains(word)),
    });
    chosen
}

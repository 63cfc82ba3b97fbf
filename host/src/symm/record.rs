//! The registration record: what ranks compare before they share memory.

use serde::{Deserialize, Serialize};

/// Version of everything peers read in each other's memory: signal pad, pages, descriptors.
pub const ABI_VERSION: u32 = 1;

/// One fact all ranks must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its name, for the error.
    pub name: String,
    /// Its value, as text.
    pub value: String,
}

/// Facts all ranks must agree on, in a fixed order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistrationRecord {
    fields: Vec<Field>,
}

impl Default for RegistrationRecord {
    fn default() -> Self {
        Self { fields: Vec::new() }
            .with("library version", env!("CARGO_PKG_VERSION"))
            .with("abi version", ABI_VERSION)
    }
}

impl RegistrationRecord {
    /// The record with one more fact.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.fields.push(Field { name: name.to_owned(), value: value.to_string() });
        self
    }

    /// The facts.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }
}

/// The first fact on which `record` differs from `reference`: its name, the reference's value, the other's.
pub(super) fn first_difference(
    reference: &RegistrationRecord,
    record: &RegistrationRecord,
) -> Option<(String, String, String)> {
    let missing = Field { name: String::new(), value: "(missing)".to_owned() };
    let len = reference.fields.len().max(record.fields.len());
    (0..len).find_map(|i| {
        let expected = reference.fields.get(i).unwrap_or(&missing);
        let got = record.fields.get(i).unwrap_or(&missing);
        let name = if expected.name.is_empty() { &got.name } else { &expected.name };
        (expected != got).then(|| (name.clone(), expected.value.clone(), got.value.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_differing_field_is_named_with_both_values() {
        let ours = RegistrationRecord::default().with("page size", 64).with("model", "tiny");
        let theirs = RegistrationRecord::default().with("page size", 32).with("model", "other");
        let difference = first_difference(&ours, &theirs).unwrap();
        assert_eq!(difference, ("page size".to_owned(), "64".to_owned(), "32".to_owned()));
        assert_eq!(first_difference(&ours, &ours.clone()), None);
        let shorter = RegistrationRecord::default();
        assert_eq!(first_difference(&ours, &shorter).unwrap().2, "(missing)");
    }
}

//! What ranks make together or not at all, while they register.

use super::bootstrap::Bootstrap;
use crate::deadline::Deadline;
use crate::device::DeviceError;
use crate::symm::{Exchange, RegisterError};

/// The ranks that register `name`.
pub(super) struct Together<'a> {
    pub(super) name: &'a str,
    pub(super) bootstrap: &'a dyn Bootstrap,
    pub(super) deadline: Deadline,
}

impl Together<'_> {
    /// What this rank made, if every rank made it. Collective.
    pub(super) fn made<T>(
        &self,
        call: &'static str,
        made: Result<T, DeviceError>,
    ) -> Result<T, RegisterError> {
        let (name, bootstrap, deadline) = (self.name, self.bootstrap, self.deadline);
        Exchange { name, bootstrap, deadline }.all_or_none(call, made.as_ref().err())?;
        made.map_err(|problem| RegisterError::Device { region: name.to_owned(), problem })
    }
}

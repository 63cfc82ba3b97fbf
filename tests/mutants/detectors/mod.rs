//! What each detector does. A panic is a catch.

pub(crate) mod barrier;
pub(crate) mod kernels;
pub(crate) mod processes;
pub(crate) mod strategies;
pub(crate) mod timeout;

use std::time::Duration;

use cpkv::group::GroupOptions;

use crate::fixture::LONG;

/// Enough for ranks that come, on a busy machine.
pub(crate) const PATIENT: Duration = Duration::from_secs(10);

/// Checked, and barriers that give up after `barrier_timeout`; the host waits a little longer.
pub(crate) const fn group_options(barrier_timeout: Duration) -> GroupOptions {
    GroupOptions {
        barrier_timeout,
        host_timeout: Duration::from_secs(barrier_timeout.as_secs() + 5),
        bootstrap_timeout: LONG,
        checked: true,
        num_spins: None,
    }
}

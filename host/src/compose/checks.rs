//! What checked mode looks at after a batch: epochs and guards.

use super::ComposeError;
use super::composer::Composer;
use crate::deadline::Deadline;
use crate::group::Group;

/// Host and device count the same epochs.
pub(super) fn check_epoch(group: &Group) -> Result<(), ComposeError> {
    let Some(state) = group.state() else { return Ok(()) };
    let mut epoch = [0; 8];
    group.stream().download(state, &mut epoch, Deadline::after(group.options().host_timeout))?;
    let (host, device) = (group.epoch(), u64::from_le_bytes(epoch));
    if host.0 != device {
        return Err(ComposeError::EpochDrift { host, device });
    }
    Ok(())
}

/// Nobody wrote past a buffer of this rank.
pub(super) fn check_guards(composer: &Composer) -> Result<(), ComposeError> {
    let (group, pool, staging) = (&composer.group, &composer.pool, composer.staging.as_ref());
    let device = group.device();
    let regions = [
        ("signals", group.broken_guards()),
        ("pool", pool.broken_guards(device)),
        ("staging", staging.map_or(Ok(Vec::new()), |staging| staging.region.broken_guards(device))),
    ];
    for (region, broken) in regions {
        let broken = broken?;
        if let Some(&offset) = broken.first() {
            return Err(ComposeError::GuardBroken { region: region.to_owned(), offset: offset as i64 });
        }
    }
    let deadline = Deadline::after(group.options().host_timeout);
    if let Some((buffer, offset)) = composer.dense.broken_guard(group.stream(), deadline)? {
        let region = format!("dense {}", pool.model().buffers[buffer].name);
        return Err(ComposeError::GuardBroken { region, offset });
    }
    Ok(())
}

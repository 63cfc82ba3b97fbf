//! Staged faults: what a test asks this driver to do wrong.
//!
//! `CPKV_VGPU_FAULTS` is a list `name[=value][@target]` with commas between. The target is a physical device index
//! (`@1`) or a rank (`@rank3`, compared with `OMPI_COMM_WORLD_RANK`); without one the fault is staged everywhere.
//! The table of names stands in the documentation of [the driver](super).

use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

/// What can be staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    PeerLies,
    PeerOff,
    PeerGarbage,
    LostAdds,
    AllocFails,
    HostAllocFails,
    ModuleFails,
    StreamFails,
    EventFails,
    LaunchFails,
    ExportFails,
    Slow,
    Stuck,
    Ecc,
    SlowHost,
}

/// What a fault's value means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    None,
    Number,
    Name,
}

const NAMES: [(&str, Fault, Value); 15] = [
    ("peer-lies", Fault::PeerLies, Value::None),
    ("peer-off", Fault::PeerOff, Value::None),
    ("peer-garbage", Fault::PeerGarbage, Value::None),
    ("lost-adds", Fault::LostAdds, Value::None),
    ("alloc-fails", Fault::AllocFails, Value::Number),
    ("host-alloc-fails", Fault::HostAllocFails, Value::Number),
    ("module-fails", Fault::ModuleFails, Value::None),
    ("stream-fails", Fault::StreamFails, Value::Number),
    ("event-fails", Fault::EventFails, Value::Number),
    ("launch-fails", Fault::LaunchFails, Value::Number),
    ("export-fails", Fault::ExportFails, Value::None),
    ("slow", Fault::Slow, Value::Number),
    ("stuck", Fault::Stuck, Value::Name),
    ("ecc", Fault::Ecc, Value::Number),
    ("slow-host", Fault::SlowHost, Value::Number),
];

/// A list of faults that could not be read.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum StagedError {
    #[error("CPKV_VGPU_FAULTS: no fault is named `{0}`; see the table in tests/vgpu/src/driver/mod.rs")]
    Unknown(String),
    #[error("CPKV_VGPU_FAULTS: `{0}` wants a value, as in `{0}=3`")]
    NoValue(String),
    #[error("CPKV_VGPU_FAULTS: `{0}` takes no value, or not `{1}`")]
    BadValue(String, String),
    #[error("CPKV_VGPU_FAULTS: `{0}` is neither a device index nor rank<k>")]
    BadTarget(String),
}

struct Entry {
    fault: Fault,
    number: u64,
    name: String,
    device: Option<u32>,
    calls: AtomicU64,
}

/// The faults staged in this process.
#[derive(Default)]
pub(super) struct Staged {
    entries: Vec<Entry>,
}

impl Staged {
    /// Reads a list; `rank` is this process's, if it has one.
    pub(super) fn parse(text: &str, rank: Option<u32>) -> Result<Staged, StagedError> {
        let mut entries = Vec::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (fault, target) = item.split_once('@').map_or((item, None), |(fault, to)| (fault, Some(to)));
            let (name, value) = fault.split_once('=').map_or((fault, None), |(name, v)| (name, Some(v)));
            let mut device = None;
            let mut here = true;
            if let Some(target) = target {
                let bad = || StagedError::BadTarget(target.to_owned());
                match target.strip_prefix("rank") {
                    Some(number) => here = rank == Some(number.parse::<u32>().map_err(|_| bad())?),
                    None => device = Some(target.parse::<u32>().map_err(|_| bad())?),
                }
            }
            let entry = entry(name, value, device)?;
            if here {
                entries.push(entry);
            }
        }
        Ok(Staged { entries })
    }

    /// Whether a fault is staged on this device.
    pub(super) fn is(&self, fault: Fault, device: u32) -> bool {
        self.find(fault, device).is_some()
    }

    /// The number it was given.
    pub(super) fn number(&self, fault: Fault, device: u32) -> Option<u64> {
        self.find(fault, device).map(|entry| entry.number)
    }

    /// Counts a call; true for the one that was to fail, counted from 1.
    pub(super) fn nth(&self, fault: Fault, device: u32) -> bool {
        self.find(fault, device)
            .is_some_and(|entry| entry.calls.fetch_add(1, Ordering::Relaxed) + 1 == entry.number)
    }

    /// Counts a call; true for every one after the number that was to succeed.
    pub(super) fn beyond(&self, fault: Fault, device: u32) -> bool {
        self.find(fault, device)
            .is_some_and(|entry| entry.calls.fetch_add(1, Ordering::Relaxed) + 1 > entry.number)
    }

    /// Counts a call of this name; true for those that are to fail: from the n-th on, counted from 1, where the name
    /// has a `:n` behind it.
    pub(super) fn names(&self, fault: Fault, device: u32, name: &str) -> bool {
        self.of(fault, device)
            .filter(|entry| entry.name == name)
            .any(|entry| entry.calls.fetch_add(1, Ordering::Relaxed) + 1 >= entry.number)
    }

    fn of(&self, fault: Fault, device: u32) -> impl Iterator<Item = &Entry> {
        let meant = move |entry: &&Entry| entry.fault == fault && entry.device.is_none_or(|at| at == device);
        self.entries.iter().filter(meant)
    }

    fn find(&self, fault: Fault, device: u32) -> Option<&Entry> {
        self.of(fault, device).next()
    }
}

fn entry(name: &str, value: Option<&str>, device: Option<u32>) -> Result<Entry, StagedError> {
    let (_, fault, kind) = NAMES
        .iter()
        .find(|(known, ..)| *known == name)
        .ok_or_else(|| StagedError::Unknown(name.to_owned()))?;
    let bad = |value: &str| StagedError::BadValue(name.to_owned(), value.to_owned());
    let (number, word) = match (kind, value) {
        (Value::None, None) => (0, String::new()),
        (Value::None, Some(value)) => return Err(bad(value)),
        (_, None | Some("")) => return Err(StagedError::NoValue(name.to_owned())),
        (Value::Number, Some(value)) => (value.parse().map_err(|_| bad(value))?, String::new()),
        (Value::Name, Some(value)) => match value.split_once(':') {
            None => (1, value.to_owned()),
            Some((word, first)) => (first.parse().map_err(|_| bad(value))?, word.to_owned()),
        },
    };
    Ok(Entry { fault: *fault, number, name: word, device, calls: AtomicU64::new(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_limits_a_fault_to_a_device_or_a_rank() {
        let staged = Staged::parse("peer-lies@1, slow=50@rank3,stuck=barrier", Some(2)).unwrap();
        assert!(staged.is(Fault::PeerLies, 1) && !staged.is(Fault::PeerLies, 0));
        assert_eq!(staged.number(Fault::Slow, 0), None);
        assert!(staged.names(Fault::Stuck, 5, "barrier") && !staged.names(Fault::Stuck, 5, "gather"));
        let later = Staged::parse("stuck=zero:3", None).unwrap();
        let stuck: Vec<bool> = (0..4).map(|_| later.names(Fault::Stuck, 0, "zero")).collect();
        assert_eq!(stuck, [false, false, true, true]);
        let there = Staged::parse("slow=50@rank3", Some(3)).unwrap();
        assert_eq!(there.number(Fault::Slow, 0), Some(50));
    }

    #[test]
    fn only_the_nth_call_fails() {
        let staged = Staged::parse("alloc-fails=3", None).unwrap();
        let failed: Vec<bool> = (0..5).map(|_| staged.nth(Fault::AllocFails, 0)).collect();
        assert_eq!(failed, [false, false, true, false, false]);
        let staged = Staged::parse("ecc=2", None).unwrap();
        let failed: Vec<bool> = (0..4).map(|_| staged.beyond(Fault::Ecc, 0)).collect();
        assert_eq!(failed, [false, false, true, true]);
    }

    #[test]
    fn a_misspelt_fault_is_refused() {
        let error = |text| Staged::parse(text, None).err();
        assert_eq!(error("peer-lie"), Some(StagedError::Unknown("peer-lie".into())));
        assert_eq!(error("ecc"), Some(StagedError::NoValue("ecc".into())));
        assert_eq!(error("stuck=zero:x"), Some(StagedError::BadValue("stuck".into(), "zero:x".into())));
        assert_eq!(error("ecc=x"), Some(StagedError::BadValue("ecc".into(), "x".into())));
        assert_eq!(error("peer-off=1"), Some(StagedError::BadValue("peer-off".into(), "1".into())));
        assert_eq!(error("peer-off@x"), Some(StagedError::BadTarget("x".into())));
    }
}

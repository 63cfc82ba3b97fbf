//! A symmetric region: the same size and layout on every rank, each rank's mapped by all.
//!
//! Life cycle, every step collective:
//!
//! 1. *compare* the registration records: a rank that differs is named, nothing is allocated
//! 2. look whether all ranks' memory fits, *allocate* the own and fill its guards; whoever cannot says so, and all
//!    give up together
//! 3. *export* a handle and exchange it
//! 4. *open* the peers' memory; the outcomes are exchanged, so all use the region or none does
//! 5. use: `base(r) + offset` is the same object on rank `r`
//! 6. *close* the peers' mappings -> bootstrap barrier -> free the own memory: [`SymmRegion::close`]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;

use super::arena::{ArenaError, ArenaLayout, Carve, GUARD_BYTE};
use super::backend::{Mapping, SymmBackend, SymmError};
use super::record::{RegistrationRecord, first_difference};
use crate::deadline::Deadline;
use crate::device::{DeviceBuffer, DeviceError};
use crate::group::{Bootstrap, BootstrapError, majority};
use crate::units::{GroupSize, Rank};

/// Why a region could not be registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The ranks' records differ.
    #[error("register `{region}`: rank {rank} has {field} {got}, the others have {expected}")]
    Mismatch {
        /// The region.
        region: String,
        /// The odd rank.
        rank: Rank,
        /// The first field that differs.
        field: String,
        /// The others' value.
        expected: String,
        /// The odd rank's value.
        got: String,
    },
    /// Another rank failed; this one gave up with it.
    #[error("register `{region}`: rank {rank} failed: {reason}")]
    Peer {
        /// The region.
        region: String,
        /// The rank that failed.
        rank: Rank,
        /// Its error.
        reason: String,
    },
    /// The memory of this rank.
    #[error("register `{region}`: {problem}")]
    Memory {
        /// The region.
        region: String,
        /// Why.
        problem: SymmError,
    },
    /// The exchange between the ranks.
    #[error("register `{region}`: {problem}")]
    Bootstrap {
        /// The region.
        region: String,
        /// Why.
        problem: BootstrapError,
    },
    /// The device, while probing.
    #[error("register `{region}`: {problem}")]
    Device {
        /// The region.
        region: String,
        /// Why.
        problem: DeviceError,
    },
    /// The layout.
    #[error(transparent)]
    Layout(#[from] ArenaError),
    /// The region's signal pad serves a group already.
    #[error(
        "register a group: the signal pad of `{region}` serves a group already: register a region of its own"
    )]
    PadTaken {
        /// The region.
        region: String,
    },
    /// A message of another rank could not be read.
    #[error("register `{region}`: rank {rank} sent a message this version cannot read")]
    Message {
        /// The region.
        region: String,
        /// The rank.
        rank: Rank,
    },
}

/// A registered region.
pub struct SymmRegion {
    name: String,
    rank: Rank,
    layout: ArenaLayout,
    own: Mapping,
    /// By rank; the own entry is the own mapping.
    peers: Vec<Mapping>,
    pad_taken: AtomicBool,
}

/// What registering came to, on all ranks alike.
pub enum Registered {
    /// Every rank can address every rank's memory.
    Mapped(SymmRegion),
    /// Some rank cannot open some peer's memory: who, and why.
    Unreachable(Vec<(Rank, String)>),
}

impl SymmRegion {
    /// Registers a region of `layout`. Collective.
    ///
    /// # Errors
    /// [`RegisterError`], on every rank, naming the rank that caused it.
    pub fn register(
        name: &str,
        bootstrap: &dyn Bootstrap,
        backend: &dyn SymmBackend,
        record: &RegistrationRecord,
        layout: ArenaLayout,
        deadline: Deadline,
    ) -> Result<Registered, RegisterError> {
        let rank = bootstrap.rank();
        let exchange = Exchange { name, bootstrap, deadline };
        let layout_hash = format!("{:016x}", layout.fingerprint());
        let record = record.clone().with("backend", backend.name()).with("order of carves", layout_hash);
        exchange.compare(&record)?;
        let memory = |problem| RegisterError::Memory { region: name.to_owned(), problem };
        // All ranks together, before any of them takes its part.
        let room = room_for_all(backend, layout.region_bytes(), bootstrap.group_size());
        exchange.all_or_none("register: check memory", room.as_ref().err())?;
        room.map_err(memory)?;
        let allocated = backend.allocate(layout.region_bytes());
        exchange.all_or_none("register: allocate", allocated.as_ref().err())?;
        let own = allocated.map_err(memory)?;
        fill_guards(&layout, &own);
        let exported = backend.export(&own, deadline);
        exchange.all_or_none("register: export", exported.as_ref().err())?;
        let exported = exported.map_err(memory)?;
        let handles = exchange.all_gather("register: handles", &exported.handle)?;
        let opened: Result<Vec<Mapping>, SymmError> = (0..)
            .zip(&handles)
            .map(|(peer, handle)| match Rank(peer) {
                peer if peer == rank => Ok(own.clone()),
                peer => backend.open(peer, handle, layout.region_bytes(), deadline),
            })
            .collect();
        let failures = exchange.outcomes("register: open", opened.as_ref().err())?;
        // Everyone has opened or given up: the handle is of no further use.
        drop(exported);
        Ok(match opened {
            Ok(peers) if failures.is_empty() => Registered::Mapped(Self {
                name: name.to_owned(),
                rank,
                layout,
                own,
                peers,
                pad_taken: AtomicBool::new(false),
            }),
            _ => Registered::Unreachable(failures),
        })
    }

    /// The region's name, for reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The layout it was registered with.
    pub const fn layout(&self) -> &ArenaLayout {
        &self.layout
    }

    /// Address of `carve` in rank `rank`'s memory, in this rank's address space.
    pub fn addr(&self, rank: Rank, carve: &Carve) -> u64 {
        self.peers[rank.idx()].addr + carve.offset
    }

    /// Addresses of `carve` on every rank.
    pub fn addrs(&self, carve: &Carve) -> Vec<u64> {
        self.peers.iter().map(|peer| peer.addr + carve.offset).collect()
    }

    /// This rank's `carve`, as a buffer; empty where the carve is not one of this region.
    pub fn own(&self, carve: &Carve) -> DeviceBuffer {
        let keep = Arc::clone(&self.own.keep);
        let is_inside = carve.offset.checked_add(carve.bytes).is_some_and(|end| end <= self.own.bytes);
        let (offset, bytes) = if is_inside { (carve.offset, carve.bytes) } else { (0, 0) };
        // SAFETY: the range lies inside the mapping, as just looked at, and `keep` owns that.
        unsafe { DeviceBuffer::from_raw(self.own.addr + offset, bytes, keep) }
    }

    /// All of this rank's memory, guards included.
    pub fn whole(&self) -> DeviceBuffer {
        // SAFETY: the whole mapping, which its `keep` owns.
        unsafe { DeviceBuffer::from_raw(self.own.addr, self.own.bytes, Arc::clone(&self.own.keep)) }
    }

    /// Marks the region's signal pad as serving a group.
    ///
    /// # Errors
    /// [`RegisterError::PadTaken`] the second time.
    pub fn take_pad(&self) -> Result<(), RegisterError> {
        // Relaxed: the flag orders nothing, it only admits one.
        if self.pad_taken.swap(true, Ordering::Relaxed) {
            return Err(RegisterError::PadTaken { region: self.name.clone() });
        }
        Ok(())
    }

    /// Offsets of guard bytes that somebody overwrote; empty when all is well. Host-addressable memory only.
    pub fn broken_guards(&self) -> Vec<u64> {
        broken_guards(&self.layout, &self.own)
    }

    /// Closes the peers' mappings, waits until every rank has, and frees the own memory. Collective.
    ///
    /// # Errors
    /// [`BootstrapError`] where a rank does not come; the memory is freed all the same.
    pub fn close(self, bootstrap: &dyn Bootstrap, deadline: Deadline) -> Result<(), BootstrapError> {
        let Self { own, peers, .. } = self;
        drop(peers);
        let closed = bootstrap.barrier("close region", deadline);
        drop(own);
        closed
    }

    /// As [`SymmRegion::close`], for a region that may have other holders: the last of them frees it.
    ///
    /// # Errors
    /// As [`SymmRegion::close`].
    pub fn close_shared(
        region: Arc<Self>,
        bootstrap: &dyn Bootstrap,
        deadline: Deadline,
    ) -> Result<(), BootstrapError> {
        match Arc::into_inner(region) {
            Some(region) => region.close(bootstrap, deadline),
            None => bootstrap.barrier("close region", deadline),
        }
    }

    /// This rank.
    pub const fn rank(&self) -> Rank {
        self.rank
    }
}

/// The exchanges of one registration.
struct Exchange<'a> {
    name: &'a str,
    bootstrap: &'a dyn Bootstrap,
    deadline: Deadline,
}

impl Exchange<'_> {
    fn all_gather(&self, call: &'static str, blob: &[u8]) -> Result<Vec<Vec<u8>>, RegisterError> {
        let wrap = |problem| RegisterError::Bootstrap { region: self.name.to_owned(), problem };
        self.bootstrap.all_gather(call, blob, self.deadline).map_err(wrap)
    }

    fn compare(&self, record: &RegistrationRecord) -> Result<(), RegisterError> {
        let unreadable = |rank| RegisterError::Message { region: self.name.to_owned(), rank: Rank(rank) };
        let blob = serde_json::to_vec(record).unwrap_or_default();
        let blobs = self.all_gather("register: record", &blob)?;
        let records: Vec<RegistrationRecord> = (0..)
            .zip(&blobs)
            .map(|(rank, blob)| serde_json::from_slice(blob).map_err(|_| unreadable(rank)))
            .collect::<Result<_, _>>()?;
        let (reference, odd) = majority(&records);
        let Some(rank) = odd.iter().next() else { return Ok(()) };
        let difference = first_difference(&records[reference.idx()], &records[rank.idx()]);
        let (field, expected, got) = difference.unwrap_or_default();
        Err(RegisterError::Mismatch { region: self.name.to_owned(), rank, field, expected, got })
    }

    /// Everyone's failure, by rank.
    fn outcomes(
        &self,
        call: &'static str,
        failure: Option<&SymmError>,
    ) -> Result<Vec<(Rank, String)>, RegisterError> {
        let mut text = failure.map(ToString::to_string).unwrap_or_default();
        if failure.is_some() && text.is_empty() {
            text.push('?');
        }
        let texts = self.all_gather(call, text.as_bytes())?;
        let texts = (0..).map(Rank).zip(texts).filter(|(_, text)| !text.is_empty());
        Ok(texts.map(|(rank, text)| (rank, String::from_utf8_lossy(&text).into_owned())).collect())
    }

    /// An error on every rank if any rank failed. The failing rank reports its own error itself.
    fn all_or_none(&self, call: &'static str, failure: Option<&SymmError>) -> Result<(), RegisterError> {
        let failures = self.outcomes(call, failure)?;
        match failures.into_iter().next() {
            Some((rank, reason)) if failure.is_none() => {
                Err(RegisterError::Peer { region: self.name.to_owned(), rank, reason })
            }
            _ => Ok(()),
        }
    }
}

/// Compares the ranks' records. Collective.
///
/// # Errors
/// [`RegisterError::Mismatch`], on every rank, naming the odd one and the field.
pub fn compare_records(
    name: &str,
    bootstrap: &dyn Bootstrap,
    record: &RegistrationRecord,
    deadline: Deadline,
) -> Result<(), RegisterError> {
    Exchange { name, bootstrap, deadline }.compare(record)
}

/// Who failed and why, as one line.
pub(crate) fn describe_failures(failures: &[(Rank, String)]) -> String {
    let lines: Vec<_> = failures.iter().map(|(rank, reason)| format!("rank {rank}: {reason}")).collect();
    lines.join("; ")
}

/// Whether every rank's `bytes` fit at once: the ranks share one machine.
fn room_for_all(backend: &dyn SymmBackend, bytes: u64, size: GroupSize) -> Result<(), SymmError> {
    let needed = bytes.saturating_mul(u64::from(size.get()));
    match backend.available_bytes() {
        Some(available_bytes) if needed > available_bytes => Err(SymmError::Reserve {
            backend: backend.name(),
            bytes: needed,
            call: "check of all ranks",
            code: 0,
            available_bytes,
        }),
        _ => Ok(()),
    }
}

fn guard_bytes(own: &Mapping, offset: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut((own.addr + offset) as usize)
}

fn fill_guards(layout: &ArenaLayout, own: &Mapping) {
    for (offset, bytes) in layout.guards() {
        // SAFETY: guards lie inside the region, which no peer has opened yet.
        unsafe { ptr::write_bytes(guard_bytes(own, offset), GUARD_BYTE, bytes as usize) };
    }
}

fn broken_guards(layout: &ArenaLayout, own: &Mapping) -> Vec<u64> {
    let guards = layout.guards().into_iter();
    let offsets = guards.flat_map(|(offset, bytes)| offset..offset + bytes);
    offsets
        .filter(|&offset| {
            // Volatile: a broken peer may be writing there.
            // SAFETY: guards lie inside the region.
            let byte = unsafe { guard_bytes(own, offset).read_volatile() };
            byte != GUARD_BYTE
        })
        .collect()
}

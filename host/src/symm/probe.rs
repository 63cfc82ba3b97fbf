//! The capability probe: whether every rank really reads every peer's bytes, and no concurrent add is lost.
//!
//! `can_access_peer` says yes on machines where the access fails, so the probe does what compose will do: read
//! by the gather kernel, add at system scope from all ranks at once.

use std::sync::Arc;

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{Descriptor, GatherParams, HalfSelect, ProbeParams};

use super::arena::{ArenaError, ArenaLayout, Carve};
use super::error::RegisterError;
use super::region::SymmRegion;
use crate::deadline::Deadline;
use crate::device::{Device, DeviceBuffer, DeviceError, Keep, Stream};
use crate::group::{Bootstrap, BootstrapError};
use crate::plan::TablePacker;
use crate::units::{GroupSize, Rank};

/// Bytes every peer reads.
const PATTERN_BYTES: u64 = 4096;
/// Adds of every rank to every rank's word.
const NUM_ADDS: u32 = 256;

/// The part of a region that is probed.
#[derive(Clone, Debug)]
pub struct ProbeCarves {
    pattern: Carve,
    word: Carve,
}

impl ProbeCarves {
    /// Carves the room for a probe.
    ///
    /// # Errors
    /// [`ArenaError`].
    pub fn carve(layout: &mut ArenaLayout) -> Result<Self, ArenaError> {
        Ok(Self {
            pattern: layout.carve("probe pattern", PATTERN_BYTES, 256)?,
            word: layout.carve("probe word", 128, 128)?,
        })
    }
}

/// Probes `region` and returns who failed and why, the same list on every rank; empty: all is well. Collective.
///
/// # Errors
/// [`RegisterError`] where the probe itself could not be carried out.
pub fn probe(
    region: &Arc<SymmRegion>,
    carves: &ProbeCarves,
    bootstrap: &dyn Bootstrap,
    device: &dyn Device,
    stream: &dyn Stream,
    deadline: Deadline,
) -> Result<Vec<(Rank, String)>, RegisterError> {
    let wrap = |problem| RegisterError::Bootstrap { region: region.name().to_owned(), problem };
    let verdict = Probe { region, carves, bootstrap, device, stream, deadline }.run();
    let text = match verdict {
        Ok(verdict) => verdict.unwrap_or_default(),
        Err(ProbeError::Device(problem)) => problem.to_string(),
        Err(ProbeError::Bootstrap(problem)) => return Err(wrap(problem)),
    };
    let texts = bootstrap.all_gather("probe: outcome", text.as_bytes(), deadline).map_err(wrap)?;
    let failed = (0..).map(Rank).zip(texts).filter(|(_, text)| !text.is_empty());
    Ok(failed.map(|(rank, text)| (rank, String::from_utf8_lossy(&text).into_owned())).collect())
}

enum ProbeError {
    Device(DeviceError),
    Bootstrap(BootstrapError),
}

impl From<DeviceError> for ProbeError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

struct Probe<'a> {
    region: &'a Arc<SymmRegion>,
    carves: &'a ProbeCarves,
    bootstrap: &'a dyn Bootstrap,
    device: &'a dyn Device,
    stream: &'a dyn Stream,
    deadline: Deadline,
}

impl Probe<'_> {
    /// What is wrong on this rank. A device error does not keep a rank from the barriers the others wait in.
    fn run(&self) -> Result<Option<String>, ProbeError> {
        let wrote = self.write_pattern();
        self.barrier("probe: written")?;
        let read = wrote.and_then(|()| self.read_patterns());
        let added = self.add_to_all();
        self.barrier("probe: added")?;
        if let Some(wrong) = read? {
            return Ok(Some(wrong));
        }
        added?;
        Ok(self.lost_adds()?)
    }

    fn barrier(&self, call: &'static str) -> Result<(), ProbeError> {
        self.bootstrap.barrier(call, self.deadline).map_err(ProbeError::Bootstrap)
    }

    fn group_size(&self) -> GroupSize {
        self.bootstrap.group_size()
    }

    fn write_pattern(&self) -> Result<(), DeviceError> {
        let pattern = pattern_of(self.region.rank());
        self.stream.upload(pattern, &self.region.own(&self.carves.pattern))?;
        self.stream.synchronize(self.deadline)
    }

    /// Reads every rank's pattern with the gather kernel; the first peer whose bytes are wrong.
    fn read_patterns(&self) -> Result<Option<String>, DeviceError> {
        let num_ranks = self.group_size().get();
        let mut packer = TablePacker::default();
        let descriptors: Vec<_> = (0..num_ranks).map(|r| Descriptor { base: r as i32, page: 0 }).collect();
        let descriptors = packer.push(&descriptors);
        let bases = packer.push(&self.region.addrs(&self.carves.pattern));
        let tables = self.upload(packer.finish().bytes)?;
        let copies = self.device.alloc(u64::from(num_ranks) * PATTERN_BYTES)?;
        let kernel = Kernel::Gather(GatherParams {
            dst: copies.addr(),
            descriptors: tables.addr() + descriptors.offset,
            bases: tables.addr() + bases.offset,
            pool_offset: 0,
            src_half: HalfSelect::default(),
            dst_half: HalfSelect::default(),
            page_bytes: PATTERN_BYTES,
            poison: 0,
            num_slots: num_ranks,
            first_halved: num_ranks,
        });
        let keep: Keep = Arc::new((tables, copies.clone(), Arc::clone(self.region)));
        // SAFETY: tables, destination and region live in `keep`; patterns are written before the barrier and not
        // after it.
        unsafe { self.stream.launch(kernel, &keep) }?;
        let mut bytes = vec![0; copies.bytes() as usize];
        self.stream.download(&copies, &mut bytes, self.deadline)?;
        let wrong = bytes
            .chunks_exact(PATTERN_BYTES as usize)
            .zip(0..)
            .find(|(bytes, peer)| *bytes != pattern_of(Rank(*peer)));
        Ok(wrong.map(|(_, peer)| format!("reads other bytes than rank {peer} wrote")))
    }

    fn add_to_all(&self) -> Result<(), DeviceError> {
        let mut packer = TablePacker::default();
        packer.push(&self.region.addrs(&self.carves.word));
        let words = self.upload(packer.finish().bytes)?;
        let num_ranks = self.group_size().get();
        let kernel = Kernel::Probe(ProbeParams { words: words.addr(), num_ranks, num_adds: NUM_ADDS });
        let keep: Keep = Arc::new((words, Arc::clone(self.region)));
        // SAFETY: table and region live in `keep`; the words are only added to until the next barrier.
        unsafe { self.stream.launch(kernel, &keep) }?;
        self.stream.synchronize(self.deadline)
    }

    fn lost_adds(&self) -> Result<Option<String>, DeviceError> {
        let word = self.region.own(&self.carves.word).slice(0..4)?;
        let mut bytes = [0; 4];
        self.stream.download(&word, &mut bytes, self.deadline)?;
        let (got, expected) = (i32::from_le_bytes(bytes), (self.group_size().get() * NUM_ADDS) as i32);
        Ok((got != expected).then(|| format!("counts {got} of {expected} concurrent adds of the group")))
    }

    fn upload(&self, bytes: Vec<u8>) -> Result<DeviceBuffer, DeviceError> {
        let buffer = self.device.alloc(bytes.len() as u64)?;
        self.stream.upload(bytes, &buffer)?;
        Ok(buffer)
    }
}

/// What a rank writes: no two ranks' bytes agree in any word.
fn pattern_of(rank: Rank) -> Vec<u8> {
    let word = |i: u64| (i + (u64::from(rank.0) << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..PATTERN_BYTES / 8).flat_map(|i| word(i).to_le_bytes()).collect()
}

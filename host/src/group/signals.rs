//! The signals of a group: its pads in symmetric memory, the device-resident epoch, the fault record.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{BarrierParams, GroupState, HalfSelect, PoisonParams};
use cpkv_kernels::signal::{
    self, CAUSE_EXCHANGE, CAUSE_HOST, CAUSE_STREAM, CAUSE_UNRECORDED, FAULT_CLAIMED, FAULT_RECORDED,
    FaultRecord, SignalPad,
};

use super::bootstrap::{Bootstrap, BootstrapError};
use super::gate::PoisonGate;
use super::phase::Fault;
use super::timings::TIMING_BYTES;
use crate::deadline::Deadline;
use crate::device::{Device, DeviceBuffer, DeviceError, Keep, MemoryKind, Stream};
use crate::plan::TablePacker;
use crate::symm::{Carve, SymmRegion};
use crate::units::{Epoch, GroupSize, Rank, RankSet};

/// How long a record that is being written is waited for.
const RECORD_WAIT: Duration = Duration::from_millis(100);
/// How long the host waits for the poison kernel: it waits for a record itself, and runs beside everything else.
const ASIDE_TIMEOUT: Duration = Duration::from_secs(5);

/// The signals of a group whose ranks can reach each other.
pub(super) struct Signals {
    region: Arc<SymmRegion>,
    pad: Carve,
    device: Arc<dyn Device>,
    pads: DeviceBuffer,
    state: DeviceBuffer,
    status: DeviceBuffer,
    reach: HostReach,
    keep: Keep,
}

/// How the host gets at the pads.
enum HostReach {
    /// At their addresses.
    Direct,
    /// By the poison kernel, on a stream of its own: the group's may hang.
    Kernel { side: Arc<dyn Stream>, raising: DeviceBuffer },
}

/// Numbers of one barrier launch.
#[derive(Clone, Copy)]
pub(super) struct BarrierCall {
    pub(super) timeout: Duration,
    pub(super) num_spins: u32,
    pub(super) tag: u32,
}

impl Signals {
    pub(super) fn new(
        region: Arc<SymmRegion>,
        pad: Carve,
        device: Arc<dyn Device>,
    ) -> Result<Self, DeviceError> {
        let mut packer = TablePacker::default();
        packer.push(&region.addrs(&pad));
        let table = packer.finish().bytes;
        let pads = device.alloc(table.len() as u64)?;
        device.write(&table, &pads)?;
        let state = device.alloc(size_of::<GroupState>() as u64)?;
        let status = device.alloc_host(size_of::<FaultRecord>() as u64)?;
        let reach = match device.memory() {
            MemoryKind::Host => HostReach::Direct,
            MemoryKind::Cuda => HostReach::Kernel {
                side: device.stream()?,
                raising: device.alloc_host(size_of::<FaultRecord>() as u64)?,
            },
        };
        let keep: Keep = Arc::new((Arc::clone(&region), pads.clone(), state.clone(), status.clone()));
        Ok(Self { region, pad, device, pads, state, status, reach, keep })
    }

    /// Queues a barrier.
    pub(super) fn barrier(
        &self,
        stream: &dyn Stream,
        group_size: GroupSize,
        call: BarrierCall,
    ) -> Result<(), DeviceError> {
        // SAFETY: all addresses live in `keep`; the group is the only user of its pad, and has one stream.
        unsafe { stream.launch(Kernel::Barrier(self.params(group_size, call)), &self.keep) }
    }

    /// Queues a barrier that writes when it was entered and left to the record at `timing`.
    ///
    /// # Safety
    /// `keep` holds the memory at `timing`, and what [`Signals::keep`] holds.
    pub(super) unsafe fn timed_barrier(
        &self,
        stream: &dyn Stream,
        group_size: GroupSize,
        call: BarrierCall,
        timing: u64,
        keep: &Keep,
    ) -> Result<(), DeviceError> {
        let params = BarrierParams { timing, ..self.params(group_size, call) };
        // SAFETY: as in `barrier`, and the caller's promise for the timing.
        unsafe { stream.launch(Kernel::Barrier(params), keep) }
    }

    /// Queues `num_barriers` barriers, which write when they were entered and left to the returned buffer,
    /// `[num_barriers]` of [`BarrierTiming`](cpkv_kernels::abi::BarrierTiming).
    pub(super) fn time_barriers(
        &self,
        stream: &dyn Stream,
        group_size: GroupSize,
        call: BarrierCall,
        num_barriers: u32,
    ) -> Result<DeviceBuffer, DeviceError> {
        let timings = self.device.alloc(u64::from(num_barriers) * TIMING_BYTES)?;
        let keep: Keep = Arc::new((Arc::clone(&self.keep), timings.clone()));
        for barrier in 0..u64::from(num_barriers) {
            let timing = timings.addr() + barrier * TIMING_BYTES;
            // SAFETY: `keep` holds the timings too.
            unsafe { self.timed_barrier(stream, group_size, call, timing, &keep) }?;
        }
        Ok(timings)
    }

    fn params(&self, group_size: GroupSize, call: BarrierCall) -> BarrierParams {
        BarrierParams {
            pads: self.pads.addr(),
            state: self.state.addr(),
            status: self.status.addr(),
            timing: 0,
            timeout_ns: u64::try_from(call.timeout.as_nanos()).unwrap_or(u64::MAX),
            rank: self.region.rank().0,
            num_ranks: group_size.get(),
            num_spins: call.num_spins,
            tag: call.tag,
        }
    }

    fn poison_params(&self, group_size: GroupSize) -> PoisonParams {
        PoisonParams {
            pads: self.pads.addr(),
            status: self.status.addr(),
            record: 0,
            rank: self.region.rank().0,
            num_ranks: group_size.get(),
        }
    }

    /// Address of this rank's poison word.
    pub(super) fn poison(&self) -> u64 {
        signal::poison_addr(self.region.addr(self.region.rank(), &self.pad))
    }

    /// The half that the next barrier's epoch fills (`passed` 0) or the last one's reads (`passed` 1).
    pub(super) fn half(&self, stride: u64, passed: u64) -> HalfSelect {
        HalfSelect { state: self.state.addr(), stride, passed }
    }

    /// The device-resident epoch. Only meaningful while the stream is idle.
    pub(super) const fn state(&self) -> &DeviceBuffer {
        &self.state
    }

    /// A look at the poison word for queued work.
    pub(super) fn gate(&self, group_size: GroupSize) -> PoisonGate {
        let host_word = match &self.reach {
            HostReach::Direct => self.poison(),
            HostReach::Kernel { .. } => self.status.addr(),
        };
        // SAFETY: `keep` holds the region that the own pad lies in, the status and the table.
        unsafe { PoisonGate::new(self.poison_params(group_size), self.poison(), host_word, self.keep()) }
    }

    pub(super) fn keep(&self) -> Keep {
        Arc::clone(&self.keep)
    }

    /// The fault that reached this rank, if one did: what its kernels reported, or where the host can look there, what
    /// stands in its pad. Waits for no stream.
    pub(super) fn fault(&self) -> Option<Fault> {
        // SAFETY: the status record lives as long as `self`.
        let reported = unsafe { signal::read_fault(self.status.addr()) };
        let found = match &self.reach {
            HostReach::Direct => {
                // SAFETY: the own pad lives as long as `self`.
                reported.or_else(|| unsafe { signal::read_fault(self.poison()) })
            }
            HostReach::Kernel { .. } => reported,
        }?;
        Some(fault_of(if found.word == FAULT_CLAIMED { self.await_record() } else { found }))
    }

    /// As [`Signals::fault`], and looks at the pad however the host gets there.
    pub(super) fn fault_now(&self, group_size: GroupSize) -> Option<Fault> {
        if let (None, HostReach::Kernel { side, raising }) = (self.fault(), &self.reach) {
            self.run_aside(&**side, raising, self.poison_params(group_size));
        }
        self.fault()
    }

    /// Runs the poison kernel beside the group's stream. Where even that fails, the peers find out by their timeouts.
    fn run_aside(&self, side: &dyn Stream, raising: &DeviceBuffer, params: PoisonParams) {
        let keep: Keep = Arc::new((Arc::clone(&self.keep), raising.clone()));
        // SAFETY: all addresses live in `keep`.
        let launched = unsafe { side.launch(Kernel::Poison(params), &keep) };
        let _ = launched.and_then(|()| side.synchronize(Deadline::after(ASIDE_TIMEOUT)));
    }

    /// Gives a rank that is writing its record a moment to finish.
    fn await_record(&self) -> FaultRecord {
        let step = RECORD_WAIT / 100;
        let mut last = FaultRecord::default();
        let word = if let HostReach::Direct = self.reach { self.poison() } else { self.status.addr() };
        for _ in 0..100 {
            // SAFETY: own pad and status live as long as `self`, and this is the one the host reaches.
            if let Some(record) = unsafe { signal::read_fault(word) } {
                last = record;
                if record.word == FAULT_RECORDED {
                    break;
                }
            }
            thread::sleep(step);
        }
        last
    }

    /// Poisons every rank's pad from the host: this rank gives up waiting for its stream.
    pub(super) fn raise_host(&self, group_size: GroupSize, epoch: Epoch, waited: Duration) {
        self.raise(group_size, epoch, waited, RankSet::default(), CAUSE_HOST);
    }

    /// As [`Signals::raise_host`]: this rank's stream failed, maybe waiting for `missing`.
    pub(super) fn raise_stream(&self, group_size: GroupSize, epoch: Epoch, missing: RankSet) {
        self.raise(group_size, epoch, Duration::ZERO, missing, CAUSE_STREAM);
    }

    /// As [`Signals::raise_host`]: this rank gives up waiting for `missing` in an exchange.
    pub(super) fn raise_exchange(
        &self,
        group_size: GroupSize,
        epoch: Epoch,
        waited: Duration,
        missing: RankSet,
    ) {
        self.raise(group_size, epoch, waited, missing, CAUSE_EXCHANGE);
    }

    fn raise(&self, group_size: GroupSize, epoch: Epoch, waited: Duration, missing: RankSet, cause: u32) {
        let me = self.region.rank();
        let record = FaultRecord {
            word: FAULT_RECORDED,
            by_rank: me.0,
            missing: missing.0,
            epoch: epoch.0,
            elapsed_ns: u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX),
            tag: 0,
            cause,
        };
        match &self.reach {
            HostReach::Direct => {
                for rank in std::iter::once(me).chain(group_size.peers(me)) {
                    let pad = self.region.addr(rank, &self.pad);
                    // SAFETY: every rank's pad is mapped as long as `self` lives.
                    unsafe { signal::raise_fault(signal::poison_addr(pad), record) };
                }
            }
            HostReach::Kernel { side, raising } => {
                // SAFETY: host memory of one record, which lives as long as `self`. A second fault changes nothing.
                unsafe { signal::raise_fault(raising.addr(), record) };
                let params = self.poison_params(group_size);
                self.run_aside(&**side, raising, PoisonParams { record: raising.addr(), ..params });
            }
        }
    }

    /// Closes the peers' pads, waits for every rank, frees the own pad. The stream is idle.
    pub(super) fn close(self, bootstrap: &dyn Bootstrap, deadline: Deadline) -> Result<(), BootstrapError> {
        let Self { region, keep, .. } = self;
        drop(keep);
        SymmRegion::close_shared(region, bootstrap, deadline)
    }

    /// Signal words of this rank's pad that are not 0. Only meaningful while no rank is in a barrier.
    pub(super) fn words_not_zero(&self, group_size: GroupSize) -> Result<Vec<(Rank, i32)>, DeviceError> {
        let start = std::mem::offset_of!(SignalPad, words) as u64;
        let words = self.region.own(&self.pad).slice(start..start + 4 * group_size.len() as u64)?;
        let mut bytes = vec![0; words.bytes() as usize];
        self.device.read(&words, &mut bytes)?;
        let words = bytes.as_chunks().0.iter().map(|word| i32::from_le_bytes(*word));
        Ok(group_size.ranks().zip(words).filter(|(_, word)| *word != 0).collect())
    }

    /// Offsets of overwritten guard bytes around the signals.
    pub(super) fn broken_guards(&self) -> Result<Vec<u64>, DeviceError> {
        self.region.broken_guards(&*self.device)
    }
}

/// What a record says.
pub(super) fn fault_of(record: FaultRecord) -> Fault {
    let (by, epoch) = (Rank(record.by_rank), Epoch(record.epoch));
    let waited_ms = record.elapsed_ns / 1_000_000;
    match record {
        FaultRecord { word, .. } if word != FAULT_RECORDED => Fault::Unrecorded,
        FaultRecord { cause: CAUSE_UNRECORDED, .. } => Fault::Unrecorded,
        FaultRecord { cause: CAUSE_HOST, .. } => {
            Fault::Host { by, epoch, waited_ms, running: "(that rank knows)" }
        }
        FaultRecord { missing, cause: CAUSE_STREAM, .. } => {
            Fault::PeerStream { by, epoch, missing: RankSet(missing) }
        }
        FaultRecord { missing, cause: CAUSE_EXCHANGE, .. } => {
            Fault::Exchange { by, epoch, missing: RankSet(missing), waited_ms }
        }
        FaultRecord { missing, tag, .. } => {
            Fault::Barrier { by, epoch, missing: RankSet(missing), waited_ms, tag }
        }
    }
}

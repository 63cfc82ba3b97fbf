//! The signals of a group: its pads in symmetric memory, the device-resident epoch, the fault record.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use cpkv_kernels::abi::{BarrierParams, GroupState, HalfSelect};
use cpkv_kernels::signal::{
    self, CAUSE_EXCHANGE, CAUSE_HOST, CAUSE_STREAM, FAULT_CLAIMED, FAULT_RECORDED, FaultRecord, SignalPad,
};
use cpkv_kernels::{Kernel, now_ns};

use super::bootstrap::{Bootstrap, BootstrapError};
use super::gate::PoisonGate;
use super::phase::Fault;
use crate::deadline::Deadline;
use crate::device::{Device, DeviceBuffer, DeviceError, Keep, Stream};
use crate::plan::TablePacker;
use crate::symm::{Carve, SymmRegion};
use crate::units::{Epoch, GroupSize, Rank, RankSet};

/// How long a record that is being written is waited for.
const RECORD_WAIT: Duration = Duration::from_millis(100);

/// The signals of a group whose ranks can reach each other.
pub(super) struct Signals {
    region: Arc<SymmRegion>,
    pad: Carve,
    pads: DeviceBuffer,
    state: DeviceBuffer,
    status: DeviceBuffer,
    keep: Keep,
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
        device: &dyn Device,
        stream: &dyn Stream,
    ) -> Result<Self, DeviceError> {
        let mut packer = TablePacker::default();
        packer.push(&region.addrs(&pad));
        let table = packer.finish().bytes;
        let pads = device.alloc(table.len() as u64)?;
        stream.upload(table, &pads)?;
        let state = device.alloc(size_of::<GroupState>() as u64)?;
        let status = device.alloc_host(size_of::<FaultRecord>() as u64)?;
        let keep: Keep = Arc::new((Arc::clone(&region), pads.clone(), state.clone(), status.clone()));
        Ok(Self { region, pad, pads, state, status, keep })
    }

    /// Queues a barrier.
    pub(super) fn barrier(
        &self,
        stream: &dyn Stream,
        group_size: GroupSize,
        call: BarrierCall,
    ) -> Result<(), DeviceError> {
        // SAFETY: all addresses live in `keep`; the group is the only user of its pad, and has one stream.
        unsafe { stream.launch(self.kernel(group_size, call), &self.keep) }
    }

    /// Queues `num_barriers` barriers as one host call, which sends how long each took, in nanoseconds.
    pub(super) fn time_barriers(
        &self,
        stream: &dyn Stream,
        group_size: GroupSize,
        call: BarrierCall,
        num_barriers: u32,
    ) -> Result<Receiver<Vec<u64>>, DeviceError> {
        let (kernel, keep) = (self.kernel(group_size, call), Arc::clone(&self.keep));
        let (sender, receiver) = channel();
        let body = move || {
            let timed = (0..num_barriers).map(|_| {
                let entered_ns = now_ns();
                // SAFETY: as in `barrier`; `keep` lives until the last one is done.
                unsafe { kernel.run() };
                now_ns() - entered_ns
            });
            let timed = timed.collect();
            drop(keep);
            // Nobody listens where the host gave up meanwhile.
            let _ = sender.send(timed);
            Ok(())
        };
        stream.host_call("timed barriers", Box::new(body))?;
        Ok(receiver)
    }

    fn kernel(&self, group_size: GroupSize, call: BarrierCall) -> Kernel {
        Kernel::Barrier(BarrierParams {
            pads: self.pads.addr(),
            state: self.state.addr(),
            status: self.status.addr(),
            timeout_ns: u64::try_from(call.timeout.as_nanos()).unwrap_or(u64::MAX),
            rank: self.region.rank().0,
            num_ranks: group_size.get(),
            num_spins: call.num_spins,
            tag: call.tag,
        })
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

    /// A look at the poison word for queued host calls.
    pub(super) fn gate(&self) -> PoisonGate {
        // SAFETY: `keep` holds the region that the own pad lies in.
        unsafe { PoisonGate::new(self.poison(), self.keep()) }
    }

    pub(super) fn keep(&self) -> Keep {
        Arc::clone(&self.keep)
    }

    pub(super) const fn region(&self) -> &Arc<SymmRegion> {
        &self.region
    }

    /// The fault that reached this rank, if one did: what its barrier reported, or what stands in its pad.
    pub(super) fn fault(&self) -> Option<Fault> {
        // SAFETY: the status record lives as long as `self`.
        let reported = unsafe { signal::read_fault(self.status.addr()) };
        // SAFETY: so does the own pad.
        let found = reported.or_else(|| unsafe { signal::read_fault(self.poison()) })?;
        Some(fault_of(if found.word == FAULT_CLAIMED { self.await_record() } else { found }))
    }

    /// Gives a rank that is writing its record a moment to finish.
    fn await_record(&self) -> FaultRecord {
        let step = RECORD_WAIT / 100;
        let mut last = FaultRecord::default();
        for _ in 0..100 {
            // SAFETY: the own pad lives as long as `self`.
            if let Some(record) = unsafe { signal::read_fault(self.poison()) } {
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
        for rank in std::iter::once(me).chain(group_size.peers(me)) {
            let pad = self.region.addr(rank, &self.pad);
            // SAFETY: every rank's pad is mapped as long as `self` lives.
            unsafe { signal::raise_fault(signal::poison_addr(pad), record) };
        }
    }

    /// Closes the peers' pads, waits for every rank, frees the own pad. The stream is idle.
    pub(super) fn close(self, bootstrap: &dyn Bootstrap, deadline: Deadline) -> Result<(), BootstrapError> {
        let Self { region, pad: _, pads: _, state: _, status: _, keep } = self;
        drop(keep);
        SymmRegion::close_shared(region, bootstrap, deadline)
    }

    /// Signal words of this rank's pad that are not 0. Only meaningful while no rank is in a barrier.
    pub(super) fn words_not_zero(&self, group_size: GroupSize) -> Vec<(Rank, i32)> {
        let pad = self.region.addr(self.region.rank(), &self.pad);
        let words = group_size.ranks().map(|peer| {
            let offset = std::mem::offset_of!(SignalPad, words) + peer.idx() * size_of::<i32>();
            // SAFETY: the own pad lives as long as `self`.
            (peer, unsafe { signal::read_word(pad + offset as u64) })
        });
        words.filter(|(_, word)| *word != 0).collect()
    }
}

fn fault_of(record: FaultRecord) -> Fault {
    let (by, epoch) = (Rank(record.by_rank), Epoch(record.epoch));
    let waited_ms = record.elapsed_ns / 1_000_000;
    match record {
        FaultRecord { word, .. } if word != FAULT_RECORDED => Fault::Unrecorded,
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

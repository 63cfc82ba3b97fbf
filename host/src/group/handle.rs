//! A registered group: its barrier, its epoch, and the fault that may end it.

use std::sync::Arc;
use std::time::Duration;

use cpkv_kernels::abi::HalfSelect;

use super::bootstrap::{Bootstrap, BootstrapError};
use super::error::GroupError;
use super::gate::PoisonGate;
use super::local_poison::LocalPoison;
use super::options::{GroupOptions, spins_for};
use super::phase::{Fault, Phase};
use super::reach::Reach;
use super::signal_region::SignalRegion;
use super::signals::{BarrierCall, Signals};
use super::timings::Timings;
use super::together::Together;
use crate::deadline::Deadline;
use crate::device::{Device, DeviceBuffer, DeviceError, Graph, Keep, Stream};
use crate::symm::{RegisterError, SharedBackend, describe_failures, probe};
use crate::units::{Epoch, GroupSize, Rank, RankSet};

/// A registered group with its one stream.
pub struct Group {
    bootstrap: Arc<dyn Bootstrap>,
    device: Arc<dyn Device>,
    backend: SharedBackend,
    stream: Arc<dyn Stream>,
    options: GroupOptions,
    num_spins: u32,
    reach: Reach,
    pub(super) epoch: Epoch,
    phase: Phase,
    pub(super) timings: Option<Timings>,
    pub(super) capturing: bool,
}

impl Group {
    /// Registers a group, with signals of its own. Collective; every wait inside has the bootstrap timeout.
    ///
    /// # Errors
    /// [`RegisterError`], on every rank, naming the rank that caused it.
    pub fn register(
        bootstrap: Arc<dyn Bootstrap>,
        device: Arc<dyn Device>,
        backend: SharedBackend,
        options: GroupOptions,
    ) -> Result<Self, RegisterError> {
        let deadline = Deadline::after(options.bootstrap_timeout);
        match SignalRegion::register(&*bootstrap, &*device, &backend, deadline)? {
            Ok(signals) => Self::on_region(&signals, bootstrap, device, backend, options),
            Err(reason) => Self::without_peers(bootstrap, device, backend, options, reason),
        }
    }

    /// Registers a group on signals registered before. Collective.
    ///
    /// # Errors
    /// [`RegisterError::PadTaken`] where they serve another group already; else as [`Group::register`].
    pub fn on_region(
        signals: &SignalRegion,
        bootstrap: Arc<dyn Bootstrap>,
        device: Arc<dyn Device>,
        backend: SharedBackend,
        options: GroupOptions,
    ) -> Result<Self, RegisterError> {
        let SignalRegion { region, pad, probe: carves } = signals;
        region.take_pad()?;
        let deadline = Deadline::after(options.bootstrap_timeout);
        let together = Together { name: region.name(), bootstrap: &*bootstrap, deadline };
        let stream = together.made("register: stream", device.stream())?;
        let failures = probe(region, carves, &*bootstrap, &*device, &*stream, deadline)?;
        if !failures.is_empty() {
            return Self::without_peers(bootstrap, device, backend, options, describe_failures(&failures));
        }
        let signals = Signals::new(Arc::clone(region), pad.clone(), Arc::clone(&device));
        let signals = together.made("register: signals", signals)?;
        Ok(Self::new(bootstrap, device, backend, stream, options, Reach::Peers(signals)))
    }

    fn without_peers(
        bootstrap: Arc<dyn Bootstrap>,
        device: Arc<dyn Device>,
        backend: SharedBackend,
        options: GroupOptions,
        reason: String,
    ) -> Result<Self, RegisterError> {
        let deadline = Deadline::after(options.bootstrap_timeout);
        let together = Together { name: "signals", bootstrap: &*bootstrap, deadline };
        let made = device.stream().and_then(|stream| Ok((stream, LocalPoison::new(&*device)?)));
        let (stream, poison) = together.made("register: stream", made)?;
        Ok(Self::new(bootstrap, device, backend, stream, options, Reach::Nobody { reason, poison }))
    }

    fn new(
        bootstrap: Arc<dyn Bootstrap>,
        device: Arc<dyn Device>,
        backend: SharedBackend,
        stream: Arc<dyn Stream>,
        options: GroupOptions,
        reach: Reach,
    ) -> Self {
        let num_spins = options.num_spins.unwrap_or_else(|| spins_for(bootstrap.group_size()));
        Self {
            bootstrap,
            device,
            backend,
            stream,
            options,
            num_spins,
            reach,
            epoch: Epoch(0),
            phase: Phase::default(),
            timings: None,
            capturing: false,
        }
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.bootstrap.rank()
    }

    /// The number of ranks.
    pub fn group_size(&self) -> GroupSize {
        self.bootstrap.group_size()
    }

    /// The options it was registered with.
    pub const fn options(&self) -> &GroupOptions {
        &self.options
    }

    /// The out-of-band exchange.
    pub fn bootstrap(&self) -> &dyn Bootstrap {
        &*self.bootstrap
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// The backend its regions come from.
    pub fn backend(&self) -> &SharedBackend {
        &self.backend
    }

    /// The group's one stream.
    pub fn stream(&self) -> &dyn Stream {
        &*self.stream
    }

    /// The same, to keep: for who records events beside the group.
    pub fn stream_handle(&self) -> Arc<dyn Stream> {
        Arc::clone(&self.stream)
    }

    /// The epoch of the next barrier, as the host counts.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Why peers' memory is out of reach; `None` where it is not.
    pub fn unreachable(&self) -> Option<&str> {
        match &self.reach {
            Reach::Peers(_) => None,
            Reach::Nobody { reason, .. } => Some(reason),
        }
    }

    /// Queues a barrier, called `tag` in reports, and takes an epoch.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn barrier(&mut self, tag: u32) -> Result<(), GroupError> {
        self.check()?;
        let call = BarrierCall { tag, ..self.barrier_call() };
        let launched = self.signals("barrier")?.barrier(&*self.stream, self.group_size(), call);
        self.surface(launched)?;
        self.epoch = Epoch(self.epoch.0 + 1);
        Ok(())
    }

    /// What every barrier of this group is launched with.
    pub(super) const fn barrier_call(&self) -> BarrierCall {
        BarrierCall { timeout: self.options.barrier_timeout, num_spins: self.num_spins, tag: 0 }
    }

    /// From now on captures what is queued, barriers included. [`Group::end_capture`] follows, whatever comes between.
    pub(crate) fn begin_capture(&mut self) -> Result<Epoch, DeviceError> {
        self.stream.begin_capture()?;
        self.capturing = true;
        Ok(self.epoch)
    }

    /// Ends the capture begun at `begun`: the work, and the epochs that each replay of it takes. Capturing took none.
    pub(crate) fn end_capture(&mut self, begun: Epoch) -> Result<(Arc<dyn Graph>, u64), DeviceError> {
        let num_barriers = self.epoch.0 - begun.0;
        self.epoch = begun;
        self.capturing = false;
        Ok((self.stream.end_capture()?, num_barriers))
    }

    /// Queues captured work once more, and takes the epochs of its barriers.
    ///
    /// # Safety
    /// As [`Stream::replay`]; `num_barriers` is what [`Group::end_capture`] of this group gave with `graph`.
    ///
    /// # Errors
    /// [`GroupError`].
    pub(crate) unsafe fn replay(
        &mut self,
        graph: &Arc<dyn Graph>,
        num_barriers: u64,
    ) -> Result<(), GroupError> {
        self.check()?;
        // SAFETY: the caller's promise.
        let queued = unsafe { self.stream.replay(graph) };
        self.surface(queued)?;
        self.epoch = Epoch(self.epoch.0 + num_barriers);
        if let Some(timings) = &mut self.timings {
            timings.skip(num_barriers);
        }
        Ok(())
    }

    /// Refuses once the group is poisoned, by this rank or another.
    ///
    /// # Errors
    /// [`GroupError::Fault`], the same one for ever.
    pub fn check(&mut self) -> Result<(), GroupError> {
        if self.phase == Phase::Ready
            && let Reach::Peers(signals) = &self.reach
            && let Some(fault) = signals.fault()
        {
            self.poison(fault);
        }
        // Raised by work on the stream, whose own error is the better explanation where `synchronize` finds it.
        if self.phase == Phase::Ready
            && matches!(&self.reach, Reach::Nobody { poison, .. } if poison.is_raised())
        {
            self.poison(Fault::Unrecorded);
        }
        Ok(self.phase.check()?)
    }

    /// As [`Group::check`], and looks at what the peers raised even where the host cannot read its own signals: after an
    /// exchange, where a rank that came late finds that the others gave up. Does not wait for the group's stream.
    pub(crate) fn check_now(&mut self) -> Result<(), GroupError> {
        if self.phase == Phase::Ready
            && let Some(fault) = self.peers().and_then(|peers| peers.fault_now(self.group_size()))
        {
            self.poison(fault);
        }
        Ok(self.phase.check()?)
    }

    /// Waits for the stream: a counted host synchronisation.
    ///
    /// # Errors
    /// [`GroupError::Fault`]: a barrier that was not passed, a stream that failed or did not end. The whole group
    /// is then poisoned.
    pub fn synchronize(&mut self) -> Result<(), GroupError> {
        // What poisoned the group behind its last barrier is in no status yet.
        let looked = self.gate().queue_look(&*self.stream);
        self.surface(looked)?;
        let waited = self.stream.synchronize(Deadline::after(self.options.host_timeout));
        self.surface(waited)?;
        self.check()
    }

    /// Turns a device error into the group's fault, and tells the peers.
    pub(crate) fn surface<T>(&mut self, outcome: Result<T, DeviceError>) -> Result<T, GroupError> {
        let problem = match outcome {
            Ok(value) => return Ok(value),
            Err(problem) => problem,
        };
        // What another rank said first is the better explanation.
        if let Some(fault) = self.peers().and_then(|peers| peers.fault_now(self.group_size())) {
            self.poison(fault);
        }
        self.phase.check()?;
        let (rank, epoch) = (self.rank(), self.epoch);
        let size = self.group_size();
        let fault = match problem {
            DeviceError::Deadline { waited_ms, running, .. } => {
                self.peers().inspect(|peers| peers.raise_host(size, epoch, Duration::from_millis(waited_ms)));
                Fault::Host { by: rank, epoch, waited_ms, running }
            }
            problem => {
                let missing = match problem {
                    DeviceError::CollectiveTimeout { missing, .. } => missing,
                    _ => RankSet::default(),
                };
                self.peers().inspect(|peers| peers.raise_stream(size, epoch, missing));
                Fault::Stream { epoch, problem }
            }
        };
        self.poison(fault.clone());
        Err(fault.into())
    }

    /// The fault behind an exchange that failed: what another rank said first, or that ranks are missing, which the
    /// peers are told, so that one that comes late does not go on alone. `None`: `problem` says it all.
    pub(crate) fn lost(&self, problem: &BootstrapError) -> Option<Fault> {
        let Reach::Peers(signals) = &self.reach else { return None };
        let known = signals.fault_now(self.group_size());
        if let (None, BootstrapError::Missing { missing, waited_ms, .. }) = (known, problem) {
            let waited = Duration::from_millis(*waited_ms);
            signals.raise_exchange(self.group_size(), self.epoch, waited, *missing);
        }
        signals.fault()
    }

    fn poison(&mut self, fault: Fault) {
        self.phase = std::mem::take(&mut self.phase).after(fault);
    }

    fn peers(&self) -> Option<&Signals> {
        self.reach.peers()
    }

    pub(super) fn signals(&self, call: &'static str) -> Result<&Signals, GroupError> {
        match &self.reach {
            Reach::Peers(signals) => Ok(signals),
            Reach::Nobody { reason, .. } => Err(GroupError::NoPeerAccess { call, reason: reason.clone() }),
        }
    }

    /// Address of this rank's poison word.
    pub(crate) fn poison_addr(&self) -> u64 {
        self.reach.poison_addr()
    }

    /// The half being filled (`passed` 0) or read (`passed` 1), halves `stride` bytes apart.
    pub(crate) fn half(&self, stride: u64, passed: u64) -> HalfSelect {
        self.peers().map_or(HalfSelect::default(), |signals| signals.half(stride, passed))
    }

    /// What queued host calls and transfers look at before they start.
    pub fn gate(&self) -> PoisonGate {
        self.reach.gate(self.group_size())
    }

    /// What launched kernels need of the group.
    pub(crate) fn keep(&self) -> Keep {
        self.reach.keep()
    }

    /// The device-resident epoch word.
    pub(crate) fn state(&self) -> Option<&DeviceBuffer> {
        self.peers().map(Signals::state)
    }

    /// Signal words of this rank that are not 0: empty whenever all ranks have left the last barrier.
    ///
    /// # Errors
    /// [`DeviceError`] where they cannot be read.
    pub fn words_not_zero(&self) -> Result<Vec<(Rank, i32)>, DeviceError> {
        self.peers().map_or(Ok(Vec::new()), |signals| signals.words_not_zero(self.group_size()))
    }

    /// Offsets of overwritten guard bytes around the signals.
    ///
    /// # Errors
    /// [`DeviceError`] where they cannot be read.
    pub fn broken_guards(&self) -> Result<Vec<u64>, DeviceError> {
        self.peers().map_or(Ok(Vec::new()), Signals::broken_guards)
    }

    /// Waits for the stream, closes the peers' signals, waits for every rank, frees the own ones. Collective.
    ///
    /// # Errors
    /// [`GroupError`]: a poisoned group cannot be closed; its memory stays mapped until the last holder drops it.
    pub fn close(mut self) -> Result<(), GroupError> {
        self.synchronize()?;
        // They hold the signals, which are freed once nobody does.
        self.timings = None;
        let deadline = Deadline::after(self.options.bootstrap_timeout);
        match self.reach {
            Reach::Peers(signals) => signals.close(&*self.bootstrap, deadline)?,
            Reach::Nobody { .. } => self.bootstrap.barrier("close group", deadline)?,
        }
        Ok(())
    }
}

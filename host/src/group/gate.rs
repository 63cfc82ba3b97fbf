//! A look at a group's poison, for queued work that must not start once it is set.

use std::thread;
use std::time::Duration;

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::PoisonParams;
use cpkv_kernels::signal::{self, FAULT_RECORDED};

use super::phase::Fault;
use super::signals::fault_of;
use crate::device::{DeviceBuffer, DeviceError, Keep, Stream};

/// How often, and how long apart, an unfinished record is looked at.
const NUM_LOOKS: u32 = 100;
const LOOK: Duration = Duration::from_millis(1);

/// What queued work that is no kernel of this library looks at before it starts, as kernels look at their poison word.
/// Behind a barrier that was not passed, a collective would wait for ranks that never come.
///
/// The default belongs to no group: it is never poisoned, and raises nothing.
#[derive(Clone, Default)]
pub struct PoisonGate {
    group: Option<Gated>,
}

#[derive(Clone)]
struct Gated {
    params: PoisonParams,
    /// Address of the own poison word, for kernels.
    word: u64,
    /// Address of the word that the host looks at: the own poison word where it reaches that, else the status.
    host_word: u64,
    keep: Keep,
}

impl PoisonGate {
    /// A gate on the poison word at `word`, which the host sees at `host_word`.
    ///
    /// # Safety
    /// Both are addresses of a poison word, `host_word` one that the host reaches, and those in `params` are what is
    /// documented there, all as long as `keep` lives. `params.record` is 0.
    pub(super) const unsafe fn new(params: PoisonParams, word: u64, host_word: u64, keep: Keep) -> Self {
        Self { group: Some(Gated { params, word, host_word, keep }) }
    }

    /// Whether the group is poisoned, as far as the host can see: where it does not reach the poison word, by the last
    /// barrier or [`PoisonGate::queue_look`] that has run.
    pub fn is_poisoned(&self) -> bool {
        self.group.as_ref().is_some_and(|group| {
            // SAFETY: a poison word that the host reaches and `keep` keeps alive.
            unsafe { signal::is_poisoned(group.host_word) }
        })
    }

    /// The fault that poisoned the group, once [`PoisonGate::is_poisoned`]. May be called from any thread.
    pub fn fault(&self) -> Option<Fault> {
        let group = self.group.as_ref().filter(|_| self.is_poisoned())?;
        // A rank that is writing its record gets a moment to finish.
        for _ in 0..NUM_LOOKS {
            // SAFETY: the word is the first of a fault record that the host reaches and `keep` keeps alive.
            match unsafe { signal::read_fault(group.host_word) } {
                Some(record) if record.word == FAULT_RECORDED => return Some(fault_of(record)),
                _ => thread::sleep(LOOK),
            }
        }
        Some(Fault::Unrecorded)
    }

    /// Address of the poison word for kernels; 0 where there is none.
    pub fn word(&self) -> u64 {
        self.group.as_ref().map_or(0, |group| group.word)
    }

    /// What keeps the poison word alive.
    pub fn keep(&self) -> Option<Keep> {
        self.group.as_ref().map(|group| Keep::clone(&group.keep))
    }

    /// Queues a look: host work behind it on `stream` finds in [`PoisonGate::is_poisoned`] what stands there then.
    ///
    /// # Errors
    /// As [`Stream::launch`].
    pub fn queue_look(&self, stream: &dyn Stream) -> Result<(), DeviceError> {
        let Some(group) = &self.group else { return Ok(()) };
        if group.host_word == group.word {
            return Ok(());
        }
        // SAFETY: all addresses live in `keep`, as `new` was promised.
        unsafe { stream.launch(Kernel::Poison(group.params), &group.keep) }
    }

    /// Queues the raising of the [`FaultRecord`](signal::FaultRecord) in `verdict`, if it is complete by then: nothing
    /// behind it on `stream`, on any rank, then trusts what came before.
    ///
    /// # Errors
    /// As [`Stream::launch`]; [`DeviceError::OutOfBounds`] where `verdict` is too short.
    pub fn queue_raise(&self, stream: &dyn Stream, verdict: &DeviceBuffer) -> Result<(), DeviceError> {
        let Some(group) = &self.group else { return Ok(()) };
        let record = verdict.slice(0..size_of::<signal::FaultRecord>() as u64)?;
        let params = PoisonParams { record: record.addr(), ..group.params };
        let keep: Keep = std::sync::Arc::new((record, Keep::clone(&group.keep)));
        // SAFETY: as above, and `keep` holds the record, which nobody writes behind the verdict's own work.
        unsafe { stream.launch(Kernel::Poison(params), &keep) }
    }
}

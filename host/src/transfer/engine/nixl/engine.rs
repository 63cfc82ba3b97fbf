//! The engine.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use nixl_sys::{Agent, AgentConfig, NixlError, ThreadSync};

use crate::deadline::Deadline;
use crate::device::DeviceBuffer;
use crate::priority::lower_own;
use crate::transfer::blocks::Block;
use crate::transfer::engine::{
    BatchId, BatchState, Delivery, EngineError, EngineInfo, EngineProblem, PeerId, RegistrationId,
    TransferEngine, WAIT_POLL,
};

use super::call::{NAME, foreign, problem, unavailable};
use super::memory::Place;
use super::metadata::Metadata;
use super::state::State;
use super::{NixlOptions, environment, library};

/// NIXL's plug-in that is used.
const BACKEND: &str = "UCX";

/// How long the end of an engine may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// An engine over NIXL and its UCX backend.
///
/// All calls into NIXL are made under one lock: its bindings have one too, but create requests beside it.
pub struct NixlEngine {
    /// Taken when the engine is dropped.
    state: ManuallyDrop<Mutex<State>>,
    options: NixlOptions,
    library: PathBuf,
    /// The name in NIXL: never the same twice, so that what peers knew of an earlier process is not taken for this one.
    agent_name: String,
}

impl NixlEngine {
    /// Loads NIXL, where this process has not yet, and opens an engine. Its thread starts, and UCX listens on what
    /// [`TransferEngine::info`] says.
    ///
    /// # Errors
    /// [`EngineProblem::Unavailable`] with what to do, where there is no library, it is another, or the environment would
    /// make the process crash at its exit ([`NixlEnvironment`](super::NixlEnvironment)); NIXL's own.
    pub fn open(options: NixlOptions) -> Result<Self, EngineError> {
        let refuse = |reason| unavailable("open", reason);
        let library = find_library(options.library.as_deref())?;
        let nonce =
            nonce().map_err(|problem| refuse(format!("the system gives no random bytes: {problem}")))?;
        let agent_name = format!("{}#{nonce:016x}", options.name);
        let config = AgentConfig {
            enable_prog_thread: true,
            thread_sync: ThreadSync::Strict,
            pthr_delay_us: options.progress_us(),
            ..AgentConfig::default()
        };
        let start = || {
            // NIXL's thread takes its priority from the one that starts it.
            lower_own(options.niceness);
            let agent = Agent::new_configured(&agent_name, &config)?;
            let (_, parameters) = agent.get_plugin_params(BACKEND)?;
            agent.create_backend(BACKEND, &parameters)?;
            Ok(agent)
        };
        let started = thread::scope(|scope| {
            let starter = thread::Builder::new().name("nixl-open".to_owned()).spawn_scoped(scope, start);
            let starter = starter.map_err(|problem| refuse(format!("no thread to start it: {problem}")))?;
            starter.join().map_err(|_| refuse("its start panicked".to_owned()))
        });
        let agent = started?.map_err(|error: NixlError| foreign("open", &error))?;
        let state = ManuallyDrop::new(Mutex::new(State::new(agent)));
        Ok(Self { state, options, library, agent_name })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self) -> Place {
        Place { memory: self.options.memory, device_id: self.options.device_id }
    }
}

/// Loads NIXL's library, where this process has not yet, and says where it is: for programs that want to know before they start
/// anything. `library` as [`NixlOptions::library`].
///
/// # Errors
/// [`EngineProblem::Unavailable`], as [`NixlEngine::open`].
pub fn find_library(library: Option<&Path>) -> Result<PathBuf, EngineError> {
    let found = environment::check().and_then(|()| library::load(library));
    found.map_err(|reason| unavailable("open", reason))
}

fn nonce() -> rustix::io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}

impl TransferEngine for NixlEngine {
    fn info(&self) -> EngineInfo {
        let details = format!("{}, {}", environment::describe(), self.library.display());
        // NIXL ends every batch with a flush, which the peer answers.
        EngineInfo { name: NAME, details, delivery: Delivery::BeforeCompletion }
    }

    fn register(&self, memory: &DeviceBuffer) -> Result<RegistrationId, EngineError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.registrations.add(&state.agent, memory, self.place())
    }

    fn unregister(&self, registration: RegistrationId) -> Result<(), EngineError> {
        let mut state = self.lock();
        state.sweep();
        state.registrations.remove(registration)
    }

    fn metadata(&self) -> Result<Vec<u8>, EngineError> {
        let nixl = self.lock().agent.get_local_md().map_err(|error| foreign("metadata", &error))?;
        let Place { memory, device_id } = self.place();
        let (name, agent) = (self.options.name.clone(), self.agent_name.clone());
        let encoded = Metadata { name, agent, memory, device_id, nixl }.encode();
        encoded.ok_or_else(|| unavailable("metadata", "the engine's name is too long".to_owned()))
    }

    fn add_peer(&self, metadata: &[u8]) -> Result<PeerId, EngineError> {
        let bad = EngineProblem::BadMetadata { bytes: metadata.len() };
        let metadata = Metadata::decode(metadata).ok_or_else(|| problem("add_peer", bad))?;
        self.lock().add_peer(&metadata)
    }

    fn remove_peer(&self, peer: PeerId) -> Result<(), EngineError> {
        self.lock().remove_peer(peer)
    }

    fn submit(&self, peer: PeerId, blocks: &[Block]) -> Result<BatchId, EngineError> {
        self.lock().submit(self.place(), peer, blocks)
    }

    fn poll(&self, batch: BatchId) -> Result<BatchState, EngineError> {
        self.lock().poll(batch)
    }

    /// True only where the batch was complete. One in flight stays with NIXL until it ends, with the memory it reads:
    /// registered, and alive, whoever unregisters or drops it here. UCX cannot take back what it was handed.
    fn abandon(&self, batch: BatchId) -> bool {
        self.lock().abandon(batch)
    }

    fn wait(&self, batch: BatchId, deadline: Deadline) -> Result<(), EngineError> {
        while self.poll(batch)? == BatchState::InFlight {
            if deadline.expired() {
                let late = problem("wait", EngineProblem::Deadline { waited_ms: deadline.waited_ms() });
                return Err(self.lock().peer_of(batch).map_or(late.clone(), |peer| late.of(&peer)));
            }
            thread::sleep(WAIT_POLL.min(deadline.remaining()));
        }
        Ok(())
    }
}

impl Drop for NixlEngine {
    /// Waits for no peer, and five seconds at most. With batches in flight it ends nothing: UCX goes on reading their
    /// memory until the process ends, so all of it stays, registered, with NIXL's thread. The process ends cleanly all
    /// the same.
    fn drop(&mut self) {
        // SAFETY: this is the drop; nothing looks at the field afterwards.
        let state = unsafe { ManuallyDrop::take(&mut self.state) };
        let mut state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if state.wind_up() > 0 {
            std::mem::forget(state);
            return;
        }
        let (ended, wait) = mpsc::channel();
        let end = move || {
            drop(state);
            let _ = ended.send(());
        };
        if thread::Builder::new().name("nixl-close".to_owned()).spawn(end).is_ok() {
            let _ = wait.recv_timeout(CLOSE_TIMEOUT);
        }
    }
}

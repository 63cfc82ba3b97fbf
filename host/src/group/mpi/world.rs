//! The MPI world: initialised once, finalised when the last holder drops it.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use mpi::environment::Universe;
use mpi::{Threading, ffi};

use super::error::{MpiError, check};
use super::exchange::{Exchanges, all_gather};
use crate::deadline::Deadline;
use crate::group::frame::Position;
use crate::group::turn::{Turn, TurnGuard};
use crate::units::{GroupSize, Rank};

/// How long a call that has no deadline of its own waits for its turn with MPI.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a rank that is done waits for the others before it leaves without `MPI_Finalize`.
pub const FINALIZE_TIMEOUT: Duration = Duration::from_secs(120);

/// The MPI library, initialised, with a communicator of this library's own.
///
/// Where this library initialised MPI, dropping the last holder calls `MPI_Finalize`, which MPI wants on the
/// thread that initialised it: drop streams and groups first. `MPI_Finalize` waits for all ranks without end, so a
/// last exchange comes before it: it waits at most [`FINALIZE_TIMEOUT`] for the ranks that still work, and tells
/// a rank that expects another exchange that this one is done. After that or an earlier exchange has failed,
/// nothing is finalised; `mpirun` reports that the process left without, and ends the other ranks: what a failed
/// group needs. Where the application initialised MPI, it finalises, and the communicator stays until then.
pub struct MpiWorld {
    comm: Comm,
    rank: Rank,
    size: GroupSize,
    /// One for the whole and its parts: MPI is called by one thread at a time.
    turn: Arc<Turn>,
    pub(super) exchanges: Exchanges,
    /// Set once, never reset, by an exchange that failed; read by the drop. Relaxed: the drop of the last `Arc`
    /// comes after everything its other holders did (the reference count orders that), and the word guards
    /// no other memory.
    failed: AtomicBool,
    /// `None` where the application initialised MPI, in a part, and in the drop.
    universe: Option<Universe>,
}

/// A communicator handle: a pointer or a number, depending on the MPI library.
#[derive(Clone, Copy)]
struct Comm(ffi::MPI_Comm);

// SAFETY: the handle only names an object of the MPI library, which allows its use from any thread, one at a time
// (`MPI_THREAD_SERIALIZED`); the world's turn keeps it to one.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

/// The turn with MPI: as long as it lives, no other thread of this library calls MPI.
pub(crate) struct MpiTurn<'world> {
    comm: ffi::MPI_Comm,
    _turn: TurnGuard<'world>,
}

impl MpiTurn<'_> {
    /// This library's communicator.
    pub(crate) fn comm(&self) -> ffi::MPI_Comm {
        self.comm
    }
}

/// The world of this process. Held while one is made or dropped, so that no init meets a half-finalised MPI.
static CURRENT: Mutex<Weak<MpiWorld>> = Mutex::new(Weak::new());

impl MpiWorld {
    /// Initialises MPI, or joins an MPI that the application has initialised. Collective over `MPI_COMM_WORLD`:
    /// it returns when all processes have called it, and only `mpirun` can tell that one never will. While a world
    /// of this process lives, this returns the same one.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn init() -> Result<Arc<Self>, MpiError> {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(world) = current.upgrade() {
            return Ok(world);
        }
        let world = Arc::new(Self::create()?);
        *current = Arc::downgrade(&world);
        Ok(world)
    }

    fn create() -> Result<Self, MpiError> {
        let mut finalized = 0;
        // SAFETY: allowed at any time; the flag outlives the call.
        check("MPI_Finalized", unsafe { ffi::MPI_Finalized(&mut finalized) })?;
        if finalized != 0 {
            return Err(MpiError::Finalized);
        }
        let (universe, provided) = match mpi::initialize_with_threading(Threading::Serialized) {
            Some((universe, provided)) => (Some(universe), provided),
            None => (None, mpi::environment::threading_support()),
        };
        let provided = match provided {
            Threading::Single => Err("MPI_THREAD_SINGLE"),
            Threading::Funneled => Err("MPI_THREAD_FUNNELED"),
            Threading::Serialized | Threading::Multiple => Ok(()),
        };
        provided.map_err(|provided| MpiError::Threads { provided })?;
        let comm = duplicate_world()?;
        let size = ask("MPI_Comm_size", |size| {
            // SAFETY: MPI is initialised, the communicator is ours, the result outlives the call.
            unsafe { ffi::MPI_Comm_size(comm.0, size) }
        })?;
        let rank = ask("MPI_Comm_rank", |rank| {
            // SAFETY: as above.
            unsafe { ffi::MPI_Comm_rank(comm.0, rank) }
        })?;
        let num_local = num_ranks_here(comm)?;
        if num_local != size {
            return Err(MpiError::SeveralMachines { num_local, num_ranks: size });
        }
        Ok(Self {
            comm,
            rank: Rank(rank),
            size: GroupSize::new(size).map_err(|source| MpiError::Size { source })?,
            turn: Arc::default(),
            exchanges: Exchanges::default(),
            failed: AtomicBool::new(false),
            universe,
        })
    }

    /// This process.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// The number of processes.
    pub fn size(&self) -> GroupSize {
        self.size
    }

    /// The first `size` processes as a world of their own; `None` on the others. The part shares the turn with MPI, and
    /// its communicator stays until MPI is finalised: drop the part before the whole. Collective over this world, and MPI
    /// waits for all of it without end: let the processes meet in an exchange before.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn first(&self, size: GroupSize) -> Result<Option<Arc<Self>>, MpiError> {
        let function = "MPI_Comm_split";
        let deadline = Deadline::after(LOCK_TIMEOUT);
        let _turn = self.turn(deadline).ok_or_else(|| MpiError::Busy { waited_ms: deadline.waited_ms() })?;
        let is_inside = self.rank.0 < size.get();
        // SAFETY: constants of the MPI library, never written after it is loaded.
        let (outside, null) = unsafe { (ffi::RSMPI_UNDEFINED, ffi::RSMPI_COMM_NULL) };
        let (color, mut part) = (if is_inside { 0 } else { outside }, null);
        // SAFETY: the communicator is ours and all ranks make this call; ranks keep their order; the result outlives it.
        let code = unsafe { ffi::MPI_Comm_split(self.comm.0, color, self.rank.0 as c_int, &mut part) };
        check(function, code)?;
        if !is_inside {
            return Ok(None);
        }
        return_errors(part)?;
        Ok(Some(Arc::new(Self {
            comm: Comm(part),
            rank: self.rank,
            size: if size.get() < self.size.get() { size } else { self.size },
            turn: Arc::clone(&self.turn),
            exchanges: Exchanges::default(),
            failed: AtomicBool::new(false),
            universe: None,
        })))
    }

    /// Waits for the turn with MPI; `None` past the deadline.
    pub(crate) fn turn(&self, deadline: Deadline) -> Option<MpiTurn<'_>> {
        self.turn.take(deadline).map(|turn| MpiTurn { comm: self.comm.0, _turn: turn })
    }

    /// Whether all ranks are about to finalise, and none is missing.
    fn all_are_done(&self) -> bool {
        let sequence = self.exchanges.num_exchanges();
        let position = Position { call: "MPI_Finalize", rank: self.rank, sequence };
        let deadline = Deadline::after(FINALIZE_TIMEOUT);
        all_gather(self, position, position.encode(&[]), deadline).is_ok_and(|frames| {
            self.size.ranks().zip(&frames).all(|(peer, frame)| position.decode(peer, frame).is_ok())
        })
    }

    /// Notes that an exchange failed: the drop does not wait for the other ranks any more.
    pub(super) fn mark_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

impl Drop for MpiWorld {
    fn drop(&mut self) {
        let _current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let universe = self.universe.take();
        let mut finalized = 1;
        // SAFETY: allowed at any time; the flag outlives the call.
        let code = unsafe { ffi::MPI_Finalized(&mut finalized) };
        let usable = code == 0 && finalized == 0 && !self.failed.load(Ordering::Relaxed);
        if universe.is_none() || !usable || !self.all_are_done() {
            std::mem::forget(universe);
            return;
        }
        // SAFETY: the communicator is ours, and nobody else holds the world any more.
        let _ = unsafe { ffi::MPI_Comm_free(&mut self.comm.0) };
        drop(universe);
    }
}

/// A number that an MPI function stores.
fn ask(function: &'static str, call: impl FnOnce(*mut c_int) -> c_int) -> Result<u32, MpiError> {
    let mut value = 0;
    check(function, call(&mut value))?;
    u32::try_from(value).map_err(|_| MpiError::Call { function, code: value })
}

/// A copy of `MPI_COMM_WORLD` whose failures are error codes.
fn duplicate_world() -> Result<Comm, MpiError> {
    // SAFETY: a constant of the MPI library, never written after it is loaded.
    let (world, null) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_NULL) };
    let mut comm = null;
    // SAFETY: MPI is initialised; the result outlives the call.
    check("MPI_Comm_dup", unsafe { ffi::MPI_Comm_dup(world, &mut comm) })?;
    return_errors(comm)?;
    Ok(Comm(comm))
}

/// Has calls on `comm`, which is ours, return error codes.
fn return_errors(comm: ffi::MPI_Comm) -> Result<(), MpiError> {
    // SAFETY: a constant of the MPI library, never written after it is loaded.
    let errors_return = unsafe { ffi::RSMPI_ERRORS_RETURN };
    // SAFETY: the communicator is ours, the handler predefined.
    check("MPI_Comm_set_errhandler", unsafe { ffi::MPI_Comm_set_errhandler(comm, errors_return) })
}

/// How many ranks of `comm` can share memory with this one.
fn num_ranks_here(comm: Comm) -> Result<u32, MpiError> {
    // SAFETY: constants of the MPI library, never written after it is loaded.
    let (kind, info, null) =
        unsafe { (ffi::RSMPI_COMM_TYPE_SHARED, ffi::RSMPI_INFO_NULL, ffi::RSMPI_COMM_NULL) };
    let mut local = null;
    // SAFETY: the communicator is ours and all ranks make this call; the result outlives it.
    let code = unsafe { ffi::MPI_Comm_split_type(comm.0, kind, 0, info, &mut local) };
    check("MPI_Comm_split_type", code)?;
    let size = ask("MPI_Comm_size", |size| {
        // SAFETY: the communicator was made above; the result outlives the call.
        unsafe { ffi::MPI_Comm_size(local, size) }
    })?;
    // SAFETY: the communicator was made above and is not used after this.
    check("MPI_Comm_free", unsafe { ffi::MPI_Comm_free(&mut local) })?;
    Ok(size)
}

/// What `MPI_IN_PLACE` is in this MPI library: the headers define it as a cast, which the bindings leave out.
/// `None` for a library whose value is not known here.
pub(crate) fn in_place() -> Option<*const std::ffi::c_void> {
    let version = super::mpi_library_version();
    if version.starts_with("Open MPI") {
        return Some(ptr::without_provenance(1));
    }
    // The libraries of one ABI initiative, which fixes the value.
    let same_abi = ["MPICH", "Intel(R) MPI", "MVAPICH"];
    same_abi.iter().any(|name| version.starts_with(name)).then(|| ptr::without_provenance(usize::MAX))
}

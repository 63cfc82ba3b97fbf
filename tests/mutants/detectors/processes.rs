//! Ranks as processes: their memory is exported and opened, and for that the virtual GPU has rules of scope and order.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::device::cuda::{CudaDevice, GpuChoice};
use cpkv::group::{Bootstrap, CallbackBootstrap, Fault, Group, GroupError, Transport};
use cpkv::symm::{CudaIpcBackend, SharedBackend};
use cpkv::units::{GroupSize, Rank};

use super::barrier::late_ranks;
use super::{PATIENT, group_options};
use crate::child;
use crate::fixture::LONG;

/// The role of a rank is this and its number.
pub(crate) const RANK_ROLE: &str = "rank-";
const NUM_RANKS: u32 = 3;
const ABSENT: Rank = Rank(2);
/// Of the barrier whose last rank is absent.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Starts the ranks, and passes their words on until one goes.
pub(crate) fn look() {
    let (mut sockets, mut ranks) = (Vec::new(), Vec::new());
    for rank in 0..NUM_RANKS {
        let (ours, theirs) = UnixStream::pair().unwrap();
        sockets.push(ours);
        let mut command = child::command(&format!("{RANK_ROLE}{rank}"));
        ranks.push(command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn().unwrap());
    }
    let hub = thread::spawn(move || while pass_on(&mut sockets).is_ok() {});
    for (rank, mut process) in ranks.into_iter().enumerate() {
        let ended = child::wait(&mut process, LONG).unwrap();
        assert_eq!(ended, Some(true), "rank {rank} has found a fault, or hangs");
    }
    hub.join().unwrap();
}

/// One exchange: a frame of every rank, then all frames to every rank.
fn pass_on(sockets: &mut [UnixStream]) -> std::io::Result<()> {
    let frames = sockets.iter_mut().map(receive).collect::<Result<Vec<_>, _>>()?;
    sockets.iter_mut().try_for_each(|socket| frames.iter().try_for_each(|frame| send(socket, frame)))
}

/// A frame is `[bytes: u64][bytes]`.
fn send(socket: &mut UnixStream, frame: &[u8]) -> std::io::Result<()> {
    socket.write_all(&(frame.len() as u64).to_le_bytes())?;
    socket.write_all(frame)
}

fn receive(socket: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = [0; 8];
    socket.read_exact(&mut bytes)?;
    let mut frame = vec![0; u64::from_le_bytes(bytes) as usize];
    socket.read_exact(&mut frame)?;
    Ok(frame)
}

/// The exchange of this process, whose standard input is a socket of the hub.
fn bootstrap(rank: Rank, size: GroupSize) -> CallbackBootstrap {
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let socket = Mutex::new(socket);
    let exchange = move |_call: &str, frame: &[u8], left: Duration| {
        let mut socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
        let left = left.max(Duration::from_millis(1));
        let exchanged = socket.set_read_timeout(Some(left)).and_then(|()| send(&mut socket, frame));
        let frames = exchanged.and_then(|()| size.ranks().map(|_| receive(&mut socket)).collect());
        frames.map_err(|error: std::io::Error| i64::from(error.raw_os_error().unwrap_or(-1)))
    };
    CallbackBootstrap::new(rank, size, Transport::Processes, Box::new(exchange))
}

/// This process is a rank.
pub(crate) fn be_rank(rank: &str) {
    let rank = Rank(rank.parse().unwrap());
    let bootstrap: Arc<dyn Bootstrap> = Arc::new(bootstrap(rank, GroupSize::new(NUM_RANKS).unwrap()));
    let device = CudaDevice::open(&GpuChoice::Ordinal(0)).unwrap();
    let backend: SharedBackend = Arc::new(CudaIpcBackend::new(device.clone()));
    let register = |timeout| {
        let options = group_options(timeout);
        Group::register(Arc::clone(&bootstrap), Arc::new(device.clone()), backend.clone(), options).unwrap()
    };
    late_ranks(register(PATIENT), 2 * NUM_RANKS + 2);
    lose_a_rank(register(TIMEOUT), &*bootstrap);
}

/// A barrier that one rank comes to late, when all the others have given up.
fn lose_a_rank(mut group: Group, bootstrap: &dyn Bootstrap) {
    let meet = || bootstrap.barrier("the others have given up", Deadline::after(LONG)).unwrap();
    if group.rank() == ABSENT {
        meet();
    }
    let launched = group.barrier(1);
    let ended = launched.and_then(|()| group.synchronize());
    let error = ended.expect_err("a barrier without a rank was passed");
    if group.rank() != ABSENT {
        meet();
    }
    let GroupError::Fault(Fault::Barrier { missing, by, .. }) = &error else { panic!("{error}") };
    assert!(*missing == [ABSENT].into_iter().collect() && *by != ABSENT, "{error}");
    // Nobody frees what another may still look at.
    bootstrap.barrier("all know", Deadline::after(LONG)).unwrap();
}

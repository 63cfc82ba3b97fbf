//! Ranks that are processes: copies of this program that the bench starts, and that end with it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::symm::MemfdBackend;
use cpkv::units::{GroupSize, Rank};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::counter::Counter;
use crate::rounds::{Failure, Member};
use crate::star::Star;

/// Says which rank of how many a process is: `3/8`.
const RANK_VARIABLE: &str = "CPKV_BENCH_RANK";

/// Longest wait for processes whose group is closed.
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// Ranks 1, 2, ... of a group; killed when dropped.
pub(crate) struct Children(Vec<Child>);

impl Children {
    /// Starts the other ranks of a group of `size`. Rank 0's end of their star comes with them.
    pub(crate) fn start(size: GroupSize) -> Result<(Self, Star), Failure> {
        let program = std::env::current_exe()?;
        let (mut children, mut sockets) = (Self(Vec::new()), Vec::new());
        for rank in 1..size.get() {
            let (mine, theirs) = UnixStream::pair()?;
            let child = Command::new(&program)
                .env(RANK_VARIABLE, format!("{rank}/{size}"))
                .stdin(Stdio::from(OwnedFd::from(theirs)))
                .stdout(Stdio::null())
                .spawn()?;
            children.0.push(child);
            sockets.push(mine);
        }
        Ok((children, Star::Centre(sockets)))
    }

    /// Which of them have ended, and how: what explains an exchange that failed.
    pub(crate) fn ended(&mut self) -> String {
        let ended = |(rank, child): (usize, &mut Child)| match child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("; the process of rank {rank} has ended: {status}")),
            Err(error) => Some(format!("; the process of rank {rank} cannot be looked at: {error}")),
        };
        (1..).zip(&mut self.0).filter_map(ended).collect()
    }

    /// Waits until all have ended, as they do once their group is closed.
    pub(crate) fn join(mut self) -> Result<(), Failure> {
        let deadline = Deadline::after(END_TIMEOUT);
        for (rank, child) in (1..).zip(&mut self.0) {
            let status = loop {
                match child.try_wait()? {
                    Some(status) => break status,
                    None if deadline.expired() => {
                        return Err(format!("the process of rank {rank} does not end").into());
                    }
                    None => thread::sleep(Duration::from_millis(2)),
                }
            };
            if !status.success() {
                return Err(format!("the process of rank {rank} has failed: {status}").into());
            }
        }
        Ok(())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended cannot be killed, and need not be.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Registers `rank` of a group of `size` processes. Collective.
pub(crate) fn member(star: Star, rank: Rank, size: GroupSize) -> Result<Member, Failure> {
    let bootstrap = Arc::new(star.bootstrap(rank, size));
    let counter = Counter::share(&*bootstrap)?;
    let baseline = move |num_barriers| (0..num_barriers).try_for_each(|_| counter.pass());
    Member::register(bootstrap, Arc::new(MemfdBackend), Arc::new(baseline))
}

/// Plays the rank that this process was started for; `None` where it is the bench itself.
pub(crate) fn play() -> Option<ExitCode> {
    let place = std::env::var(RANK_VARIABLE).ok()?;
    match follow(&place) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("rank {place}: {error}");
            Some(ExitCode::FAILURE)
        }
    }
}

fn follow(place: &str) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    // A parent that ended before that has closed its end of the socket.
    let (rank, size) = place.split_once('/').ok_or("this is no rank")?;
    let (rank, size) = (Rank(rank.parse()?), GroupSize::new(size.parse()?)?);
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    member(Star::Ray(socket), rank, size)?.follow()
}

//! The exchange between ranks that are processes: a hub in their parent, a socket each.
//!
//! A frame is `[bytes: u32][bytes]`, little endian. In a round every rank sends one, and gets all of them by rank.

use std::io::{Read, Write, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cpkv::group::{CallbackBootstrap, MAX_BLOB_BYTES, Transport};
use cpkv::units::{GroupSize, Rank};

use crate::outcome::Problem;

/// The longest frame: a blob and what the bootstrap adds.
const MAX_FRAME_BYTES: usize = MAX_BLOB_BYTES + 4096;
/// A hub that hears nothing for so long ends, and its ranks' exchanges with it.
const SILENCE: Duration = Duration::from_secs(120);

/// Codes of a failed exchange, as the bootstrap reports them.
const CODE_SEND: i64 = 1;
const CODE_RECEIVE: i64 = 2;

/// Starts the hub of `size` ranks: what each rank's process reads as its standard input, and the hub's thread, which
/// ends when a rank closes its socket.
pub(crate) fn start(size: GroupSize) -> Result<(Vec<Stdio>, JoinHandle<()>), Problem> {
    let (mut sockets, mut stdins) = (Vec::new(), Vec::new());
    for _ in size.ranks() {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(SILENCE))?;
        ours.set_write_timeout(Some(SILENCE))?;
        sockets.push(ours);
        stdins.push(Stdio::from(OwnedFd::from(theirs)));
    }
    Ok((stdins, thread::spawn(move || while round(&mut sockets).is_ok() {})))
}

fn round(sockets: &mut [UnixStream]) -> std::io::Result<()> {
    let frames = sockets.iter_mut().map(receive).collect::<Result<Vec<_>, _>>()?;
    for socket in sockets {
        for frame in &frames {
            send(socket, frame)?;
        }
    }
    Ok(())
}

fn send(socket: &mut UnixStream, frame: &[u8]) -> std::io::Result<()> {
    socket.write_all(&(frame.len() as u32).to_le_bytes())?;
    socket.write_all(frame)
}

fn receive(socket: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut len = [0; 4];
    socket.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > MAX_FRAME_BYTES {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let mut frame = vec![0; len];
    socket.read_exact(&mut frame)?;
    Ok(frame)
}

/// The bootstrap of this process, whose standard input is a socket of the hub.
pub(crate) fn join(rank: Rank, size: GroupSize) -> Result<CallbackBootstrap, Problem> {
    let socket = UnixStream::from(stdin().as_fd().try_clone_to_owned()?);
    let socket = Mutex::new(socket);
    let exchange = move |_call: &str, blob: &[u8], left: Duration| {
        let mut socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
        // 0 would mean no timeout. Each read has it anew; the hub's own limits the sum.
        let left = Some(left.max(Duration::from_millis(1)));
        socket.set_write_timeout(left).and_then(|()| socket.set_read_timeout(left)).map_err(|_| CODE_SEND)?;
        send(&mut socket, blob).map_err(|_| CODE_SEND)?;
        size.ranks().map(|_| receive(&mut socket).map_err(|_| CODE_RECEIVE)).collect()
    };
    Ok(CallbackBootstrap::new(rank, size, Transport::Processes, Box::new(exchange)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_gives_every_rank_every_frame_and_a_closed_socket_ends_it() {
        let (mut hub, mut ranks): (Vec<_>, Vec<_>) =
            (0..3).map(|_| UnixStream::pair().expect("a pair of sockets")).unzip();
        let thread = thread::spawn(move || while round(&mut hub).is_ok() {});
        for (rank, socket) in (0u8..).zip(&mut ranks) {
            send(socket, &vec![rank; usize::from(rank) * 3]).expect("the hub listens");
        }
        for socket in &mut ranks {
            for rank in 0..3u8 {
                assert_eq!(receive(socket).expect("a frame"), vec![rank; usize::from(rank) * 3]);
            }
        }
        drop(ranks);
        thread.join().expect("the hub ends");
    }
}

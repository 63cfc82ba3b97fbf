//! An all-gather among processes without MPI: every rank has a Unix socket to rank 0, which collects the blobs and sends
//! all of them back.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::group::{CallbackBootstrap, MAX_BLOB_BYTES, Transport};
use cpkv::units::{GroupSize, Rank};
use rustix::io::Errno;

/// The largest frame: a blob, and what the bootstrap puts around it.
const MAX_FRAME_BYTES: usize = 2 * MAX_BLOB_BYTES;

/// This rank's end of the star.
pub(crate) enum Star {
    /// Rank 0: the sockets to ranks 1, 2, ...
    Centre(Vec<UnixStream>),
    /// Another rank: the socket to rank 0.
    Ray(UnixStream),
}

impl Star {
    /// The bootstrap of `rank` among `size` processes.
    pub(crate) fn bootstrap(self, rank: Rank, size: GroupSize) -> CallbackBootstrap {
        let gather = Box::new(move |_: &str, blob: &[u8], timeout: Duration| {
            self.all_gather(blob, Deadline::after(timeout)).map_err(|error| i64::from(code_of(&error)))
        });
        CallbackBootstrap::new(rank, size, Transport::Processes, gather)
    }

    fn all_gather(&self, blob: &[u8], deadline: Deadline) -> Result<Vec<Vec<u8>>> {
        match self {
            Self::Centre(sockets) => {
                let mut blobs = vec![blob.to_vec()];
                for socket in sockets {
                    blobs.push(receive(socket, deadline)?);
                }
                for socket in sockets {
                    send(socket, &(blobs.len() as u32).to_le_bytes(), deadline)?;
                    for blob in &blobs {
                        send_frame(socket, blob, deadline)?;
                    }
                }
                Ok(blobs)
            }
            Self::Ray(socket) => {
                send_frame(socket, blob, deadline)?;
                let num_blobs = receive_word(socket, deadline)?;
                (0..num_blobs).map(|_| receive(socket, deadline)).collect()
            }
        }
    }
}

/// The system's code; a peer that has ended is one that reset the connection.
fn code_of(error: &Error) -> i32 {
    let otherwise = match error.kind() {
        ErrorKind::TimedOut => Errno::TIMEDOUT,
        ErrorKind::InvalidData => Errno::BADMSG,
        _ => Errno::CONNRESET,
    };
    error.raw_os_error().unwrap_or(otherwise.raw_os_error())
}

fn send_frame(socket: &UnixStream, bytes: &[u8], deadline: Deadline) -> Result<()> {
    send(socket, &(bytes.len() as u32).to_le_bytes(), deadline)?;
    send(socket, bytes, deadline)
}

fn send(mut socket: &UnixStream, mut bytes: &[u8], deadline: Deadline) -> Result<()> {
    while !bytes.is_empty() {
        socket.set_write_timeout(Some(left(deadline)?))?;
        let sent = again_if_interrupted(|| socket.write(bytes))?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

fn receive(socket: &UnixStream, deadline: Deadline) -> Result<Vec<u8>> {
    let num_bytes = receive_word(socket, deadline)? as usize;
    if num_bytes > MAX_FRAME_BYTES {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; num_bytes];
    fill(socket, &mut bytes, deadline)?;
    Ok(bytes)
}

fn receive_word(socket: &UnixStream, deadline: Deadline) -> Result<u32> {
    let mut word = [0; 4];
    fill(socket, &mut word, deadline)?;
    Ok(u32::from_le_bytes(word))
}

fn fill(mut socket: &UnixStream, mut bytes: &mut [u8], deadline: Deadline) -> Result<()> {
    while !bytes.is_empty() {
        socket.set_read_timeout(Some(left(deadline)?))?;
        let got = again_if_interrupted(|| socket.read(bytes))?;
        if got == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        bytes = &mut bytes[got..];
    }
    Ok(())
}

/// What is left of the deadline: never zero, which a socket takes for "no timeout".
fn left(deadline: Deadline) -> Result<Duration> {
    let left = deadline.remaining();
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn again_if_interrupted(mut call: impl FnMut() -> Result<usize>) -> Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

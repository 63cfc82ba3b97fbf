//! Passing an open file to processes of the same user, over an abstract Unix socket.
//!
//! Life cycle of one server:
//! 1. start: bind and listen on a random abstract name (no file system entry; the kernel drops the name with the
//!    last descriptor of the socket, so a killed process leaves nothing), then start a thread;
//! 2. a peer connects and sends the token of the ticket; the server checks that it runs as the same user, and
//!    the token, and answers with one byte that carries the descriptor;
//! 3. stop: dropping the server wakes the thread (eventfd) and joins it. Past the deadline the thread leaves by
//!    itself.
//!
//! Names are visible to everyone on the machine (`/proc/net/unix`), tokens to nobody: the ticket travels through
//! the group's bootstrap.
//!
//! No socket here ever blocks: each wait is a `poll` that ends with a deadline, and a peer that connects and says
//! nothing occupies one place among [`MAX_CLIENTS`] and nobody's time.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::rand::{GetRandomFlags, getrandom};

use super::peer_user::runs_as_this_user;
use crate::deadline::Deadline;

/// How many peers may be connected and not yet served. A group has at most 63; one more replaces the oldest.
const MAX_CLIENTS: usize = 256;

/// How long a connect waits before it tries a full backlog again.
const RETRY_CONNECT: Duration = Duration::from_millis(1);

const SOCKET_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// What a peer needs to fetch the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    name: [u8; 16],
    token: [u8; 16],
}

/// Serves one open file until dropped.
#[derive(Debug)]
pub(crate) struct FdServer {
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// A system call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallError {
    pub(crate) call: &'static str,
    pub(crate) code: i32,
}

/// Why a file could not be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchError {
    /// The server did not answer in time: frozen, or it does not get to run.
    Deadline,
    /// A call failed; `connect` with "connection refused" where the server is gone.
    Call { call: &'static str, code: i32 },
}

impl Ticket {
    /// `[name: 16][token: 16]`.
    pub(crate) fn encode(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.name);
        bytes[16..].copy_from_slice(&self.token);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; 32]) -> Self {
        let mut ticket = Self { name: [0; 16], token: [0; 16] };
        ticket.name.copy_from_slice(&bytes[..16]);
        ticket.token.copy_from_slice(&bytes[16..]);
        ticket
    }

    fn random() -> Result<Self, Errno> {
        let mut bytes = [0; 32];
        // Up to 256 bytes come whole or not at all.
        retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
        Ok(Self::decode(&bytes))
    }

    /// `@cpkv-` and 32 hexadecimal digits in `/proc/net/unix`.
    fn address(&self) -> Result<SocketAddrUnix, Errno> {
        SocketAddrUnix::new_abstract_name(format!("cpkv-{:032x}", u128::from_be_bytes(self.name)).as_bytes())
    }
}

impl FdServer {
    /// Serves `file` until the server is dropped or the deadline has passed.
    pub(crate) fn start(file: OwnedFd, deadline: Deadline) -> Result<(Self, Ticket), CallError> {
        let ticket = Ticket::random().map_err(named("getrandom"))?;
        let listener = socket().map_err(named("socket"))?;
        let address = ticket.address().map_err(named("bind"))?;
        rustix::net::bind(&listener, &address).map_err(named("bind"))?;
        rustix::net::listen(&listener, MAX_CLIENTS as i32).map_err(named("listen"))?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(named("eventfd"))?;
        let clone_failed = |error: std::io::Error| os_error("fcntl(F_DUPFD_CLOEXEC)", &error);
        let serving = Serving {
            listener,
            file,
            token: ticket.token,
            stop: stop.try_clone().map_err(clone_failed)?,
            clients: Vec::new(),
        };
        let thread = thread::Builder::new()
            .name("cpkv-fd-server".into())
            .spawn(move || serving.run(deadline))
            .map_err(|error| os_error("pthread_create", &error))?;
        Ok((Self { stop, thread: Some(thread) }, ticket))
    }
}

impl Drop for FdServer {
    fn drop(&mut self) {
        // One write into an empty eventfd cannot fail or block; the thread makes no blocking call but its poll.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn named(call: &'static str) -> impl Fn(Errno) -> CallError {
    move |error| CallError { call, code: error.raw_os_error() }
}

fn os_error(call: &'static str, error: &std::io::Error) -> CallError {
    CallError { call, code: error.raw_os_error().unwrap_or(0) }
}

fn socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)
}

/// What the server's thread owns.
struct Serving {
    listener: OwnedFd,
    file: OwnedFd,
    token: [u8; 16],
    stop: OwnedFd,
    clients: Vec<Client>,
}

/// A connected peer that has not yet proved itself.
struct Client {
    socket: OwnedFd,
    received: [u8; 16],
    num_received: usize,
}

impl Serving {
    fn run(mut self, deadline: Deadline) {
        loop {
            let mut waits =
                vec![PollFd::new(&self.stop, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
            waits.extend(self.clients.iter().map(|client| PollFd::new(&client.socket, PollFlags::IN)));
            if !wait_any(&mut waits, deadline).is_ok_and(|ready| ready) {
                return;
            }
            let ready: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
            if ready[0] {
                return;
            }
            let mut is_ready = ready[2..].iter();
            let (file, token) = (self.file.as_fd(), &self.token);
            self.clients.retain_mut(|client| {
                !is_ready.next().is_some_and(|&ready| ready) || client.advance(file, token)
            });
            if ready[1] {
                self.accept();
            }
        }
    }

    /// Takes every waiting connection of this user.
    fn accept(&mut self) {
        loop {
            match rustix::net::accept_with(&self.listener, SOCKET_FLAGS) {
                Ok(socket) if runs_as_this_user(&socket) => {
                    if self.clients.len() == MAX_CLIENTS {
                        self.clients.remove(0);
                    }
                    self.clients.push(Client { socket, received: [0; 16], num_received: 0 });
                }
                Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // Out of descriptors, most likely: those of silent peers are the ones to give up.
                    self.clients.clear();
                    thread::sleep(RETRY_CONNECT);
                    return;
                }
            }
        }
    }
}

impl Client {
    /// Reads what has come and answers a complete, right token. Whether to go on with this peer.
    fn advance(&mut self, file: BorrowedFd<'_>, token: &[u8; 16]) -> bool {
        let rest = &mut self.received[self.num_received..];
        match rustix::io::read(&self.socket, rest) {
            Ok(0) => false,
            Ok(num_bytes) => {
                self.num_received += num_bytes;
                if self.num_received < token.len() {
                    return true;
                }
                // Every byte is compared, so that the time does not tell how many were right.
                let difference = self.received.iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b));
                if difference == 0 {
                    // A peer that is gone by now needs no answer.
                    let _ = send_file(&self.socket, file);
                }
                false
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }
}

/// Sends one byte that carries `file`. Into an empty socket buffer: does not block.
fn send_file(socket: &OwnedFd, file: BorrowedFd<'_>) -> Result<(), Errno> {
    let files = [file];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(Errno::NOBUFS);
    }
    let bytes = [IoSlice::new(&[1])];
    retry_on_intr(|| rustix::net::sendmsg(socket, &bytes, &mut control, SendFlags::NOSIGNAL)).map(drop)
}

/// Fetches the file that `ticket` names.
pub(crate) fn fetch(ticket: &Ticket, deadline: Deadline) -> Result<OwnedFd, FetchError> {
    let failed = |call| move |error: Errno| FetchError::Call { call, code: error.raw_os_error() };
    let socket = socket().map_err(failed("socket"))?;
    let address = ticket.address().map_err(failed("connect"))?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            // The backlog is full: everyone connects at once, or the server is frozen.
            Err(Errno::AGAIN) if deadline.expired() => return Err(FetchError::Deadline),
            Err(Errno::AGAIN) => thread::sleep(RETRY_CONNECT.min(deadline.remaining())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed("connect")(error)),
        }
    }
    // The name of a server that died can be taken by anyone who had seen it.
    if !runs_as_this_user(&socket) {
        return Err(failed("getsockopt(SO_PEERCRED)")(Errno::PERM));
    }
    retry_on_intr(|| rustix::net::send(&socket, &ticket.token, SendFlags::NOSIGNAL))
        .map_err(failed("send"))?;
    loop {
        match receive_file(&socket) {
            Ok(Some(file)) => return Ok(file),
            // The server closed without an answer: it is gone, or refused this peer.
            Ok(None) => return Err(failed("recvmsg")(Errno::CONNRESET)),
            Err(Errno::AGAIN) => {
                let ready = wait_any(&mut [PollFd::new(&socket, PollFlags::IN)], deadline);
                if !ready.map_err(failed("poll"))? {
                    return Err(FetchError::Deadline);
                }
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed("recvmsg")(error)),
        }
    }
}

/// The file in the next message; `None` at the end, or where the message has none.
fn receive_file(socket: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    // Descriptors past the first are closed here.
    Ok(files.flatten().collect::<Vec<_>>().into_iter().next())
}

/// Waits until one of `waits` is ready; `false` once the deadline has passed.
fn wait_any(waits: &mut [PollFd<'_>], deadline: Deadline) -> Result<bool, Errno> {
    loop {
        let left = deadline.remaining();
        // A time that does not fit is for ever; a day at a time comes to the same.
        let left = left.min(Duration::from_secs(86_400));
        let timeout = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        match poll(waits, Some(&timeout)) {
            Ok(0) if deadline.expired() => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
#[path = "fd_passing_tests.rs"]
mod tests;

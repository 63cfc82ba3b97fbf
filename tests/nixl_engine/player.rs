//! A process of the cast: does what its test says, until it is told to quit, is killed, or its test is gone.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cpkv::deadline::Deadline;
use cpkv::device::{CpuDevice, Device, DeviceBuffer};
use cpkv::transfer::engine::nixl::{self, NixlEngine, NixlEnvironment, NixlOptions};
use cpkv::transfer::{BatchId, BatchState, Block, EngineError, PeerId, RegistrationId, TransferEngine};

use super::protocol::{Answer, Command, MARK, RawBlock, pattern};
use super::support::{hex, unhex};

const LONG: Duration = Duration::from_secs(30);

/// What a player has.
#[derive(Default)]
struct Player {
    engine: Option<Arc<NixlEngine>>,
    buffers: Vec<Option<DeviceBuffer>>,
}

/// Plays until told to quit.
pub(crate) fn play() {
    // SAFETY: the tests' harness runs the one test of this process on the only thread there is.
    unsafe { NixlEnvironment { loopback: true, tcp_only: true }.set() };
    let mut player = Player::default();
    for line in std::io::stdin().lock().lines() {
        let command = serde_json::from_str(&line.unwrap()).unwrap();
        if matches!(command, Command::Quit) {
            return;
        }
        let answer = player.act(command).unwrap_or_else(|error| Answer::Error {
            call: error.call.to_owned(),
            peer: error.peer.as_deref().map(str::to_owned),
            problem: format!("{:?}", error.problem),
            text: error.to_string(),
        });
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "\n{MARK}{}", serde_json::to_string(&answer).unwrap()).unwrap();
        stdout.flush().unwrap();
    }
}

impl Player {
    fn engine(&self) -> &NixlEngine {
        self.engine.as_ref().expect("opened")
    }

    fn buffer(&self, buffer: usize) -> &DeviceBuffer {
        self.buffers[buffer].as_ref().expect("not freed")
    }

    fn act(&mut self, command: Command) -> Result<Answer, EngineError> {
        let number = |number: u64| Ok(Answer::Number(number));
        match command {
            Command::Open { name, library } => {
                let library = library.map(Into::into);
                let engine = NixlEngine::open(NixlOptions { library, ..NixlOptions::new(name) })?;
                let info = engine.info();
                self.engine = Some(Arc::new(engine));
                Ok(Answer::Text(format!("{info:?}")))
            }
            Command::Alloc { bytes, seed } => {
                let buffer = CpuDevice.alloc(bytes).unwrap();
                let contents: Vec<u8> = (0..bytes).map(|at| pattern(seed, at)).collect();
                CpuDevice.write(&contents, &buffer).unwrap();
                let addr = buffer.addr();
                self.buffers.push(Some(buffer));
                number(addr)
            }
            Command::Register { buffer } => number(self.engine().register(self.buffer(buffer))?.0),
            Command::Unregister { registration } => {
                self.engine().unregister(RegistrationId(registration))?;
                number(0)
            }
            Command::Free { buffer } => {
                self.buffers[buffer] = None;
                number(0)
            }
            Command::Metadata => Ok(Answer::Text(hex(&self.engine().metadata()?))),
            Command::AddPeer { metadata } => number(self.engine().add_peer(&unhex(&metadata))?.0.into()),
            Command::RemovePeer { peer } => {
                self.engine().remove_peer(PeerId(peer))?;
                number(0)
            }
            Command::Submit { peer, blocks } => number(self.engine().submit(PeerId(peer), &list(&blocks))?.0),
            Command::Poll { batch } => {
                number((self.engine().poll(BatchId(batch))? == BatchState::Done).into())
            }
            Command::Wait { batch, timeout_ms } => {
                let deadline = Deadline::after(Duration::from_millis(timeout_ms));
                self.engine().wait(BatchId(batch), deadline)?;
                number(0)
            }
            Command::Abandon { batch } => number(self.engine().abandon(BatchId(batch)).into()),
            Command::Threads { sets, rounds } => {
                let engine = self.engine();
                let run = |peer: u32, blocks: &[RawBlock]| {
                    for _ in 0..rounds {
                        let batch = engine.submit(PeerId(peer), &list(blocks))?;
                        engine.wait(batch, Deadline::after(LONG))?;
                    }
                    Ok(())
                };
                std::thread::scope(|scope| {
                    let threads: Vec<_> =
                        sets.iter().map(|(peer, blocks)| scope.spawn(|| run(*peer, blocks))).collect();
                    threads.into_iter().try_for_each(|thread| thread.join().unwrap())
                })?;
                number(0)
            }
            Command::Wrong { buffer, seed, written } => {
                let buffer = self.buffer(buffer);
                let mut expected: Vec<u8> = (0..buffer.bytes()).map(|at| pattern(seed, at)).collect();
                for (at, seed, from, bytes) in written {
                    for i in 0..bytes {
                        expected[(at + i) as usize] = pattern(seed, from + i);
                    }
                }
                let mut found = vec![0; expected.len()];
                CpuDevice.read(buffer, &mut found).unwrap();
                number(
                    found.iter().zip(&expected).filter(|(found, expected)| found != expected).count() as u64
                )
            }
            Command::Idle { ms } => {
                let before = processor_time();
                std::thread::sleep(Duration::from_millis(ms));
                number((processor_time() - before).as_millis() as u64)
            }
            Command::Close => {
                let begun = Instant::now();
                self.engine = None;
                number(begun.elapsed().as_millis() as u64)
            }
            Command::Exit { code } => nixl::exit(code),
            Command::Quit => number(0),
        }
    }
}

fn list(blocks: &[RawBlock]) -> Vec<Block> {
    blocks.iter().map(|&(src, dst, bytes)| Block { src, dst, bytes }).collect()
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

//! The transfer over NIXL to a decode worker that is another process: killed before, in the middle, frozen, started anew.
//!
//! A test starts a prefill process, and that a decode process: both are this program again, told what to be by a variable.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use cpkv::device::{CpuDevice, Device, DeviceBuffer};
use cpkv::group::PoisonGate;
use cpkv::model::ModelSpec;
use cpkv::transfer::engine::nixl::{NixlEngine, NixlOptions};
use cpkv::transfer::{
    Cause, DecodeGroup, DecodeOptions, DecodeWorker, Directory, Geometry, LayerBuffer, ManagerOptions,
    ManagerParts, Offer, PoolMap, Quiet, RequestId, RequestRun, RequestSpec, Sent, Source, SystemClock,
    TransferEngine, TransferEpoch, TransferError, TransferManager, WorkerHello,
};
use cpkv::units::{GroupSize, PageId, Rank};
use rustix::process::{Pid, Signal, kill_process};

/// What this process is: unset in the test itself.
const PART: &str = "CPKV_TEST_PART";
const HELLO: &str = "HELLO ";
const LONG: Duration = Duration::from_secs(60);
/// Enough for more than the sockets between two processes hold: 8 MiB a layer.
const NUM_PAGES: u32 = 200;
const BATCH_TIMEOUT: Duration = Duration::from_secs(3);

fn model() -> ModelSpec {
    ModelSpec::preset("mla-fp8-78").unwrap().take_layers(3).unwrap()
}

fn stamp(layer: usize, buffer_idx: usize, page: PageId) -> u8 {
    (page.0 as u8) ^ (64 * layer + 32 * buffer_idx) as u8
}

fn one() -> GroupSize {
    GroupSize::new(1).unwrap()
}

/// The command that runs `test` again, as `part`.
fn again(test: &str, part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--test-threads=1", "--nocapture"])
        .env(PART, part)
        .env("UCX_MODULES", "^ib")
        .env("UCX_TLS", "tcp")
        .env("UCX_NET_DEVICES", "lo");
    command
}

/// Runs `prefill` in a process of its own, in which NIXL finds its variables set, and expects it to end well.
fn stage(test: &str, prefill: impl FnOnce(&mut Prefill)) {
    match std::env::var(PART).as_deref() {
        Ok("decode") => decode(),
        Ok(_) => prefill(&mut Prefill::start(test)),
        Err(_) => {
            assert!(
                std::env::var_os("CPKV_NIXL_LIBRARY").is_some(),
                "CPKV_NIXL_LIBRARY is not set: run scripts/setup, then `. .cpkv/env`, and test again"
            );
            let mut child = again(test, "prefill").spawn().unwrap();
            let begun = Instant::now();
            while child.try_wait().unwrap().is_none() && begun.elapsed() < 2 * LONG {
                thread::sleep(Duration::from_millis(20));
            }
            // Does nothing to one that has ended.
            child.kill().unwrap();
            let status = child.wait().unwrap();
            assert!(status.success(), "{status}, after {:?}", begun.elapsed());
        }
    }
}

/// The decode process: says hello, then looks at every request that it is told of.
fn decode() {
    let engine: Arc<dyn TransferEngine> = Arc::new(NixlEngine::open(NixlOptions::new("decode")).unwrap());
    let options = DecodeOptions {
        worker: Rank(0),
        num_workers: one(),
        num_pages: 2 * NUM_PAGES,
        prefill_group_size: one(),
        num_inboxes: 4,
        num_words: 16,
    };
    let model = model();
    let worker = DecodeWorker::start(Arc::new(CpuDevice), &engine, &model, options).unwrap();
    worker.fill_pages(0xA5).unwrap();
    println!("\n{HELLO}{}", worker.hello().to_json().unwrap());
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let offer: Offer = serde_json::from_str(&line).unwrap();
        worker.inbox(&offer).unwrap().wait(&SystemClock, LONG).unwrap();
        for (position, place) in (0..).zip(&offer.destinations) {
            for layer in 0..model.num_layers() {
                for buffer_idx in 0..model.buffers_of(layer).len() {
                    let page = worker.page(layer, buffer_idx, place.unwrap()).unwrap();
                    let mut bytes = vec![0; page.bytes() as usize];
                    CpuDevice.read(&page, &mut bytes).unwrap();
                    let expected = stamp(layer, buffer_idx, PageId(position));
                    assert!(bytes.iter().all(|byte| *byte == expected), "page {position}, layer {layer}");
                }
            }
        }
        println!("\n{HELLO}exact");
    }
}

/// A decode process, from outside.
struct Decode {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    directory: Directory,
    hello: WorkerHello,
}

impl Decode {
    fn start(test: &str) -> Self {
        let mut child = again(test, "decode").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = channel();
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some(text) = line.strip_prefix(HELLO) {
                    let _ = tell.send(text.to_owned());
                }
            }
        });
        let hello = WorkerHello::from_json(&lines.recv_timeout(LONG).unwrap()).unwrap();
        let directory = Directory::new(std::slice::from_ref(&hello), TransferEpoch(1)).unwrap();
        Self { stdin: child.stdin.take(), child, lines, directory, hello }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Everything of `offer` is there, byte for byte.
    fn expect_exact(&mut self, offer: &Offer) {
        writeln!(self.stdin.as_mut().unwrap(), "{}", serde_json::to_string(offer).unwrap()).unwrap();
        assert_eq!(self.lines.recv_timeout(LONG).unwrap(), "exact");
    }
}

impl Drop for Decode {
    fn drop(&mut self) {
        drop(self.stdin.take());
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The prefill process: one rank, with every page written.
struct Prefill {
    test: String,
    engine: Arc<NixlEngine>,
    manager: TransferManager,
    source: Source,
    next_request: u64,
    _memory: DeviceBuffer,
}

impl Prefill {
    fn start(test: &str) -> Self {
        let model = model();
        let engine = Arc::new(NixlEngine::open(NixlOptions::new("prefill")).unwrap());
        let page_bytes = |layer: usize| {
            model.buffers_of(layer).iter().map(|&id| model.buffer(id).unwrap().spec.page_bytes())
        };
        let total: u64 = (0..model.num_layers()).flat_map(page_bytes).sum();
        let memory = CpuDevice.alloc(total * u64::from(NUM_PAGES)).unwrap();
        let (mut layers, mut start) = (Vec::new(), 0);
        for layer in 0..model.num_layers() {
            let mut buffers = Vec::new();
            for (buffer_idx, page_bytes) in page_bytes(layer).enumerate() {
                buffers.push(LayerBuffer { addr: memory.addr() + start, page_bytes });
                for page in 0..NUM_PAGES as i32 {
                    let bytes = vec![stamp(layer, buffer_idx, PageId(page)); page_bytes as usize];
                    CpuDevice.write(&bytes, &memory.slice(start..start + page_bytes).unwrap()).unwrap();
                    start += page_bytes;
                }
            }
            layers.push(buffers);
        }
        engine.register(&memory).unwrap();
        let pool = PoolMap { num_pages: NUM_PAGES, layers };
        let source = Source { rank: Rank(0), group_size: one(), pool };
        let parts = ManagerParts {
            engine: Arc::clone(&engine) as _,
            device: Arc::new(CpuDevice),
            stream: CpuDevice.stream().unwrap(),
            gate: PoisonGate::default(),
            source: source.clone(),
        };
        let options = ManagerOptions { transfer_timeout: BATCH_TIMEOUT, ..ManagerOptions::default() };
        let manager = TransferManager::start(parts, options).unwrap();
        Self { test: test.to_owned(), engine, manager, source, next_request: 1, _memory: memory }
    }

    /// The decode process, as this one reaches it.
    fn connect(&self, decode: &Decode) -> Arc<DecodeGroup> {
        let (geometry, hellos) = (Geometry::of(&model()).unwrap(), [decode.hello.clone()]);
        Arc::new(DecodeGroup::connect(&self.source, &*self.engine, &geometry, &hellos).unwrap())
    }

    /// A request of all pages, whose layers are handed in.
    fn begin(&mut self, decode: &mut Decode, group: &Arc<DecodeGroup>) -> Offer {
        let pages: Vec<PageId> = (0..NUM_PAGES as i32).map(PageId).collect();
        let request = RequestId(self.next_request);
        self.next_request += 1;
        let offer = decode
            .directory
            .allocate_along(request, &pages, cpkv::transfer::decode::Cached::Leading(0))
            .unwrap();
        let spec = RequestSpec {
            offer: offer.clone(),
            decode: Arc::clone(group),
            prompt_tokens: 64 * NUM_PAGES,
            prefix: RequestRun::default(),
        };
        self.manager.register(spec).unwrap();
        self.manager.open_chunk(request, &RequestRun { first: 0, pages }).unwrap();
        for layer in 0..2 {
            self.manager.on_layer_end(layer).unwrap();
        }
        self.manager.end_forward().unwrap();
        offer
    }

    fn finish(&self, offer: &Offer) -> Result<Sent, TransferError> {
        self.manager.finish(offer.request, &[], LONG)
    }

    /// A decode process that was started anew takes the next request.
    fn expect_next(&mut self) {
        let mut decode = Decode::start(&self.test);
        let group = self.connect(&decode);
        let offer = self.begin(&mut decode, &group);
        let sent = self.finish(&offer).unwrap();
        assert_eq!(sent.num_pages, 3 * u64::from(NUM_PAGES));
        assert!(sent.num_blocks < sent.num_unmerged, "{sent:?}");
        decode.expect_exact(&offer);
        assert_eq!(self.manager.drop_request(offer.request, LONG).unwrap(), Quiet::Confirmed);
    }
}

#[test]
fn a_worker_killed_before_the_first_write_fails_the_request_and_restarted_takes_the_next() {
    let test = "a_worker_killed_before_the_first_write_fails_the_request_and_restarted_takes_the_next";
    stage(test, |prefill| {
        let mut decode = Decode::start(test);
        let group = prefill.connect(&decode);
        decode.kill();
        let begun = Instant::now();
        let offer = prefill.begin(&mut decode, &group);
        let error = prefill.finish(&offer).unwrap_err();
        assert!(matches!(*error.cause, Cause::Submit { .. } | Cause::Transfer { .. }), "{error}");
        assert!(error.to_string().contains("peer decode"), "{error}");
        assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
        prefill.expect_next();
    });
}

#[test]
fn a_worker_killed_in_the_middle_fails_the_request_and_its_pages_are_quarantined() {
    let test = "a_worker_killed_in_the_middle_fails_the_request_and_its_pages_are_quarantined";
    stage(test, |prefill| {
        let mut decode = Decode::start(test);
        let group = prefill.connect(&decode);
        // Frozen first, so that nothing is over before it dies.
        decode.signal(Signal::STOP);
        let offer = prefill.begin(&mut decode, &group);
        let begun = Instant::now();
        while prefill.manager.progress(offer.request).unwrap().num_batches == 0 {
            assert!(begun.elapsed() < LONG && prefill.manager.failure(offer.request).is_none());
            thread::sleep(Duration::from_millis(1));
        }
        decode.kill();
        let error = prefill.finish(&offer).unwrap_err();
        assert!(matches!(*error.cause, Cause::Transfer { .. } | Cause::Submit { .. }), "{error}");
        let quiet = prefill.manager.drop_request(offer.request, BATCH_TIMEOUT).unwrap();
        assert!(
            matches!(&quiet, Quiet::Quarantined { pages, .. } if pages.len() == NUM_PAGES as usize),
            "{quiet:?}"
        );
        // Its process is gone: nothing is written any more.
        prefill.manager.confirm_quiet(offer.request).unwrap();
        assert_eq!(prefill.manager.drop_request(offer.request, LONG).unwrap(), Quiet::Confirmed);
        prefill.expect_next();
    });
}

#[test]
fn a_frozen_worker_is_reported_at_our_deadline_and_quiet_once_it_goes_on() {
    let test = "a_frozen_worker_is_reported_at_our_deadline_and_quiet_once_it_goes_on";
    stage(test, |prefill| {
        let mut decode = Decode::start(test);
        let group = prefill.connect(&decode);
        decode.signal(Signal::STOP);
        let begun = Instant::now();
        let offer = prefill.begin(&mut decode, &group);
        let error = prefill.finish(&offer).unwrap_err();
        let took = begun.elapsed();
        assert!(matches!(*error.cause, Cause::TransferTimeout { worker: 0, .. }), "{error}");
        assert!(took >= BATCH_TIMEOUT && took < BATCH_TIMEOUT + LONG / 3, "{took:?}");
        let begun = Instant::now();
        let quiet = prefill.manager.drop_request(offer.request, Duration::from_millis(300)).unwrap();
        assert!(matches!(quiet, Quiet::Quarantined { .. }), "{quiet:?}");
        assert!(begun.elapsed() < LONG / 3);
        assert_eq!(prefill.manager.quarantined().len(), 1);
        decode.signal(Signal::CONT);
        assert_eq!(prefill.manager.drop_request(offer.request, LONG).unwrap(), Quiet::Confirmed);
        decode.directory.abort(offer.request).unwrap();
        assert!(decode.directory.confirm_quiet(offer.request, offer.epoch, Rank(0)).unwrap());
        // The same worker takes the next request, at the very pages.
        let offer = prefill.begin(&mut decode, &group);
        prefill.finish(&offer).unwrap();
        decode.expect_exact(&offer);
    });
}

//! A forward and its transfer side by side, for the timeline: layers that sleep on a stream, and a request whose pages leave
//! layer by layer over the in-process engine. The layers sleep about as long as one layer's transfer takes.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cpkv::deadline::Deadline;
use cpkv::device::{CpuDevice, Device, DeviceBuffer, Event, Stream};
use cpkv::group::PoisonGate;
use cpkv::transfer::{
    DecodeGroup, Destination, InboxMap, LayerBuffer, ManagerOptions, ManagerParts, Offer, PoolMap, RequestId,
    RequestRun, RequestSpec, Source, TransferEpoch, TransferLog, TransferManager, WorkerRoute,
};
use cpkv::units::{GroupSize, PageId, Rank};

use super::engines::{self, EnginePair};
use super::figures::{ratio, rounded};
use super::report::{Lane, LaneSpan, Overlap};
use crate::error::RunError;
use crate::run::timeline::{Recorder, Span, Track, place, thread_name};

const NUM_LAYERS: usize = 8;
/// A layer's transfer then takes some milliseconds, where pages are those of a large model.
const NUM_PAGES: u32 = 256;
const TIMEOUT: Duration = Duration::from_secs(30);
/// The sleep of a layer, at least and at most: short ones are not kept by the system, long ones cost the bench's time.
const LEAST_SLEEP: Duration = Duration::from_millis(2);
const MOST_SLEEP: Duration = Duration::from_millis(50);

/// A rank of a group of one, and a decode worker.
struct Stage {
    manager: TransferManager,
    log: Arc<TransferLog>,
    stream: Arc<dyn Stream>,
    decode: Arc<DecodeGroup>,
    inbox: DeviceBuffer,
    num_requests: u64,
    _pair: EnginePair,
}

/// One forward with its transfer.
struct Pass {
    forward_ms: f64,
    total_ms: f64,
    spans: Vec<Span>,
}

/// Measures. Every layer has pages of `page_bytes`.
pub(crate) fn measure(page_bytes: u64) -> Result<Overlap, RunError> {
    let mut stage = Stage::open(page_bytes)?;
    // The first pass warms up; nothing sleeps in either, so the whole is the transfer's time.
    stage.pass(|_| {})?;
    let transfer_ms = stage.pass(|_| {})?.total_ms;
    let layer = Duration::from_secs_f64(transfer_ms / 1e3 / NUM_LAYERS as f64);
    let layer = layer.clamp(LEAST_SLEEP, MOST_SLEEP);
    let Pass { forward_ms, total_ms, spans } = stage.pass(move |_| thread::sleep(layer))?;
    Ok(Overlap {
        engine: "in-process",
        layers: NUM_LAYERS,
        bytes: NUM_LAYERS as u64 * u64::from(NUM_PAGES) * page_bytes,
        layer_ms: rounded(layer.as_secs_f64() * 1e3),
        transfer_ms: rounded(transfer_ms),
        forward_ms: rounded(forward_ms),
        total_ms: rounded(total_ms),
        overlap_efficiency: ratio(forward_ms.max(transfer_ms), total_ms),
        lanes: lanes(&spans),
    })
}

impl Stage {
    fn open(page_bytes: u64) -> Result<Self, RunError> {
        let pair = engines::in_process()?;
        let bytes = NUM_LAYERS as u64 * u64::from(NUM_PAGES) * page_bytes;
        let (memory, theirs) = (CpuDevice.alloc(bytes)?, CpuDevice.alloc(bytes)?);
        let group_size = GroupSize::new(1)?;
        let num_words = NUM_LAYERS as u32 * 4;
        let inbox = CpuDevice.alloc(InboxMap::bytes_for(group_size.get(), num_words))?;
        pair.sender.register(&memory)?;
        pair.receiver.register(&theirs)?;
        pair.receiver.register(&inbox)?;
        let source = Source { rank: Rank(0), group_size, pool: pool(&memory, page_bytes) };
        let peer = pair.sender.add_peer(&pair.receiver.metadata()?)?;
        let route = WorkerRoute { peer, pool: pool(&theirs, page_bytes) };
        let decode = Arc::new(DecodeGroup::new(&source, vec![route]).map_err(RunError::Route)?);
        let stream = CpuDevice.stream()?;
        let parts = ManagerParts {
            engine: Arc::clone(&pair.sender),
            device: Arc::new(CpuDevice),
            stream: Arc::clone(&stream),
            gate: PoisonGate::default(),
            source,
        };
        let log = Arc::new(TransferLog::default());
        let options =
            ManagerOptions { min_prompt_tokens: 0, log: Some(Arc::clone(&log)), ..ManagerOptions::default() };
        let manager = TransferManager::start(parts, options)?;
        Ok(Self { manager, log, stream, decode, inbox, num_requests: 0, _pair: pair })
    }

    /// A forward with one request. `run` is what a layer does on the stream, by its number, before its pages leave.
    fn pass(&mut self, run: impl Fn(usize) + Send + Sync + 'static) -> Result<Pass, RunError> {
        let run = Arc::new(run);
        self.num_requests += 1;
        let request = RequestId(self.num_requests);
        let offer = Offer {
            request,
            epoch: TransferEpoch(self.num_requests),
            destinations: (0..NUM_PAGES).map(|page_idx| Some(Destination { worker: 0, page_idx })).collect(),
            inboxes: vec![self.inbox_map()],
        };
        let (decode, prefix) = (Arc::clone(&self.decode), RequestRun::default());
        self.manager.register(RequestSpec { offer, decode, prompt_tokens: u32::MAX, prefix })?;
        let pages = (0..NUM_PAGES as i32).map(PageId).collect();
        self.manager.open_chunk(request, &RequestRun { first: 0, pages })?;
        self.stream.synchronize(Deadline::after(TIMEOUT))?;
        let begun = Instant::now();
        let mut marks = vec![self.stream.record()?];
        for number in 0..NUM_LAYERS {
            let run = Arc::clone(&run);
            let layer = move || {
                run(number);
                Ok(())
            };
            self.stream.host_call("layer", Box::new(layer))?;
            self.manager.on_layer_end(number)?;
            marks.push(self.stream.record()?);
        }
        self.manager.end_forward()?;
        self.stream.synchronize(Deadline::after(TIMEOUT))?;
        let forward_ms = begun.elapsed().as_secs_f64() * 1e3;
        self.manager.finish(request, &[], TIMEOUT)?;
        let total_ms = begun.elapsed().as_secs_f64() * 1e3;
        self.manager.drop_request(request, TIMEOUT)?;
        let mut recorder = Recorder::new(true);
        recorder.batches(Some(&self.log));
        let mut spans = recorder.take();
        spans.extend(layers(&marks));
        Ok(Pass { forward_ms, total_ms, spans })
    }

    fn inbox_map(&self) -> InboxMap {
        InboxMap { addr: self.inbox.addr(), group_size: 1, num_words: NUM_LAYERS as u32 * 4 }
    }
}

fn pool(memory: &DeviceBuffer, page_bytes: u64) -> PoolMap {
    let layer_bytes = u64::from(NUM_PAGES) * page_bytes;
    let layer =
        |layer: usize| vec![LayerBuffer { addr: memory.addr() + layer as u64 * layer_bytes, page_bytes }];
    PoolMap { num_pages: NUM_PAGES, layers: (0..NUM_LAYERS).map(layer).collect() }
}

/// The stream's spans, one between each mark and the next. The events have fired.
fn layers(marks: &[Arc<dyn Event>]) -> Vec<Span> {
    let times: Vec<_> = marks.iter().map(|mark| mark.fired_at_ns().unwrap_or(0)).collect();
    let pairs = times.iter().zip(times.iter().skip(1)).enumerate();
    let span = |(layer, (&start_ns, &end_ns))| Span {
        track: Track::Stream,
        name: format!("layer {layer}"),
        start_ns,
        end_ns,
        bytes: 0,
    };
    pairs.map(span).collect()
}

/// The lanes of a timeline, in the order in which they are to be seen.
fn lanes(spans: &[Span]) -> Vec<Lane> {
    let origin = spans.iter().map(|span| span.start_ns).min().unwrap_or(0);
    let ms = |ns: u64| (ns.saturating_sub(origin)) as f64 / 1e6;
    let mut lanes: Vec<Lane> = Vec::new();
    for ((track, lane), span) in place(spans) {
        let name = thread_name(track, lane);
        if lanes.last().is_none_or(|last| last.name != name) && !lanes.iter().any(|lane| lane.name == name) {
            lanes.push(Lane { name: name.clone(), spans: Vec::new() });
        }
        let drawn = LaneSpan {
            name: span.name.clone(),
            start_ms: rounded(ms(span.start_ns)),
            end_ms: rounded(ms(span.end_ns)),
        };
        lanes.iter_mut().filter(|lane| lane.name == name).for_each(|lane| lane.spans.push(drawn.clone()));
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_sends_every_layer_and_draws_it() {
        let overlap = measure(1024).unwrap();
        assert_eq!(overlap.bytes, 8 * 256 * 1024);
        let stream = &overlap.lanes[0];
        assert_eq!((stream.name.as_str(), stream.spans.len()), ("stream", NUM_LAYERS));
        let in_flight: usize = overlap
            .lanes
            .iter()
            .filter(|lane| lane.name.starts_with("engine"))
            .map(|lane| lane.spans.len())
            .sum();
        assert!(in_flight >= NUM_LAYERS, "{:?}", overlap.lanes);
        for lane in &overlap.lanes {
            assert!(lane.spans.iter().all(|span| span.start_ms <= span.end_ms), "{lane:?}");
            assert!(lane.spans.windows(2).all(|pair| pair[0].end_ms <= pair[1].start_ms + 0.01), "{lane:?}");
        }
        assert!(overlap.total_ms >= overlap.forward_ms && overlap.forward_ms >= NUM_LAYERS as f64 * 2.0);
    }

    #[test]
    fn the_pages_of_a_layer_arrive_while_the_next_one_runs() {
        let mut stage = Stage::open(1024).unwrap();
        let (inbox, map) = (stage.inbox.clone(), stage.inbox_map());
        // The word behind a layer's pages holds the request's epoch, the first of this stage.
        let has_arrived = move |layer: usize| {
            let (at, mut word) = (map.word_addr(0, layer as u32) - map.addr, [0; 8]);
            CpuDevice.read(&inbox.slice(at..at + 8).unwrap(), &mut word).unwrap();
            u64::from_le_bytes(word) == 1
        };
        // No layer ends before the pages of those before it are there.
        let run = move |layer| {
            let begun = Instant::now();
            while !(0..layer).all(&has_arrived) {
                assert!(begun.elapsed() < TIMEOUT / 2, "layer {layer} waits for pages of those before it");
                thread::sleep(Duration::from_millis(1));
            }
        };
        let pass = stage.pass(run).unwrap();
        assert_eq!(pass.spans.iter().filter(|span| span.track == Track::Stream).count(), NUM_LAYERS);
    }

    #[test]
    fn what_overlaps_is_drawn_on_lanes_that_count_from_the_first_start() {
        let span = |track, name: &str, [start_ms, end_ms]: [u64; 2]| Span {
            track,
            name: name.to_owned(),
            start_ns: 5_000_000 + start_ms * 1_000_000,
            end_ns: 5_000_000 + end_ms * 1_000_000,
            bytes: 0,
        };
        let spans = [
            span(Track::Engine, "layer 0, sent", [2, 5]),
            span(Track::Engine, "layer 1, sent", [4, 6]),
            span(Track::Stream, "layer 0", [0, 2]),
            span(Track::Stream, "layer 1", [2, 4]),
        ];
        let drawn: Vec<_> = lanes(&spans)
            .into_iter()
            .flat_map(|lane| lane.spans.into_iter().map(move |span| (lane.name.clone(), span)))
            .map(|(lane, span)| (lane, span.name, span.start_ms, span.end_ms))
            .collect();
        let expected = [
            ("stream", "layer 0", 0.0, 2.0),
            ("stream", "layer 1", 2.0, 4.0),
            ("engine, in flight 0", "layer 0, sent", 2.0, 5.0),
            ("engine, in flight 1", "layer 1, sent", 4.0, 6.0),
        ];
        let expected =
            expected.map(|(lane, name, start, end)| (lane.to_owned(), name.to_owned(), start, end));
        assert_eq!(drawn, expected);
    }
}

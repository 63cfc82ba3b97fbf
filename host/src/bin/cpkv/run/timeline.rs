//! What each rank's host thread, stream, workers and engine did when, as a trace that Perfetto and chrome://tracing open.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use cpkv::transfer::{BatchSpan, TransferLog};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::forward::LayerMarks;

/// Where a span belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Track {
    /// The thread that runs the forward.
    Host,
    /// The rank's stream.
    Stream,
    /// A thread that submits: from 1 the manager's, 0 a caller that drives it.
    Thread(u32),
    /// What the engine has in flight. Several at once: lanes are made of them.
    Engine,
}

/// Something that lasted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) track: Track,
    pub(crate) name: String,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) bytes: u64,
}

/// The spans of one rank.
pub(crate) type RankSpans = Vec<Span>;

/// Collects a rank's spans, where a timeline was asked for.
pub(crate) struct Recorder {
    is_on: bool,
    spans: RankSpans,
}

impl Recorder {
    pub(crate) const fn new(is_on: bool) -> Self {
        Self { is_on, spans: Vec::new() }
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.is_on
    }

    fn push(&mut self, track: Track, name: String, (start_ns, end_ns): (u64, u64), bytes: u64) {
        if self.is_on {
            self.spans.push(Span { track, name, start_ns, end_ns, bytes });
        }
    }

    /// What the host did.
    pub(crate) fn host(&mut self, name: &str, start_ns: u64, end_ns: u64) {
        self.push(Track::Host, name.to_owned(), (start_ns, end_ns), 0);
    }

    /// What the stream did, layer by layer. The events have fired.
    pub(crate) fn stream(&mut self, marks: &[LayerMarks]) {
        for (layer, LayerMarks { start, persisted, end }) in marks.iter().enumerate() {
            let times = [start, persisted, end].map(|event| event.fired_at_ns().unwrap_or(0));
            self.push(Track::Stream, format!("compose {layer}"), (times[0], times[1]), 0);
            self.push(Track::Stream, format!("attention {layer}"), (times[1], times[2]), 0);
        }
    }

    /// What the workers submitted, and when it was complete.
    pub(crate) fn batches(&mut self, log: Option<&TransferLog>) {
        for batch in of_engine(log.map(TransferLog::take).unwrap_or_default()) {
            let who = match &batch[..] {
                [one] => format!("request {}", one.request),
                several => format!("{} requests", several.len()),
            };
            let Some(one) = batch.first() else { continue };
            let name = format!("{}, {who}, to worker {}", one.payload, one.worker);
            let bytes = batch.iter().map(|span| span.bytes).sum();
            let begun_ns = batch.iter().map(|span| span.submit_ns).min().unwrap_or(one.submit_ns);
            let done_ns = batch.iter().filter_map(|span| span.done_ns).max().unwrap_or(one.submitted_ns);
            let submit = (begun_ns, one.submitted_ns);
            self.push(Track::Thread(one.thread), format!("submit {name}"), submit, bytes);
            self.push(Track::Engine, name, (one.submitted_ns, done_ns), bytes);
        }
    }

    /// Everything so far.
    pub(crate) fn take(&mut self) -> RankSpans {
        std::mem::take(&mut self.spans)
    }
}

/// Requests' portions by the batch that they went in: taken by the engine at one time, of one thread.
fn of_engine(spans: Vec<BatchSpan>) -> Vec<Vec<BatchSpan>> {
    let mut batches: BTreeMap<(u64, u32, u32), Vec<BatchSpan>> = BTreeMap::new();
    for span in spans {
        batches.entry((span.submitted_ns, span.thread, span.worker)).or_default().push(span);
    }
    batches.into_values().collect()
}

/// Writes the trace of all ranks; times are counted from the first span.
pub(crate) fn write(out: &mut impl Write, ranks: &[RankSpans]) -> std::io::Result<()> {
    let origin = ranks.iter().flatten().map(|span| span.start_ns).min().unwrap_or(0);
    let mut events = Vec::new();
    for (rank, spans) in ranks.iter().enumerate() {
        events.push(metadata("process_name", rank, 0, &format!("rank {rank}")));
        let placed = place(spans);
        let threads: BTreeSet<_> = placed.iter().map(|(thread, _)| *thread).collect();
        events.extend(threads.into_iter().map(|(track, lane)| {
            metadata("thread_name", rank, thread_id(track, lane), &thread_name(track, lane))
        }));
        let mut timed: Vec<_> =
            placed.iter().map(|&(thread, span)| event(rank, thread, span, origin)).collect();
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        events.extend(timed.into_iter().map(|(_, event)| event));
    }
    serde_json::to_writer(&mut *out, &json!({ "displayTimeUnit": "ms", "traceEvents": events }))?;
    writeln!(out)?;
    out.flush()
}

/// Every span's track and lane: no two spans of a lane overlap.
pub(crate) fn place(spans: &[Span]) -> Vec<((Track, usize), &Span)> {
    let mut ordered: Vec<&Span> = spans.iter().collect();
    ordered.sort_by_key(|span| (span.track, span.start_ns, span.end_ns));
    let mut placed = Vec::with_capacity(ordered.len());
    let (mut track, mut ends) = (None, Vec::new());
    for span in ordered {
        if track != Some(span.track) {
            (track, ends) = (Some(span.track), Vec::new());
        }
        let lane = ends.iter().position(|&end| end <= span.start_ns).unwrap_or_else(|| {
            ends.push(0);
            ends.len() - 1
        });
        ends[lane] = span.end_ns;
        placed.push(((span.track, lane), span));
    }
    placed
}

fn event(rank: usize, (track, lane): (Track, usize), span: &Span, origin: u64) -> (f64, Value) {
    let us = |ns: u64| ns as f64 / 1e3;
    let start = us(span.start_ns.saturating_sub(origin));
    let event = json!({
        "ph": "X",
        "pid": rank,
        "tid": thread_id(track, lane),
        "ts": start,
        "dur": us(span.end_ns.saturating_sub(span.start_ns)),
        "name": span.name,
        "args": { "bytes": span.bytes },
    });
    (start, event)
}

fn metadata(what: &str, rank: usize, tid: usize, name: &str) -> Value {
    json!({ "ph": "M", "pid": rank, "tid": tid, "name": what, "args": { "name": name } })
}

/// Tracks in the order in which they are to be seen; there are fewer than a thousand lanes to a track.
const fn thread_id(track: Track, lane: usize) -> usize {
    let track = match track {
        Track::Host => 0,
        Track::Stream => 1,
        Track::Thread(thread) => 2 + thread as usize,
        Track::Engine => 100,
    };
    1000 * track + lane
}

pub(crate) fn thread_name(track: Track, lane: usize) -> String {
    match track {
        Track::Host => "forward's thread".to_owned(),
        Track::Stream => "stream".to_owned(),
        Track::Thread(0) => "caller's submits".to_owned(),
        Track::Thread(thread) => match lane {
            0 => format!("transfer thread {thread}"),
            _ => format!("transfer thread {thread}, {lane}"),
        },
        Track::Engine => format!("engine, in flight {lane}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(track: Track, start_ns: u64, end_ns: u64) -> Span {
        Span { track, name: "a \"name\"".to_owned(), start_ns, end_ns, bytes: 7 }
    }

    #[test]
    fn what_overlaps_gets_lanes_of_its_own() {
        let engine = |start, end| span(Track::Engine, start, end);
        let spans = [engine(0, 10), span(Track::Stream, 5, 6), engine(5, 8), engine(8, 20), engine(10, 12)];
        let lanes: Vec<_> = place(&spans).iter().map(|((track, lane), _)| (*track, *lane)).collect();
        let on_engine = |lane| (Track::Engine, lane);
        let expected = [(Track::Stream, 0), on_engine(0), on_engine(1), on_engine(1), on_engine(0)];
        assert_eq!(lanes, expected);
    }

    #[test]
    fn the_trace_is_one_json_object_with_sorted_events_and_named_tracks() {
        let ranks = [
            vec![span(Track::Engine, 9_000, 10_000), span(Track::Stream, 3_000, 4_500)],
            vec![span(Track::Thread(2), 5_000, 6_000)],
        ];
        let mut text = Vec::new();
        write(&mut text, &ranks).unwrap();
        let trace: Value = serde_json::from_slice(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let timed: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        let starts: Vec<_> =
            timed.iter().map(|event| (event["pid"].as_u64(), event["ts"].as_f64())).collect();
        assert_eq!(starts, [(Some(0), Some(0.0)), (Some(0), Some(6.0)), (Some(1), Some(2.0))]);
        assert_eq!(timed[0]["dur"], 1.5);
        let names: Vec<_> = events
            .iter()
            .filter(|event| event["ph"] == "M")
            .map(|event| event["args"]["name"].as_str())
            .collect();
        let expected = ["rank 0", "stream", "engine, in flight 0", "rank 1", "transfer thread 2"];
        assert_eq!(names, expected.map(Some));
    }
}

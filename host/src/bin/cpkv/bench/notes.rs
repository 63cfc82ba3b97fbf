//! What is to be known of the figures: the machine, and how each part was measured. Pure.

use super::figures::bytes;
use super::report::{BenchReport, transport_name};

/// Lines for people.
pub(crate) struct Notes {
    /// What, and its value.
    pub(crate) machine: Vec<(&'static str, String)>,
    /// Part, and how it was measured.
    pub(crate) parts: Vec<(&'static str, String)>,
}

/// The notes of `report`.
pub(crate) fn notes(report: &BenchReport) -> Notes {
    Notes { machine: machine(report), parts: parts(report) }
}

fn machine(report: &BenchReport) -> Vec<(&'static str, String)> {
    let machine = &report.machine;
    let with_reason = |what: &str, reason: &str| match reason {
        "" => what.to_owned(),
        reason => format!("{what}, since {reason}"),
    };
    let crowded = machine.ranks as usize > machine.cores;
    let ranks = format!(
        "{} as {}{}",
        machine.ranks,
        transport_name(machine.transport),
        if crowded { "; more ranks than cores: they take turns, and times are noisy" } else { "" }
    );
    let buffers: Vec<_> = report
        .model
        .buffers
        .iter()
        .map(|buffer| {
            format!("{} {} a page in {}", buffer.name, bytes(buffer.page_bytes), layers(buffer.layers))
        })
        .collect();
    let model = format!(
        "{}, {}, pages of {} tokens; {}",
        report.model.name,
        layers(report.model.layers),
        report.model.page_size,
        buffers.join(", ")
    );
    let mut lines = vec![
        ("cpkv", format!("{}, {}", report.version, report.date_utc)),
        ("CPU", format!("{}, {} cores", machine.cpu, machine.cores)),
        ("system", machine.os.clone()),
        (
            "memory",
            machine
                .memory_available_bytes
                .map_or("unknown".to_owned(), |free| format!("{} available", bytes(free))),
        ),
        ("device", with_reason(&machine.device, &machine.device_reason)),
        ("ranks", ranks),
        ("collective", with_reason(machine.collective, &machine.collective_reason)),
        ("model", model),
        ("strategy", format!("{} by default", report.default_strategy)),
        (
            "time",
            format!("{:.0} s of {} s, seed {}", report.seconds_taken, report.seconds_asked, report.seed),
        ),
    ];
    if let Some(copy) = &machine.mpi_copy {
        lines.push(("MPI copies by", copy.clone()));
    }
    lines
}

fn layers(number: usize) -> String {
    format!("{number} layer{}", if number == 1 { "" } else { "s" })
}

fn parts(report: &BenchReport) -> Vec<(&'static str, String)> {
    let has_nixl = report.transfer.iter().any(|row| row.name == "nixl");
    let nixl = if has_nixl { " NIXL goes over TCP on the loopback, as for `cpkv run`." } else { "" };
    let lost = match report.lost.is_empty() {
        true => "Nothing: no comparison found the other faster.",
        false => {
            "By medians. How often: of all pairs of a sample of ours and one of the other's, those in which the other's is less; \
             near 0.5 the difference is noise, at 1 it is faster always."
        }
    };
    let sample = report.gather.first().map_or_else(String::new, |row| bytes(row.bytes));
    vec![
        (
            "barrier",
            "From a rank's entry to its exit, of the slowest rank; barriers follow each other without a pause.".to_owned(),
        ),
        (
            "gather",
            format!(
                "One rank alone on its own memory: {sample} in scattered pages or rows by one launch, then a copy of as many \
                 bytes on the same stream, in turn. Lost: memcpy is faster."
            ),
        ),
        (
            "transfer",
            format!(
                "From the submit of one batch of scattered blocks to its completion, both ends in this process; memcpy: a \
                 copy of as many bytes on a stream, waited for in the same way.{nixl}"
            ),
        ),
        (
            "overlap",
            "Layers that sleep on a stream, about as long as one layer's transfer takes; their pages leave over the \
             in-process engine. Efficiency: the longer of forward and transfer, over both together."
                .to_owned(),
        ),
        (
            "plans",
            "Time of the launch thread of rank 0. The whole plan and its ragged part are built once a batch; rebuilt: the same tables \
             made anew from the batch's lists in one layer; access: a layer's look at the plan's."
                .to_owned(),
        ),
        (
            "compose",
            "From the first rank's start to the last one's end, over all layers; rounds in turn. ideal: staging_fill's work \
             without its barrier (no bound: where ranks share cores, a barrier also says who runs when, and ways that do more can come \
             out below it); memcpy: as many dense bytes within each rank; mpi_allreduce: the current pages alone. Lost: \
             another that does the whole work is faster than the default. What takes more than 4 times as long as the fastest is \
             measured in some rounds only: see its samples. With fewer than 100 samples p99 is the largest."
                .to_owned(),
        ),
        (
            "egress",
            "Bytes that the peers read from a rank with staging_fill, over all layers, by the plan.".to_owned(),
        ),
        ("lost", lost.to_owned()),
    ]
}

//! What a test tells the processes of its cast, and what they answer: one JSON value a line.

use serde::{Deserialize, Serialize};

/// Marks the lines of ours on a process's standard output.
pub(crate) const MARK: &str = "@cpkv ";

/// Names the processes' part; set in them only.
pub(crate) const PART_VARIABLE: &str = "CPKV_TEST_PART";

/// A block: source, destination, length.
pub(crate) type RawBlock = (u64, u64, u64);

/// One thing to do. Buffers, peers, registrations and batches are numbers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Opens the engine, with the library of the environment or another. Answers what it is.
    Open {
        name: String,
        library: Option<String>,
    },
    /// Memory full of the pattern of `seed`. Answers its address; buffers are numbered from 0.
    Alloc {
        bytes: u64,
        seed: u64,
    },
    Register {
        buffer: usize,
    },
    Unregister {
        registration: u64,
    },
    /// Gives memory back to the system, as far as this process's own hold on it goes.
    Free {
        buffer: usize,
    },
    /// Answers hexadecimal digits.
    Metadata,
    AddPeer {
        metadata: String,
    },
    RemovePeer {
        peer: u32,
    },
    Submit {
        peer: u32,
        blocks: Vec<RawBlock>,
    },
    Poll {
        batch: u64,
    },
    Wait {
        batch: u64,
        timeout_ms: u64,
    },
    Abandon {
        batch: u64,
    },
    /// One thread for each set: submits and waits, `rounds` times.
    Threads {
        sets: Vec<(u32, Vec<RawBlock>)>,
        rounds: u32,
    },
    /// Counts the bytes of a buffer that are not what they should be: the pattern of `seed`, but for `written`, which
    /// are (offset here, seed, offset there, length).
    Wrong {
        buffer: usize,
        seed: u64,
        written: Vec<(u64, u64, u64, u64)>,
    },
    /// Sleeps, and answers the processor time that passed for this process, in milliseconds.
    Idle {
        ms: u64,
    },
    /// Drops the engine. Answers how long that took, in milliseconds.
    Close,
    /// Ends the process, as a program ends that has dropped its engine.
    Quit,
    /// Ends the process as [`cpkv::transfer::engine::nixl::exit`] does, with the engine open.
    Exit {
        code: i32,
    },
}

/// An answer: a value, or the engine's error.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Number(u64),
    Text(String),
    Error { call: String, peer: Option<String>, problem: String, text: String },
}

/// Byte `at` of the pattern of `seed`: neighbours and seeds differ.
pub(crate) fn pattern(seed: u64, at: u64) -> u8 {
    let mixed = (at ^ seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

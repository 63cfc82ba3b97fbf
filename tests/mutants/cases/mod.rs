//! Cases of single kernels: memory, and a kernel over it.

mod copies;
mod rows;
mod signals;

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::HalfSelect;
use cpkv_kernels::signal::{FAULT_NONE, FAULT_RECORDED, FaultRecord};

/// How long a barrier of a case waits for ranks that never come.
pub(crate) const TIMEOUT_NS: u64 = 3_000_000;

/// What memory holds before the kernel runs.
pub(crate) enum Piece {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Addresses in other memory of the case: (piece, offset).
    Addresses(Vec<(usize, u64)>),
}

impl Piece {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Addresses(places) => 8 * places.len(),
        }
    }

    /// Its bytes, where the case's memory is at `addrs`.
    pub(crate) fn bytes(&self, addrs: &[u64]) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::Addresses(places) => {
                places.iter().flat_map(|&(piece, offset)| (addrs[piece] + offset).to_le_bytes()).collect()
            }
        }
    }
}

/// A kernel from the addresses of memory.
type MakeKernel = Box<dyn Fn(&[u64]) -> Kernel>;

/// Memory and a kernel over it.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) pieces: Vec<Piece>,
    /// Where the kernel writes how long it waited, in nanoseconds: (piece, offset). 0: it did not.
    pub(crate) durations: Vec<(usize, usize)>,
    /// Makes the kernel from the addresses of the pieces.
    pub(crate) kernel: MakeKernel,
}

/// All cases.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    signals::add(&mut cases);
    copies::add(&mut cases);
    rows::add(&mut cases);
    cases
}

/// Memory of a case that is being made.
#[derive(Default)]
struct Memory {
    pieces: Vec<Piece>,
    durations: Vec<(usize, usize)>,
}

impl Memory {
    fn bytes(&mut self, bytes: Vec<u8>) -> usize {
        self.pieces.push(Piece::Bytes(bytes));
        self.pieces.len() - 1
    }

    /// Memory that the kernel writes to.
    fn dirty(&mut self, bytes: usize) -> usize {
        self.bytes(vec![0xC3; bytes])
    }

    fn i32s(&mut self, entries: &[i32]) -> usize {
        self.bytes(entries.iter().flat_map(|entry| entry.to_le_bytes()).collect())
    }

    fn i64s(&mut self, entries: &[i64]) -> usize {
        self.bytes(entries.iter().flat_map(|entry| entry.to_le_bytes()).collect())
    }

    fn addresses(&mut self, places: &[(usize, u64)]) -> usize {
        self.pieces.push(Piece::Addresses(places.to_vec()));
        self.pieces.len() - 1
    }

    /// A fault record.
    fn poison(&mut self, is_poisoned: bool) -> usize {
        let word = if is_poisoned { FAULT_RECORDED } else { FAULT_NONE };
        let mut record = vec![0; size_of::<FaultRecord>()];
        record[..4].copy_from_slice(&word.to_le_bytes());
        self.bytes(record)
    }

    /// The epoch of `mode`.
    fn state(&mut self, mode: Mode) -> usize {
        self.bytes(mode.epoch.unwrap_or(0).to_le_bytes().to_vec())
    }

    fn case(self, name: String, kernel: impl Fn(&[u64]) -> Kernel + 'static) -> Case {
        Case { name, pieces: self.pieces, durations: self.durations, kernel: Box::new(kernel) }
    }
}

/// Halves and poison.
#[derive(Clone, Copy, Debug)]
struct Mode {
    /// `None`: no halves.
    epoch: Option<u64>,
    is_poisoned: bool,
}

/// No halves, either half, poisoned.
const MODES: [Mode; 4] = [
    Mode { epoch: None, is_poisoned: false },
    Mode { epoch: Some(8), is_poisoned: false },
    Mode { epoch: Some(9), is_poisoned: false },
    Mode { epoch: Some(9), is_poisoned: true },
];

impl Mode {
    const fn num_halves(self) -> usize {
        if self.epoch.is_some() { 2 } else { 1 }
    }

    const fn half(self, state: u64, stride: usize, passed: u64) -> HalfSelect {
        match self.epoch {
            Some(_) => HalfSelect { state, stride: stride as u64, passed },
            None => HalfSelect { state: 0, stride: 0, passed: 0 },
        }
    }
}

/// Numbers that look random, and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        mixed ^ (mixed >> 29)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }

    fn order(&mut self, len: usize) -> Vec<i64> {
        let mut order: Vec<i64> = (0..len as i64).collect();
        order.sort_by_cached_key(|_| self.next());
        order
    }
}

//! The cases of the kernels: random ones, and those at the edges.

mod copies;
mod rows;
mod signals;

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{Descriptor, HalfSelect};
use cpkv_kernels::signal::{FAULT_NONE, FAULT_RECORDED};

use crate::context::Context;
use crate::kernels::{Case, Region};
use crate::outcome::Problem;

/// Destinations hold this before.
const POISON: u8 = 0xC3;
/// One half only.
const WHOLE: HalfSelect = HalfSelect { state: 0, stride: 0, passed: 0 };
/// Bytes of a fault record.
const RECORD_BYTES: usize = size_of::<cpkv_kernels::signal::FaultRecord>();

/// All cases.
pub(crate) fn all(context: &Context) -> Result<Vec<Case>, Problem> {
    let mut cases = Vec::new();
    copies::add(&mut cases, context);
    rows::add(&mut cases, context);
    signals::add(&mut cases);
    Ok(cases)
}

/// Memory of a case under construction.
#[derive(Default)]
struct Builder {
    regions: Vec<Region>,
}

impl Builder {
    fn bytes(&mut self, bytes: Vec<u8>) -> usize {
        self.regions.push(Region::Bytes(bytes));
        self.regions.len() - 1
    }

    /// A destination.
    fn poison(&mut self, bytes: usize) -> usize {
        self.bytes(vec![POISON; bytes])
    }

    fn i32s(&mut self, entries: &[i32]) -> usize {
        self.bytes(entries.iter().flat_map(|entry| entry.to_le_bytes()).collect())
    }

    fn i64s(&mut self, entries: &[i64]) -> usize {
        self.bytes(entries.iter().flat_map(|entry| entry.to_le_bytes()).collect())
    }

    fn descriptors(&mut self, entries: &[Descriptor]) -> usize {
        self.i32s(&entries.iter().flat_map(|entry| [entry.base, entry.page]).collect::<Vec<_>>())
    }

    fn addresses(&mut self, entries: &[(usize, u64)]) -> usize {
        self.regions.push(Region::Addresses(entries.to_vec()));
        self.regions.len() - 1
    }

    /// A group's epoch.
    fn state(&mut self, epoch: u64) -> usize {
        self.bytes(epoch.to_le_bytes().to_vec())
    }

    /// A fault record: none, or one that poisons.
    fn record(&mut self, is_poisoned: bool) -> usize {
        let word = if is_poisoned { FAULT_RECORDED } else { FAULT_NONE };
        let mut record = vec![0; RECORD_BYTES];
        record[..4].copy_from_slice(&word.to_le_bytes());
        self.bytes(record)
    }

    fn build(self, name: String, kernel: impl Fn(&[u64]) -> Kernel + 'static) -> Case {
        Case { name, regions: self.regions, kernel: Box::new(kernel) }
    }
}

/// How a case is about halves and poison.
#[derive(Clone, Copy)]
struct Mode {
    /// The epoch in device memory; `None`: no halves.
    epoch: Option<u64>,
    is_poisoned: bool,
}

/// Without halves, in either half, and poisoned.
const MODES: [Mode; 4] = [
    Mode { epoch: None, is_poisoned: false },
    Mode { epoch: Some(6), is_poisoned: false },
    Mode { epoch: Some(7), is_poisoned: false },
    Mode { epoch: Some(7), is_poisoned: true },
];

impl Mode {
    fn name(self) -> String {
        let half = self.epoch.map_or("no halves".to_owned(), |epoch| format!("epoch {epoch}"));
        let poisoned = if self.is_poisoned { ", poisoned" } else { "" };
        format!("{half}{poisoned}")
    }

    /// Halves that memory has room for.
    const fn num_halves(self) -> usize {
        if self.epoch.is_some() { 2 } else { 1 }
    }

    /// The half selector; `state` is the epoch's address.
    const fn half(self, state: u64, stride: usize, passed: u64) -> HalfSelect {
        match self.epoch {
            Some(_) => HalfSelect { state, stride: stride as u64, passed },
            None => WHOLE,
        }
    }
}

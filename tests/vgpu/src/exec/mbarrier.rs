//! `mbarrier` objects. They live beside the shared memory that they occupy, where no ordinary access reaches them.

use super::fault::{Cause, FaultKind};

/// Bytes of an object.
const BYTES: u64 = 8;
/// Arrivals and bytes that an object counts, at most.
const MAX_COUNT: u64 = (1 << 20) - 1;

/// The objects of a block.
#[derive(Debug, Default)]
pub(crate) struct Mbarriers {
    barriers: Vec<Mbarrier>,
}

/// An object.
#[derive(Debug)]
pub(crate) struct Mbarrier {
    address: u64,
    expected: u64,
    pending: u64,
    /// Bytes that copies have still to bring; negative where they came before they were expected.
    bytes: i64,
    phase: u64,
    /// A wait has found copies pending and was answered "not yet".
    pub(crate) was_polled: bool,
}

impl Mbarriers {
    /// Whether an object lies in these bytes.
    pub(crate) fn overlap(&self, address: u64, bytes: u64) -> bool {
        self.barriers.iter().any(|barrier| {
            barrier.address < address.saturating_add(bytes) && address < barrier.address + BYTES
        })
    }

    /// Makes an object that `count` arrivals complete.
    pub(crate) fn init(&mut self, address: u64, count: u64) -> Result<(), Box<Cause>> {
        if count == 0 || count > MAX_COUNT {
            return Err(Cause::at(FaultKind::Other, address, format!("an mbarrier for {count} arrivals")));
        }
        if self.overlap(address, BYTES) {
            return Err(Cause::at(FaultKind::Other, address, "an mbarrier is already there"));
        }
        let barrier =
            Mbarrier { address, expected: count, pending: count, bytes: 0, phase: 0, was_polled: false };
        self.barriers.push(barrier);
        Ok(())
    }

    /// Ends an object.
    pub(crate) fn inval(&mut self, address: u64) -> Result<(), Box<Cause>> {
        self.at(address)?;
        self.barriers.retain(|barrier| barrier.address != address);
        Ok(())
    }

    /// The object at `address`.
    pub(crate) fn at(&mut self, address: u64) -> Result<&mut Mbarrier, Box<Cause>> {
        let found = self.barriers.iter_mut().find(|barrier| barrier.address == address);
        found.ok_or_else(|| Cause::at(FaultKind::Other, address, "no mbarrier was initialised there"))
    }
}

impl Mbarrier {
    /// The current phase expects `bytes` more.
    pub(crate) fn expect(&mut self, bytes: u64) -> Result<(), Box<Cause>> {
        self.bytes += bytes as i64;
        if bytes > MAX_COUNT || self.bytes > MAX_COUNT as i64 {
            let what = format!("an mbarrier expects {} bytes, {MAX_COUNT} are the most", self.bytes);
            return Err(Cause::at(FaultKind::Other, self.address, what));
        }
        Ok(())
    }

    /// `count` arrivals; returns the phase they arrived in.
    pub(crate) fn arrive(&mut self, count: u64) -> Result<u64, Box<Cause>> {
        if count == 0 || count > self.pending {
            let what = format!("{count} arrive at an mbarrier that waits for {}", self.pending);
            return Err(Cause::at(FaultKind::Other, self.address, what));
        }
        let phase = self.phase;
        self.pending -= count;
        self.turn();
        Ok(phase)
    }

    /// A copy brought `bytes`.
    pub(crate) fn complete(&mut self, bytes: u64) -> Result<(), Box<Cause>> {
        self.bytes -= bytes as i64;
        if self.bytes < -(MAX_COUNT as i64) {
            let what = "copies bring more bytes than an mbarrier counts, and nobody expects them";
            return Err(Cause::at(FaultKind::Other, self.address, what));
        }
        self.turn();
        Ok(())
    }

    fn turn(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.phase += 1;
            self.pending = self.expected;
            self.was_polled = false;
        }
    }

    /// Whether the phase of this parity is complete.
    pub(crate) fn is_complete(&self, parity: u64) -> bool {
        self.phase & 1 != parity & 1
    }
}

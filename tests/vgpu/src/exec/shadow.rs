//! What the shadow bytes know about the words of an access, and the rules that follow.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::machine::{Region, SHADOW_INIT, SHADOW_SYNC, Sharing};

use super::fault::{Cause, FaultKind};

/// The shadow of an access: its words, and which bytes of them.
#[derive(Clone, Copy)]
pub(crate) struct Shadow {
    /// The first word's byte; null: the region has no shadow.
    first: *const AtomicU8,
    /// The first byte's place in the first word.
    skip: u64,
    /// Bytes accessed.
    bytes: u64,
    address: u64,
    sharing: Sharing,
}

impl Shadow {
    /// The shadow of `bytes` bytes at `offset` of `region`, inside which they lie.
    pub(crate) fn new(region: &Region, offset: u64, bytes: u64) -> Self {
        let first = if region.shadow.is_null() {
            region.shadow
        } else {
            region.shadow.wrapping_add(offset as usize / 4)
        };
        Self { first, skip: offset % 4, bytes, address: region.start + offset, sharing: region.sharing }
    }

    /// Whether others order their accesses to these words by what is done here.
    fn is_shared(&self) -> bool {
        matches!(self.sharing, Sharing::Exported | Sharing::Peer)
    }

    fn num_words(&self) -> usize {
        if self.first.is_null() { 0 } else { (self.skip + self.bytes).div_ceil(4) as usize }
    }

    fn word(&self, index: usize) -> &AtomicU8 {
        // SAFETY: `index` is below `num_words`, whose words lie in the region, and its shadow has a byte for each.
        let word = unsafe { self.first.add(index) };
        // SAFETY: the shadow lives as long as the region, which is held while a kernel runs.
        unsafe { &*word }
    }

    /// The init bits of the accessed bytes of word `index`.
    fn wanted(&self, index: usize) -> u8 {
        if (self.skip | self.bytes) & 3 == 0 {
            return SHADOW_INIT;
        }
        let from = if index == 0 { self.skip } else { 0 };
        let to = (self.skip + self.bytes - 4 * index as u64).min(4);
        (SHADOW_INIT << from) & (SHADOW_INIT >> (4 - to)) & SHADOW_INIT
    }

    /// Checks an ordinary or relaxed load.
    pub(crate) fn check_load(&self, report_uninitialised: bool) -> Result<(), Box<Cause>> {
        if !self.is_shared() {
            return self.check_init(report_uninitialised);
        }
        for index in 0..self.num_words() {
            if self.word(index).load(Ordering::Relaxed) & SHADOW_SYNC != 0 {
                let what =
                    "a synchronising word is loaded without acquire: what its writer released is not seen";
                return Err(Cause::at(FaultKind::Ordering, self.address, what));
            }
        }
        self.check_init(report_uninitialised)
    }

    /// Checks that every byte was written.
    pub(crate) fn check_init(&self, report_uninitialised: bool) -> Result<(), Box<Cause>> {
        if !report_uninitialised || self.sharing == Sharing::Host {
            return Ok(());
        }
        for index in 0..self.num_words() {
            let wanted = self.wanted(index);
            if self.word(index).load(Ordering::Relaxed) & wanted != wanted {
                let what = format!("{} bytes are read of which some were never written", self.bytes);
                return Err(Cause::at(FaultKind::Uninitialised, self.address, what));
            }
        }
        Ok(())
    }

    /// Checks and notes an ordinary or relaxed store.
    pub(crate) fn store(&self) -> Result<(), Box<Cause>> {
        for index in 0..self.num_words() {
            let wanted = self.wanted(index);
            let known = self.word(index).load(Ordering::Relaxed);
            if known & SHADOW_SYNC != 0 && self.is_shared() {
                let what = "a synchronising word is stored to without release";
                return Err(Cause::at(FaultKind::Ordering, self.address, what));
            }
            if known & wanted != wanted {
                self.word(index).fetch_or(wanted, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Notes that the words synchronise; with `writes`, that they were written.
    pub(crate) fn synchronise(&self, writes: bool) {
        for index in 0..self.num_words() {
            let sync = if self.is_shared() { SHADOW_SYNC } else { 0 };
            let wanted = sync | if writes { self.wanted(index) } else { 0 };
            if self.word(index).load(Ordering::Relaxed) & wanted != wanted {
                self.word(index).fetch_or(wanted, Ordering::Relaxed);
            }
        }
    }
}

//! `mbarrier` and `cp.async.bulk`: what each instruction does.

use crate::ptx::program::{Addr, Async, Slot};
use crate::ptx::types::Space;

use super::block::Common;
use super::copies::{PendingLoad, PendingStore, StoreGroup, Stores};
use super::fault::{Cause, FaultKind};
use super::global::Globals;
use super::step::{Slice, Stop};

/// The alignment of addresses and sizes.
const ALIGN: u64 = 16;
/// Bytes moved by one atomic access.
const WORD: usize = 8;

impl Slice<'_, '_> {
    fn reg(&self, slot: Slot) -> u64 {
        self.thread.regs[usize::from(slot)]
    }

    /// The shared address that an operand means.
    fn shared_address(&self, addr: Addr, align: u64) -> Result<u64, Box<Cause>> {
        let (space, address) = self.address(addr);
        if space != Space::Shared {
            return Err(Cause::at(
                FaultKind::IllegalAddress,
                address,
                "an address in shared memory is expected",
            ));
        }
        self.common.bytes(address, align, align)?;
        Ok(address)
    }

    pub(super) fn asynchronous(&mut self, operation: Async) -> Result<Option<Stop>, Box<Cause>> {
        match operation {
            Async::Init { bar, count } => {
                let (bar, count) = (self.shared_address(bar, 8)?, self.reg(count));
                self.common.mbarriers.init(bar, count)?;
            }
            Async::Inval { bar } => {
                let bar = self.shared_address(bar, 8)?;
                self.common.mbarriers.inval(bar)?;
            }
            Async::Arrive { bar, dst, count, expect } => {
                let (bar, count) = (self.shared_address(bar, 8)?, self.reg(count));
                let expect = expect.map(|expect| self.reg(expect));
                let barrier = self.common.mbarriers.at(bar)?;
                if let Some(bytes) = expect {
                    barrier.expect(bytes)?;
                }
                let phase = barrier.arrive(count)?;
                if let Some(dst) = dst {
                    self.thread.regs[usize::from(dst)] = phase;
                }
            }
            Async::Expect { bar, bytes } => {
                let (bar, bytes) = (self.shared_address(bar, 8)?, self.reg(bytes));
                self.common.mbarriers.at(bar)?.expect(bytes)?;
            }
            Async::TryWait { bar, dst, parity } => {
                let (bar, parity) = (self.shared_address(bar, 8)?, self.reg(parity));
                return self.try_wait(bar, dst, parity);
            }
            Async::Load { dst, src, bytes, bar } => {
                let load = PendingLoad {
                    dst: self.shared_address(dst, ALIGN)?,
                    src: self.address(src).1,
                    bytes: self.size(bytes)?,
                    barrier: self.shared_address(bar, 8)?,
                    pc: self.thread.pc - 1,
                };
                // What can be refused now is refused where it was written.
                self.common.bytes(load.dst, load.bytes, ALIGN)?;
                self.common.check_store(load.dst, load.bytes)?;
                self.common.mbarriers.at(load.barrier)?;
                self.globals.place(load.src, load.bytes, ALIGN, WORD as u64)?;
                self.common.loads.push(load);
            }
            Async::Store { dst, src, bytes } => {
                let store = PendingStore {
                    dst: self.address(dst).1,
                    src: self.shared_address(src, ALIGN)?,
                    bytes: self.size(bytes)?,
                    read: None,
                    pc: self.thread.pc - 1,
                };
                self.common.bytes(store.src, store.bytes, ALIGN)?;
                self.common.check_load(store.src, store.bytes)?;
                self.globals.place(store.dst, store.bytes, ALIGN, WORD as u64)?;
                self.check_proxy(&store)?;
                self.thread.fenced = false;
                self.own_stores().uncommitted.stores.push(store);
                self.common.num_unread += 1;
            }
            Async::Commit => {
                let stores = self.own_stores();
                let group = std::mem::take(&mut stores.uncommitted);
                stores.groups.push_back(group);
            }
            Async::Wait { pending, read } => self.wait_group(pending as usize, read)?,
            Async::Fence => self.common.proxy_fences[self.thread.ids.linear as usize] = self.now,
        }
        Ok(None)
    }

    fn size(&self, slot: Slot) -> Result<u64, Box<Cause>> {
        let bytes = self.reg(slot);
        if bytes == 0 || !bytes.is_multiple_of(ALIGN) {
            let what = format!("a bulk copy of {bytes} bytes: it must be a multiple of {ALIGN}, and not 0");
            return Err(Cause::plain(FaultKind::Misaligned, what));
        }
        Ok(bytes)
    }

    /// A wait that finds copies pending is answered "not yet" once, then they are made.
    fn try_wait(&mut self, bar: u64, dst: Slot, parity: u64) -> Result<Option<Stop>, Box<Cause>> {
        let barrier = self.common.mbarriers.at(bar)?;
        let mut complete = barrier.is_complete(parity);
        let mut stop = None;
        if !complete && self.common.loads.iter().any(|load| load.barrier == bar) {
            if barrier.was_polled {
                make_loads(self.common, self.globals, Some(bar))?;
                complete = self.common.mbarriers.at(bar)?.is_complete(parity);
            } else {
                barrier.was_polled = true;
                stop = Some(Stop::Quantum);
            }
        }
        self.thread.regs[usize::from(dst)] = u64::from(complete);
        Ok(if complete { None } else { stop.or(Some(Stop::Polled)) })
    }

    /// Ordinary stores to the source must be fenced before the copy engine reads it: by their thread, or by this one
    /// later.
    fn check_proxy(&self, store: &PendingStore) -> Result<(), Box<Cause>> {
        let own = self.common.proxy_fences[self.thread.ids.linear as usize];
        for &(when, thread) in self.common.writes(store.src, store.bytes) {
            if when > own.max(self.common.proxy_fences[thread as usize]) {
                let what =
                    "a bulk copy reads shared memory that was stored to without `fence.proxy.async` since";
                return Err(Cause::at(FaultKind::Ordering, store.src, what));
            }
        }
        Ok(())
    }

    fn own_stores(&mut self) -> &mut Stores {
        &mut self.common.stores[self.thread.ids.linear as usize]
    }

    fn wait_group(&mut self, pending: usize, read: bool) -> Result<(), Box<Cause>> {
        let done = self.own_stores().groups.len().saturating_sub(pending);
        if !read {
            return make_stores(self.common, self.thread.ids.linear as usize, done, self.globals);
        }
        let mut groups = std::mem::take(&mut self.own_stores().groups);
        for group in groups.iter_mut().take(done) {
            read_sources(group, self.common)?;
        }
        self.own_stores().groups = groups;
        Ok(())
    }
}

/// Makes the copies into shared memory that `barrier` counts; `None`: all.
pub(super) fn make_loads(
    common: &mut Common,
    globals: &mut Globals<'_>,
    barrier: Option<u64>,
) -> Result<(), Box<Cause>> {
    let loads = std::mem::take(&mut common.loads);
    for load in loads {
        if barrier.is_some_and(|barrier| barrier != load.barrier) {
            common.loads.push(load);
            continue;
        }
        make_load(load, common, globals).map_err(|cause| cause.of(load.pc))?;
    }
    Ok(())
}

fn make_load(load: PendingLoad, common: &mut Common, globals: &mut Globals<'_>) -> Result<(), Box<Cause>> {
    let place = globals.place(load.src, load.bytes, ALIGN, WORD as u64)?;
    place.shadow.check_load(globals.reports_uninitialised())?;
    let memory = common.bytes_mut(load.dst, load.bytes, ALIGN)?;
    for (at, word) in memory.chunks_exact_mut(WORD).enumerate() {
        word.copy_from_slice(&place.load_word(at * WORD).to_le_bytes());
    }
    common.mbarriers.at(load.barrier)?.complete(load.bytes)
}

/// Reads the sources of a group.
fn read_sources(group: &mut StoreGroup, common: &mut Common) -> Result<(), Box<Cause>> {
    for store in group.stores.iter_mut().filter(|store| store.read.is_none()) {
        store.read = Some(common.bytes(store.src, store.bytes, ALIGN)?.to_vec());
        common.num_unread -= 1;
    }
    Ok(())
}

/// Makes the copies of the oldest `num_groups` groups of a thread.
pub(super) fn make_stores(
    common: &mut Common,
    thread: usize,
    num_groups: usize,
    globals: &mut Globals<'_>,
) -> Result<(), Box<Cause>> {
    for _ in 0..num_groups {
        let Some(mut group) = common.stores[thread].groups.pop_front() else { break };
        read_sources(&mut group, common)?;
        for store in group.stores {
            make_store(&store, globals).map_err(|cause| cause.of(store.pc))?;
        }
    }
    Ok(())
}

fn make_store(store: &PendingStore, globals: &mut Globals<'_>) -> Result<(), Box<Cause>> {
    let place = globals.place(store.dst, store.bytes, ALIGN, WORD as u64)?;
    place.shadow.store()?;
    for (at, word) in store.read.iter().flat_map(|bytes| bytes.chunks_exact(WORD)).enumerate() {
        let mut value = [0; WORD];
        value.copy_from_slice(word);
        place.store_word(at * WORD, u64::from_le_bytes(value));
    }
    Ok(())
}

//! The adversarial barrier test: a rotating rank is late before it writes, and everyone checks everyone's bytes.

#![allow(dead_code, reason = "each test file uses its part")]

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::device::{DeviceBuffer, Keep};
use cpkv::group::Group;
use cpkv::plan::TablePacker;
use cpkv::symm::{ArenaLayout, Carve, Registered, RegistrationRecord, SymmRegion};
use cpkv::units::Rank;
use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{Descriptor, GatherParams, HalfSelect};

use super::fixture::{LONG, Setup, group_options};

/// Barriers of one run.
pub(crate) const NUM_ITERATIONS: u32 = 200;
/// How late the late rank writes.
const DELAY: Duration = Duration::from_millis(10);
/// Bytes a rank publishes for one barrier.
const PAGE_BYTES: u64 = 256;

/// A group, and two pages a rank that its peers can read: those of even and of odd epochs.
pub(crate) struct Adversary {
    pub(crate) group: Group,
    region: Arc<SymmRegion>,
    halves: [Carve; 2],
    /// `[iterations, ranks]` pages: what this rank read.
    copies: DeviceBuffer,
}

impl Adversary {
    /// Registers group and pages. Collective.
    pub(crate) fn new(setup: &Setup) -> Self {
        let (bootstrap, backend) = (Arc::clone(&setup.bootstrap), Arc::clone(&setup.backend));
        let group =
            Group::register(bootstrap, Arc::clone(&setup.device), backend, group_options(LONG)).unwrap();
        let mut layout = ArenaLayout::default();
        let halves = ["even", "odd"].map(|name| layout.carve(name, PAGE_BYTES, 256).unwrap());
        let registered = SymmRegion::register(
            "pages",
            group.bootstrap(),
            group.device(),
            &**group.backend(),
            &RegistrationRecord::default(),
            layout,
            Deadline::after(LONG),
        );
        let Registered::Mapped(region) = registered.unwrap() else { panic!("peers are in reach") };
        let bytes = u64::from(NUM_ITERATIONS) * group.group_size().len() as u64 * PAGE_BYTES;
        let copies = group.device().alloc(bytes).unwrap();
        Self { group, region: Arc::new(region), halves, copies }
    }

    /// Queues all iterations on the stream, so that no wait of the host hides what the barrier lets through; then
    /// returns how many pages hold other bytes than their rank published for that iteration.
    pub(crate) fn run(&mut self, has_barrier: bool) -> usize {
        for iteration in 0..NUM_ITERATIONS {
            if iteration % self.num_ranks() == self.group.rank().0 {
                let late = || {
                    thread::sleep(DELAY);
                    Ok(())
                };
                self.group.stream().host_call("late", Box::new(late)).unwrap();
            }
            let mine = self.region.own(&self.halves[(iteration % 2) as usize]);
            self.group.stream().upload(page_of(iteration, self.group.rank()), &mine).unwrap();
            if has_barrier {
                self.group.barrier(iteration).unwrap();
            }
            self.read_all(iteration);
        }
        self.group.synchronize().unwrap();
        let mut bytes = vec![0; self.copies.bytes() as usize];
        self.group.stream().download(&self.copies, &mut bytes, Deadline::after(LONG)).unwrap();
        let mut pages = bytes.chunks_exact(PAGE_BYTES as usize);
        let mut num_wrong = 0;
        for iteration in 0..NUM_ITERATIONS {
            for rank in self.group.group_size().ranks() {
                num_wrong += usize::from(pages.next() != Some(&page_of(iteration, rank)[..]));
            }
        }
        num_wrong
    }

    /// Queues a gather of everyone's page of `iteration`.
    fn read_all(&self, iteration: u32) {
        let num_ranks = self.num_ranks();
        let mut packer = TablePacker::default();
        let each: Vec<_> = (0..num_ranks as i32).map(|base| Descriptor { base, page: 0 }).collect();
        let descriptors = packer.push(&each);
        let bases = packer.push(&self.region.addrs(&self.halves[(iteration % 2) as usize]));
        let table_bytes = packer.finish().bytes;
        let tables = self.group.device().alloc(table_bytes.len() as u64).unwrap();
        self.group.stream().upload(table_bytes, &tables).unwrap();
        let kernel = Kernel::Gather(GatherParams {
            dst: self.copies.addr() + self.pages_of(iteration).start,
            descriptors: tables.addr() + descriptors.offset,
            bases: tables.addr() + bases.offset,
            pool_offset: 0,
            src_half: HalfSelect::default(),
            dst_half: HalfSelect::default(),
            page_bytes: PAGE_BYTES,
            poison: 0,
            num_slots: num_ranks,
            first_halved: num_ranks,
        });
        let keep: Keep = Arc::new((tables, self.copies.clone(), Arc::clone(&self.region)));
        // SAFETY: tables, destination and region live in `keep`. A page is written again two epochs later, by a rank
        // that has passed the barrier between, which this rank enters after this read; without a barrier the copies
        // are only counted.
        unsafe { self.group.stream().launch(kernel, &keep) }.unwrap();
    }

    fn pages_of(&self, iteration: u32) -> Range<u64> {
        let bytes = u64::from(self.num_ranks()) * PAGE_BYTES;
        let start = u64::from(iteration) * bytes;
        start..start + bytes
    }

    fn num_ranks(&self) -> u32 {
        self.group.group_size().get()
    }

    /// Ends it in good order: every signal word is 0, every guard intact. Collective.
    pub(crate) fn close(self) {
        let Self { group, region, .. } = self;
        group.bootstrap().barrier("all have left the last barrier", Deadline::after(LONG)).unwrap();
        assert_eq!(group.words_not_zero().unwrap(), []);
        assert_eq!(
            (group.broken_guards().unwrap(), region.broken_guards(group.device()).unwrap()),
            (vec![], vec![])
        );
        assert_eq!(group.epoch().0 % u64::from(NUM_ITERATIONS), 0);
        SymmRegion::close_shared(region, group.bootstrap(), Deadline::after(LONG)).unwrap();
        group.close().unwrap();
    }
}

/// What `rank` publishes for `iteration`: no two pages agree in any word.
fn page_of(iteration: u32, rank: Rank) -> Vec<u8> {
    let stamp = (u64::from(iteration) << 32) | (u64::from(rank.0) << 16);
    let word = |i: u64| (stamp + i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..PAGE_BYTES / 8).flat_map(|i| word(i).to_le_bytes()).collect()
}

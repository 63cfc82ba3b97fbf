//! The adversarial barrier test: a rotating rank is late before it writes, and everyone checks everyone's bytes.
//!
//! All memory is had before, and whole rounds are queued at once, so that no wait of the host hides what the barrier
//! lets through. A run without the barrier must show violations, or the test proves nothing.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::device::{DeviceBuffer, Keep};
use cpkv::group::Group;
use cpkv::plan::TablePacker;
use cpkv::symm::{ArenaLayout, Carve, Registered, RegistrationRecord, SymmRegion};
use cpkv::units::{GroupSize, Rank};
use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{Descriptor, GatherParams, HalfSelect};

use crate::context::{Context, LONG};
use crate::outcome::{Outcome, Problem};
use crate::ranks::{Seat, group_options, on_threads, thread_seats};

/// How late the late rank writes.
const DELAY: Duration = Duration::from_millis(10);
/// Bytes a rank publishes for one barrier.
const PAGE_BYTES: u64 = 256;
/// Iterations queued at once: a stream holds about a thousand launches.
const ROUND: u32 = 100;
/// Iterations without a barrier.
const NUM_CONTROLS: u32 = 16;
/// Ranks.
pub(crate) const NUM_RANKS: u32 = 8;

/// Iterations of one run.
pub(crate) const fn num_iterations(context: &Context) -> u32 {
    context.pick(200, 40)
}

/// Eight threads on the first GPU.
pub(crate) fn threads(context: &Context) -> Result<Outcome, Problem> {
    let gpu = [context.open()?];
    let num_iterations = num_iterations(context);
    let seats = thread_seats(&gpu, GroupSize::new(NUM_RANKS)?);
    let controls = on_threads(seats, |seat| run(&seat, num_iterations))?;
    Ok(Outcome::passed(describe(num_iterations, controls.iter().sum())))
}

/// What a run came to.
pub(crate) fn describe(num_iterations: u32, num_violations: usize) -> String {
    format!(
        "{NUM_RANKS} ranks, {num_iterations} iterations, no violation, all words 0; without the barrier \
         {num_violations} in {NUM_CONTROLS}"
    )
}

/// Everything one rank does; how many violations it saw without the barrier. Collective.
pub(crate) fn run(seat: &Seat, num_iterations: u32) -> Result<usize, Problem> {
    let mut adversary = Adversary::register(seat, num_iterations.max(NUM_CONTROLS))?;
    let num_wrong = adversary.run(seat, num_iterations, true)?;
    if num_wrong > 0 {
        return Err(format!("{num_wrong} pages were read before they were written, or too late").into());
    }
    let num_violations = adversary.run(seat, NUM_CONTROLS, false)?;
    adversary.close(seat)?;
    let all = seat.bootstrap.all_gather(
        "violations",
        &(num_violations as u64).to_le_bytes(),
        Deadline::after(LONG),
    )?;
    if all.iter().all(|blob| blob.iter().all(|&byte| byte == 0)) {
        return Err("without the barrier no violation was seen either: the test proves nothing here".into());
    }
    Ok(num_violations)
}

/// A group, and two pages a rank that its peers can read: those of even and of odd iterations.
struct Adversary {
    group: Group,
    region: Arc<SymmRegion>,
    halves: [Carve; 2],
    /// `[iterations]` pages that this rank publishes, with and without the barrier.
    sources: [DeviceBuffer; 2],
    /// `[iterations, ranks]` pages: what it read.
    copies: DeviceBuffer,
    /// Of each half: the gather's tables.
    tables: [(DeviceBuffer, u64); 2],
}

impl Adversary {
    fn register(seat: &Seat, num_iterations: u32) -> Result<Self, Problem> {
        let (bootstrap, backend) = (Arc::clone(&seat.bootstrap), Arc::clone(&seat.backend));
        let device = Arc::clone(&seat.device);
        let group = Group::register(bootstrap, Arc::clone(&device), backend, group_options(LONG))?;
        let mut layout = ArenaLayout::default();
        let halves = [layout.carve("even", PAGE_BYTES, 256)?, layout.carve("odd", PAGE_BYTES, 256)?];
        let registered = SymmRegion::register(
            "pages",
            &*seat.bootstrap,
            &*device,
            &*seat.backend,
            &RegistrationRecord::default(),
            layout,
            Deadline::after(LONG),
        )?;
        let region = match registered {
            Registered::Mapped(region) => Arc::new(region),
            Registered::Unreachable(reasons) => {
                return Err(format!("peers' memory is out of reach: {reasons:?}").into());
            }
        };
        let source = |has_barrier| -> Result<DeviceBuffer, Problem> {
            let pages: Vec<u8> =
                (0..num_iterations).flat_map(|i| page_of(i, seat.rank(), has_barrier)).collect();
            let source = device.alloc(pages.len() as u64)?;
            device.write(&pages, &source)?;
            Ok(source)
        };
        let table = |half: &Carve| -> Result<(DeviceBuffer, u64), Problem> {
            let mut packer = TablePacker::default();
            let num_ranks = group.group_size().get() as i32;
            let each: Vec<_> = (0..num_ranks).map(|base| Descriptor { base, page: 0 }).collect();
            packer.push(&each);
            let bases = packer.push(&region.addrs(half)).offset;
            let bytes = packer.finish().bytes;
            let table = device.alloc(bytes.len() as u64)?;
            device.write(&bytes, &table)?;
            Ok((table, bases))
        };
        let sources = [source(false)?, source(true)?];
        let tables = [table(&halves[0])?, table(&halves[1])?];
        let bytes = u64::from(num_iterations) * u64::from(group.group_size().get()) * PAGE_BYTES;
        let copies = device.alloc(bytes)?;
        Ok(Self { group, region, halves, sources, copies, tables })
    }

    /// Runs the iterations; how many pages held other bytes than their rank published for them.
    fn run(&mut self, seat: &Seat, num_iterations: u32, has_barrier: bool) -> Result<usize, Problem> {
        seat.meet("ready")?;
        for iteration in 0..num_iterations {
            if iteration % self.num_ranks() == self.group.rank().0 {
                let late = || {
                    thread::sleep(DELAY);
                    Ok(())
                };
                self.group.stream().host_call("late", Box::new(late))?;
            }
            let start = u64::from(iteration) * PAGE_BYTES;
            let source = self.sources[usize::from(has_barrier)].slice(start..start + PAGE_BYTES)?;
            let half = (iteration % 2) as usize;
            self.group.stream().copy(&source, &self.region.own(&self.halves[half]))?;
            if has_barrier {
                self.group.barrier(iteration)?;
            }
            self.read_all(iteration, half)?;
            if (iteration + 1).is_multiple_of(ROUND) {
                self.group.synchronize()?;
            }
        }
        self.group.synchronize()?;
        seat.meet("all have read")?;
        let mut bytes = vec![0; self.copies.bytes() as usize];
        self.group.device().read(&self.copies, &mut bytes)?;
        let mut pages = bytes.chunks_exact(PAGE_BYTES as usize);
        let mut num_wrong = 0;
        for iteration in 0..num_iterations {
            for rank in self.group.group_size().ranks() {
                num_wrong += usize::from(pages.next() != Some(&page_of(iteration, rank, has_barrier)[..]));
            }
        }
        Ok(num_wrong)
    }

    /// Queues a gather of everyone's page of `iteration`.
    fn read_all(&self, iteration: u32, half: usize) -> Result<(), Problem> {
        let num_ranks = self.num_ranks();
        let (tables, bases) = &self.tables[half];
        let kernel = Kernel::Gather(GatherParams {
            dst: self.copies.addr() + u64::from(iteration) * u64::from(num_ranks) * PAGE_BYTES,
            descriptors: tables.addr(),
            bases: tables.addr() + bases,
            pool_offset: 0,
            src_half: HalfSelect::default(),
            dst_half: HalfSelect::default(),
            page_bytes: PAGE_BYTES,
            poison: 0,
            num_slots: num_ranks,
            first_halved: num_ranks,
        });
        let keep: Keep = Arc::new((tables.clone(), self.copies.clone(), Arc::clone(&self.region)));
        // SAFETY: tables, destination and region live in `keep`. A page is written again two iterations later, by a
        // rank that has passed the barrier between, which this rank enters after this read; without a barrier the
        // copies are only counted.
        Ok(unsafe { self.group.stream().launch(kernel, &keep) }?)
    }

    fn num_ranks(&self) -> u32 {
        self.group.group_size().get()
    }

    /// Ends it in good order: every signal word is 0, every guard intact. Collective.
    fn close(self, seat: &Seat) -> Result<(), Problem> {
        let Self { group, region, .. } = self;
        seat.meet("all have left the last barrier")?;
        let words = group.words_not_zero()?;
        let guards = (group.broken_guards()?, region.broken_guards(&*seat.device)?);
        if !words.is_empty() || !guards.0.is_empty() || !guards.1.is_empty() {
            return Err(
                format!("signal words not 0 at rest: {words:?}; overwritten guards: {guards:?}").into()
            );
        }
        SymmRegion::close_shared(region, &*seat.bootstrap, Deadline::after(LONG))?;
        Ok(group.close()?)
    }
}

/// What `rank` publishes for `iteration`: no two pages agree in any word.
fn page_of(iteration: u32, rank: Rank, has_barrier: bool) -> Vec<u8> {
    let stamp = (u64::from(has_barrier) << 63) | (u64::from(iteration) << 32) | (u64::from(rank.0) << 16);
    let word = |i: u64| (stamp + i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..PAGE_BYTES / 8).flat_map(|i| word(i).to_le_bytes()).collect()
}

//! The threads of a grid in turns, until all have exited or one faults.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::machine::Memory;
use crate::ptx::Module;
use crate::ptx::program::Async;

use super::block::{Block, Common};
use super::bulk;
use super::copies::Stores;
use super::fault::{Cause, ExecFault, FaultKind};
use super::global::Globals;
use super::launch::{Launch, LaunchError, Rules};
use super::step::{Slice, Stop, now_ns};
use super::thread::{Ids, Image, Shape, Thread, WARP_LANES, place_in};
use super::warp;

/// Instructions of a turn.
const QUANTUM: u64 = 256;
/// Turns between two looks at the clock while threads sleep.
const TURNS_PER_CLOCK: u32 = 64;
/// Turns after which bulk copies are made even if nobody waits for them.
const TURNS_TO_COPY: u32 = 4096;

/// How far a call of [`Execution::run`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do.
    Running,
    /// Every live thread sleeps, or polled in vain: the processor is better used by others.
    Waiting,
    /// All threads have exited.
    Done,
}

/// A kernel being executed.
#[derive(Debug)]
pub struct Execution {
    module: Arc<Module>,
    kernel: usize,
    rules: Rules,
    shape: Shape,
    images: Vec<Image>,
    blocks: Vec<Block>,
    /// Threads that can run, in order of their turns.
    ready: VecDeque<u32>,
    /// Threads that sleep, and until when.
    sleeping: Vec<(u64, u32)>,
    /// Instructions run.
    now: u64,
    /// Turns in a row that came to nothing.
    num_idle: usize,
    num_turns: u32,
}

impl Execution {
    /// Prepares the launch of `kernel`.
    ///
    /// # Errors
    /// [`LaunchError`] where the kernel or the machine has other limits.
    pub fn new(module: Arc<Module>, kernel: &str, launch: Launch, rules: Rules) -> Result<Self, LaunchError> {
        let Some(index) = module.kernels.iter().position(|known| known.name == kernel) else {
            return Err(LaunchError::NoKernel(kernel.to_owned()));
        };
        let kernel = &module.kernels[index];
        launch.check(&module, kernel)?;
        let total_shared = kernel.static_shared_bytes + launch.dynamic_shared_bytes;
        let shape = Shape {
            grid: launch.grid,
            block: launch.block,
            dynamic_shared: launch.dynamic_shared_bytes,
            total_shared,
        };
        let images = Image::all(&module, &kernel.shared_offsets, &launch);
        let tracks_writes = module.program.asyncs.iter().any(|op| matches!(op, Async::Store { .. }));
        let num_threads = shape.block_threads();
        let num_blocks: u32 = launch.grid.iter().product();
        let block = |block_linear| {
            let thread = |linear| {
                let ids = Ids {
                    thread: place_in(shape.block, linear),
                    block: place_in(shape.grid, block_linear),
                    linear,
                    block_linear,
                };
                Thread::new(ids, &images[kernel.function as usize], &shape, &launch.params)
            };
            Block {
                threads: (0..num_threads).map(thread).collect(),
                common: Common::new(total_shared as usize, num_threads as usize, tracks_writes),
                bars: Default::default(),
                meetings: (0..num_threads.div_ceil(WARP_LANES)).map(|_| Default::default()).collect(),
                num_live: num_threads,
            }
        };
        let blocks: Vec<Block> = (0..num_blocks).map(block).collect();
        Ok(Self {
            kernel: index,
            rules,
            shape,
            blocks,
            images,
            ready: (0..num_blocks * num_threads).collect(),
            sleeping: Vec::new(),
            now: 1,
            num_idle: 0,
            num_turns: 0,
            module,
        })
    }

    /// Instructions run so far.
    pub fn num_instructions(&self) -> u64 {
        self.now - 1
    }

    /// Runs about `max_instructions`, all threads in turns.
    ///
    /// # Errors
    /// [`ExecFault`] of the first thread that faults; the execution is over then.
    pub fn run(&mut self, memory: &dyn Memory, max_instructions: u64) -> Result<Progress, ExecFault> {
        let mut globals = Globals::new(memory, self.rules);
        let end = self.now.saturating_add(max_instructions);
        while self.now < end {
            self.wake();
            let Some(thread) = self.ready.pop_front() else {
                if !self.sleeping.is_empty() {
                    return Ok(Progress::Waiting);
                }
                return match self.first_live() {
                    None => Ok(Progress::Done),
                    Some(thread) => {
                        let what = "every live thread waits for others, and none is left that could come";
                        Err(self.fault(thread, *Cause::plain(FaultKind::Deadlock, what)))
                    }
                };
            };
            self.turn(thread, &mut globals, end).map_err(|cause| self.fault(thread, *cause))?;
            if self.num_turns.is_multiple_of(TURNS_TO_COPY) {
                self.make_copies(&mut globals)?;
            }
            if self.num_idle > 0 && self.num_idle >= self.ready.len() {
                self.num_idle = 0;
                return Ok(Progress::Waiting);
            }
        }
        Ok(if self.ready.is_empty() && self.first_live().is_none() {
            Progress::Done
        } else {
            Progress::Running
        })
    }

    /// Makes ready the sleepers whose time is over.
    fn wake(&mut self) {
        self.num_turns = self.num_turns.wrapping_add(1);
        let looks = self.ready.is_empty() || self.num_turns.is_multiple_of(TURNS_PER_CLOCK);
        if self.sleeping.is_empty() || !looks {
            return;
        }
        let now = now_ns();
        let ready = &mut self.ready;
        self.sleeping.retain(|&(until, thread)| {
            if until <= now {
                ready.push_back(thread);
            }
            until > now
        });
    }

    fn first_live(&self) -> Option<u32> {
        let mut threads = self.blocks.iter().flat_map(|block| &block.threads);
        threads.position(|thread| !thread.exited).map(|index| index as u32)
    }

    /// The block of `thread`, and the thread's index in it.
    fn place(&self, thread: u32) -> (usize, usize) {
        let num_threads = self.shape.block_threads();
        ((thread / num_threads) as usize, (thread % num_threads) as usize)
    }

    /// One turn of a thread.
    fn turn(&mut self, thread: u32, globals: &mut Globals<'_>, end: u64) -> Result<(), Box<Cause>> {
        let (block_index, index) = self.place(thread);
        let block = &mut self.blocks[block_index];
        let mut slice = Slice {
            program: &self.module.program,
            images: &self.images,
            shape: &self.shape,
            thread: &mut block.threads[index],
            common: &mut block.common,
            globals,
            now: self.now,
            num_polls: 0,
        };
        let stop = slice.run(end.min(slice.now + QUANTUM));
        self.now = slice.now;
        self.stopped(thread, stop?, globals)
    }

    /// Deals with why a thread stopped.
    fn stopped(&mut self, thread: u32, stop: Stop, globals: &mut Globals<'_>) -> Result<(), Box<Cause>> {
        let (block_index, index) = self.place(thread);
        let first = thread - index as u32;
        let block = &mut self.blocks[block_index];
        self.num_idle = if stop == Stop::Polled { self.num_idle + 1 } else { 0 };
        match stop {
            Stop::Quantum | Stop::Polled => self.ready.push_back(thread),
            Stop::Asleep { until_ns } => self.sleeping.push((until_ns, thread)),
            Stop::Bar { id, count, waits } => {
                let released = block.bars.arrive(id, index as u32, count, waits, block.num_live)?;
                self.ready.extend(released.into_iter().map(|index| first + index));
                if !waits {
                    self.ready.push_back(thread);
                }
            }
            Stop::ActiveMask { d } => {
                let lanes = warp_of(block, index).1;
                let mask = warp::live_mask(lanes);
                block.threads[index].regs[usize::from(d)] = u64::from(mask);
                self.ready.push_back(thread);
            }
            Stop::Warp { index: instruction, mask } => {
                let lane = block.threads[index].lane();
                let (meeting, _) = warp_of(block, index);
                meeting.arrive(lane, mask, self.module.program.warps[instruction as usize])?;
                self.meet(thread)?;
            }
            Stop::Exited => {
                block.threads[index].exit();
                block.num_live -= 1;
                let released = block.bars.exited(block.num_live);
                self.ready.extend(released.into_iter().map(|index| first + index));
                if block.num_live == 0 {
                    finish_block(block, globals)?;
                }
                self.meet(thread)?;
            }
        }
        Ok(())
    }

    /// Completes the meetings of the thread's warp that can be.
    fn meet(&mut self, thread: u32) -> Result<(), Box<Cause>> {
        let (block_index, index) = self.place(thread);
        let first_lane = thread - index as u32 % WARP_LANES;
        let (meeting, lanes) = warp_of(&mut self.blocks[block_index], index);
        while !meeting.is_empty() {
            let met = meeting.complete(lanes)?;
            if met.is_empty() {
                break;
            }
            self.ready.extend(met.into_iter().map(|lane| first_lane + lane));
        }
        Ok(())
    }

    /// Makes all bulk copies, as hardware does in its own time.
    fn make_copies(&mut self, globals: &mut Globals<'_>) -> Result<(), ExecFault> {
        for index in 0..self.blocks.len() {
            if let Err(cause) = make_copies(&mut self.blocks[index], globals) {
                return Err(self.fault(index as u32 * self.shape.block_threads(), *cause));
            }
        }
        Ok(())
    }

    /// Names the place of a fault of `thread`.
    fn fault(&self, thread: u32, cause: Cause) -> ExecFault {
        let (block_index, index) = self.place(thread);
        let thread = &self.blocks[block_index].threads[index];
        let pc = cause.pc.unwrap_or(thread.pc.saturating_sub(1)) as usize;
        let line = self.module.program.lines.get(pc).copied().unwrap_or(0);
        ExecFault {
            kind: cause.kind,
            kernel: self.module.kernels[self.kernel].name.clone(),
            block: thread.ids.block,
            thread: thread.ids.thread,
            line,
            text: self.module.line_text(line).to_owned(),
            what: cause.what,
            address: cause.address,
        }
    }
}

/// The warp of thread `index`: who waits in it, and its lanes.
fn warp_of(block: &mut Block, index: usize) -> (&mut warp::Meeting, &mut [Thread]) {
    let warp = index / WARP_LANES as usize;
    let start = warp * WARP_LANES as usize;
    let end = block.threads.len().min(start + WARP_LANES as usize);
    (&mut block.meetings[warp], &mut block.threads[start..end])
}

/// Makes all bulk copies of a block.
fn make_copies(block: &mut Block, globals: &mut Globals<'_>) -> Result<(), Box<Cause>> {
    bulk::make_loads(&mut block.common, globals, None)?;
    for thread in 0..block.common.stores.len() {
        bulk::make_stores(&mut block.common, thread, usize::MAX, globals)?;
    }
    Ok(())
}

/// The last thread of a block exited. Copies that still use its shared memory would use another block's.
fn finish_block(block: &mut Block, globals: &mut Globals<'_>) -> Result<(), Box<Cause>> {
    let common = &mut block.common;
    if let Some(load) = common.loads.first() {
        let what = "the block ends while a bulk copy into its shared memory is pending";
        return Err(Cause::at(FaultKind::Ordering, load.dst, what).of(load.pc));
    }
    if let Some(store) = common.stores.iter().flat_map(Stores::unread).next() {
        let what = "the block ends while a bulk copy may still read its shared memory: wait for its group";
        return Err(Cause::at(FaultKind::Ordering, store.src, what).of(store.pc));
    }
    for thread in 0..common.stores.len() {
        bulk::make_stores(common, thread, usize::MAX, globals)?;
    }
    block.common = Common::new(0, 0, false);
    Ok(())
}

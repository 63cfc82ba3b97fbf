//! A thread: registers, frames, local and parameter memory; and what its registers hold at the start.

use crate::ptx::Module;
use crate::ptx::program::{Init, LaneMask, Slot, Special};

use super::fault::{Cause, FaultKind};
use super::launch::Launch;
use super::window::SHARED_BASE;

/// Calls inside calls, at most. Recursion is refused at load, so no program comes near.
const MAX_DEPTH: usize = 256;
/// Lanes of a warp.
pub(crate) const WARP_LANES: u32 = 32;

/// Where a thread stands in its grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) thread: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Index in the block.
    pub(crate) linear: u32,
    /// Index of the block in the grid.
    pub(crate) block_linear: u32,
}

/// The register file of a function when it is entered.
#[derive(Debug, Default)]
pub(crate) struct Image {
    template: Vec<u64>,
    /// What differs from thread to thread or frame to frame.
    patches: Vec<(Slot, Init)>,
    entry: u32,
    param_area_bytes: u32,
    local_bytes: u32,
    local_align: u32,
}

impl Image {
    /// The images of the functions of `module`, as `launch` places its variables.
    pub(crate) fn all(module: &Module, shared_offsets: &[Option<u32>], launch: &Launch) -> Vec<Self> {
        let globals: Vec<u64> = module
            .globals()
            .iter()
            .map(|global| launch.globals.get(&global.name).copied().unwrap_or_default())
            .collect();
        let image = |function: &crate::ptx::Function| {
            let mut image = Self {
                template: vec![0; function.num_slots as usize],
                patches: Vec::new(),
                entry: function.entry,
                param_area_bytes: function.param_area_bytes,
                local_bytes: function.local_bytes,
                local_align: function.local_align,
            };
            for &(slot, init) in &function.inits {
                image.template[usize::from(slot)] = match init {
                    Init::Const(value) => value,
                    Init::Global(index) => globals[index as usize],
                    // What this kernel does not reach it does not read.
                    Init::Shared(index) => {
                        shared_offsets[index as usize].map_or(0, |offset| SHARED_BASE + u64::from(offset))
                    }
                    Init::Special(_) | Init::Local(_) | Init::Param(_) => {
                        image.patches.push((slot, init));
                        0
                    }
                };
            }
            image
        };
        module.functions.iter().map(image).collect()
    }
}

/// What a special register is made of beside the thread's own place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) total_shared: u32,
}

impl Shape {
    /// Threads of a block.
    pub(crate) fn block_threads(&self) -> u32 {
        self.block.iter().product()
    }

    fn special(&self, special: Special, ids: &Ids) -> u64 {
        let lane = ids.linear % WARP_LANES;
        let value = match special {
            Special::Tid(axis) => ids.thread[usize::from(axis)],
            Special::NumTid(axis) => self.block[usize::from(axis)],
            Special::CtaId(axis) => ids.block[usize::from(axis)],
            Special::NumCtaId(axis) => self.grid[usize::from(axis)],
            Special::LaneId => lane,
            Special::WarpId => ids.linear / WARP_LANES,
            Special::NumWarpId => self.block_threads().div_ceil(WARP_LANES),
            Special::LaneMask(LaneMask::Eq) => 1 << lane,
            Special::LaneMask(LaneMask::Lt) => (1 << lane) - 1,
            Special::LaneMask(LaneMask::Le) => u32::MAX >> (31 - lane),
            Special::LaneMask(LaneMask::Ge) => u32::MAX << lane,
            Special::LaneMask(LaneMask::Gt) => u32::MAX << lane << 1,
            Special::SmId => ids.block_linear,
            Special::NumSmId => self.grid.iter().product(),
            Special::DynamicShared => self.dynamic_shared,
            Special::TotalShared => self.total_shared,
        };
        u64::from(value)
    }
}

/// A caller that waits for its callee.
#[derive(Debug)]
struct Frame {
    pc: u32,
    regs: Vec<u64>,
    /// The results of the callee: from where to where in parameter memory, and bytes.
    rets: Vec<(u32, u32, u32)>,
    param_base: usize,
    param_end: usize,
    local_end: usize,
}

/// A thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) ids: Ids,
    pub(crate) pc: u32,
    pub(crate) regs: Vec<u64>,
    frames: Vec<Frame>,
    pub(crate) params: Vec<u8>,
    param_base: usize,
    pub(crate) local: Vec<u8>,
    /// The carry of `add.cc` and its like.
    pub(crate) carry: bool,
    /// A fence of system scope came after its last store and read-modify-write.
    pub(crate) fenced: bool,
    pub(crate) exited: bool,
}

impl Thread {
    /// A thread about to enter the kernel whose image is `image`.
    pub(crate) fn new(ids: Ids, image: &Image, shape: &Shape, params: &[u8]) -> Self {
        let mut thread = Self {
            ids,
            pc: 0,
            regs: Vec::new(),
            frames: Vec::new(),
            params: Vec::new(),
            param_base: 0,
            local: Vec::new(),
            carry: false,
            fenced: false,
            exited: false,
        };
        thread.enter(image, shape);
        thread.params[..params.len()].copy_from_slice(params);
        thread
    }

    /// Sets up registers and memory of a function, and goes to its first instruction.
    fn enter(&mut self, image: &Image, shape: &Shape) {
        self.param_base = self.params.len().next_multiple_of(16);
        self.params.resize(self.param_base + image.param_area_bytes as usize, 0);
        let local_base = self.local.len().next_multiple_of(image.local_align.max(16) as usize);
        self.local.resize(local_base + image.local_bytes as usize, 0);
        self.regs = image.template.clone();
        for &(slot, init) in &image.patches {
            self.regs[usize::from(slot)] = match init {
                Init::Special(special) => shape.special(special, &self.ids),
                Init::Local(offset) => local_base as u64 + u64::from(offset),
                Init::Param(offset) => self.param_base as u64 + u64::from(offset),
                Init::Const(_) | Init::Shared(_) | Init::Global(_) => continue,
            };
        }
        self.pc = image.entry;
    }

    /// Calls a function.
    pub(crate) fn call(
        &mut self,
        call: &crate::ptx::program::Call,
        image: &Image,
        shape: &Shape,
    ) -> Result<(), Box<Cause>> {
        if self.frames.len() == MAX_DEPTH {
            return Err(Cause::plain(FaultKind::Other, "too many calls inside calls"));
        }
        let caller_base = self.param_base;
        self.frames.push(Frame {
            pc: self.pc,
            regs: std::mem::take(&mut self.regs),
            rets: call.rets.clone(),
            param_base: caller_base,
            param_end: self.params.len(),
            local_end: self.local.len(),
        });
        self.enter(image, shape);
        for &(from, to, bytes) in &call.args {
            let from = caller_base + from as usize;
            self.params.copy_within(from..from + bytes as usize, self.param_base + to as usize);
        }
        Ok(())
    }

    /// Returns to the caller; false: there is none.
    pub(crate) fn ret(&mut self) -> bool {
        let Some(frame) = self.frames.pop() else { return false };
        for (to, from, bytes) in frame.rets {
            let from = self.param_base + from as usize;
            self.params.copy_within(from..from + bytes as usize, frame.param_base + to as usize);
        }
        self.params.truncate(frame.param_end);
        self.local.truncate(frame.local_end);
        self.param_base = frame.param_base;
        self.regs = frame.regs;
        self.pc = frame.pc;
        true
    }

    /// Ends the thread, and gives back its memory.
    pub(crate) fn exit(&mut self) {
        self.exited = true;
        (self.regs, self.params, self.local, self.frames) = Default::default();
    }

    /// The thread's lane in its warp.
    pub(crate) fn lane(&self) -> u32 {
        self.ids.linear % WARP_LANES
    }
}

/// The threads of a block in order: x runs fastest.
pub(crate) fn place_in(shape: [u32; 3], linear: u32) -> [u32; 3] {
    [linear % shape[0], linear / shape[0] % shape[1], linear / shape[0] / shape[1]]
}

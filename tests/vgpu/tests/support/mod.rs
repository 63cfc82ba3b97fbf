//! Memory of one process, and kernels run on it.

#![allow(dead_code, reason = "not every test file uses all of it")]

pub(crate) mod operands;
pub(crate) mod shipped;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use cpkv_vgpu::exec::{ExecFault, Execution, FaultKind, Launch, Progress, Rules};
use cpkv_vgpu::machine::{Memory, Region, SHADOW_INIT, Sharing};
use cpkv_vgpu::ptx::Module;

/// Virtual addresses start here, and allocations are this far apart: an address never is one of this process.
const FIRST: u64 = 0x3_0000_0000_0000;
const DISTANCE: u64 = 1 << 32;

struct Allocation {
    words: Vec<AtomicU64>,
    shadow: Vec<AtomicU8>,
    bytes: u64,
    sharing: Sharing,
}

/// Allocations of this process.
#[derive(Default)]
pub(crate) struct TestMemory {
    allocations: Vec<Allocation>,
}

impl TestMemory {
    /// Allocates without writing; returns the virtual address.
    pub(crate) fn allocate(&mut self, bytes: usize, sharing: Sharing) -> u64 {
        let words = (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0xC3C3_C3C3_C3C3_C3C3)).collect();
        let shadow = (0..bytes.div_ceil(4)).map(|_| AtomicU8::new(0)).collect();
        self.allocations.push(Allocation { words, shadow, bytes: bytes as u64, sharing });
        FIRST + (self.allocations.len() as u64 - 1) * DISTANCE
    }

    /// Allocates and writes `data`.
    pub(crate) fn holding(&mut self, data: &[u8], sharing: Sharing) -> u64 {
        let address = self.allocate(data.len(), sharing);
        self.write(address, data);
        address
    }

    /// Allocates private memory that holds `values`.
    pub(crate) fn table<T: Copy>(&mut self, values: &[T]) -> u64 {
        self.holding(bytes_of(values), Sharing::Private)
    }

    /// Writes as the host does.
    pub(crate) fn write(&mut self, address: u64, data: &[u8]) {
        let region = self.locate(address).unwrap();
        let offset = (address - region.start) as usize;
        assert!(offset + data.len() <= region.bytes as usize);
        for (at, &byte) in data.iter().enumerate() {
            let at = region.data.wrapping_add(offset + at);
            // SAFETY: inside the allocation, and no kernel runs.
            unsafe { at.write(byte) };
        }
        let allocation = &self.allocations[((address - FIRST) / DISTANCE) as usize];
        for at in offset..offset + data.len() {
            allocation.shadow[at / 4].fetch_or(1 << (at % 4) & SHADOW_INIT, Ordering::Relaxed);
        }
    }

    /// Reads as the host does.
    pub(crate) fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let region = self.locate(address).unwrap();
        let offset = (address - region.start) as usize;
        assert!(offset + bytes <= region.bytes as usize);
        let at = |at| region.data.wrapping_add(at);
        // SAFETY: inside the allocation, and no kernel runs.
        (offset..offset + bytes).map(|offset| unsafe { at(offset).read() }).collect()
    }

    /// Reads 8 bytes.
    pub(crate) fn read_u64(&self, address: u64) -> u64 {
        u64::from_le_bytes(self.read(address, 8).try_into().unwrap())
    }

    /// Reads 4 bytes.
    pub(crate) fn read_u32(&self, address: u64) -> u32 {
        u32::from_le_bytes(self.read(address, 4).try_into().unwrap())
    }

    /// The shadow byte of the word at `address`.
    pub(crate) fn shadow(&self, address: u64) -> u8 {
        let (allocation, offset) = ((address - FIRST) / DISTANCE, (address - FIRST) % DISTANCE);
        self.allocations[allocation as usize].shadow[offset as usize / 4].load(Ordering::Relaxed)
    }

    /// Changes who may reach an allocation.
    pub(crate) fn share(&mut self, address: u64, sharing: Sharing) {
        self.allocations[((address - FIRST) / DISTANCE) as usize].sharing = sharing;
    }
}

impl Memory for TestMemory {
    fn locate(&self, address: u64) -> Option<Region> {
        let index = address.checked_sub(FIRST)? / DISTANCE;
        let allocation = self.allocations.get(usize::try_from(index).ok()?)?;
        let start = FIRST + index * DISTANCE;
        (address - start < allocation.bytes).then(|| Region {
            start,
            bytes: allocation.bytes,
            data: allocation.words.as_ptr().cast_mut().cast(),
            shadow: allocation.shadow.as_ptr(),
            sharing: allocation.sharing,
        })
    }
}

/// The bytes of plain values.
pub(crate) fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: the tests pass integers and structs of them without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Lines of PTX behind a header.
pub(crate) fn parse(ptx: &str) -> Arc<Module> {
    let text = format!(".version 8.3\n.target sm_90\n.address_size 64\n{ptx}");
    Arc::new(Module::parse(&text).unwrap_or_else(|error| panic!("{error}")))
}

/// A module whose only kernel `k` takes addresses `a` and `b` (in `%a`, `%b`) and runs `body`.
pub(crate) fn kernel(body: &str) -> Arc<Module> {
    parse(&kernel_text(body))
}

/// The text of [`kernel`].
pub(crate) fn kernel_text(body: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 pa, .param .u64 pb) {{\n.reg .pred %p<9>;\n.reg .b16 %h<9>;\n\
         .reg .b32 %r<30>;\n.reg .b64 %d<30>;\n.reg .b64 %a, %b;\nld.param.u64 %a, [pa];\nld.param.u64 %b, [pb];\n\
         {body}\nret;\n}}\n"
    )
}

/// A launch of `blocks` x `threads`.
pub(crate) fn launch(blocks: u32, threads: u32, params: &[u8]) -> Launch {
    Launch {
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        params: params.to_vec(),
        globals: BTreeMap::new(),
    }
}

/// Runs to the end.
pub(crate) fn finish(execution: &mut Execution, memory: &TestMemory) -> Result<(), ExecFault> {
    for _ in 0..100_000 {
        if execution.run(memory, 100_000)? == Progress::Done {
            return Ok(());
        }
    }
    panic!("the kernel does not end");
}

/// Runs kernel `k` of `module` with `a` and `b`.
pub(crate) fn run(
    module: &Arc<Module>,
    memory: &TestMemory,
    (blocks, threads): (u32, u32),
    (a, b): (u64, u64),
) -> Result<(), ExecFault> {
    run_with(module, memory, launch(blocks, threads, bytes_of(&[a, b])), Rules::default())
}

/// Runs kernel `k` of `module`.
pub(crate) fn run_with(
    module: &Arc<Module>,
    memory: &TestMemory,
    launch: Launch,
    rules: Rules,
) -> Result<(), ExecFault> {
    let mut execution =
        Execution::new(module.clone(), "k", launch, rules).unwrap_or_else(|error| panic!("{error}"));
    finish(&mut execution, memory)
}

/// The kind of the fault of one thread of `body`, and its text.
pub(crate) fn fault_of(body: &str, memory: &TestMemory, a: u64, b: u64) -> (FaultKind, String) {
    match run(&kernel(body), memory, (1, 1), (a, b)) {
        Ok(()) => panic!("no fault"),
        Err(fault) => (fault.kind(), fault.to_string()),
    }
}

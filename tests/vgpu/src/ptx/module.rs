//! A module: its kernels, its variables, its program.

use super::error::PtxError;
use super::parser;
use super::program::{Init, Program, Slot};

/// A parameter of a kernel or function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Where it lies in the parameter space, in bytes.
    pub offset: u32,
    /// Its size in bytes.
    pub bytes: u32,
    /// Its alignment in bytes.
    pub align: u32,
}

/// A `.global` variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Global {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its alignment in bytes.
    pub align: u64,
    /// What it holds at first, `bytes` long; zeros where an address belongs.
    pub init: Vec<u8>,
    /// Addresses of other variables in it: known only when those are placed.
    pub relocations: Vec<Relocation>,
}

/// An 8-byte address in a variable's initial bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relocation {
    /// Where it belongs, in bytes.
    pub offset: u64,
    /// The `.global` variable it points to.
    pub symbol: String,
    /// Added to that variable's address.
    pub addend: u64,
}

/// A `.shared` variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedVariable {
    pub(crate) bytes: u32,
    pub(crate) align: u32,
    /// `.extern`: it is the dynamic shared memory.
    pub(crate) dynamic: bool,
}

/// What calling a function needs to know of it.
#[derive(Debug, Default)]
pub(crate) struct Function {
    /// Its first instruction.
    pub(crate) entry: u32,
    /// Size of its register file.
    pub(crate) num_slots: u32,
    /// The slots that hold something at the start.
    pub(crate) inits: Vec<(Slot, Init)>,
    /// Its parameters, results and call arguments together.
    pub(crate) param_area_bytes: u32,
    pub(crate) local_bytes: u32,
    pub(crate) local_align: u32,
    /// Number of declared registers.
    pub(crate) num_regs: u32,
    /// Functions it calls.
    pub(crate) callees: Vec<u32>,
    /// Shared variables it names.
    pub(crate) shared: Vec<u32>,
}

/// An entry point.
#[derive(Debug)]
pub struct Kernel {
    pub(crate) name: String,
    /// Index of its function.
    pub(crate) function: u32,
    pub(crate) params: Vec<Param>,
    pub(crate) static_shared_bytes: u32,
    /// Offset of every shared variable of the module in the block's shared memory; `None`: not reachable.
    pub(crate) shared_offsets: Vec<Option<u32>>,
    pub(crate) local_bytes: u32,
    pub(crate) num_regs: u32,
    /// `.maxntid` or `.reqntid`: threads of a block.
    pub(crate) max_threads: Option<u32>,
    /// `.reqntid`: the block's exact shape.
    pub(crate) required_block: Option<[u32; 3]>,
}

impl Kernel {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters, in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Size of the parameter space in bytes.
    pub fn params_bytes(&self) -> usize {
        self.params.last().map_or(0, |param| (param.offset + param.bytes) as usize)
    }

    /// Bytes of shared memory that the kernel and what it calls declare, the dynamic part not counted.
    pub fn static_shared_bytes(&self) -> u32 {
        self.static_shared_bytes
    }

    /// Bytes of local memory a thread uses, the deepest chain of calls included.
    pub fn local_bytes(&self) -> u32 {
        self.local_bytes
    }

    /// Declared registers, the largest function that it calls included. Virtual ones: an assembler needs fewer.
    pub fn num_regs(&self) -> u32 {
        self.num_regs
    }

    /// The most threads a block may have by `.maxntid` or `.reqntid`.
    pub fn max_threads(&self) -> Option<u32> {
        self.max_threads
    }
}

/// A parsed and checked module.
#[derive(Debug)]
pub struct Module {
    pub(crate) program: Program,
    pub(crate) functions: Vec<Function>,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) globals: Vec<Global>,
    pub(crate) shared: Vec<SharedVariable>,
    /// The text's lines, for reports.
    pub(crate) lines: Vec<String>,
}

impl Module {
    /// Parses and checks `text`.
    ///
    /// # Errors
    /// [`PtxError`] on the first line that is not understood in full.
    pub fn parse(text: &str) -> Result<Self, PtxError> {
        parser::parse(text)
    }

    /// The kernel called `name`.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// The kernels, in the order of the text.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.iter()
    }

    /// The `.global` variables, in the order of the text.
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }

    /// The text of `line` (from 1), trimmed.
    pub(crate) fn line_text(&self, line: u32) -> &str {
        (line as usize).checked_sub(1).and_then(|index| self.lines.get(index)).map_or("", |text| text.trim())
    }
}

//! What ends a kernel before its time.

/// What sort of fault ended a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// No live allocation is there, or the access ends outside it.
    IllegalAddress,
    /// The address is not a multiple of the access's size.
    Misaligned,
    /// The kernel trapped.
    Trap,
    /// A rule of memory order was broken, which this machine's processor would have hidden.
    Ordering,
    /// Memory that nothing ever wrote was read.
    Uninitialised,
    /// Threads wait for each other for ever.
    Deadlock,
    /// Anything else that PTX leaves undefined.
    Other,
}

/// A fault, before it is known where it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) kind: FaultKind,
    pub(crate) what: String,
    pub(crate) address: Option<u64>,
    /// The instruction that caused it, where it is another than the one that ran.
    pub(crate) pc: Option<u32>,
}

impl Cause {
    /// A fault at an address.
    #[cold]
    pub(crate) fn at(kind: FaultKind, address: u64, what: impl Into<String>) -> Box<Self> {
        Box::new(Self { kind, what: what.into(), address: Some(address), pc: None })
    }

    /// A fault without an address.
    #[cold]
    pub(crate) fn plain(kind: FaultKind, what: impl Into<String>) -> Box<Self> {
        Box::new(Self { kind, what: what.into(), address: None, pc: None })
    }

    /// The same, of the instruction at `pc`.
    #[cold]
    pub(crate) fn of(mut self: Box<Self>, pc: u32) -> Box<Self> {
        self.pc = Some(pc);
        self
    }
}

/// A fault that ended a kernel, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "kernel `{kernel}`, block ({}, {}, {}), thread ({}, {}, {}), PTX line {line} `{text}`: {what}{}",
    block[0], block[1], block[2], thread[0], thread[1], thread[2],
    address.map(|address| format!(" (address {address:#x})")).unwrap_or_default()
)]
pub struct ExecFault {
    pub(crate) kind: FaultKind,
    pub(crate) kernel: String,
    pub(crate) block: [u32; 3],
    pub(crate) thread: [u32; 3],
    pub(crate) line: u32,
    pub(crate) text: String,
    pub(crate) what: String,
    pub(crate) address: Option<u64>,
}

impl ExecFault {
    /// What sort of fault it is.
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// The line of the instruction in the PTX text, from 1.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// The address that was accessed, where there is one.
    pub fn address(&self) -> Option<u64> {
        self.address
    }
}

//! The typed program: instructions whose operands are slots of a thread's register file.
//!
//! Everything an instruction reads is a slot. A slot holds a register, or a value that is known before the thread
//! starts: a literal, a thread index, the address of a variable. Values are kept zero-extended to 64 bits.

use super::operation::{BinOp, Comparison, Convert, FloatOp, FloatUnOp, RmwOp, TerOp, UnOp, WarpOp};
use super::types::{Order, RmwOrder, Scope, Space};

/// A place in the register file of a function.
pub(crate) type Slot = u16;

/// What a slot holds when its function is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Init {
    /// A literal.
    Const(u64),
    /// A special register that does not change while the thread lives.
    Special(Special),
    /// The address in shared space of shared variable `.0`.
    Shared(u32),
    /// The address in global space of global variable `.0`.
    Global(u32),
    /// The address in local space of the function's local memory, `.0` bytes in.
    Local(u32),
    /// The address in parameter space of the function's parameter area, `.0` bytes in.
    Param(u32),
}

/// A special register that does not change while the thread lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    /// `%tid.x/y/z`.
    Tid(u8),
    /// `%ntid.x/y/z`.
    NumTid(u8),
    /// `%ctaid.x/y/z`.
    CtaId(u8),
    /// `%nctaid.x/y/z`.
    NumCtaId(u8),
    /// `%laneid`.
    LaneId,
    /// `%warpid`.
    WarpId,
    /// `%nwarpid`.
    NumWarpId,
    /// `%lanemask_eq/le/lt/ge/gt`.
    LaneMask(LaneMask),
    /// `%smid`: the block's index in the grid, as if each had its own processor.
    SmId,
    /// `%nsmid`.
    NumSmId,
    /// `%dynamic_smem_size`.
    DynamicShared,
    /// `%total_smem_size`.
    TotalShared,
}

/// Which lanes a `%lanemask` names, seen from the own one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LaneMask {
    /// The own lane.
    Eq,
    /// Up to the own lane.
    Le,
    /// Below the own lane.
    Lt,
    /// From the own lane on.
    Ge,
    /// Above the own lane.
    Gt,
}

/// An address operand: a slot and an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addr {
    pub(crate) space: Space,
    pub(crate) base: Slot,
    pub(crate) offset: i64,
}

/// A load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) addr: Addr,
    pub(crate) order: Order,
    pub(crate) scope: Scope,
    /// Size of an element.
    pub(crate) bytes: u8,
    /// Whether a loaded element is sign-extended.
    pub(crate) signed: bool,
    /// Number of elements.
    pub(crate) count: u8,
    /// Their slots.
    pub(crate) slots: [Slot; 4],
    /// Width of the registers behind the slots.
    pub(crate) slot_bits: [u8; 4],
}

/// A read-modify-write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rmw {
    pub(crate) addr: Addr,
    pub(crate) op: RmwOp,
    pub(crate) order: RmwOrder,
    pub(crate) scope: Scope,
    /// 4 or 8.
    pub(crate) bytes: u8,
    /// Where the old value goes; `None` for `red`.
    pub(crate) dst: Option<Slot>,
    pub(crate) b: Slot,
    /// The new value of `cas`.
    pub(crate) c: Slot,
}

/// An instruction for which the lanes of a warp meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Warp {
    pub(crate) op: WarpOp,
    pub(crate) dst: Option<Slot>,
    /// Where `shfl` says whether the source lane was in range.
    pub(crate) in_range: Option<Slot>,
    pub(crate) a: Slot,
    /// Whether a vote's operand is negated.
    pub(crate) negate: bool,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    pub(crate) mask: Slot,
}

/// Asynchronous copies and what waits for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Async {
    /// `mbarrier.init`.
    Init { bar: Addr, count: Slot },
    /// `mbarrier.inval`.
    Inval { bar: Addr },
    /// `mbarrier.arrive`, with the bytes it expects.
    Arrive { bar: Addr, dst: Option<Slot>, count: Slot, expect: Option<Slot> },
    /// `mbarrier.expect_tx`.
    Expect { bar: Addr, bytes: Slot },
    /// `mbarrier.try_wait.parity` and `test_wait.parity`.
    TryWait { bar: Addr, dst: Slot, parity: Slot },
    /// `cp.async.bulk` from global to shared memory.
    Load { dst: Addr, src: Addr, bytes: Slot, bar: Addr },
    /// `cp.async.bulk` from shared to global memory.
    Store { dst: Addr, src: Addr, bytes: Slot },
    /// `cp.async.bulk.commit_group`.
    Commit,
    /// `cp.async.bulk.wait_group`: until at most `pending` groups are pending, or unread.
    Wait { pending: u32, read: bool },
    /// `fence.proxy.async`.
    Fence,
}

/// Which clock an instruction reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// `%globaltimer`.
    GlobalTimer,
    /// `%globaltimer_lo`, `%clock`: its low half.
    Low,
    /// `%globaltimer_hi`.
    High,
}

/// A function call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// Index of the function.
    pub(crate) function: u32,
    /// For every argument: where it lies in the caller's parameter area, and in the callee's, and its bytes.
    pub(crate) args: Vec<(u32, u32, u32)>,
    /// For every result: the caller's place, the callee's, and its bytes.
    pub(crate) rets: Vec<(u32, u32, u32)>,
}

/// An instruction. `bits` is the width it computes at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Mov {
        d: Slot,
        a: Slot,
    },
    Un {
        op: UnOp,
        bits: u8,
        d: Slot,
        a: Slot,
    },
    Bin {
        op: BinOp,
        bits: u8,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Ter {
        op: TerOp,
        bits: u8,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    /// `lop3`: the truth table is a literal.
    Lop3 {
        table: u8,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    /// `bfi`: `c` is the position, `e` the length.
    Bfi {
        bits: u8,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
        e: Slot,
    },
    /// Addition or subtraction in a carry chain.
    Carry {
        subtract: bool,
        reads: bool,
        writes: bool,
        bits: u8,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Float {
        op: FloatOp,
        bits: u8,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    FloatUn {
        op: FloatUnOp,
        bits: u8,
        d: Slot,
        a: Slot,
    },
    Fma {
        bits: u8,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Setp {
        comparison: Comparison,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Selp {
        d: Slot,
        a: Slot,
        b: Slot,
        p: Slot,
    },
    Cvt {
        convert: u32,
        d: Slot,
        a: Slot,
    },
    /// Part of a `mov` between a register and its parts: bits `from .. from + bits` of `a`.
    Extract {
        from: u8,
        bits: u8,
        d: Slot,
        a: Slot,
    },
    /// `d |= (a's low bits) << to`.
    Insert {
        to: u8,
        bits: u8,
        d: Slot,
        a: Slot,
    },
    /// `cvta`.
    ToGeneric {
        space: Space,
        d: Slot,
        a: Slot,
    },
    FromGeneric {
        space: Space,
        d: Slot,
        a: Slot,
    },
    Bra {
        target: u32,
    },
    BraIf {
        p: Slot,
        negate: bool,
        target: u32,
    },
    /// `brx.idx` with its table of targets.
    Brx {
        a: Slot,
        table: u32,
    },
    Call {
        call: u32,
    },
    Ret,
    Exit,
    Trap,
    Load {
        access: u32,
    },
    Store {
        access: u32,
    },
    Rmw {
        rmw: u32,
    },
    Fence {
        sc: bool,
        scope: Scope,
    },
    /// `bar.sync`, or only `bar.arrive`; `count` is meant where `counted`.
    Bar {
        id: Slot,
        count: Slot,
        counted: bool,
        waits: bool,
    },
    Warp {
        warp: u32,
    },
    ActiveMask {
        d: Slot,
    },
    Async {
        index: u32,
    },
    Clock {
        clock: Clock,
        d: Slot,
    },
    Nanosleep {
        a: Slot,
    },
    /// What orders nothing here: `fence.mbarrier_init`.
    Nop,
}

/// The instructions of a module and the tables they index.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) ops: Vec<Op>,
    /// The line of every instruction.
    pub(crate) lines: Vec<u32>,
    pub(crate) accesses: Vec<Access>,
    pub(crate) rmws: Vec<Rmw>,
    pub(crate) warps: Vec<Warp>,
    pub(crate) asyncs: Vec<Async>,
    pub(crate) converts: Vec<Convert>,
    pub(crate) calls: Vec<Call>,
    /// Targets of every `brx.idx`.
    pub(crate) tables: Vec<Vec<u32>>,
}

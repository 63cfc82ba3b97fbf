//! One thread for one turn: fetch, dispatch.

use std::sync::atomic::{Ordering, fence};

use rustix::time::{ClockId, clock_gettime};

use crate::ptx::program::{Clock, Op, Program};
use crate::ptx::types::Scope;

use super::block::Common;
use super::convert;
use super::fault::{Cause, FaultKind};
use super::float;
use super::global::Globals;
use super::integer;
use super::thread::{Image, Shape, Thread};
use super::window;

/// Synchronising loads in a turn that are taken for a thread that polls.
const MAX_POLLS: u32 = 2;

/// Why a thread's turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its time was up.
    Quantum,
    /// It polls something that others change.
    Polled,
    /// It arrived at a barrier of the block.
    Bar { id: u64, count: Option<u32>, waits: bool },
    /// It arrived where the lanes of its warp meet.
    Warp { index: u32, mask: u32 },
    /// It wants to know which lanes of its warp are active.
    ActiveMask { d: u16 },
    /// It sleeps until then.
    Asleep { until_ns: u64 },
    /// It exited.
    Exited,
}

/// A thread's turn.
pub(crate) struct Slice<'s, 'm> {
    pub(crate) program: &'s Program,
    pub(crate) images: &'s [Image],
    pub(crate) shape: &'s Shape,
    pub(crate) thread: &'s mut Thread,
    pub(crate) common: &'s mut Common,
    pub(crate) globals: &'s mut Globals<'m>,
    /// Instructions run so far, by all threads.
    pub(crate) now: u64,
    /// Synchronising loads in this turn.
    pub(crate) num_polls: u32,
}

/// Nanoseconds of the monotonic clock, which all processes share.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Slice<'_, '_> {
    /// Runs until the thread stops, or `end` instructions were run by all threads. After a fault the program counter
    /// is behind the instruction.
    pub(crate) fn run(&mut self, end: u64) -> Result<Stop, Box<Cause>> {
        let program = self.program;
        while self.now < end {
            let op = program.ops[self.thread.pc as usize];
            self.thread.pc += 1;
            self.now += 1;
            let regs = &mut self.thread.regs[..];
            macro_rules! r {
                ($slot:expr) => {
                    regs[usize::from($slot)]
                };
            }
            match op {
                Op::Mov { d, a } => r!(d) = r!(a),
                Op::Bin { op, bits, d, a, b } => {
                    r!(d) = integer::binary(op, bits, r!(a), r!(b)).ok_or_else(division_by_zero)?;
                }
                Op::Ter { op, bits, d, a, b, c } => {
                    r!(d) = integer::ternary(op, bits, r!(a), r!(b), r!(c)).ok_or_else(division_by_zero)?;
                }
                Op::Un { op, bits, d, a } => r!(d) = integer::unary(op, bits, r!(a)),
                Op::Setp { comparison, d, a, b } => {
                    r!(d) = u64::from(float::compare(comparison, r!(a), r!(b)))
                }
                Op::Selp { d, a, b, p } => r!(d) = if r!(p) != 0 { r!(a) } else { r!(b) },
                Op::Bra { target } => self.thread.pc = target,
                Op::BraIf { p, negate, target } => {
                    if (r!(p) != 0) != negate {
                        self.thread.pc = target;
                    }
                }
                Op::Load { access } => {
                    self.load(&program.accesses[access as usize])?;
                    if self.num_polls >= MAX_POLLS {
                        return Ok(Stop::Polled);
                    }
                }
                Op::Store { access } => self.store(&program.accesses[access as usize])?,
                Op::Cvt { convert, d, a } => {
                    r!(d) = convert::convert(program.converts[convert as usize], r!(a));
                }
                Op::Float { op, bits, d, a, b } => r!(d) = float::binary(op, bits, r!(a), r!(b)),
                Op::FloatUn { op, bits, d, a } => r!(d) = float::unary(op, bits, r!(a)),
                Op::Fma { bits, d, a, b, c } => r!(d) = float::fma(bits, r!(a), r!(b), r!(c)),
                Op::Extract { from, bits, d, a } => r!(d) = r!(a) >> from & integer::mask(bits),
                Op::Insert { to, bits, d, a } => r!(d) |= (r!(a) & integer::mask(bits)) << to,
                Op::Lop3 { table, d, a, b, c } => r!(d) = integer::lop3(table, r!(a), r!(b), r!(c)),
                Op::Bfi { bits, d, a, b, c, e } => r!(d) = integer::insert(bits, r!(a), r!(b), r!(c), r!(e)),
                Op::Carry { subtract, reads, writes, bits, d, a, b } => {
                    let (value, carry) =
                        integer::carry(subtract, bits, r!(a), r!(b), reads && self.thread.carry);
                    r!(d) = value;
                    if writes {
                        self.thread.carry = carry;
                    }
                }
                Op::ToGeneric { space, d, a } => r!(d) = window::to_generic(space, r!(a)),
                Op::FromGeneric { space, d, a } => r!(d) = window::from_generic(space, r!(a)),
                Op::Nop => {}
                other => {
                    if let Some(stop) = self.rare(other)? {
                        return Ok(stop);
                    }
                }
            }
        }
        Ok(Stop::Quantum)
    }

    /// What is not in inner loops.
    fn rare(&mut self, op: Op) -> Result<Option<Stop>, Box<Cause>> {
        let program = self.program;
        let reg = |slot: u16| self.thread.regs[usize::from(slot)];
        match op {
            Op::Brx { a, table } => {
                let index = reg(a);
                let table = &program.tables[table as usize];
                let Some(&target) = usize::try_from(index).ok().and_then(|index| table.get(index)) else {
                    let what = format!("target {index} of {} that a `brx.idx` has", table.len());
                    return Err(Cause::plain(FaultKind::Other, what));
                };
                self.thread.pc = target;
            }
            Op::Call { call } => {
                let call = &program.calls[call as usize];
                self.thread.call(call, &self.images[call.function as usize], self.shape)?;
            }
            Op::Ret => {
                if !self.thread.ret() {
                    return Ok(Some(Stop::Exited));
                }
            }
            Op::Exit => return Ok(Some(Stop::Exited)),
            Op::Trap => return Err(Cause::plain(FaultKind::Trap, "the kernel trapped")),
            Op::Rmw { rmw } => self.rmw(&program.rmws[rmw as usize])?,
            Op::Fence { sc: _, scope } => {
                fence(Ordering::SeqCst);
                self.thread.fenced |= scope == Scope::Sys;
            }
            Op::Bar { id, count, counted, waits } => {
                let count = counted.then_some(reg(count) as u32);
                return Ok(Some(Stop::Bar { id: reg(id), count, waits }));
            }
            Op::Warp { warp } => {
                let mask = reg(program.warps[warp as usize].mask) as u32;
                return Ok(Some(Stop::Warp { index: warp, mask }));
            }
            Op::ActiveMask { d } => return Ok(Some(Stop::ActiveMask { d })),
            Op::Async { index } => return self.asynchronous(program.asyncs[index as usize]),
            Op::Clock { clock, d } => {
                let now = now_ns();
                self.thread.regs[usize::from(d)] = match clock {
                    Clock::GlobalTimer => now,
                    Clock::Low => now & integer::mask(32),
                    Clock::High => now >> 32,
                };
            }
            Op::Nanosleep { a } => return Ok(Some(Stop::Asleep { until_ns: now_ns() + reg(a) })),
            _ => return Err(Cause::plain(FaultKind::Other, "an instruction without a meaning")),
        }
        Ok(None)
    }
}

#[cold]
fn division_by_zero() -> Box<Cause> {
    Cause::plain(FaultKind::Other, "division by zero, which PTX does not define")
}

//! The pieces of work that a stream runs in order.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::code::Code;
use super::context::Context;
use super::copying::{self, Place};
use super::driver::Driver;
use super::graph::Exec;
use super::launch::KernelWork;
use super::space::Allocation;
use super::staged::Fault;
use super::view::{View, sharing};
use crate::machine::{Memory, Region, SHADOW_INIT, SHADOW_SYNC};

/// A function of the host, as `cuLaunchHostFunc` takes it.
pub(super) type HostFunction = unsafe extern "C" fn(*mut c_void);

/// One piece of work.
#[derive(Clone)]
pub(super) enum Work {
    /// Nothing: an event, or a wait for another stream.
    Mark,
    /// A kernel.
    Kernel(Arc<KernelWork>),
    /// A copy of bytes. `any_device`: between devices without peer access too, as `cuMemcpyPeer` copies.
    Copy { to: Place, from: Place, bytes: u64, any_device: bool },
    /// `count` elements of `width` bytes set to `value`.
    Set { target: Arc<Allocation>, offset: u64, value: u32, width: u8, count: u64 },
    /// A function of the host, with its argument.
    Host { function: HostFunction, data: usize },
    /// A wait until a word compares as `flags` say.
    WaitValue { address: u64, value: u32, flags: u32 },
    /// A write of a word.
    WriteValue { address: u64, value: u32 },
    /// A graph.
    Graph(Arc<Exec>),
}

impl Work {
    /// What it is, for a report.
    pub(super) fn describe(&self) -> String {
        match self {
            Work::Mark => "an event or a wait for one".to_owned(),
            Work::Kernel(kernel) => kernel.describe(),
            Work::Copy { bytes, .. } => format!("a copy of {bytes} bytes"),
            Work::Set { width, count, .. } => format!("a set of {} bytes", u64::from(*width) * count),
            Work::Host { .. } => "a host function".to_owned(),
            Work::WaitValue { address, value, flags } => {
                format!("a wait for the word at {address:#x} to compare with {value} (flags {flags})")
            }
            Work::WriteValue { address, value } => format!("a write of {value} to {address:#x}"),
            Work::Graph(exec) => format!("a graph of {} nodes", exec.nodes.len()),
        }
    }

    /// Runs it to its end, or until the context is over.
    ///
    /// # Errors
    ///
    /// What the context fails with. The fault has been reported.
    pub(super) fn run(&self, driver: &Driver, context: &Context) -> Result<(), Code> {
        match self {
            Work::Mark => Ok(()),
            Work::Kernel(kernel) => kernel.run(driver, context),
            Work::Copy { to, from, bytes, any_device } => {
                for place in [to, from] {
                    if let Place::Device(allocation, _) = place {
                        reach(driver, context, allocation, *any_device, "a copy")?;
                    }
                }
                // SAFETY: the device ranges were checked when the places were made, and their allocations are held;
                // host ranges are the caller's promise to the copy call; `Bytes` is never made a destination.
                unsafe { copying::copy(to, from, *bytes) };
                Ok(())
            }
            Work::Set { target, offset, value, width, count } => {
                reach(driver, context, target, false, "a set")?;
                // SAFETY: the range and its alignment were checked when the work was made.
                unsafe { copying::set(target, *offset, *value, *width, *count) };
                Ok(())
            }
            Work::Host { function, data } => {
                if let Some(late) = driver.options.staged.number(Fault::SlowHost, context.device.physical) {
                    thread::sleep(Duration::from_micros(late));
                }
                driver.host_functions.run(*function, *data, context);
                Ok(())
            }
            Work::WaitValue { address, value, flags } => {
                wait_value(driver, context, *address, *value, *flags)
            }
            Work::WriteValue { address, value } => {
                let view = View::new(driver, context);
                let (word, shadow) = word(driver, context, &view, *address)?;
                word.store(*value, Ordering::Release);
                shadow.fetch_or(SHADOW_INIT | SHADOW_SYNC, Ordering::Relaxed);
                Ok(())
            }
            Work::Graph(exec) => exec
                .nodes
                .iter()
                .try_for_each(|node| if context.is_over() { Ok(()) } else { node.run(driver, context) }),
        }
    }
}

/// Whether an allocation still lives, and the context reaches it.
fn reach(
    driver: &Driver,
    context: &Context,
    allocation: &Arc<Allocation>,
    any_device: bool,
    what: &str,
) -> Result<(), Code> {
    let lives = driver.space.at(allocation.start).is_some_and(|live| Arc::ptr_eq(&live, allocation));
    if lives && (any_device || sharing(driver, context, allocation).is_some()) {
        return Ok(());
    }
    let why = if lives { "of another context without peer access" } else { "that was freed" };
    let (device, start) = (context.device.physical, allocation.start);
    driver.fault(&format!("device {device}: {what} reaches memory {why}, at {start:#x}"));
    Err(Code::IllegalAddress)
}

/// The word at an address, with its shadow.
fn word<'a>(
    driver: &Driver,
    context: &Context,
    view: &'a View<'_>,
    address: u64,
) -> Result<(&'a AtomicU32, &'a AtomicU8), Code> {
    let inside = |region: &Region| address + 4 <= region.start + region.bytes;
    let Some(region) = view.locate(address).filter(inside) else {
        let device = context.device.physical;
        driver.fault(&format!("device {device}: a stream's word at {address:#x} is no memory it reaches"));
        return Err(Code::IllegalAddress);
    };
    let offset = (address - region.start) as usize;
    // SAFETY: four bytes inside the region, aligned (the call checked the address, and regions begin aligned); the view
    // keeps the region mapped.
    let word = unsafe { AtomicU32::from_ptr(region.data.wrapping_add(offset).cast()) };
    // SAFETY: the shadow has a byte for every word of the region.
    let shadow = unsafe { &*region.shadow.wrapping_add(offset / 4) };
    Ok((word, shadow))
}

fn wait_value(driver: &Driver, context: &Context, address: u64, value: u32, flags: u32) -> Result<(), Code> {
    let view = View::new(driver, context);
    let (word, shadow) = word(driver, context, &view, address)?;
    shadow.fetch_or(SHADOW_SYNC, Ordering::Relaxed);
    let mut rounds = 0_u32;
    while !context.is_over() {
        let seen = word.load(Ordering::Acquire);
        if compares(seen, value, flags) {
            return Ok(());
        }
        rounds += 1;
        pause(rounds);
    }
    Ok(())
}

/// Whether a word compares as `CUstreamWaitValue_flags` say: cyclically not less, equal, common bits, a zero bit.
fn compares(seen: u32, value: u32, flags: u32) -> bool {
    match flags & 3 {
        0 => (seen.wrapping_sub(value) as i32) >= 0,
        1 => seen == value,
        2 => seen & value != 0,
        _ => !(seen | value) != 0,
    }
}

/// Lets others run: at once at first, then for longer.
pub(super) fn pause(rounds: u32) {
    if rounds < 50 { thread::yield_now() } else { thread::sleep(Duration::from_micros(50)) }
}

#[cfg(test)]
mod tests {
    use super::compares;

    #[test]
    fn words_compare_as_the_flags_say() {
        assert!(compares(5, 5, 0) && compares(3, u32::MAX, 0) && !compares(4, 5, 0));
        assert!(compares(5, 5, 1) && !compares(6, 5, 1));
        assert!(compares(6, 4, 2) && !compares(3, 4, 2));
        assert!(compares(0, 1, 3) && !compares(!1, 1, 3));
    }
}

//! The driver of one process: everything that outlives a call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::block::Block;
use super::capture::Captures;
use super::code::Code;
use super::context::Context;
use super::device::{self, Device};
use super::done::Done;
use super::event::Event;
use super::graph::{Exec, Graph};
use super::host_function::HostFunctions;
use super::lock;
use super::module::{Function, LoadedModule};
use super::options::Options;
use super::report;
use super::space::{Allocation, Kind, Space};
use super::stream::Stream;
use super::table::Table;

/// The driver.
pub(super) struct Driver {
    pub(super) options: Options,
    pub(super) devices: Vec<Arc<Device>>,
    pub(super) space: Space,
    pub(super) contexts: Table<Context>,
    pub(super) streams: Table<Stream>,
    pub(super) events: Table<Event>,
    pub(super) modules: Table<LoadedModule>,
    pub(super) functions: Table<Function>,
    pub(super) graphs: Table<Graph>,
    pub(super) execs: Table<Exec>,
    pub(super) captures: Captures,
    pub(super) host_functions: HostFunctions,
    primaries: Mutex<BTreeMap<u32, Primary>>,
}

/// A device's primary context.
#[derive(Default)]
struct Primary {
    flags: u32,
    retained: u32,
    context: Option<Arc<Context>>,
}

static DRIVER: OnceLock<Result<Driver, Code>> = OnceLock::new();

/// Starts the driver, once.
///
/// # Errors
///
/// `InvalidValue` when a variable of the environment cannot be read (stderr says which), `NoDevice` when the process
/// sees no device.
pub(super) fn start() -> Result<&'static Driver, Code> {
    let started = DRIVER.get_or_init(|| {
        let options = Options::read().map_err(|error| {
            report::note(&error.to_string());
            Code::InvalidValue
        })?;
        let seen = device::visible(options.devices, options.visible.as_deref());
        if seen.is_empty() {
            return Err(Code::NoDevice);
        }
        Ok(Driver::new(options, &seen))
    });
    started.as_ref().map_err(|code| *code)
}

/// The driver, once started.
///
/// # Errors
///
/// `NotInitialized` before `cuInit`.
pub(super) fn driver() -> Result<&'static Driver, Code> {
    let started = DRIVER.get().ok_or(Code::NotInitialized)?;
    started.as_ref().map_err(|_| Code::NotInitialized)
}

impl Driver {
    fn new(options: Options, seen: &[u32]) -> Driver {
        Driver {
            options,
            devices: seen.iter().map(|&physical| Arc::new(Device::new(physical))).collect(),
            space: Space::new(),
            contexts: Table::new(1, Code::InvalidContext),
            streams: Table::new(2, Code::InvalidHandle),
            events: Table::new(3, Code::InvalidHandle),
            modules: Table::new(4, Code::InvalidHandle),
            functions: Table::new(5, Code::InvalidHandle),
            graphs: Table::new(6, Code::InvalidValue),
            execs: Table::new(7, Code::InvalidValue),
            captures: Captures::default(),
            host_functions: HostFunctions::default(),
            primaries: Mutex::default(),
        }
    }

    /// The device with an index.
    pub(super) fn device(&self, index: i32) -> Result<&Arc<Device>, Code> {
        let index = usize::try_from(index).map_err(|_| Code::InvalidDevice)?;
        self.devices.get(index).ok_or(Code::InvalidDevice)
    }

    /// The index of a device of this process.
    pub(super) fn index_of(&self, physical: u32) -> Option<i32> {
        self.devices.iter().position(|device| device.physical == physical).map(|index| index as i32)
    }

    /// A new context.
    pub(super) fn create(&self, device: &Arc<Device>, primary: bool, flags: u32) -> Arc<Context> {
        let number = self.contexts.fresh();
        let context = Arc::new(Context::new(number, Arc::clone(device), primary, flags));
        self.contexts.put(number, Arc::clone(&context));
        context
    }

    /// Retains a device's primary context, making it if need be.
    pub(super) fn retain(&self, device: &Arc<Device>) -> Arc<Context> {
        let mut primaries = lock::mutex(&self.primaries);
        let primary = primaries.entry(device.physical).or_default();
        primary.retained += 1;
        let flags = primary.flags;
        Arc::clone(primary.context.get_or_insert_with(|| self.create(device, true, flags)))
    }

    /// Releases a device's primary context (`all`: as often as it was retained).
    ///
    /// # Errors
    ///
    /// `InvalidContext` when it is not retained.
    pub(super) fn release(&self, device: &Device, all: bool) -> Result<(), Code> {
        let last = {
            let mut primaries = lock::mutex(&self.primaries);
            let primary = primaries.entry(device.physical).or_default();
            if !all {
                primary.retained = primary.retained.checked_sub(1).ok_or(Code::InvalidContext)?;
            }
            if all || primary.retained == 0 { primary.context.take() } else { None }
        };
        if let Some(context) = last {
            self.destroy(&context);
        }
        Ok(())
    }

    /// The flags of a device's primary context, and whether it exists.
    pub(super) fn primary_state(&self, device: &Device) -> (u32, bool) {
        let primaries = lock::mutex(&self.primaries);
        primaries
            .get(&device.physical)
            .map_or((0, false), |primary| (primary.flags, primary.context.is_some()))
    }

    /// Sets the flags of a device's primary context.
    pub(super) fn set_primary_flags(&self, device: &Device, flags: u32) {
        lock::mutex(&self.primaries).entry(device.physical).or_default().flags = flags;
    }

    /// Waits for a context's work, then takes everything away that belongs to it.
    pub(super) fn destroy(&self, context: &Arc<Context>) {
        // A failure or a stuck wait is reported where it happens; the context goes all the same.
        let _ = self.wait("the destruction of a context", context, &context.unfinished());
        context.destroy();
        let number = context.number;
        let _ = self.contexts.remove(number);
        self.streams.remove_all(|stream| stream.context.number == number);
        self.events.remove_all(|event| event.context == number);
        self.functions.remove_all(|function| function.module.context == number);
        self.modules.remove_all(|module| module.context == number);
        self.execs.remove_all(|exec| exec.context == number);
        for allocation in self.space.all(|allocation| allocation.context == number) {
            let openers = allocation.block.openers();
            if matches!(allocation.kind, Kind::Device) && !openers.is_empty() {
                report::note(&format!(
                    "device {}: a context was destroyed with {} bytes at {:#x} that processes {openers:?} have open",
                    context.device.physical,
                    allocation.bytes(),
                    allocation.start,
                ));
            }
            self.release_memory(context, &allocation);
        }
    }

    /// New device memory for a context.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` when the device's or the machine's memory is used up.
    pub(super) fn allocate(
        &self,
        context: &Context,
        bytes: u64,
        kind: Kind,
    ) -> Result<Arc<Allocation>, Code> {
        if !context.device.take(bytes, self.options.memory_bytes) {
            return Err(Code::OutOfMemory);
        }
        let placed = Block::device(bytes)
            .map_err(|_| Code::OutOfMemory)
            .and_then(|block| self.space.place(block, context.number, context.device.physical, kind));
        if placed.is_err() {
            context.device.give_back(bytes);
        }
        placed
    }

    /// Takes an allocation out of the address space. Nothing of its context may be using it.
    pub(super) fn release_memory(&self, context: &Context, allocation: &Allocation) {
        if self.space.remove(allocation.start).is_some()
            && matches!(allocation.kind, Kind::Device | Kind::Global)
        {
            allocation.block.mark_freed();
            context.device.give_back(allocation.bytes());
        }
    }

    /// Waits on the host for work of a context.
    ///
    /// # Errors
    ///
    /// What the context failed with; `LaunchTimeout`, for ever, when the watchdog's time has passed.
    pub(super) fn wait(&self, call: &str, context: &Context, work: &[Arc<Done>]) -> Result<(), Code> {
        let started = Instant::now();
        for done in work {
            while !done.wait(Duration::from_millis(50)) && !context.is_over() {
                if started.elapsed() >= self.options.watchdog {
                    let device = context.device.physical;
                    let seconds = self.options.watchdog.as_secs();
                    let what = context.describe();
                    self.fault(&format!("device {device}: stuck: {call} has waited for {seconds} s: {what}"));
                    context.fail(Code::LaunchTimeout);
                }
            }
        }
        // A failed context's work is given up soon; until then it may still write to the caller's memory.
        for done in work {
            done.wait(Duration::from_secs(5));
        }
        context.check()
    }

    /// Reports a fault.
    pub(super) fn fault(&self, text: &str) {
        report::fault(self.options.fault_log.as_deref(), text);
    }
}

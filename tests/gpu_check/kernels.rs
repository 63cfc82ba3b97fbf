//! Every kernel on the GPU against the CPU backend: the same bytes in, the same bytes out, guards included.
//!
//! A case is memory and a kernel over it. It runs on either device in memory of its own; then all of that is compared,
//! what was only read as well.

use std::sync::Arc;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::device::{CpuDevice, Device, DeviceBuffer, Keep, Stream};
use cpkv_kernels::Kernel;

use crate::context::Context;
use crate::kernel_cases;
use crate::outcome::{Outcome, Problem};

/// Bytes on either side of memory.
const GUARD_BYTES: usize = 256;
const GUARD: u8 = 0xA5;
/// A kernel that is not done by then never will be.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What memory holds before the kernel runs.
pub(crate) enum Region {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Addresses inside other memory of the case: (region, offset).
    Addresses(Vec<(usize, u64)>),
}

/// Makes the kernel from the addresses of the regions.
pub(crate) type MakeKernel = Box<dyn Fn(&[u64]) -> Kernel>;

/// Memory and a kernel over it.
pub(crate) struct Case {
    /// What is special about it.
    pub(crate) name: String,
    pub(crate) regions: Vec<Region>,
    pub(crate) kernel: MakeKernel,
}

/// What a region and its guards hold after the kernel; `None` for addresses, which differ between devices and were
/// found unchanged.
type After = Option<Vec<u8>>;

/// All cases.
pub(crate) fn run(context: &Context) -> Result<Outcome, Problem> {
    let gpu = context.open()?;
    let (on_gpu, on_cpu) = (gpu.stream()?, CpuDevice.stream()?);
    let mut counts: Vec<(&str, u64)> = Vec::new();
    for case in kernel_cases::all(context)? {
        let (name, expected) = execute(&CpuDevice, &*on_cpu, &case)?;
        let (_, got) =
            execute(&gpu, &*on_gpu, &case).map_err(|problem| format!("{name}, {}: {problem}", case.name))?;
        for (region, (expected, got)) in expected.iter().zip(&got).enumerate() {
            compare(expected, got)
                .map_err(|difference| format!("{name}, {}: memory {region}, {difference}", case.name))?;
        }
        match counts.iter_mut().find(|(counted, _)| *counted == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let counts: Vec<_> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    Ok(Outcome::passed(format!("cases with equal bytes: {}", counts.join(", "))))
}

/// Runs the case: the kernel's name, and what each region holds afterwards.
fn execute(
    device: &dyn Device,
    stream: &dyn Stream,
    case: &Case,
) -> Result<(&'static str, Vec<After>), Problem> {
    let mut memory = Vec::new();
    for region in &case.regions {
        let bytes = match region {
            Region::Bytes(bytes) => bytes.len(),
            Region::Addresses(entries) => 8 * entries.len(),
        };
        memory.push(device.alloc((bytes + 2 * GUARD_BYTES) as u64)?);
    }
    let addrs: Vec<u64> = memory.iter().map(|memory| memory.addr() + GUARD_BYTES as u64).collect();
    let mut before = Vec::new();
    for (region, memory) in case.regions.iter().zip(&memory) {
        let bytes = match region {
            Region::Bytes(bytes) => bytes.clone(),
            Region::Addresses(entries) => {
                entries.iter().flat_map(|&(region, offset)| (addrs[region] + offset).to_le_bytes()).collect()
            }
        };
        let guard = [GUARD; GUARD_BYTES];
        before.push([&guard[..], &bytes, &guard].concat());
        device.write(before.last().unwrap_or(&bytes), memory)?;
    }
    let kernel = (case.kernel)(&addrs);
    let keep: Keep = Arc::new(memory.clone());
    // SAFETY: the addresses are those of the case's own memory, which `keep` holds and nobody else touches.
    unsafe { stream.launch(kernel, &keep) }?;
    stream.synchronize(Deadline::after(TIMEOUT))?;
    let mut after = Vec::new();
    for ((region, memory), before) in case.regions.iter().zip(&memory).zip(before) {
        let bytes = read(device, memory)?;
        match region {
            Region::Bytes(_) => after.push(Some(bytes)),
            Region::Addresses(_) if bytes == before => after.push(None),
            Region::Addresses(_) => return Err("a table of addresses was overwritten".into()),
        }
    }
    Ok((kernel.name(), after))
}

fn read(device: &dyn Device, memory: &DeviceBuffer) -> Result<Vec<u8>, Problem> {
    let mut bytes = vec![0; memory.bytes() as usize];
    device.read(memory, &mut bytes)?;
    Ok(bytes)
}

/// Where the two differ first.
fn compare(expected: &After, got: &After) -> Result<(), String> {
    let (Some(expected), Some(got)) = (expected, got) else { return Ok(()) };
    let Some(at) = expected.iter().zip(got).position(|(expected, got)| expected != got) else {
        return Ok(());
    };
    let offset = at as i64 - GUARD_BYTES as i64;
    Err(format!("byte {offset}: {:#04x} on the GPU, {:#04x} on the CPU", got[at], expected[at]))
}

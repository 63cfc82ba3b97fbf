//! The GPUs, the driver, and that every kernel loads and runs.

use cpkv::device::Device;
use cpkv::device::cuda::PTX_COMPILER;

use crate::context::Context;
use crate::outcome::{Outcome, Problem};

/// Opens every GPU: that loads every kernel and runs it once.
pub(crate) fn run(context: &Context) -> Result<Outcome, Problem> {
    let mut opened = Vec::new();
    for rank in 0..context.gpus.len() as u32 {
        let gpu = context.open_gpu(rank)?;
        let (info, name) = (gpu.info(), gpu.name());
        let gib = info.memory_bytes as f64 / f64::from(1 << 30);
        opened.push(format!("{name}, {} multiprocessors, {gib:.1} GiB", info.num_multiprocessors));
    }
    Ok(Outcome::passed(format!("{}; {}; PTX by {PTX_COMPILER}", opened.join("; "), driver()?)))
}

/// The driver, by the CUDA version it serves, and by its own where the system tells.
pub(crate) fn driver() -> Result<String, Problem> {
    let cuda = cust::CudaApiVersion::get()?;
    let module = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let mut words = module.lines().next().unwrap_or_default().split_whitespace();
    let own = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let own = own.map(|own| format!(", {own}")).unwrap_or_default();
    Ok(format!("driver for CUDA {}.{}{own}", cuda.major(), cuda.minor()))
}

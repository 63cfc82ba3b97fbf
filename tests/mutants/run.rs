//! Plants faults, two at a time.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use crate::compiler::Compiler;
use crate::detector::ALL;
use crate::fault::Fault;
use crate::report::{Outcome, Report};
use crate::{faults, vgpu};

/// Faults planted at a time: the ranks of one wait much of the time.
const NUM_WORKERS: usize = 2;

/// Plants every one of `chosen`, after all detectors have passed the kernels as they are.
///
/// # Errors
/// Something is missing, or a detector finds a fault where none was planted.
pub(crate) fn run(chosen: &[&'static Fault]) -> Result<Report, String> {
    let started = Instant::now();
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let vgpu = vgpu::prepare(folder.path().join("vgpu"))?;
    let compiler = Compiler::new(folder.path().join("compiler"))?;
    let ptx = folder.path().join("as-they-are.ptx");
    compiler.compile(None, &ptx)?;
    for detector in ALL {
        let begun = Instant::now();
        if let Some(message) = detector.run(&ptx, &vgpu)? {
            return Err(format!("{} finds a fault that nobody planted: {message}", detector.name()));
        }
        println!(
            "mutants: {} passes the kernels as they are ({:.1} s)",
            detector.name(),
            begun.elapsed().as_secs_f64()
        );
    }
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<(usize, Outcome)>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..NUM_WORKERS {
            scope.spawn(|| {
                loop {
                    // Relaxed: a ticket, it orders nothing.
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&fault) = chosen.get(at) else { break };
                    let ptx = folder.path().join(format!("{at}.ptx"));
                    let outcome = plant(&compiler, fault, &ptx, &vgpu).unwrap_or_else(Outcome::Failed);
                    outcomes.lock().expect("no worker panics with it").push((at, outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().expect("no worker panics with it");
    outcomes.sort_by_key(|(at, _)| *at);
    let outcomes = outcomes.into_iter().map(|(at, outcome)| (chosen[at], outcome)).collect();
    Ok(Report { outcomes, num_all: faults::all().len(), took: started.elapsed() })
}

/// Plants one fault and asks the detectors in turn, until one catches it.
fn plant(compiler: &Compiler, fault: &'static Fault, ptx: &Path, vgpu: &Path) -> Result<Outcome, String> {
    compiler.compile(Some(fault), ptx)?;
    let others = ALL.into_iter().filter(|&detector| detector != fault.first);
    for detector in [fault.first].into_iter().chain(others) {
        let Some(message) = detector.run(ptx, vgpu)? else { continue };
        return Ok(Outcome::Caught { by: detector, message });
    }
    match fault.unseen {
        Some(reason) => Ok(Outcome::Unseen(reason)),
        None => Err("no detector catches it".to_owned()),
    }
}

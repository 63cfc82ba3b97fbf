//! The detectors: what may catch a fault, each in a process of its own.

use std::path::Path;
use std::time::Duration;

use crate::child::{self, Ended};
use crate::detectors;

/// What may catch a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detector {
    /// Every kernel against its body on the CPU.
    Kernels,
    /// Barriers of threads, of which one is late.
    Barrier,
    /// A rank that never comes.
    Timeout,
    /// Barriers of processes, late and absent ranks: their memory is shared, which the virtual GPU has rules for.
    Processes,
    /// All strategies against the oracle.
    Strategies,
    /// The machine code's properties.
    Sass,
}

/// In the order they are asked, after a fault's own.
pub(crate) const ALL: [Detector; 6] = [
    Detector::Kernels,
    Detector::Barrier,
    Detector::Processes,
    Detector::Timeout,
    Detector::Strategies,
    Detector::Sass,
];

/// Whoever is not done by then hangs.
const DEADLINE: Duration = Duration::from_secs(60);

impl Detector {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kernels => "kernels",
            Self::Barrier => "barrier",
            Self::Timeout => "timeout",
            Self::Processes => "processes",
            Self::Strategies => "strategies",
            Self::Sass => "sass",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|detector| detector.name() == name)
    }

    /// Runs it on the kernels in `ptx`: what it found, `None` where nothing is wrong.
    ///
    /// # Errors
    /// It did not run, or not on these kernels.
    pub(crate) fn run(self, ptx: &Path, vgpu: &Path) -> Result<Option<String>, String> {
        let Ended { message, output } = child::run(self.name(), ptx, vgpu, DEADLINE)?;
        // The driver says so, once a process. Without it the kernels that ship were looked at.
        let is_on_vgpu = self != Self::Sass;
        if is_on_vgpu && !output.contains("modules are replaced by") {
            return Err(format!("{}: it did not run the changed kernels:\n{output}", self.name()));
        }
        Ok(message)
    }

    /// Looks for faults in this process; panics where it finds one.
    pub(crate) fn look(self) {
        match self {
            Self::Kernels => detectors::kernels::look(),
            Self::Barrier => detectors::barrier::look(),
            Self::Timeout => detectors::timeout::look(),
            Self::Processes => detectors::processes::look(),
            Self::Strategies => detectors::strategies::look(),
            Self::Sass => crate::sass::look(&child::module()),
        }
    }
}

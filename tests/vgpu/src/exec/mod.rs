//! Execution of a kernel: all blocks resident, threads interpreted one by one in turns, rules that hardware would
//! punish by chance checked always.

mod access;
mod bar;
mod block;
mod bulk;
mod convert;
mod copies;
mod fault;
mod float;
mod global;
mod integer;
mod launch;
mod mbarrier;
mod rmw;
mod run;
mod shadow;
mod step;
mod thread;
mod warp;
mod window;

pub use fault::{ExecFault, FaultKind};
pub use launch::{Launch, LaunchError, Rules};
pub use run::{Execution, Progress};

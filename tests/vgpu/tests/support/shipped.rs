//! The kernels that ship, and the barrier among ranks of one process.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use cpkv_kernels::abi::BarrierParams;
use cpkv_kernels::signal::SignalPad;
use cpkv_vgpu::exec::{Execution, Rules};
use cpkv_vgpu::machine::{Memory, Region, Sharing};
use cpkv_vgpu::ptx::Module;

use super::{TestMemory, bytes_of, launch};

/// Every rule.
pub(crate) const STRICT: Rules = Rules { report_uninitialised: true };

/// The module that ships.
pub(crate) fn shipped() -> Arc<Module> {
    static MODULE: OnceLock<Arc<Module>> = OnceLock::new();
    let load = || Arc::new(Module::parse(&shipped_text()).unwrap_or_else(|error| panic!("{error}")));
    Arc::clone(MODULE.get_or_init(load))
}

/// Its text: the build of the feature `cuda` leaves it beside the programs it makes.
pub(crate) fn shipped_text() -> String {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("cpkv.ptx");
    std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}: run `cargo build --features cuda` in the same profile first", path.display())
    })
}

/// Memory as one rank sees it: what others exported is a peer's.
pub(crate) struct Seen<'m> {
    memory: &'m TestMemory,
    own: Vec<u64>,
}

impl Memory for Seen<'_> {
    fn locate(&self, address: u64) -> Option<Region> {
        let region = self.memory.locate(address)?;
        let is_peer = region.sharing == Sharing::Exported && !self.own.contains(&region.start);
        Some(Region { sharing: if is_peer { Sharing::Peer } else { region.sharing }, ..region })
    }
}

pub(crate) struct Ranks {
    pub(crate) memory: TestMemory,
    pub(crate) pads: Vec<u64>,
    pub(crate) states: Vec<u64>,
    pub(crate) statuses: Vec<u64>,
    pub(crate) table: u64,
}

impl Ranks {
    pub(crate) fn new(num_ranks: usize) -> Self {
        let mut memory = TestMemory::default();
        let pads: Vec<u64> = (0..num_ranks)
            .map(|_| memory.holding(&vec![0; size_of::<SignalPad>()], Sharing::Exported))
            .collect();
        let states = (0..num_ranks).map(|_| memory.table(&[0u64])).collect();
        let statuses = (0..num_ranks).map(|_| memory.holding(&[0; 64], Sharing::Host)).collect();
        let table = memory.table(&pads);
        Self { memory, pads, states, statuses, table }
    }

    pub(crate) fn barrier(&self, module: &Arc<Module>, rank: usize, timeout_ns: u64) -> Execution {
        let params = BarrierParams {
            pads: self.table,
            state: self.states[rank],
            status: self.statuses[rank],
            timing: 0,
            timeout_ns,
            rank: rank as u32,
            num_ranks: self.pads.len() as u32,
            num_spins: 16,
            tag: 7,
        };
        let launch = launch(1, 32, bytes_of(&[params]));
        Execution::new(module.clone(), "cpkv_barrier", launch, STRICT).unwrap()
    }

    pub(crate) fn seen_by(&self, rank: usize) -> Seen<'_> {
        Seen { memory: &self.memory, own: vec![self.pads[rank]] }
    }
}

//! The proof of a batch: every byte of every layer's dense buffers and of the pages that are persisted.
//!
//! All memory is had before the first launch, the layers are queued without a wait of the host between them, and all is
//! looked at after the last one: an allocation may wait for the kernels of the GPU, and one of them may be the barrier
//! of a rank that waits for this one; and a wait would hide what a barrier lets through.

use std::sync::Arc;

use cpkv::compose::{
    BatchInFlight, CapturedLayer, Composer, ComposerOptions, LayerInputs, SharedPool, StrategyChoice,
};
use cpkv::deadline::Deadline;
use cpkv::device::{Device, DeviceBuffer};
use cpkv::group::{Bootstrap, Group};
use cpkv::model::{BufferId, ModelSpec};
use cpkv::plan::{Batch, SlotPlan, Strategy};
use cpkv::units::PageId;
use cpkv::verify::Oracle;

use crate::context::LONG;
use crate::outcome::Problem;
use crate::ranks::{Seat, group_options};

/// What dense buffers hold before each compose.
pub(crate) const POISON: u8 = 0xC3;
/// Stamps of one proof differ from those of the next.
const SEED: u64 = 7;

/// A composer and the oracle that knows its pool.
pub(crate) struct Prover {
    pub(crate) composer: Composer,
    oracle: Oracle,
    model: ModelSpec,
    device: Arc<dyn Device>,
    bootstrap: Arc<dyn Bootstrap>,
}

/// A layer's buffer, and memory that belongs to it.
type OfBuffer = (usize, BufferId, DeviceBuffer);

/// The memory of one run through the layers.
struct Memory {
    inputs: Vec<LayerInputs>,
    /// As long as the longest dense buffer.
    poison: DeviceBuffer,
    /// What each layer left.
    snapshots: Vec<OfBuffer>,
}

impl Prover {
    /// Registers everything for a pool of `num_pages`. Collective.
    pub(crate) fn register(seat: &Seat, model: &ModelSpec, num_pages: u32) -> Result<Self, Problem> {
        let (bootstrap, backend) = (Arc::clone(&seat.bootstrap), Arc::clone(&seat.backend));
        let group = Group::register(bootstrap, Arc::clone(&seat.device), backend, group_options(LONG))?;
        if let Some(reason) = group.unreachable() {
            return Err(format!("peers' memory is out of reach: {reason}").into());
        }
        let pool = SharedPool::register(&group, model.clone(), num_pages)?;
        let options = ComposerOptions { symm_dense_slots: Some(2 * num_pages), ..ComposerOptions::default() };
        let composer = Composer::register(group, pool, seat.collective.clone(), options)?;
        let oracle = Oracle::new(model.clone(), num_pages, SEED);
        let (model, device, bootstrap) =
            (model.clone(), Arc::clone(&seat.device), Arc::clone(&seat.bootstrap));
        Ok(Self { composer, oracle, model, device, bootstrap })
    }

    /// Proves `batches` one after the other, each with all of `strategies`.
    pub(crate) fn prove_all(&mut self, batches: &[Batch], strategies: &[Strategy]) -> Result<(), Problem> {
        for (at, batch) in batches.iter().enumerate() {
            let mut slots = None;
            for &strategy in strategies {
                let proven = self.prove(batch, strategy);
                slots = Some(proven.map_err(|problem| format!("batch {at}, {strategy}: {problem}"))?);
            }
            if let Some(slots) = slots {
                self.oracle.persisted(&slots);
            }
        }
        Ok(())
    }

    fn prove(&mut self, batch: &Batch, strategy: Strategy) -> Result<SlotPlan, Problem> {
        self.oracle.restamp();
        let (oracle, device, model) = (&self.oracle, &*self.device, &self.model);
        let mut flight = self.composer.begin(batch, StrategyChoice::Exactly(strategy))?;
        let memory = Memory::prepare(&flight, oracle, device, model)?;
        // Nobody allocates any more.
        flight.synchronize()?;
        meet(&*self.bootstrap, "memory is ready")?;
        for layer in 0..model.num_layers() {
            memory.poison_next(&flight, model, layer)?;
            flight.compose_layer(layer, &memory.inputs[layer])?;
            flight.persist_layer(layer)?;
            memory.snapshot(&flight, layer)?;
        }
        let slots = flight.plan().slots.clone();
        flight.finish()?;
        // No barrier runs any more.
        meet(&*self.bootstrap, "composed")?;
        compare(&self.oracle, device, &slots, &memory.snapshots)?;
        self.compare_pool(&slots)?;
        Ok(slots)
    }

    /// Captures every layer of `batch`, then replays them `num_replays` times with other inputs in the same memory, and
    /// compares every byte.
    pub(crate) fn prove_captured(
        &mut self,
        batch: &Batch,
        strategy: Strategy,
        num_replays: usize,
    ) -> Result<(), Problem> {
        let (device, model) = (&*self.device, &self.model);
        let mut flight = self.composer.begin(batch, StrategyChoice::Exactly(strategy))?;
        // Each turn has its own stamps, and its own memory to bring them from and to keep what came of it.
        let mut turns = Vec::new();
        for _ in 0..num_replays {
            self.oracle.restamp();
            turns.push((self.oracle.clone(), Memory::prepare(&flight, &self.oracle, device, model)?));
        }
        let mut captured: Vec<(CapturedLayer, LayerInputs)> = Vec::new();
        for layer in 0..model.num_layers() {
            let inputs = layer_inputs(&flight, &self.oracle, device, model, layer)?;
            captured.push((flight.capture_layer(layer, &inputs)?, inputs));
        }
        flight.synchronize()?;
        meet(&*self.bootstrap, "memory is ready")?;
        for (_, memory) in &turns {
            for (layer, (captured, inputs)) in captured.iter().enumerate() {
                memory.poison_next(&flight, model, layer)?;
                for &buffer in model.buffers_of(layer) {
                    if let (Some(from), Some(to)) = (memory.inputs[layer].get(buffer), inputs.get(buffer)) {
                        flight.stream().copy(from, to)?;
                    }
                }
                flight.replay_layer(captured)?;
                flight.persist_layer(layer)?;
                memory.snapshot(&flight, layer)?;
            }
        }
        let slots = flight.plan().slots.clone();
        // Compares the host's count of epochs with the device's.
        flight.finish()?;
        meet(&*self.bootstrap, "replayed")?;
        for (turn, (oracle, memory)) in turns.iter().enumerate() {
            let compared = compare(oracle, device, &slots, &memory.snapshots);
            compared.map_err(|problem| format!("replay {turn}: {problem}"))?;
        }
        self.compare_pool(&slots)?;
        self.oracle.persisted(&slots);
        Ok(())
    }

    /// Compares the pages that `slots` persisted and this rank owns.
    fn compare_pool(&self, slots: &SlotPlan) -> Result<(), Problem> {
        let mut after = self.oracle.clone();
        after.persisted(slots);
        for layer in 0..self.model.num_layers() {
            for &buffer in self.model.buffers_of(layer) {
                for &page in &slots.current_pages {
                    let Some(memory) = self.composer.pool().page(layer, buffer, PageId(page)) else {
                        continue;
                    };
                    if read(&*self.device, &memory)? != after.pool_page(layer, buffer, PageId(page)) {
                        let problem = format!("layer {layer}: page {page} of the pool has other bytes");
                        return Err(problem.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends it in good order: every signal word is 0. Collective.
    pub(crate) fn close(self) -> Result<(), Problem> {
        meet(&*self.bootstrap, "all have left the last barrier")?;
        let words = self.composer.group().words_not_zero()?;
        if !words.is_empty() {
            return Err(format!("signal words are not 0 at rest: {words:?}").into());
        }
        Ok(self.composer.close()?)
    }
}

/// Returns when every rank is here.
fn meet(bootstrap: &dyn Bootstrap, call: &'static str) -> Result<(), Problem> {
    Ok(bootstrap.barrier(call, Deadline::after(LONG))?)
}

impl Memory {
    fn prepare(
        flight: &BatchInFlight<'_>,
        oracle: &Oracle,
        device: &dyn Device,
        model: &ModelSpec,
    ) -> Result<Self, Problem> {
        let mut memory = Self { inputs: Vec::new(), poison: device.alloc(0)?, snapshots: Vec::new() };
        let mut longest = 0;
        for layer in 0..model.num_layers() {
            memory.inputs.push(layer_inputs(flight, oracle, device, model, layer)?);
            for &buffer in model.buffers_of(layer) {
                let bytes = flight.next_dense(buffer)?.bytes();
                longest = longest.max(bytes);
                memory.snapshots.push((layer, buffer, device.alloc(bytes)?));
            }
        }
        memory.poison = device.alloc(longest)?;
        flight.stream().upload(vec![POISON; longest as usize], &memory.poison)?;
        Ok(memory)
    }

    fn poison_next(
        &self,
        flight: &BatchInFlight<'_>,
        model: &ModelSpec,
        layer: usize,
    ) -> Result<(), Problem> {
        for &buffer in model.buffers_of(layer) {
            let dense = flight.next_dense(buffer)?;
            flight.stream().copy(&self.poison.slice(0..dense.bytes())?, &dense)?;
        }
        Ok(())
    }

    fn snapshot(&self, flight: &BatchInFlight<'_>, layer: usize) -> Result<(), Problem> {
        for (_, buffer, snapshot) in self.snapshots.iter().filter(|(of_layer, ..)| *of_layer == layer) {
            flight.stream().copy(&flight.dense(*buffer)?, snapshot)?;
        }
        Ok(())
    }
}

/// This rank's stamped rows of `layer`.
fn layer_inputs(
    flight: &BatchInFlight<'_>,
    oracle: &Oracle,
    device: &dyn Device,
    model: &ModelSpec,
    layer: usize,
) -> Result<LayerInputs, Problem> {
    let mut inputs = LayerInputs::default();
    for &buffer in model.buffers_of(layer) {
        let bytes = oracle.inputs(flight.plan(), layer, buffer);
        let memory = device.alloc(bytes.len() as u64)?;
        flight.stream().upload(bytes, &memory)?;
        inputs = inputs.with(buffer, memory);
    }
    Ok(inputs)
}

fn compare(
    oracle: &Oracle,
    device: &dyn Device,
    slots: &SlotPlan,
    snapshots: &[OfBuffer],
) -> Result<(), Problem> {
    for (layer, buffer, snapshot) in snapshots {
        let bytes = read(device, snapshot)?;
        oracle.compare(slots, *layer, *buffer, &bytes).map_err(|difference| difference.to_string())?;
    }
    Ok(())
}

fn read(device: &dyn Device, memory: &DeviceBuffer) -> Result<Vec<u8>, Problem> {
    let mut bytes = vec![0; memory.bytes() as usize];
    device.read(memory, &mut bytes)?;
    Ok(bytes)
}

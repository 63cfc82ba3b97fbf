//! A layer as a graph: its launches are captured once and replayed any number of times, each by one call.
//!
//! What changes from replay to replay lies in device memory: the inputs, which the caller overwrites in place, and the
//! epoch, from which fills and gathers derive their half. The host's count of epochs follows: capturing takes none,
//! every replay takes as many as the layer has barriers.

use std::sync::Arc;

use super::tables::BatchTables;
use super::{BatchInFlight, ComposeError, LayerInputs};
use crate::device::{DeviceError, Graph};
use crate::plan::Strategy;

/// The captured compose of one layer of one batch. It keeps alive what its launches read and write.
pub struct CapturedLayer {
    layer: usize,
    graph: Arc<dyn Graph>,
    num_barriers: u64,
    /// Whose batch it is.
    tables: Arc<BatchTables>,
}

impl CapturedLayer {
    /// The layer.
    pub const fn layer(&self) -> usize {
        self.layer
    }

    /// Barriers of the group that each replay passes.
    pub const fn num_barriers(&self) -> u64 {
        self.num_barriers
    }
}

impl BatchInFlight<'_> {
    /// Captures the compose of `layer`, reading `inputs`. Nothing runs, and no epoch is taken: other ranks need not
    /// capture the layer, nor replay it rather than compose it.
    ///
    /// # Errors
    /// [`ComposeError::NotCapturable`] where the strategy's collective is done by the host: the batch can go on without
    /// a graph; else as [`BatchInFlight::compose_layer`].
    pub fn capture_layer(
        &mut self,
        layer: usize,
        inputs: &LayerInputs,
    ) -> Result<CapturedLayer, ComposeError> {
        self.check_inputs(layer, inputs)?;
        let begun = self.composer.group.begin_capture()?;
        let queued = self.queue_layer(layer, inputs);
        // Ended whatever happened, or the stream would run nothing more.
        let ended = self.composer.group.end_capture(begun);
        queued.map_err(|error| name_strategy(self.strategy, error))?;
        let (graph, num_barriers) = ended?;
        Ok(CapturedLayer { layer, graph, num_barriers, tables: Arc::clone(&self.tables) })
    }

    /// Queues a captured layer: the same work as [`BatchInFlight::compose_layer`] with the inputs it was captured with,
    /// which hold what they hold when their turn on the stream comes. Returns at once.
    ///
    /// # Errors
    /// [`ComposeError::CapturedElsewhere`] where it was captured in another batch; [`ComposeError::Group`].
    pub fn replay_layer(&mut self, captured: &CapturedLayer) -> Result<(), ComposeError> {
        let CapturedLayer { layer, graph, num_barriers, tables } = captured;
        if !Arc::ptr_eq(tables, &self.tables) {
            return Err(ComposeError::CapturedElsewhere { layer: *layer });
        }
        self.composing(*layer, |flight| {
            // SAFETY: the launches of `queue_layer`, whose memory the graph keeps alive. They belong to this batch, so
            // to this group and its one stream; tables and buffers have not changed since, as a batch in flight
            // holds the composer. Ranks are ordered by the barriers inside.
            Ok(unsafe { flight.composer.group.replay(graph, *num_barriers) }?)
        })
    }
}

/// Says of which strategy a call cannot be captured.
fn name_strategy(strategy: Strategy, error: ComposeError) -> ComposeError {
    match error {
        ComposeError::Device(DeviceError::NotCapturable { call }) => {
            ComposeError::NotCapturable { strategy, call }
        }
        error => error,
    }
}

//! How long the stand-in for attention sleeps. Pure.

use std::time::Duration;

/// What a layer's stand-in sleeps, so that all layers together take as long as the transfer took alone.
pub(crate) fn compute_for(transfer_ms: f64, num_layers: usize) -> Duration {
    let layer_us = transfer_ms * 1e3 / num_layers.max(1) as f64;
    Duration::from_micros(layer_us.round().max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_layers_together_take_what_the_transfer_takes() {
        assert_eq!(compute_for(80.0, 32), Duration::from_micros(2500));
        assert_eq!(compute_for(0.0, 4), Duration::ZERO);
        assert_eq!(compute_for(1.0, 0), Duration::from_millis(1));
    }
}

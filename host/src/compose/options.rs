//! What a composer may be told.

use crate::model::ModelSpec;
use crate::plan::{Admission, PlanShape, StagingCapacity, Strategy};

/// Which strategy a batch uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StrategyChoice {
    /// `staging_fill` where it can be used, else `fused_all_reduce`; the statistics say why.
    #[default]
    Auto,
    /// This one, or an error.
    Exactly(Strategy),
}

/// What a composer may be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComposerOptions {
    /// What the scheduler admits into one batch: bounds the staging memory. `None`: the pool bounds it.
    pub admission: Option<Admission>,
    /// Bytes of staging, both halves of all buffers: overrides `admission`.
    pub symm_heap_bytes: Option<u64>,
    /// Slots of the symmetric dense halves that `symm_dense` needs. `None`: that strategy is not available.
    pub symm_dense_slots: Option<u32>,
    /// Whether the dense buffers of a batch are carved from one allocation.
    pub dense_arena: bool,
    /// Whether barriers of layers are timed, and the ranks exchange the times when a batch ends: the statistics then say
    /// who was late ([`Stats::barrier_waits`](super::Stats::barrier_waits)). The same on every rank.
    pub time_barriers: bool,
}

impl ComposerOptions {
    /// The environment variable that overrides the size of staging, in MiB.
    pub const HEAP_VARIABLE: &'static str = "CPKV_SYMM_HEAP_MB";

    /// Staging slots of one half, for a pool of `model` with the shape `shape`.
    pub fn staging_capacity(&self, model: &ModelSpec, shape: PlanShape) -> StagingCapacity {
        let layer_page_bytes = model.buffers.iter().map(|buffer| buffer.spec.page_bytes()).sum();
        match self.symm_heap_bytes {
            Some(bytes) => StagingCapacity::for_heap(bytes, layer_page_bytes),
            None => StagingCapacity::for_admission(self.admission, shape.page_size, shape.num_logical_pages),
        }
    }

    /// `self` with [`Self::HEAP_VARIABLE`] applied, as `value` has it.
    ///
    /// # Errors
    /// The value, where it is not a number of MiB.
    pub fn with_heap_variable(mut self, value: Option<&str>) -> Result<Self, String> {
        if let Some(value) = value {
            let mib: u64 = value.trim().parse().map_err(|_| value.to_owned())?;
            self.symm_heap_bytes = Some(mib.checked_mul(1 << 20).ok_or_else(|| value.to_owned())?);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_variable_is_in_mebibytes_and_must_be_a_number() {
        let options = ComposerOptions::default();
        assert_eq!(options.with_heap_variable(Some("64")).unwrap().symm_heap_bytes, Some(64 << 20));
        assert_eq!(options.with_heap_variable(None).unwrap().symm_heap_bytes, None);
        assert!(options.with_heap_variable(Some("64MB")).is_err());
        assert!(options.with_heap_variable(Some("99999999999999999999")).is_err());
    }
}

//! Samples of something that copies, beside those of a memcpy of as many bytes.

use super::figures::{Figure, gb_per_s, ratio, rounded};
use super::report::CopyRow;
use crate::samples::Samples;

/// Bytes that a sample copies; as many again are its destination.
pub(crate) const SAMPLE_BYTES: u64 = 64 << 20;
/// The same of `--quick`.
pub(crate) const QUICK_SAMPLE_BYTES: u64 = 8 << 20;

/// Samples in milliseconds.
pub(crate) struct CopySamples {
    pub(crate) name: String,
    pub(crate) unit_bytes: u64,
    /// A multiple of `unit_bytes`.
    pub(crate) bytes: u64,
    pub(crate) ours: Samples,
    pub(crate) memcpy: Samples,
}

impl CopySamples {
    /// Of units of `unit_bytes`, as many as `sample_bytes` hold.
    pub(crate) fn new(name: impl Into<String>, unit_bytes: u64, sample_bytes: u64) -> Self {
        let bytes = sample_bytes - sample_bytes % unit_bytes.max(1);
        let (ours, memcpy) = Default::default();
        Self { name: name.into(), unit_bytes, bytes, ours, memcpy }
    }

    /// Units of a sample.
    pub(crate) const fn num_units(&self) -> u32 {
        (self.bytes / self.unit_bytes) as u32
    }

    /// What they come to; `None` where there are none.
    pub(crate) fn row(&self) -> Option<CopyRow> {
        let (ours, memcpy) = (Figure::of(&self.ours)?, Figure::of(&self.memcpy)?);
        Some(CopyRow {
            name: self.name.clone(),
            unit_bytes: self.unit_bytes,
            bytes: self.bytes,
            samples: ours.samples,
            ms_median: ours.median,
            ms_p99: ours.p99,
            gb_per_s: gb_per_s(self.bytes, ours.median),
            memcpy_ms_median: memcpy.median,
            memcpy_gb_per_s: gb_per_s(self.bytes, memcpy.median),
            ratio_to_memcpy: ratio(memcpy.median, ours.median),
            memcpy_faster: rounded(self.memcpy.how_often_less(&self.ours)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_whole_units_and_its_ratio_is_of_rates() {
        let mut samples = CopySamples::new("gather", 3000, 10_000_000);
        assert_eq!((samples.num_units(), samples.bytes), (3333, 9_999_000));
        assert!(samples.row().is_none());
        samples.ours.push(2.0);
        samples.memcpy.push(1.0);
        let row = samples.row().unwrap();
        assert_eq!((row.ratio_to_memcpy, row.gb_per_s), (0.5, 4.9995));
    }
}

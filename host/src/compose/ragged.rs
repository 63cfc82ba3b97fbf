//! A batch's ragged index plan on the device.

use crate::device::{DeviceBuffer, DeviceError};
use crate::plan::{RaggedSections, Section};

/// The tables of a [`RaggedPlan`](crate::plan::RaggedPlan), named as its calls: int32, little-endian, aligned to 16 bytes.
/// They are only read, and live as long as any holder of one.
#[derive(Clone, Debug)]
pub struct RaggedTables {
    /// `[num_segments]`.
    pub q_starts: DeviceBuffer,
    /// `[num_segments]`.
    pub q_lens: DeviceBuffer,
    /// `[num_segments]`.
    pub kv_lens: DeviceBuffer,
    /// `[num_segments]`.
    pub k_bases: DeviceBuffer,
    /// `[num_segments]`.
    pub q_bases: DeviceBuffer,
    /// `[num_segments]`.
    pub current_bases: DeviceBuffer,
    /// `[num_segments, 2]`.
    pub segments: DeviceBuffer,
    /// `[num_rows]`.
    pub topk_offsets: DeviceBuffer,
}

impl RaggedTables {
    /// The tables that lie at `sections` of `block`.
    pub(super) fn of_block(block: &DeviceBuffer, sections: RaggedSections) -> Result<Self, DeviceError> {
        let table = |section: Section| {
            let bytes = u64::from(section.len) * size_of::<i32>() as u64;
            block.slice(section.offset..section.offset + bytes)
        };
        Ok(Self {
            q_starts: table(sections.q_starts)?,
            q_lens: table(sections.q_lens)?,
            kv_lens: table(sections.kv_lens)?,
            k_bases: table(sections.k_bases)?,
            q_bases: table(sections.q_bases)?,
            current_bases: table(sections.current_bases)?,
            segments: table(sections.segments)?,
            topk_offsets: table(sections.topk_offsets)?,
        })
    }
}

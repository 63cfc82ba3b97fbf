//! The block of a ragged index plan: its tables one behind the other, each at a multiple of 16 bytes.

use super::Section;

/// Tables start at multiples of this many entries: 16 bytes.
const ALIGN_ENTRIES: usize = 4;
/// Tables of one entry or more a segment: the record has two.
const ENTRIES_PER_SEGMENT: usize = 8;
const NUM_TABLES: usize = 8;

/// Where each table of a [`RaggedPlan`](super::RaggedPlan) lies, in bytes from the start of a block, and its number of
/// int32 entries. The tables are named as the plan's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RaggedSections {
    /// `[num_segments]`.
    pub q_starts: Section,
    /// `[num_segments]`.
    pub q_lens: Section,
    /// `[num_segments]`.
    pub kv_lens: Section,
    /// `[num_segments]`.
    pub k_bases: Section,
    /// `[num_segments]`.
    pub q_bases: Section,
    /// `[num_segments]`.
    pub current_bases: Section,
    /// `[num_segments, 2]`.
    pub segments: Section,
    /// `[num_rows]`.
    pub topk_offsets: Section,
}

impl RaggedSections {
    /// The sections in a larger block, which holds the plan's at `block`.
    #[must_use]
    pub fn within(self, block: Section) -> Self {
        let place = |section: Section| Section { offset: block.offset + section.offset, len: section.len };
        Self {
            q_starts: place(self.q_starts),
            q_lens: place(self.q_lens),
            kv_lens: place(self.kv_lens),
            k_bases: place(self.k_bases),
            q_bases: place(self.q_bases),
            current_bases: place(self.current_bases),
            segments: place(self.segments),
            topk_offsets: place(self.topk_offsets),
        }
    }
}

/// Lays tables one behind the other.
pub(super) struct BlockBuilder {
    entries: Vec<i32>,
}

impl BlockBuilder {
    /// Room for all tables of `num_segments` segments and `num_rows` rows, so that the block is allocated once.
    pub(super) fn with_capacity(num_segments: usize, num_rows: usize) -> Self {
        let padding = NUM_TABLES * ALIGN_ENTRIES;
        Self { entries: Vec::with_capacity(ENTRIES_PER_SEGMENT * num_segments + num_rows + padding) }
    }

    /// Adds a table and says where it lies.
    pub(super) fn push(&mut self, entries: impl Iterator<Item = i32>) -> Section {
        let first = self.align();
        self.entries.extend(entries);
        self.section_from(first)
    }

    /// Adds a table of runs: `(entry, length)`.
    pub(super) fn push_runs(&mut self, runs: impl Iterator<Item = (i32, usize)>) -> Section {
        let first = self.align();
        for (entry, len) in runs {
            self.entries.resize(self.entries.len() + len, entry);
        }
        self.section_from(first)
    }

    /// The block.
    pub(super) fn finish(self) -> Vec<i32> {
        self.entries
    }

    fn align(&mut self) -> usize {
        let first = self.entries.len().next_multiple_of(ALIGN_ENTRIES);
        self.entries.resize(first, 0);
        first
    }

    fn section_from(&self, first: usize) -> Section {
        Section { offset: (first * size_of::<i32>()) as u64, len: (self.entries.len() - first) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_lie_aligned_and_in_order_and_the_capacity_holds_them() {
        let mut block = BlockBuilder::with_capacity(1, 5);
        let capacity = block.entries.capacity();
        let tables = [block.push([7].into_iter()), block.push([8, 9].into_iter())];
        let runs = block.push_runs([(4, 2), (5, 0), (6, 3)].into_iter());
        assert_eq!(tables, [Section { offset: 0, len: 1 }, Section { offset: 16, len: 2 }]);
        assert_eq!(runs, Section { offset: 32, len: 5 });
        assert_eq!(block.entries.capacity(), capacity);
        assert_eq!(block.finish(), [7, 0, 0, 0, 8, 9, 0, 0, 4, 4, 6, 6, 6]);
    }

    #[test]
    fn sections_keep_their_distance_in_a_larger_block() {
        let sections = RaggedSections {
            q_lens: Section { offset: 16, len: 3 },
            topk_offsets: Section { offset: 32, len: 9 },
            ..RaggedSections::default()
        };
        let placed = sections.within(Section { offset: 160, len: 17 });
        assert_eq!(placed.q_starts, Section { offset: 160, len: 0 });
        assert_eq!(placed.q_lens, Section { offset: 176, len: 3 });
        assert_eq!(placed.topk_offsets, Section { offset: 192, len: 9 });
    }
}

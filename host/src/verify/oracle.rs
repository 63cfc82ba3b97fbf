//! The oracle: the definition of compose, computed serially on the host.
//!
//! For every dense slot: the bytes of its logical page. A prefix slot holds what an earlier batch persisted there, a
//! current slot the rows its writer computes now, zero behind the request's end; a padding slot is zero.

use cpkv_kernels::fp8;
use thiserror::Error;

use super::page_rows::{PageRows, RowRun};
use super::stamp::{RowId, Stamps};
use crate::model::{BufferId, ModelSpec};
use crate::pages::{BufferKind, BufferSpec, INDEX_K_DIM};
use crate::plan::{BatchPlan, SlotPlan};
use crate::units::PageId;

/// The first byte that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "layer {layer}, buffer {}, slot {slot} (page {page}), byte {byte}: {got:#04x} instead of {expected:#04x}",
    buffer.0
)]
pub struct Difference {
    /// The layer.
    pub layer: usize,
    /// The buffer.
    pub buffer: BufferId,
    /// The dense slot.
    pub slot: usize,
    /// Its logical page.
    pub page: PageId,
    /// The byte in the page.
    pub byte: usize,
    /// What it should be.
    pub expected: u8,
    /// What it is.
    pub got: u8,
}

/// Knows what every page of the pool holds, and what a batch adds.
#[derive(Clone, Debug)]
pub struct Oracle {
    stamps: Stamps,
    model: ModelSpec,
    /// By logical page: what was persisted last.
    pool: Vec<PageRows>,
    /// The compose whose rows are being stamped.
    generation: u64,
}

impl Oracle {
    /// An oracle for a pool of zeros.
    pub fn new(model: ModelSpec, num_logical_pages: u32, seed: u64) -> Self {
        let pool = vec![PageRows::default(); num_logical_pages as usize];
        Self { stamps: Stamps { seed }, model, pool, generation: 0 }
    }

    /// What this rank computes for `layer` and `buffer`, in the order of its rows: token rows, or bf16 keys.
    pub fn inputs(&self, plan: &BatchPlan, layer: usize, buffer: BufferId) -> Vec<u8> {
        let spec = self.spec(buffer);
        let row_bytes = match spec.kind() {
            BufferKind::TokenKv { row_bytes } => row_bytes as usize,
            BufferKind::IndexK => INDEX_K_DIM as usize * size_of::<u16>(),
        };
        let mut bytes = vec![0; plan.rows.num_rows() as usize * row_bytes];
        let mut rows = bytes.chunks_exact_mut(row_bytes);
        for &i in &plan.rows.current_idx {
            let run = self.current_run(&plan.slots, i as usize);
            for row in plan.slots.current_rows[i as usize].first_row..run.end_row {
                let (id, Some(out)) = (row_id(run, layer, buffer, row), rows.next()) else { continue };
                match spec.kind() {
                    BufferKind::TokenKv { .. } => self.stamps.token_row(id, out),
                    BufferKind::IndexK => {
                        for (out, key) in out.chunks_exact_mut(2).zip(self.stamps.key_row(id)) {
                            out.copy_from_slice(&key.to_le_bytes());
                        }
                    }
                }
            }
        }
        bytes
    }

    /// Compares a dense buffer, `[num_slots, page_bytes]`, with what it must hold.
    ///
    /// # Errors
    /// [`Difference`]: the first wrong byte.
    pub fn compare(
        &self,
        slots: &SlotPlan,
        layer: usize,
        buffer: BufferId,
        dense: &[u8],
    ) -> Result<(), Difference> {
        let page_bytes = self.spec(buffer).page_bytes() as usize;
        let mut expected = vec![0; page_bytes];
        let contents = self.contents(slots);
        for (slot, rows) in contents.iter().enumerate() {
            self.render(rows, layer, buffer, &mut expected);
            let got = dense.get(slot * page_bytes..(slot + 1) * page_bytes).unwrap_or_default();
            if expected != got {
                let byte = expected.iter().zip(got).position(|(a, b)| a != b).unwrap_or(got.len());
                return Err(Difference {
                    layer,
                    buffer,
                    slot,
                    page: slots.pages[slot],
                    byte,
                    expected: expected.get(byte).copied().unwrap_or_default(),
                    got: got.get(byte).copied().unwrap_or_default(),
                });
            }
        }
        Ok(())
    }

    /// The bytes `page` must hold in the pool.
    pub fn pool_page(&self, layer: usize, buffer: BufferId, page: PageId) -> Vec<u8> {
        let mut bytes = vec![0; self.spec(buffer).page_bytes() as usize];
        if let Some(rows) = usize::try_from(page.0).ok().and_then(|page| self.pool.get(page)) {
            self.render(rows, layer, buffer, &mut bytes);
        }
        bytes
    }

    /// What is computed from now on carries other stamps: no byte of an earlier compose is right by luck.
    pub fn restamp(&mut self) {
        self.generation += 1;
    }

    /// The batch was persisted: its current pages are in the pool, and the next batch writes other stamps.
    pub fn persisted(&mut self, slots: &SlotPlan) {
        let contents = self.contents(slots);
        for (&page, &slot) in slots.current_pages.iter().zip(&slots.current_slots) {
            self.pool[page as usize] = contents[slot as usize].clone();
        }
        self.restamp();
    }

    /// By dense slot: the rows it must hold.
    fn contents(&self, slots: &SlotPlan) -> Vec<PageRows> {
        let prefix =
            |page: &PageId| usize::try_from(page.0).map_or(PageRows::default(), |p| self.pool[p].clone());
        let mut contents: Vec<PageRows> = slots.pages.iter().map(prefix).collect();
        for (i, &slot) in slots.current_slots.iter().enumerate() {
            let straddle = slots.straddles.iter().find(|straddle| straddle.slot as i32 == slot);
            let mut rows = straddle.map_or(PageRows::default(), |straddle| {
                self.pool[straddle.original.0 as usize].head(straddle.num_prefix_rows)
            });
            rows.push(self.current_run(slots, i));
            contents[slot as usize] = rows;
        }
        contents
    }

    fn current_run(&self, slots: &SlotPlan, i: usize) -> RowRun {
        RowRun {
            end_row: slots.current_rows[i].end_row,
            page: PageId(slots.current_pages[i]),
            writer: slots.writers[i],
            generation: self.generation,
        }
    }

    fn render(&self, rows: &PageRows, layer: usize, buffer: BufferId, page: &mut [u8]) {
        page.fill(0);
        let spec = self.spec(buffer);
        for row in 0..spec.page_size() {
            let Some(run) = rows.origin(row) else { break };
            let id = row_id(run, layer, buffer, row);
            match spec.kind() {
                BufferKind::TokenKv { row_bytes } => {
                    let start = row as usize * row_bytes as usize;
                    self.stamps.token_row(id, &mut page[start..start + row_bytes as usize]);
                }
                BufferKind::IndexK => render_key_row(self.stamps.key_row(id), spec, row, page),
            }
        }
    }

    fn spec(&self, buffer: BufferId) -> BufferSpec {
        self.model.buffers[buffer.idx()].spec
    }
}

const fn row_id(run: RowRun, layer: usize, buffer: BufferId, row: u32) -> RowId {
    RowId { writer: run.writer, buffer, layer, page: run.page, row, generation: run.generation }
}

fn render_key_row(keys: [u16; INDEX_K_DIM as usize], spec: BufferSpec, row: u32, page: &mut [u8]) {
    let (dim, row) = (INDEX_K_DIM as usize, row as usize);
    let scale = fp8::scale_of(keys.map(fp8::finite_magnitude).into_iter().max().unwrap_or(0));
    let codes = keys.map(|key| fp8::quantise(key, scale));
    page[row * dim..(row + 1) * dim].copy_from_slice(&codes);
    let scales = spec.page_size() as usize * dim;
    page[scales + 4 * row..scales + 4 * (row + 1)].copy_from_slice(&scale.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Batch, PlanShape, RequestPages};
    use crate::units::{GroupSize, Rank};

    #[test]
    fn one_wrong_byte_anywhere_is_found_and_named() {
        let model = ModelSpec::preset("tiny").unwrap();
        let shape = PlanShape { group_size: GroupSize::new(2).unwrap(), page_size: 4, num_logical_pages: 9 };
        let current_pages = vec![PageId(3), PageId(8)];
        let request = RequestPages { new_tokens: 6, current_pages, ..RequestPages::default() };
        let batch = Batch { requests: vec![request], num_pad_slots: 1 };
        let plan = BatchPlan::build(shape, Rank(0), &batch).unwrap();
        let oracle = Oracle::new(model.clone(), 9, 1);
        for buffer in model.buffer_ids() {
            let page_bytes = model.buffers[buffer.idx()].spec.page_bytes() as usize;
            let mut after = oracle.clone();
            after.persisted(&plan.slots);
            let mut dense: Vec<u8> =
                plan.slots.pages.iter().flat_map(|&page| after.pool_page(0, buffer, page)).collect();
            assert_eq!(dense.len(), 3 * page_bytes);
            assert_eq!(oracle.compare(&plan.slots, 0, buffer, &dense), Ok(()));
            for byte in 0..dense.len() {
                dense[byte] ^= 1;
                let found = oracle.compare(&plan.slots, 0, buffer, &dense).unwrap_err();
                assert_eq!((found.slot, found.byte), (byte / page_bytes, byte % page_bytes));
                dense[byte] ^= 1;
            }
            assert!(oracle.compare(&plan.slots, 0, buffer, &dense[..dense.len() - 1]).is_err());
        }
    }
}

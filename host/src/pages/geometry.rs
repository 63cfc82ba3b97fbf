//! Sizes and layout of the pages of one layer buffer.

use serde::Serialize;
use thiserror::Error;

/// Keys of one index-K row: 128 values of fp8.
pub const INDEX_K_DIM: u64 = 128;
/// The scale of one index-K row: one f32.
pub const INDEX_K_SCALE_BYTES: u64 = 4;

/// What a layer buffer holds, and so how its pages are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum BufferKind {
    /// `[page_size, row_bytes]`: rows one after another.
    TokenKv {
        /// Bytes of one token's row.
        row_bytes: u32,
    },
    /// `[page_size, 128]` fp8 e4m3 keys, then `[page_size]` f32 scales.
    IndexK,
}

/// One layer buffer: its kind and page size. Checked when made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct BufferSpec {
    kind: BufferKind,
    page_size: u32,
}

/// One part of a row inside a page: row `r` of the part is `bytes` long, at `offset + r * bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPart {
    /// Where the part's rows start in the page, in bytes.
    pub offset: u64,
    /// Bytes of one row of this part.
    pub bytes: u64,
}

/// A page that cannot be laid out or copied.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// A page of no token, or a row of no byte.
    #[error("a page of {page_size} tokens with rows of {row_bytes} bytes is empty: both must be at least 1")]
    Empty {
        /// Tokens a page.
        page_size: u32,
        /// Bytes a row.
        row_bytes: u64,
    },
    /// Copies are made of 16-byte accesses, so pages are made of 16-byte units.
    #[error(
        "a page of {page_size} tokens has {page_bytes} bytes, not a multiple of 16: \
         choose a page size or row size so that it is"
    )]
    Unaligned {
        /// Tokens a page.
        page_size: u32,
        /// Bytes a page.
        page_bytes: u64,
    },
    /// Offsets inside a page are 32-bit in the kernels.
    #[error("a page of {page_size} tokens has {page_bytes} bytes, over the limit of {max}")]
    TooLarge {
        /// Tokens a page.
        page_size: u32,
        /// Bytes a page.
        page_bytes: u64,
        /// The limit.
        max: u64,
    },
}

impl BufferSpec {
    /// The largest page, in bytes.
    pub const MAX_PAGE_BYTES: u64 = 1 << 30;

    /// A checked buffer.
    ///
    /// # Errors
    /// [`GeometryError`] where a page is empty, over 1 GiB, or not a multiple of 16 bytes.
    pub fn new(kind: BufferKind, page_size: u32) -> Result<Self, GeometryError> {
        let spec = Self { kind, page_size };
        let (row_bytes, page_bytes) = (spec.row_bytes(), spec.page_bytes());
        if row_bytes == 0 || page_size == 0 {
            return Err(GeometryError::Empty { page_size, row_bytes });
        }
        if page_bytes > Self::MAX_PAGE_BYTES {
            return Err(GeometryError::TooLarge { page_size, page_bytes, max: Self::MAX_PAGE_BYTES });
        }
        if !page_bytes.is_multiple_of(16) {
            return Err(GeometryError::Unaligned { page_size, page_bytes });
        }
        Ok(spec)
    }

    /// What the buffer holds.
    pub const fn kind(self) -> BufferKind {
        self.kind
    }

    /// Tokens a page.
    pub const fn page_size(self) -> u32 {
        self.page_size
    }

    /// Bytes of one token in this buffer, all parts together.
    pub const fn row_bytes(self) -> u64 {
        match self.kind {
            BufferKind::TokenKv { row_bytes } => row_bytes as u64,
            BufferKind::IndexK => INDEX_K_DIM + INDEX_K_SCALE_BYTES,
        }
    }

    /// Bytes of one page. 64-bit: page id times page bytes passes 2^31 early.
    pub const fn page_bytes(self) -> u64 {
        self.page_size as u64 * self.row_bytes()
    }

    /// The parts a row consists of, in page order.
    pub fn row_parts(self) -> impl Iterator<Item = RowPart> {
        let page_size = u64::from(self.page_size);
        let parts = match self.kind {
            BufferKind::TokenKv { row_bytes } => {
                [Some(RowPart { offset: 0, bytes: u64::from(row_bytes) }), None]
            }
            BufferKind::IndexK => [
                Some(RowPart { offset: 0, bytes: INDEX_K_DIM }),
                Some(RowPart { offset: page_size * INDEX_K_DIM, bytes: INDEX_K_SCALE_BYTES }),
            ],
        };
        parts.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: BufferKind, page_size: u32) -> Result<BufferSpec, GeometryError> {
        BufferSpec::new(kind, page_size)
    }

    #[test]
    fn page_bytes_of_the_headline_buffers() {
        let mla = spec(BufferKind::TokenKv { row_bytes: 656 }, 64).unwrap();
        assert_eq!(mla.page_bytes(), 41_984);
        assert_eq!(spec(BufferKind::TokenKv { row_bytes: 1152 }, 64).unwrap().page_bytes(), 73_728);
        assert_eq!(spec(BufferKind::IndexK, 64).unwrap().page_bytes(), 8_448);
    }

    #[test]
    fn index_k_scales_follow_all_keys() {
        let parts: Vec<_> = spec(BufferKind::IndexK, 64).unwrap().row_parts().collect();
        assert_eq!(parts, [RowPart { offset: 0, bytes: 128 }, RowPart { offset: 8_192, bytes: 4 }]);
    }

    #[test]
    fn pages_that_are_not_a_multiple_of_sixteen_bytes_are_refused() {
        let error = spec(BufferKind::TokenKv { row_bytes: 10 }, 3).unwrap_err();
        assert_eq!(error, GeometryError::Unaligned { page_size: 3, page_bytes: 30 });
    }

    #[test]
    fn empty_and_huge_pages_are_refused() {
        assert!(matches!(spec(BufferKind::IndexK, 0), Err(GeometryError::Empty { .. })));
        assert!(matches!(spec(BufferKind::TokenKv { row_bytes: 0 }, 64), Err(GeometryError::Empty { .. })));
        assert!(matches!(
            spec(BufferKind::TokenKv { row_bytes: u32::MAX }, u32::MAX),
            Err(GeometryError::TooLarge { .. })
        ));
    }
}

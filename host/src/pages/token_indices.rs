//! Token indices in host memory, checked to be page-aligned.

use thiserror::Error;

use crate::units::PageId;

/// Token indices in host memory that name whole pages in turn: index `i` is token `i mod page_size` of the page that
/// index `i - i mod page_size` starts. The last page may be cut short. A runtime that keeps one index a token (and not
/// one a page) has them; [`TokenIndices::pages`] is what a batch is planned from. Each starts at a page: where a prefix ends inside
/// one, give the whole request's indices if its pages follow each other, else prefix and new tokens apart, or the pages by hand
/// ([`Batch`](crate::plan::Batch) takes such a prefix).
///
/// They are a type so that they are checked once, where they come from, and only there: the check reads every index,
/// which is cheap in host memory. In device memory it would wait for all work in the queue before it, in every layer
/// (0.4 ms each in the first system). So there is no such check: indices on the device are a type of their own, made from
/// these or vouched for, that has no way to be read back
/// ([`DeviceTokenIndices`](crate::compose::DeviceTokenIndices)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenIndices<'a> {
    indices: &'a [i64],
    page_size: u32,
}

/// Why token indices are not page-aligned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenIndexError {
    /// A page of no token.
    #[error("token indices in pages of 0 tokens: choose a page size of at least 1")]
    NoPageSize,
    /// A page that starts inside a page of the pool.
    #[error(
        "token index {value} at position {position} starts a page, but is not a multiple of the page size {page_size}"
    )]
    Unaligned {
        /// Position in the list.
        position: usize,
        /// The index there.
        value: i64,
        /// Tokens a page.
        page_size: u32,
    },
    /// An index that does not follow the one before it in its page.
    #[error(
        "token index {value} at position {position} is inside a page, where {expected} follows: the tokens of a page \
         are consecutive"
    )]
    NotConsecutive {
        /// Position in the list.
        position: usize,
        /// The index there.
        value: i64,
        /// The index that belongs there.
        expected: i64,
    },
    /// An index outside the pool. Padding (-1) is one: it has no tokens, and is given as a page.
    #[error(
        "token index {value} at position {position} is outside the pool of {num_logical_pages} pages of {page_size} \
         tokens"
    )]
    OutOfPool {
        /// Position in the list.
        position: usize,
        /// The index there.
        value: i64,
        /// Pages of the pool.
        num_logical_pages: u32,
        /// Tokens a page.
        page_size: u32,
    },
}

impl<'a> TokenIndices<'a> {
    /// Checks `[num_tokens]` indices into a pool of `num_logical_pages` pages.
    ///
    /// # Errors
    /// [`TokenIndexError`], for the first index that is wrong: its position and value.
    pub fn new(indices: &'a [i64], page_size: u32, num_logical_pages: u32) -> Result<Self, TokenIndexError> {
        if page_size == 0 {
            return Err(TokenIndexError::NoPageSize);
        }
        // Page ids are 32-bit and signed, however large the pool.
        let num_pages = i64::from(num_logical_pages).min(i64::from(i32::MAX) + 1);
        let page_tokens = i64::from(page_size);
        for (page, chunk) in indices.chunks(page_size as usize).enumerate() {
            let position = page * page_size as usize;
            let [value, ..] = *chunk else { continue };
            if value < 0 || value / page_tokens >= num_pages {
                return Err(TokenIndexError::OutOfPool { position, value, num_logical_pages, page_size });
            }
            if value % page_tokens != 0 {
                return Err(TokenIndexError::Unaligned { position, value, page_size });
            }
            let expected = |offset: usize| value.wrapping_add(offset as i64);
            // The bits in which any index is wrong, without a branch for each: where the outlier stands is looked for
            // only if there is one.
            let wrong_bits =
                chunk.iter().enumerate().fold(0, |bits, (offset, index)| bits | index ^ expected(offset));
            let is_wrong = |&(offset, &index): &(usize, &i64)| index != expected(offset);
            if wrong_bits != 0
                && let Some((offset, &value)) = chunk.iter().enumerate().find(is_wrong)
            {
                let (position, expected) = (position + offset, expected(offset));
                return Err(TokenIndexError::NotConsecutive { position, value, expected });
            }
        }
        Ok(Self { indices, page_size })
    }

    /// The indices.
    pub const fn as_slice(self) -> &'a [i64] {
        self.indices
    }

    /// Tokens a page.
    pub const fn page_size(self) -> u32 {
        self.page_size
    }

    /// `[ceil(num_tokens / page_size)]`: the pages the indices name, in order.
    pub fn pages(self) -> impl ExactSizeIterator<Item = PageId> + use<'a> {
        let page_size = i64::from(self.page_size);
        // Checked when made: below the pool's number of pages.
        self.indices
            .iter()
            .step_by(self.page_size as usize)
            .map(move |index| PageId((index / page_size) as i32))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_pages_and_a_short_last_one_lead_to_their_pages() {
        let indices = [8, 9, 10, 11, 0, 1, 2, 3, 20, 21];
        let checked = TokenIndices::new(&indices, 4, 6).unwrap();
        assert_eq!(checked.pages().collect::<Vec<_>>(), [2, 0, 5].map(PageId));
        assert_eq!(checked.as_slice(), indices);
        assert_eq!(TokenIndices::new(&[], 4, 0).unwrap().pages().len(), 0);
    }

    #[test]
    fn the_first_wrong_index_is_named_with_its_position_and_value() {
        let refused = |indices: &[i64]| TokenIndices::new(indices, 4, 6).unwrap_err();
        let shape = |position, value| TokenIndexError::OutOfPool {
            position,
            value,
            num_logical_pages: 6,
            page_size: 4,
        };
        assert_eq!(
            refused(&[8, 9, 10, 11, 5, 6]),
            TokenIndexError::Unaligned { position: 4, value: 5, page_size: 4 }
        );
        assert_eq!(
            refused(&[8, 9, 10, 12, 5]),
            TokenIndexError::NotConsecutive { position: 3, value: 12, expected: 11 }
        );
        assert_eq!(
            refused(&[0, 1, 2, 3, 4, -1]),
            TokenIndexError::NotConsecutive { position: 5, value: -1, expected: 5 }
        );
        assert_eq!(refused(&[0, 1, 2, 3, -1, -1]), shape(4, -1));
        assert_eq!(refused(&[24]), shape(0, 24));
        assert_eq!(refused(&[i64::MIN]), shape(0, i64::MIN));
        assert_eq!(TokenIndices::new(&[0], 0, 6), Err(TokenIndexError::NoPageSize));
        let message = refused(&[8, 9, 10, 12]).to_string();
        assert!(message.contains("12 at position 3") && message.contains("11 follows"), "{message}");
    }

    #[test]
    fn no_index_of_the_largest_pool_is_a_page_id_below_zero() {
        let first_past = (i64::from(i32::MAX) + 1) * 2;
        let last = [first_past - 2, first_past - 1];
        let checked = TokenIndices::new(&last, 2, u32::MAX).unwrap();
        assert_eq!(checked.pages().collect::<Vec<_>>(), [PageId(i32::MAX)]);
        assert!(TokenIndices::new(&[first_past], 2, u32::MAX).is_err());
        assert!(TokenIndices::new(&[i64::MAX], u32::MAX, u32::MAX).is_err());
    }

    proptest! {
        /// By the definition: token `i` lies behind the start of its page, which is one of the pool's.
        #[test]
        fn indices_pass_exactly_where_every_one_is_in_its_place(
            (pages, page_size, cut) in (prop::collection::vec(0..8i64, 0..6), 1..9u32, 0..9usize),
            change in prop::option::of((any::<prop::sample::Index>(), -60..60i64)),
        ) {
            let size = i64::from(page_size);
            let whole: Vec<i64> = pages.iter().flat_map(|page| page * size..(page + 1) * size).collect();
            let mut indices = whole[..whole.len() - cut.min(page_size as usize - 1).min(whole.len())].to_vec();
            if let (Some((at, value)), false) = (change, indices.is_empty()) {
                *at.get_mut(&mut indices) = value;
            }
            let in_place = |position: usize| {
                let first = indices[position - position % page_size as usize];
                (0..8).any(|page| first == page * size)
                    && indices[position] == first + (position % page_size as usize) as i64
            };
            let first_wrong = (0..indices.len()).find(|&position| !in_place(position));
            let found = TokenIndices::new(&indices, page_size, 8).err().map(|error| match error {
                TokenIndexError::Unaligned { position, value, .. }
                | TokenIndexError::NotConsecutive { position, value, .. }
                | TokenIndexError::OutOfPool { position, value, .. } => (position, value),
                TokenIndexError::NoPageSize => unreachable!(),
            });
            prop_assert_eq!(found, first_wrong.map(|position| (position, indices[position])));
        }
    }
}

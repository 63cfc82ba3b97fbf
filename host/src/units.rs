//! The numbers of this library, each with its own type.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::error::UnitError;

/// The largest group a set of ranks fits in: missing ranks are reported as one 64-bit mask.
pub const MAX_GROUP_SIZE: u32 = 64;

/// Position of a rank in the context-parallel group: `0 <= rank < group size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u32);

impl Rank {
    /// The rank as an index into per-rank arrays.
    pub const fn idx(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Number of ranks of a group: `1..=64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct GroupSize(u32);

impl GroupSize {
    /// A checked group size.
    ///
    /// # Errors
    /// [`UnitError::GroupSize`] outside `1..=64`.
    pub const fn new(num_ranks: u32) -> Result<Self, UnitError> {
        if num_ranks == 0 || num_ranks > MAX_GROUP_SIZE {
            return Err(UnitError::GroupSize { got: num_ranks });
        }
        Ok(Self(num_ranks))
    }

    /// The number of ranks.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number of ranks, as a length of per-rank arrays.
    pub const fn len(self) -> usize {
        self.0 as usize
    }

    /// Never: a group has at least one rank.
    pub const fn is_empty(self) -> bool {
        false
    }

    /// All ranks, in order.
    pub fn ranks(self) -> impl DoubleEndedIterator<Item = Rank> + ExactSizeIterator {
        (0..self.0).map(Rank)
    }

    /// All ranks but `me`, in order.
    pub fn peers(self, me: Rank) -> impl DoubleEndedIterator<Item = Rank> {
        self.ranks().filter(move |&rank| rank != me)
    }
}

impl fmt::Display for GroupSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Index of a logical page in the group-wide pool. [`PageId::PAD`] (-1) marks a padding slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageId(pub i32);

impl PageId {
    /// A padding slot: all zero bytes, never an address.
    pub const PAD: Self = Self(-1);

    /// Whether this is [`PageId::PAD`].
    pub const fn is_pad(self) -> bool {
        self.0 == -1
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The number of one barrier, counted from the registration of the group and never restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A set of ranks, as a bit mask; printed as `[3, 5]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RankSet(pub u64);

impl RankSet {
    /// Adds a rank.
    pub const fn insert(&mut self, rank: Rank) {
        self.0 |= 1 << rank.0;
    }

    /// Whether the set holds `rank`.
    pub const fn contains(self, rank: Rank) -> bool {
        self.0 >> rank.0 & 1 == 1
    }

    /// Whether the set holds no rank.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The ranks, in order.
    pub fn iter(self) -> impl Iterator<Item = Rank> {
        (0..MAX_GROUP_SIZE).map(Rank).filter(move |&rank| self.contains(rank))
    }
}

impl FromIterator<Rank> for RankSet {
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> Self {
        let mut set = Self::default();
        ranks.into_iter().for_each(|rank| set.insert(rank));
        set
    }
}

impl fmt::Display for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|rank| rank.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_size_accepts_one_to_sixty_four_and_nothing_else() {
        assert!(GroupSize::new(0).is_err());
        assert_eq!(GroupSize::new(1).unwrap().len(), 1);
        assert_eq!(GroupSize::new(64).unwrap().get(), 64);
        assert!(GroupSize::new(65).unwrap_err().to_string().contains("65"));
    }

    #[test]
    fn rank_set_prints_its_members_in_order() {
        let set: RankSet = [Rank(5), Rank(3), Rank(63)].into_iter().collect();
        assert_eq!(set.to_string(), "[3, 5, 63]");
        assert!(set.contains(Rank(63)) && !set.contains(Rank(0)));
    }
}

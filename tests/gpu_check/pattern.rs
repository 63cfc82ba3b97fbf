//! Numbers that look random and are the same everywhere.

/// A sequence of numbers: the finaliser of SplitMix64 over a counter.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    state: u64,
}

impl Pattern {
    /// Another seed, another sequence.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) }
    }

    /// The next number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (self.state ^ self.state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    /// A number below `bound`, which is not 0.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len.next_multiple_of(8));
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// `0..len` in another order.
    pub(crate) fn permutation(&mut self, len: usize) -> Vec<i32> {
        let mut order: Vec<i32> = (0..len as i32).collect();
        for at in (1..len).rev() {
            order.swap(at, self.below(at as u64 + 1) as usize);
        }
        order
    }
}

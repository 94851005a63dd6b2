//! The only source of chance, so that a seed is the whole story (`SplitMix64`).

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `odds`.
    pub fn once_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    /// Something in each order of magnitude up to `bound`: most are small, some are large.
    pub fn magnitude(&mut self, bound: u64) -> u64 {
        let bits = u64::from(u64::BITS - bound.leading_zeros());
        let bound = bound.min(1 << self.below(bits + 1));
        self.below(bound + 1)
    }
}

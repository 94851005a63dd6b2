//! SHA-256 of bytes that come in pieces.
//!
//! Written here because the crate for it adds 16 KB to the agent, which has a bound
//! (docs/decisions/0018-the-agents-size.md). Where the processor has instructions for it, they are
//! used: a flood must not wait for its digest.

use crate::sys::sha::{self, CONSTANTS};

const BLOCK_BYTES: usize = 64;
/// Where the length of everything begins in the last block.
const LENGTH_AT: usize = BLOCK_BYTES - 8;

const START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// See the module's description.
#[derive(Clone)]
pub struct Sha256 {
    state: [u32; 8],
    /// What does not fill a block yet.
    rest: [u8; BLOCK_BYTES],
    bytes: u64,
}

impl Sha256 {
    pub fn new() -> Self {
        Self { state: START, rest: [0; BLOCK_BYTES], bytes: 0 }
    }

    /// How many bytes it is of.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline(never)]
    pub fn update(&mut self, mut input: &[u8]) {
        let at = self.bytes as usize % BLOCK_BYTES;
        self.bytes += input.len() as u64;
        if at > 0 {
            let count = input.len().min(BLOCK_BYTES - at);
            self.rest[at..at + count].copy_from_slice(&input[..count]);
            if at + count < BLOCK_BYTES {
                return;
            }
            compress(&mut self.state, &self.rest);
            input = &input[count..];
        }
        let whole = input.len() / BLOCK_BYTES * BLOCK_BYTES;
        compress(&mut self.state, &input[..whole]);
        self.rest[..input.len() - whole].copy_from_slice(&input[whole..]);
    }

    /// The digest of everything so far.
    pub fn finish(mut self) -> [u32; 8] {
        let bits = self.bytes.wrapping_mul(8);
        self.update(&[0x80]);
        while self.bytes as usize % BLOCK_BYTES != LENGTH_AT {
            self.update(&[0]);
        }
        self.update(&bits.to_be_bytes());
        self.state
    }
}

/// Adds whole blocks.
#[inline(never)]
fn compress(state: &mut [u32; 8], blocks: &[u8]) {
    if !sha::compress(state, blocks) {
        blocks.chunks_exact(BLOCK_BYTES).for_each(|block| compress_slowly(state, block));
    }
}

/// One block, by the standard's own words (FIPS 180-4).
#[expect(clippy::many_single_char_names, reason = "they are the standard's")]
fn compress_slowly(state: &mut [u32; 8], block: &[u8]) {
    let mut words = [0_u32; 64];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    let turned = |word: u32, [a, b, c]: [u32; 3]| {
        word.rotate_right(a) ^ word.rotate_right(b) ^ word.rotate_right(c)
    };
    for at in 16..words.len() {
        let (early, late) = (words[at - 15], words[at - 2]);
        let early = early.rotate_right(7) ^ early.rotate_right(18) ^ (early >> 3);
        let late = late.rotate_right(17) ^ late.rotate_right(19) ^ (late >> 10);
        words[at] =
            words[at - 16].wrapping_add(early).wrapping_add(words[at - 7]).wrapping_add(late);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, constant) in words.into_iter().zip(CONSTANTS) {
        let first = h
            .wrapping_add(turned(e, [6, 11, 25]))
            .wrapping_add((e & f) ^ (!e & g))
            .wrapping_add(constant)
            .wrapping_add(word);
        let second = turned(a, [2, 13, 22]).wrapping_add((a & b) ^ (a & c) ^ (b & c));
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: [u32; 8] = [
        0xba78_16bf,
        0x8f01_cfea,
        0x4141_40de,
        0x5dae_2223,
        0xb003_61a3,
        0x9617_7a9c,
        0xb410_ff61,
        0xf200_15ad,
    ];
    /// Of a million times `a`, which the standard gives as an example.
    const MILLION: [u32; 8] = [
        0xcdc7_6e5c,
        0x9914_fb92,
        0x81a1_c7e2,
        0x84d7_3e67,
        0xf180_9a48,
        0xa497_200e,
        0x046d_39cc,
        0xc711_2cd0,
    ];

    #[test]
    fn the_examples_of_the_standard_have_their_digests() {
        let mut sha = Sha256::new();
        sha.update(b"abc");
        assert_eq!(sha.finish(), ABC);
        for piece in [1, 63, 64, 65, 4096, 1_000_000] {
            let mut sha = Sha256::new();
            vec![b'a'; 1_000_000].chunks(piece).for_each(|piece| sha.update(piece));
            assert_eq!(sha.finish(), MILLION, "in pieces of {piece}");
        }
    }

    #[test]
    fn the_instructions_and_the_words_of_the_standard_agree() {
        let blocks: Vec<u8> = (0..64 * BLOCK_BYTES).map(|at| (at * 31 % 251) as u8).collect();
        let (mut fast, mut slow) = (START, START);
        if !sha::compress(&mut fast, &blocks) {
            return; // This processor has no such instructions, and then only the words are used.
        }
        blocks.chunks_exact(BLOCK_BYTES).for_each(|block| compress_slowly(&mut slow, block));
        assert_eq!(fast, slow);
    }
}

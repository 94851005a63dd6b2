//! The processor's instructions for SHA-256, and the numbers that they take.

/// What each round adds (FIPS 180-4).
#[rustfmt::skip]
pub const CONSTANTS: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

/// Adds blocks of 64 bytes to a digest's state; false if the processor has no instructions for it.
pub fn compress(state: &mut [u32; 8], blocks: &[u8]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if x86::is_there() {
        // SAFETY: the processor has the instructions that the function is compiled for.
        unsafe { x86::compress(state, blocks) };
        return true;
    }
    let _ = (state, blocks);
    false
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __cpuid, __cpuid_count, __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_extract_epi32,
        _mm_loadu_si128, _mm_set_epi32, _mm_set_epi64x, _mm_sha256msg1_epu32, _mm_sha256msg2_epu32,
        _mm_sha256rnds2_epu32, _mm_shuffle_epi8, _mm_shuffle_epi32,
    };
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::CONSTANTS;

    /// Leaf 1, ECX: SSSE3 and SSE4.1.
    const LEAF_1: u32 = 1 << 9 | 1 << 19;
    /// Leaf 7, EBX: SHA.
    const LEAF_7: u32 = 1 << 29;

    /// 0 is unknown, 1 is no, 2 is yes: in a virtual machine the question costs microseconds.
    static KNOWN: AtomicU8 = AtomicU8::new(0);

    pub fn is_there() -> bool {
        if KNOWN.load(Ordering::Relaxed) == 0 {
            let is_there = __cpuid(0).eax >= 7
                && __cpuid(1).ecx & LEAF_1 == LEAF_1
                && __cpuid_count(7, 0).ebx & LEAF_7 == LEAF_7;
            KNOWN.store(1 + u8::from(is_there), Ordering::Relaxed);
        }
        KNOWN.load(Ordering::Relaxed) == 2
    }

    fn load<T, const N: usize>(from: &[T; N]) -> __m128i {
        const { assert!(size_of::<[T; N]>() == 16, "a register has 16 bytes") };
        // SAFETY: 16 bytes are read of an array that has as many; they need no alignment.
        unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
    }

    #[target_feature(enable = "sha,ssse3,sse4.1")]
    #[expect(clippy::many_single_char_names, reason = "they are the standard's")]
    pub fn compress(state: &mut [u32; 8], blocks: &[u8]) {
        let big_endian = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
        let [a, b, c, d, e, f, g, h] = state.map(|word| word as i32);
        let (mut abef, mut cdgh) = (_mm_set_epi32(a, b, e, f), _mm_set_epi32(c, d, g, h));
        for block in blocks.as_chunks::<64>().0 {
            let before = (abef, cdgh);
            let mut words = [abef; 4];
            for (word, bytes) in words.iter_mut().zip(block.as_chunks::<16>().0) {
                *word = _mm_shuffle_epi8(load(bytes), big_endian);
            }
            // Sixteen times four rounds; the words of later rounds come in behind.
            let [mut now, mut second, mut third, mut last] = words;
            for constants in CONSTANTS.as_chunks::<4>().0 {
                let sum = _mm_add_epi32(now, load(constants));
                cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
                abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32::<0x0e>(sum));
                let next = _mm_add_epi32(
                    _mm_sha256msg1_epu32(now, second),
                    _mm_alignr_epi8::<4>(last, third),
                );
                let next = _mm_sha256msg2_epu32(next, last);
                (now, second, third, last) = (second, third, last, next);
            }
            abef = _mm_add_epi32(abef, before.0);
            cdgh = _mm_add_epi32(cdgh, before.1);
        }
        *state = [
            _mm_extract_epi32::<3>(abef),
            _mm_extract_epi32::<2>(abef),
            _mm_extract_epi32::<3>(cdgh),
            _mm_extract_epi32::<2>(cdgh),
            _mm_extract_epi32::<1>(abef),
            _mm_extract_epi32::<0>(abef),
            _mm_extract_epi32::<1>(cdgh),
            _mm_extract_epi32::<0>(cdgh),
        ]
        .map(|word| word as u32);
    }
}

//! CRC-32C (Castagnoli) as the kernel counts it: begun with all ones, not inverted at the end.

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
}

pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(!0, |sum, &byte| sum >> 8 ^ TABLE[(sum as u8 ^ byte) as usize])
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_value_of_the_catalogue_comes_out() {
        assert_eq!(!super::crc32c(b"123456789"), 0xe306_9283);
    }
}

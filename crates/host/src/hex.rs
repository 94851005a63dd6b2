//! Bytes as lower-case hexadecimal digits. Pure.

/// Two digits for each byte.
pub fn digits(bytes: &[u8]) -> String {
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    nibbles.filter_map(|nibble| char::from_digit(u32::from(nibble), 16)).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(super::digits(&[0x00, 0x0f, 0xa0, 0xff]), "000fa0ff");
    }
}

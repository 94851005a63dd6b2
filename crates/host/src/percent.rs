//! Percent-encoding. Pure.

/// Text with its `%41`s read; `None` for what is not.
pub fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        decoded.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_percent_encoded_utf8_is_refused() {
        for broken in ["%", "%4", "%4g", "%ff", "%+1"] {
            assert_eq!(percent_decode(broken), None, "{broken}");
        }
        assert_eq!(percent_decode("%e2%82%AC+"), Some("€+".to_owned()));
    }
}

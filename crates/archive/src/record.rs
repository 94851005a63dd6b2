//! Writes the records of pax extended headers: `length key=value`.

/// Appends one record to a body.
pub(super) fn write_record(body: &mut Vec<u8>, key: &str, value: &[u8]) {
    // Space, equals sign and newline.
    let fixed = key.len() + value.len() + 3;
    // The length counts its own digits, which may add one digit.
    let mut length = fixed + decimal_digits(fixed);
    length = fixed + decimal_digits(length);
    body.extend_from_slice(format!("{length} {key}=").as_bytes());
    body.extend_from_slice(value);
    body.push(b'\n');
}

fn decimal_digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

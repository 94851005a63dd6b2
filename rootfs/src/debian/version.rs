//! The order of versions: Debian Policy, section 5.6.12.

use std::cmp::Ordering;

/// Compares `[epoch:]upstream[-revision]`.
pub fn compare(left: &str, right: &str) -> Ordering {
    let (left_epoch, left_upstream, left_revision) = split(left);
    let (right_epoch, right_upstream, right_revision) = split(right);
    left_epoch
        .cmp(&right_epoch)
        .then_with(|| compare_part(left_upstream, right_upstream))
        .then_with(|| compare_part(left_revision, right_revision))
}

fn split(version: &str) -> (u64, &str, &str) {
    let (epoch, rest) = match version.split_once(':') {
        Some((epoch, rest)) => (epoch.parse().unwrap_or(0), rest),
        None => (0, version),
    };
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, "0"));
    (epoch, upstream, revision)
}

/// Texts and numbers in turn, texts by the order of their letters, numbers by their value.
fn compare_part(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.as_bytes(), right.as_bytes());
    while !left.is_empty() || !right.is_empty() {
        let (left_text, left_rest) = take(left, |byte| !byte.is_ascii_digit());
        let (right_text, right_rest) = take(right, |byte| !byte.is_ascii_digit());
        let longest = left_text.len().max(right_text.len());
        let by_text = (0..longest)
            .map(|at| rank(left_text.get(at)).cmp(&rank(right_text.get(at))))
            .find(|order| order.is_ne());
        if let Some(order) = by_text {
            return order;
        }
        let (left_digits, left_rest) = take(left_rest, u8::is_ascii_digit);
        let (right_digits, right_rest) = take(right_rest, u8::is_ascii_digit);
        let (left_number, right_number) = (significant(left_digits), significant(right_digits));
        let by_number =
            left_number.len().cmp(&right_number.len()).then_with(|| left_number.cmp(right_number));
        if by_number.is_ne() {
            return by_number;
        }
        (left, right) = (left_rest, right_rest);
    }
    Ordering::Equal
}

fn take(bytes: &[u8], wanted: impl Fn(&u8) -> bool) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().position(|byte| !wanted(byte)).unwrap_or(bytes.len()))
}

fn significant(digits: &[u8]) -> &[u8] {
    take(digits, |&byte| byte == b'0').1
}

/// A tilde comes before the end, the end before letters, letters before all else.
fn rank(byte: Option<&u8>) -> u32 {
    match byte {
        Some(b'~') => 0,
        None => 1,
        Some(byte) if byte.is_ascii_alphabetic() => u32::from(*byte) + 2,
        Some(byte) => u32::from(*byte) + 2 + 256,
    }
}

#[cfg(test)]
mod tests {
    use super::compare;
    use std::cmp::Ordering::{Equal, Greater, Less};

    #[test]
    fn versions_are_ordered_as_the_policy_says() {
        for (left, right, order) in [
            ("1.0", "1.0", Equal),
            ("1.0", "1.0-0", Equal),
            ("1.0~rc1", "1.0", Less),
            ("1.0~~", "1.0~", Less),
            ("1.0", "1.0a", Less),
            ("1.0a", "1.0+", Less),
            ("1.9", "1.10", Less),
            ("1.09", "1.9", Equal),
            ("1:0.1", "9.9", Greater),
            ("2.36-9+deb12u10", "2.36-9+deb12u9", Greater),
            ("3.11.2-1+b1", "3.11.2-1~", Greater),
            ("6.1.176-1", "6.1.99-2", Greater),
        ] {
            assert_eq!(compare(left, right), order, "{left} and {right}");
            assert_eq!(compare(right, left), order.reverse(), "{right} and {left}");
        }
    }
}

//! Suggests the word that a mistyped one may have meant. Pure.

/// Edits between two words: letters changed, added or left out. Words are short by rule.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// The word of `known` that `wanted` probably means; none if all are too different.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A text longer than any word is no typing error, and must cost nothing.
    if wanted.len() > WORD_BYTES_MAX {
        return None;
    }
    let rate = |name: &'a str| {
        let is_part = wanted.len() >= PART_BYTES_MIN && name.contains(wanted);
        let edits = distance(wanted, name);
        (is_part || edits <= 1 + name.len() / 4).then_some((edits, name))
    };
    known.into_iter().filter_map(rate).min().map(|(_, name)| name)
}

/// The longest word that is compared.
const WORD_BYTES_MAX: usize = 128;
/// A shorter piece is part of too many words.
const PART_BYTES_MIN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_understood_and_another_word_is_not() {
        let known = ["listen", "tls_key", "tls_certificate", "runs_max"];
        let meant = |wanted| nearest(wanted, known);
        assert_eq!(meant("lisen"), Some("listen"));
        assert_eq!(meant("tls_cert"), Some("tls_certificate"));
        assert_eq!(meant("tls-key"), Some("tls_key"));
        assert_eq!(meant("max_runs"), None);
        assert_eq!(meant("s"), None);
        assert_eq!(meant(&"x".repeat(1_000_000)), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}

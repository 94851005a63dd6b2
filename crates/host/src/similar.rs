//! Suggests the word that a mistyped one may have meant. Pure.

/// Edits between two words: letters changed, added, left out, or swapped with the next. Words are short by rule.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    // The letter before, and the row before it, which is there as soon as that is.
    let (mut last, mut before_last) = (None, Vec::<usize>::new());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let change = row[j] + usize::from(from != *to);
            let mut edits = change.min(row[j + 1] + 1).min(next[j] + 1);
            if j > 0 && last == Some(*to) && from == b[j - 1] {
                edits = edits.min(before_last[j - 1] + 1);
            }
            next.push(edits);
        }
        before_last = std::mem::replace(&mut row, next);
        last = Some(from);
    }
    row[b.len()]
}

/// The word of `known` that `wanted` probably means; none if all are too different.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    all_nearest(wanted, known).into_iter().next()
}

/// The words of `known` that `wanted` means with the same probability, in their order.
pub fn all_nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // A text longer than any word is no typing error, and must cost nothing.
    if wanted.len() > WORD_BYTES_MAX {
        return Vec::new();
    }
    let rate = |name: &'a str| {
        let is_part = wanted.len() >= PART_BYTES_MIN && name.contains(wanted);
        let edits = distance(wanted, name);
        (is_part || edits <= 1 + name.len() / 4).then_some((edits, name))
    };
    let mut rated: Vec<_> = known.into_iter().filter_map(rate).collect();
    let least = rated.iter().map(|(edits, _)| *edits).min();
    rated.retain(|(edits, _)| Some(*edits) == least);
    rated.sort_unstable();
    rated.dedup();
    rated.into_iter().map(|(_, name)| name).collect()
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
        assert_eq!((distance("buidl", "build"), distance("rnu", "run")), (1, 1));
        assert_eq!((distance("abcd", "badc"), distance("ab", ""), distance("", "ab")), (2, 2, 2));
    }

    #[test]
    fn words_that_are_as_near_are_all_found() {
        let known = ["stop", "start", "stats", "restart", "start"];
        assert_eq!(all_nearest("stat", known), ["start", "stats"]);
        assert_eq!(all_nearest("strat", known), ["start"]);
        assert_eq!(all_nearest("stpo", known), ["stop"]);
        assert_eq!(all_nearest("qqqqqq", known), [""; 0]);
    }
}

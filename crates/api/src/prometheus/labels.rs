//! Labels of sandboxes as labels of the figures: those that the operator has named, each with a
//! bounded number of values.
//!
//! The makers of sandboxes choose the values, and Prometheus keeps a series for each value. So the
//! first values get series of their own, for as long as this bridge lives, and all others are
//! [`OTHER`].

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use sandbox::Labels;

/// The value in place of those that came too late.
pub const OTHER: &str = "other";
/// What labels are called among the figures' own, which so are never theirs.
const PREFIX: &str = "label_";

/// Which labels are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricLabels {
    pub keys: Vec<String>,
    pub values_max: usize,
}

/// The labels that are shown, and the values that have come.
#[derive(Debug, Default)]
pub struct ExportedLabels {
    labels: Vec<Label>,
    values_max: usize,
}

#[derive(Debug)]
struct Label {
    key: String,
    name: String,
    values: Mutex<BTreeSet<String>>,
}

impl ExportedLabels {
    pub fn new(options: MetricLabels) -> Self {
        let label = |key: String| Label { name: name_of(&key), key, values: Mutex::default() };
        Self {
            labels: options.keys.into_iter().map(label).collect(),
            values_max: options.values_max,
        }
    }

    /// The names and values of what is shown of a sandbox's labels. One that it has not is left out,
    /// which means the same as an empty one.
    pub fn of(&self, labels: &Labels) -> Vec<(String, String)> {
        let shown = |label: &Label| {
            let value = labels.get(&label.key)?;
            Some((label.name.clone(), label.value(value, self.values_max)))
        };
        self.labels.iter().filter_map(shown).collect()
    }
}

impl Label {
    fn value(&self, value: &str, values_max: usize) -> String {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let is_shown = values.contains(value) || values.len() < values_max;
        if !is_shown {
            return OTHER.to_owned();
        }
        if !values.contains(value) {
            values.insert(value.to_owned());
        }
        value.to_owned()
    }
}

/// A name that Prometheus takes. The options have no two keys that become the same.
fn name_of(key: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    PREFIX.chars().chain(key.chars().map(plain)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_not_shown_and_values_have_an_end() {
        let requested =
            MetricLabels { keys: vec!["team".to_owned(), "a.b/c".to_owned()], values_max: 2 };
        let shown = ExportedLabels::new(requested);
        let of = |pairs: &[(&str, &str)]| {
            let labels = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            shown.of(&labels.collect())
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(of(&[("job", "1")]), []);
        let both = of(&[("team", "x"), ("a.b/c", "\"")]);
        assert_eq!(both, [pair("label_team", "x"), pair("label_a_b_c", "\"")]);
        assert_eq!(of(&[("team", "y")]), [pair("label_team", "y")]);
        assert_eq!(of(&[("team", "z")]), [pair("label_team", OTHER)]);
        assert_eq!(of(&[("team", "x")]), [pair("label_team", "x")], "the first stay");
        assert_eq!(of(&[("a.b/c", "z")]), [pair("label_a_b_c", "z")], "each has its own");
    }
}

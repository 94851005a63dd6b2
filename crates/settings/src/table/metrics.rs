//! `[metrics]`: the series for Prometheus.

use super::{ConfigOption, Section, put_usize};
use crate::limits::{METRIC_LABELS_MAX, METRIC_VALUES_MAX};
use crate::shown::quote_all;
use crate::value::{InvalidValue, RawValue};

pub const SECTION: Section = Section {
    name: "metrics",
    about: "What `/metrics` shows in addition to its usual series.",
    options: &[
        ConfigOption {
            key: "labels",
            values: "a list of label keys",
            about: "Labels of sandboxes that become labels of their series: `team` as \
                    `label_team`. Other labels are left out: every value adds a series, and \
                    the creators of sandboxes choose the values.",
            set: |settings, given| {
                settings.metrics.labels = labels(given)?;
                Ok(())
            },
            show: |settings| quote_all(&settings.metrics.labels),
        },
        ConfigOption {
            key: "label_values_max",
            values: "1 to 10000",
            about: "How many values each label may have while the bridge runs. The first ones \
                    are shown, all others as `other`.",
            set: |settings, given| {
                let count = given.whole(1, METRIC_VALUES_MAX);
                put_usize(&mut settings.metrics.label_values_max, count)
            },
            show: |settings| settings.metrics.label_values_max.to_string(),
        },
    ],
};

fn labels(given: &RawValue) -> Result<Vec<String>, InvalidValue> {
    let keys = given.texts()?;
    if keys.len() > METRIC_LABELS_MAX {
        return Err(InvalidValue::TooMany { entries_max: METRIC_LABELS_MAX });
    }
    let mut names = Vec::with_capacity(keys.len());
    for key in &keys {
        if !is_key(key) {
            return Err(InvalidValue::LabelKey((*key).to_owned()));
        }
        // As Prometheus has them, two that differ in their signs alone are one.
        let name = key.replace(['.', '/', '-'], "_");
        if names.contains(&name) {
            return Err(InvalidValue::SameLabel((*key).to_owned()));
        }
        names.push(name);
    }
    Ok(keys.into_iter().map(str::to_owned).collect())
}

/// The rules of the keys of labels.
fn is_key(text: &str) -> bool {
    let begins_well = text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._/-".contains(&b));
    begins_well && is_plain && text.len() <= sandbox::limits::LABEL_KEY_BYTES_MAX
}

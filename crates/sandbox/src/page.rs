//! Pages of a list of sandboxes: their filter and their cursor. Pure.

use super::{Name, Phase, Record, SandboxRef, label};
use crate::limits::PAGE_RECORDS_MAX;

/// Which sandboxes are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// All namespaces if absent.
    pub namespace: Option<Name>,
    /// All of these must match.
    pub labels: Vec<label::Selector>,
    /// Any of these; all if empty.
    pub phases: Vec<Phase>,
    /// Only sandboxes after this one in the order of namespace and name; it need not exist any
    /// more.
    pub after: Option<SandboxRef>,
    /// The largest number; [`PAGE_RECORDS_MAX`] is the maximum and the default.
    pub limit: Option<usize>,
}

/// Sandboxes in the order of namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub records: Vec<Record>,
    /// The cursor of the next page; absent at the end.
    pub next: Option<SandboxRef>,
}

impl Filter {
    pub fn matches(&self, record: &Record) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == record.namespace)
            && self.labels.iter().all(|selector| selector.matches(&record.labels))
            && (self.phases.is_empty() || self.phases.contains(&record.state.phase()))
            && self.after.as_ref().is_none_or(|after| record.which() > *after)
    }

    /// Cuts the page from all records that match.
    pub(super) fn page(&self, mut matching: Vec<Record>) -> Page {
        matching.sort_by_cached_key(Record::which);
        let limit = self.limit.unwrap_or(PAGE_RECORDS_MAX).clamp(1, PAGE_RECORDS_MAX);
        let more = matching.len() > limit;
        matching.truncate(limit);
        let next = matching.last().filter(|_| more).map(Record::which);
        Page { records: matching, next }
    }
}

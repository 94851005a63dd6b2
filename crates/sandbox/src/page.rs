//! Pages of sandboxes: which are asked for, and how a list goes on. Pure.

use super::{Name, Phase, Record, SandboxRef, label};
use crate::limits::PAGE_RECORDS_MAX;

/// Which sandboxes are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Those of all namespaces when absent.
    pub namespace: Option<Name>,
    /// All of these must match.
    pub labels: Vec<label::Selector>,
    /// One of these; any when empty.
    pub phases: Vec<Phase>,
    /// Those behind this one in the order of namespace and name, whether it is still there or not.
    pub after: Option<SandboxRef>,
    /// At most so many; [`PAGE_RECORDS_MAX`] is the most, and what none asks for.
    pub limit: Option<usize>,
}

/// Sandboxes in the order of namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub records: Vec<Record>,
    /// What the next page is behind; absent when there is no more.
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

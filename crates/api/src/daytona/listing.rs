//! Lists of sandboxes: by their labels and other facts, one page at a time.

use std::collections::BTreeMap;

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::lacking;
use super::limits::{PAGE_DEFAULT, PAGE_MAX};
use super::replies::{disk_gib, is_there, memory_gib, shown, snapshot, state};
use crate::body::json_response;
use crate::call::Call;
use crate::samples::cpus;
use crate::shape::{Nothing, Query, Raw};
use host::instant::parse;
use sandbox::Record;
use sandbox::refusal::Refusal;

/// What a list is asked for. What is not here is refused by `others`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Wanted {
    cursor: Option<String>,
    limit: Option<usize>,
    /// What the id, or the name, begins with.
    id: Option<String>,
    name: Option<String>,
    /// An object of JSON.
    labels: Option<String>,
    states: Vec<String>,
    snapshots: Vec<String>,
    min_cpu: Option<u64>,
    max_cpu: Option<u64>,
    #[serde(rename = "minMemoryGiB")]
    min_memory: Option<u64>,
    #[serde(rename = "maxMemoryGiB")]
    max_memory: Option<u64>,
    #[serde(rename = "minDiskGiB")]
    min_disk: Option<u64>,
    #[serde(rename = "maxDiskGiB")]
    max_disk: Option<u64>,
    created_at_after: Option<String>,
    created_at_before: Option<String>,
    sort: Option<String>,
    order: Option<String>,
    // Daytona has these, and no sandbox here differs by them.
    region_ids: Vec<String>,
    is_public: Option<bool>,
    is_recoverable: Option<bool>,
    last_event_after: Option<String>,
    last_event_before: Option<String>,
    auto_destroy_at_after: Option<String>,
    auto_destroy_at_before: Option<String>,
}

/// By what a list is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Created,
    Name,
}

/// A filter whose texts are understood.
struct Filter {
    wanted: Wanted,
    labels: BTreeMap<String, String>,
    after_ms: Option<u64>,
    before_ms: Option<u64>,
}

impl Wanted {
    fn understood(self) -> Result<Filter, Refusal> {
        let others = [
            (!self.region_ids.is_empty(), "targets"),
            (self.is_public.is_some(), "isPublic"),
            (self.is_recoverable.is_some(), "isRecoverable"),
            (self.last_event_after.is_some(), "lastEventAfter"),
            (self.last_event_before.is_some(), "lastEventBefore"),
            (self.auto_destroy_at_after.is_some(), "autoDestroyAtAfter"),
            (self.auto_destroy_at_before.is_some(), "autoDestroyAtBefore"),
        ];
        if let Some((_, name)) = others.into_iter().find(|(is_given, _)| *is_given) {
            return Err(lacking(&format!("a list filtered by {name}")));
        }
        let labels = match self.labels.as_deref() {
            None => BTreeMap::new(),
            Some(text) => serde_json::from_str(text).map_err(|error| {
                Refusal::invalid(format!("labels is no object of JSON with texts: {error}"))
            })?,
        };
        let time = |name: &str, text: &Option<String>| match text.as_deref() {
            None => Ok(None),
            Some(text) => parse_time(text)
                .map(Some)
                .ok_or_else(|| Refusal::invalid(format!("{name}: {text:?} is no time"))),
        };
        let after_ms = time("createdAtAfter", &self.created_at_after)?;
        let before_ms = time("createdAtBefore", &self.created_at_before)?;
        Ok(Filter { wanted: self, labels, after_ms, before_ms })
    }

    fn order(&self) -> Result<(Order, bool), Refusal> {
        let order = match self.sort.as_deref() {
            None | Some("createdAt") => Order::Created,
            Some("name") => Order::Name,
            Some(other) => return Err(lacking(&format!("a list sorted by {other}"))),
        };
        match self.order.as_deref() {
            Some("asc") => Ok((order, true)),
            None | Some("desc") => Ok((order, false)),
            Some(other) => {
                Err(Refusal::invalid(format!("order must be asc or desc, not {other:?}")))
            }
        }
    }
}

/// A time with an offset as Python writes it (`+0000`), or as the standard has it.
fn parse_time(text: &str) -> Option<u64> {
    let is_short = text.len() > 5 && text.is_ascii() && !text.ends_with('Z');
    let (head, zone) = text.split_at_checked(text.len().checked_sub(5)?)?;
    let is_short = is_short && zone.starts_with(['+', '-']) && !zone.contains(':');
    if is_short { parse(&format!("{head}{}:{}", &zone[..3], &zone[3..])) } else { parse(text) }
}

impl Filter {
    fn takes(&self, record: &Record) -> bool {
        let Self { wanted, labels, .. } = self;
        let begins = |prefix: &Option<String>, text: &str| {
            prefix.as_deref().is_none_or(|prefix| text.starts_with(prefix))
        };
        let among = |list: &[String], text: Option<&str>| {
            list.is_empty() || text.is_some_and(|text| list.iter().any(|one| one == text))
        };
        let within = |least: Option<u64>, most: Option<u64>, value: u64| {
            least.is_none_or(|least| value >= least) && most.is_none_or(|most| value <= most)
        };
        is_there(record)
            && begins(&wanted.id, record.id.as_str())
            && begins(&wanted.name, record.name.as_str())
            && labels.iter().all(|(key, value)| record.labels.get(key) == Some(value))
            && among(&wanted.states, state(record))
            && among(&wanted.snapshots, snapshot(record))
            && within(wanted.min_cpu, wanted.max_cpu, cpus(record))
            && within(wanted.min_memory, wanted.max_memory, memory_gib(record))
            && within(wanted.min_disk, wanted.max_disk, disk_gib(record))
            && within(self.after_ms, self.before_ms, record.created_at_ms)
    }
}

pub async fn list(call: Call, Query(wanted): Query<Wanted>, _: Nothing) -> Result<Raw, Refusal> {
    let (order, is_ascending) = wanted.order()?;
    let limit = wanted.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Refusal::invalid(format!("limit must be from 1 to {PAGE_MAX}")));
    }
    let cursor = wanted.cursor.clone();
    let filter = wanted.understood()?;
    let namespace = call.one_namespace(None)?;
    let mut records = call.api.registry().list(namespace.as_ref());
    records.retain(|record| filter.takes(record));
    let place = |record: &Record| match order {
        Order::Created => format!("{:016x}-{}", record.created_at_ms, record.id),
        Order::Name => format!("{}-{}", record.name, record.id),
    };
    records.sort_by_cached_key(place);
    if !is_ascending {
        records.reverse();
    }
    let is_after = |record: &&Record| {
        cursor.as_deref().is_none_or(|cursor| {
            let place = place(record);
            if is_ascending { place.as_str() > cursor } else { place.as_str() < cursor }
        })
    };
    let mut rest = records.iter().filter(is_after);
    let page: Vec<&Record> = rest.by_ref().take(limit).collect();
    let next = page.last().filter(|_| rest.next().is_some()).map(|last| place(last));
    let items: Vec<Value> = page.into_iter().map(|record| shown(&call, record)).collect();
    Ok(Raw(json_response(StatusCode::OK, &json!({ "items": items, "nextCursor": next }))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_both_clients_write_them() {
        let expected = parse("2026-11-27T08:00:00Z");
        assert!(expected.is_some());
        for text in
            ["2026-11-27T08:00:00Z", "2026-11-27T08:00:00+0000", "2026-11-27T08:00:00+00:00"]
        {
            assert_eq!(parse_time(text), expected, "{text}");
        }
        for broken in ["", "now", "+0000", "€€€€€"] {
            assert_eq!(parse_time(broken), None, "{broken}");
        }
    }
}

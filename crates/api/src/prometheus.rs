//! `/metrics`: what sandboxes use and what the server does, as Prometheus reads it. A collector of OpenTelemetry
//! gets the same figures.
//!
//! A sandbox whose agent does not answer is left out, so that one that hangs costs the others nothing.

mod labels;
mod parts;
mod samples;
mod text;

pub use labels::{ExportedLabels, MetricLabels};
pub use samples::Samples;

use std::collections::BTreeMap;

use super::Api;
use super::call::Call;
use super::counters::BUCKETS_US;
use super::limits::{SCRAPE_SANDBOXES_MAX, SCRAPE_SCOPES_MAX};
use super::route::{Operation, operation};
use super::shape::{Nothing, Page};
use hyper::Method;
use protocol::metrics::Sample;
use sandbox::caps::CapUse;
use sandbox::pool::ShelfStatus;
use sandbox::refusal::Refusal;
use sandbox::{Name, Phase, Record, Registry, SandboxRef};
use text::Text;

const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";
const US_PER_S: f64 = 1e6;

pub fn operations() -> Vec<Operation> {
    let summary = "Metrics of the sandboxes and the server, for Prometheus.";
    vec![operation(Method::GET, "/metrics", "prometheus", summary, scrape).tag("server")]
}

async fn scrape(call: Call, _: Nothing, _: Nothing) -> Result<Page, Refusal> {
    let mut text = Text::lines();
    write(&call.api, call.caller.only_namespace(), &mut text).await;
    Ok(Page { kind: KIND, text: text.into_bytes() })
}

/// The figures of all namespaces and of the server.
pub async fn figures(api: &Api) -> Vec<otel::Family> {
    let mut text = Text::families();
    write(api, None, &mut text).await;
    text.into_families()
}

async fn write(api: &Api, only: Option<&Name>, text: &mut Text) {
    let records = api.registry().list(only);
    let age = |record: &Record| (record.created_at_ms, record.which());
    let shown = oldest(&records, SCRAPE_SANDBOXES_MAX, age);
    let samples = sample(api, &shown).await;
    let labels = records.iter().map(|record| (record.which(), api.labels().of(&record.labels)));
    sandboxes(text, &records, &samples, &labels.collect());
    let left_out = records.len() - shown.len();
    let about = "Sandboxes without series of their own, because there are too many.";
    text.single("burrow_sandboxes_left_out", "gauge", about, left_out as f64);
    // What the server does for all is not for the holder of one namespace.
    if only.is_none() {
        server(text, api);
        parts::Parts::look(api).await.write(text, api);
    }
}

/// The sandboxes that have series of their own. The oldest stay, so that no series comes and goes while others are
/// made and removed.
fn oldest<T: Clone, K: Ord>(all: &[T], max: usize, age: impl FnMut(&T) -> K) -> Vec<T> {
    let mut oldest = all.to_vec();
    if oldest.len() > max {
        oldest.sort_by_key(age);
        oldest.truncate(max);
    }
    oldest
}

/// What a family of numbers takes from a sample.
type Read = fn(&Sample) -> Option<f64>;

/// What is shown of each sandbox's labels.
type Labelled = BTreeMap<SandboxRef, Vec<(String, String)>>;

/// The newest sample of each running sandbox.
async fn sample(api: &Api, records: &[Record]) -> BTreeMap<SandboxRef, Sample> {
    let mut samples = samples::of(api, records).await;
    let sampled = |record: &Record| Some((record.which(), samples.remove(&record.id)?));
    records.iter().filter_map(sampled).collect()
}

fn sandboxes(
    text: &mut Text,
    records: &[Record],
    samples: &BTreeMap<SandboxRef, Sample>,
    labelled: &Labelled,
) {
    text.family("burrow_sandboxes", "gauge", "Sandboxes by state.");
    for phase in Phase::ALL {
        let count = records.iter().filter(|record| record.state.phase() == phase).count();
        text.line("burrow_sandboxes", &[("state", phase.name())], count as f64);
    }
    by_label(text, records, labelled);
    let families: [(&str, &str, &str, Read); 15] = [
        ("burrow_sandbox_cpu_seconds_total", "counter", "CPU time used.", |sample| {
            Some(sample.cpu_us as f64 / US_PER_S)
        }),
        ("burrow_sandbox_memory_bytes", "gauge", "Memory used.", |sample| {
            Some(sample.memory_bytes as f64)
        }),
        ("burrow_sandbox_memory_bytes_max", "gauge", "Memory limit.", |sample| {
            sample.memory_bytes_max.map(|bytes| bytes as f64)
        }),
        ("burrow_sandbox_disk_bytes", "gauge", "Bytes used in the writable layer.", |sample| {
            sample.disk_bytes.map(|bytes| bytes as f64)
        }),
        ("burrow_sandbox_disk_bytes_max", "gauge", "Size of the writable layer.", |sample| {
            sample.disk_bytes_max.map(|bytes| bytes as f64)
        }),
        ("burrow_sandbox_processes", "gauge", "Processes.", |sample| {
            Some(f64::from(sample.processes))
        }),
        (
            "burrow_sandbox_oom_kills_total",
            "counter",
            "Processes killed because memory ran out.",
            |sample| sample.oom_kills.map(|kills| kills as f64),
        ),
        ("burrow_sandbox_read_bytes_total", "counter", "Read from block devices.", |sample| {
            sample.read_bytes.map(|bytes| bytes as f64)
        }),
        ("burrow_sandbox_written_bytes_total", "counter", "Written to block devices.", |sample| {
            sample.written_bytes.map(|bytes| bytes as f64)
        }),
        ("burrow_sandbox_cpu_user_seconds_total", "counter", "CPU time of programs.", |sample| {
            sample.cpu_user_us.map(|us| us as f64 / US_PER_S)
        }),
        (
            "burrow_sandbox_cpu_system_seconds_total",
            "counter",
            "CPU time of the kernel.",
            |sample| sample.cpu_system_us.map(|us| us as f64 / US_PER_S),
        ),
        (
            "burrow_sandbox_cpu_throttled_seconds_total",
            "counter",
            "Time for which the limit on CPU time kept programs from running.",
            |sample| sample.cpu_throttled_us.map(|us| us as f64 / US_PER_S),
        ),
        (
            "burrow_sandbox_memory_bytes_peak",
            "gauge",
            "The most memory at once, cache included.",
            |sample| sample.memory_bytes_peak.map(|bytes| bytes as f64),
        ),
        ("burrow_sandbox_cache_bytes", "gauge", "Cached pages of files on disks.", |sample| {
            sample.cache_bytes.map(|bytes| bytes as f64)
        }),
        ("burrow_sandbox_swap_bytes", "gauge", "Memory moved to swap.", |sample| {
            sample.swap_bytes.map(|bytes| bytes as f64)
        }),
    ];
    for (name, kind, help, read) in families {
        text.family(name, kind, help);
        // Each sandbox counts from its own beginning.
        text.counts_from_elsewhere();
        for (which, sample) in samples {
            let mut labels =
                vec![("namespace", which.namespace.as_str()), ("name", which.name.as_str())];
            let own = labelled.get(which).into_iter().flatten();
            labels.extend(own.map(|(name, value)| (name.as_str(), value.as_str())));
            if let Some(value) = read(sample) {
                text.line(name, &labels, value);
            }
        }
    }
}

/// Sandboxes by each of the labels that are shown, whether their agents answer or not.
fn by_label(text: &mut Text, records: &[Record], labelled: &Labelled) {
    let mut counts: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
    for record in records {
        for (name, value) in labelled.get(&record.which()).into_iter().flatten() {
            *counts.entry((name, value, record.state.name())).or_default() += 1;
        }
    }
    if counts.is_empty() {
        return;
    }
    let family = "burrow_sandboxes_by_label";
    text.family(family, "gauge", "Sandboxes by state and by each exported label.");
    for ((name, value, state), count) in counts {
        text.line(family, &[(name, value), ("state", state)], count as f64);
    }
}

fn server(text: &mut Text, api: &Api) {
    text.family("burrow_build_info", "gauge", "The server's version.");
    text.line("burrow_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    text.single("burrow_connections", "gauge", "Open connections.", api.places().open() as f64);
    let runs = api.admission().running() as f64;
    text.single("burrow_runs", "gauge", "Runs and commands in progress.", runs);
    let held = api.budget().taken_bytes() as f64;
    let about = "Memory that calls in progress hold for bodies, output and slow readers.";
    text.single("burrow_calls_memory_bytes", "gauge", about, held);
    if let Some(own) = ProcessUse::read() {
        let cpu = "CPU time of the server.";
        text.single("process_cpu_seconds_total", "counter", cpu, own.cpu_seconds);
        let memory = "Memory of the server.";
        text.single("process_resident_memory_bytes", "gauge", memory, own.resident_bytes);
        text.single(
            "process_open_fds",
            "gauge",
            "Open file descriptors of the server.",
            own.descriptors,
        );
    }
    pool(text, &api.registry().pool());
    caps(text, api.registry());
    let calls = api.counters().all();
    let name = "burrow_http_requests_total";
    text.family(name, "counter", "Answered requests.");
    for ((operation, status), calls) in &calls {
        let labels = [("operation", *operation), ("status", &status.to_string())];
        text.line(name, &labels, calls.count as f64);
    }
    telemetry(text, api);
    let name = "burrow_http_request_duration_seconds";
    text.family(name, "histogram", "Duration of requests.");
    let bounds = BUCKETS_US.map(|bound| bound as f64 / US_PER_S);
    for ((operation, status), calls) in &calls {
        let labels = [("operation", *operation), ("status", &status.to_string())];
        let seconds = calls.sum_us as f64 / US_PER_S;
        text.spread(name, &labels, &bounds, (&calls.buckets, calls.count, seconds));
    }
}

/// What became of what a collector should have.
fn telemetry(text: &mut Text, api: &Api) {
    let counts = api.otel().counts();
    if counts.is_empty() {
        return;
    }
    let name = "burrow_otel_sent_total";
    text.family(name, "counter", "Spans, points and records that the collector has taken.");
    for (signal, counts, _) in &counts {
        text.line(name, &[("signal", signal.name())], counts.sent as f64);
    }
    let name = "burrow_otel_lost_total";
    text.family(name, "counter", "Spans, points and records that the collector will not get.");
    for (signal, counts, _) in &counts {
        let reasons = [
            ("queue_full", counts.overflowed),
            ("refused", counts.refused),
            ("not_taken", counts.abandoned),
        ];
        for (reason, count) in reasons {
            text.line(name, &[("signal", signal.name()), ("reason", reason)], count as f64);
        }
    }
    let name = "burrow_otel_waiting";
    text.family(name, "gauge", "Spans and records that wait to be sent.");
    for (signal, _, waiting) in &counts {
        text.line(name, &[("signal", signal.name())], *waiting as f64);
    }
}

/// What a family of numbers takes from an entry of the pool.
type ReadShelf = fn(&ShelfStatus) -> f64;

fn pool(text: &mut Text, shelves: &[ShelfStatus]) {
    let families: [(&str, &str, &str, ReadShelf); 7] = [
        ("burrow_pool_wanted", "gauge", "Machines that the pool should hold ready.", |it| {
            it.wanted as f64
        }),
        ("burrow_pool_ready", "gauge", "Machines that are ready.", |it| it.ready as f64),
        ("burrow_pool_starting", "gauge", "Machines that are starting.", |it| it.starting as f64),
        ("burrow_pool_claimed_total", "counter", "Sandboxes from the pool.", |it| {
            it.counts.claimed as f64
        }),
        (
            "burrow_pool_missed_total",
            "counter",
            "Sandboxes that found no ready machine in the pool.",
            |it| it.counts.missed as f64,
        ),
        (
            "burrow_pool_replaced_total",
            "counter",
            "Machines that ended before a sandbox claimed them.",
            |it| it.counts.replaced as f64,
        ),
        ("burrow_pool_failed_total", "counter", "Machines that failed to start.", |it| {
            it.counts.failed as f64
        }),
    ];
    if shelves.is_empty() {
        return;
    }
    for (name, kind, help, read) in families {
        text.family(name, kind, help);
        // Two entries may be alike but for their memory: their places distinguish them.
        for (number, shelf) in shelves.iter().enumerate() {
            let (entry, machine) = (number.to_string(), shelf.machine.name());
            let labels = [("entry", entry.as_str()), ("image", &shelf.image), ("machine", machine)];
            text.line(name, &labels, read(shelf));
        }
    }
}

/// What a family of numbers takes from one number beside its cap.
type ReadRow = fn(&CapUse) -> Option<u64>;

/// What those use that have a cap, and how often one was in the way.
fn caps(text: &mut Text, registry: &Registry) {
    let scopes = registry.capped(SCRAPE_SCOPES_MAX);
    let families: [(&str, &str, ReadRow); 2] = [
        ("burrow_cap_used", "Use of each resource that has a cap.", |row| {
            row.allowed.map(|_| row.used)
        }),
        ("burrow_cap_allowed", "Cap on each resource.", |row| row.allowed),
    ];
    for (name, help, read) in families {
        text.family(name, "gauge", help);
        for (scope, used, cap) in &scopes {
            for row in used.rows(cap) {
                let labels = [("scope", scope.kind()), ("name", scope.name()), ("cap", row.cap)];
                if let Some(value) = read(&row) {
                    text.line(name, &labels, value as f64);
                }
            }
        }
    }
    let name = "burrow_cap_refusals_total";
    text.family(name, "counter", "Calls refused because of a cap.");
    for (cap, count) in registry.refused_by_caps() {
        text.line(name, &[("cap", cap)], count as f64);
    }
}

/// What this process uses.
struct ProcessUse {
    cpu_seconds: f64,
    resident_bytes: f64,
    descriptors: f64,
}

impl ProcessUse {
    fn read() -> Option<Self> {
        let usage =
            nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).ok()?;
        let seconds =
            |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / US_PER_S;
        let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
        let pages: f64 = statm.split(' ').nth(1)?.parse().ok()?;
        let page = rustix::param::page_size() as f64;
        let descriptors = std::fs::read_dir("/proc/self/fd").ok()?.count() as f64;
        Some(Self {
            cpu_seconds: seconds(usage.user_time()) + seconds(usage.system_time()),
            resident_bytes: pages * page,
            descriptors,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_sandboxes_keep_their_series() {
        let all = [(9, "a/new"), (1, "a/old"), (1, "b/old")];
        let names = |max: usize| {
            let shown = oldest(&all, max, |one| *one).into_iter();
            shown.map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(3), ["a/new", "a/old", "b/old"]);
        assert_eq!(names(2), ["a/old", "b/old"]);
        assert!(names(0).is_empty());
    }
}

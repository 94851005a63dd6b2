//! `sandbox.metrics.get`: the current usage of sandboxes, from their agents' newest samples.

use futures_util::{StreamExt, stream};
use protocol::metrics::Sample;
use serde::Serialize;
use tokio::time::timeout;

use super::failure::Failure;
use super::limits::{FIGURES_AT_ONCE_MAX, FIGURES_TIME_MAX};
use super::params::Params;
use super::written::Written;
use crate::Api;
use crate::call::Call;
use crate::creation::namespace_of;
use sandbox::{Name, Record, State};

/// The value that means all namespaces that the key reaches.
const ALL: &str = "*";
const BYTES_PER_MIB: u64 = 1024 * 1024;
const MICROS_PER_SECOND: u64 = 1_000_000;

#[derive(Serialize)]
struct Answer {
    sandboxes: Vec<SandboxFigures>,
}

/// Null is what is not known: of a sandbox that does not run, or in its first moments.
#[derive(Serialize)]
struct SandboxFigures {
    namespace: String,
    name: String,
    running: bool,
    /// Percent of one processor.
    cpu_usage: Option<f64>,
    /// MiB.
    memory_usage: Option<u64>,
    /// Bytes.
    disk_usage: Option<u64>,
}

pub async fn get(call: &Call, mut params: Params) -> Result<Written, Failure> {
    let namespace = match params.maybe_text("namespace")?.as_deref() {
        Some(ALL) => call.caller.only_namespace().cloned(),
        Some(text) => {
            let parsed: Result<Name, _> = text.parse();
            Some(parsed.map_err(|error| Failure::params(format!("namespace: {error}")))?)
        }
        None => Some(namespace_of(&call.caller, None)),
    };
    if let Some(namespace) = &namespace {
        call.reaches(namespace)?;
    }
    let name = params.maybe_name("sandbox")?;
    let records = call.api.registry().list(namespace.as_ref()).into_iter();
    let wanted = records.filter(|record| {
        name.as_ref().is_none_or(|name| record.name == *name)
            && call.caller.covers(&record.namespace)
    });
    let figures = wanted.map(|record| figures(&call.api, record));
    let sandboxes = stream::iter(figures).buffered(FIGURES_AT_ONCE_MAX).collect().await;
    Ok(Written::of(&Answer { sandboxes }))
}

async fn figures(api: &Api, record: Record) -> SandboxFigures {
    let running = matches!(record.state, State::Running | State::Stopping);
    let sample = if running { newest(api, &record).await } else { None };
    SandboxFigures {
        namespace: record.namespace.to_string(),
        name: record.name.to_string(),
        running,
        cpu_usage: sample.as_ref().map(cpu_percent),
        memory_usage: sample.as_ref().map(|sample| sample.memory_bytes.div_ceil(BYTES_PER_MIB)),
        disk_usage: sample.as_ref().and_then(|sample| sample.disk_bytes),
    }
}

async fn newest(api: &Api, record: &Record) -> Option<Sample> {
    let guest = api.registry().guest(&record.which()).ok()?;
    // One agent that is slow or gone must not hide the figures of the others.
    let samples = timeout(FIGURES_TIME_MAX, guest.newest_metrics(false)).await.ok()?.ok()?;
    samples.newest().copied()
}

/// The share since the sample before. The very first sample is taken as soon as the agent runs: what it counts is
/// the start, which is a share of the first second and not the load of the sandbox.
fn cpu_percent(sample: &Sample) -> f64 {
    let since_begin = || {
        let elapsed_us = sample.uptime_ms.saturating_mul(1000).max(MICROS_PER_SECOND);
        sample.cpu_us as f64 * 100.0 / elapsed_us as f64
    };
    sample.cpu_percent().unwrap_or_else(since_begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_processors_is_known_from_the_first_sample_on() {
        let mut sample = Sample { uptime_ms: 2000, cpu_us: 500_000, ..Sample::default() };
        assert!((cpu_percent(&sample) - 25.0).abs() < 1e-9);
        sample.cpu_hundredths = Some(9950);
        assert!((cpu_percent(&sample) - 99.5).abs() < 1e-9);
        assert!(cpu_percent(&Sample::default()) == 0.0);
    }

    #[test]
    fn a_start_is_no_load() {
        let sample = Sample { uptime_ms: 16, cpu_us: 12_000, ..Sample::default() };
        assert!((cpu_percent(&sample) - 1.2).abs() < 1e-9);
    }
}

//! The form of a sandbox's metrics.

use protocol::metrics::{Sample, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use agent_client::guest::metrics::Samples;

/// What 100 % of one CPU is in the samples of an agent.
const HUNDREDTHS: f64 = 100.0;

/// A page of samples.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsPage {
    /// Oldest first, with consecutive numbers.
    pub samples: Vec<MetricsSample>,
    /// Requested samples that are no longer kept, before those here.
    pub missing: u64,
    /// The number of the oldest kept sample.
    pub oldest: u64,
    /// The number that the next sample will have.
    pub next: u64,
    /// CPUs that the sandbox may use at once.
    pub cpus: u32,
    pub scope: MetricsScope,
}

/// What the numbers cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MetricsScope {
    /// A machine with a kernel of its own.
    Machine,
    /// The processes of the sandbox, on a shared kernel.
    Namespace,
    /// The agent and everything that it started.
    Agent,
}

/// What a sandbox used at one moment. What is not known is absent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsSample {
    pub number: u64,
    pub at_ms: u64,
    /// Since the agent began.
    pub uptime_ms: u64,
    /// CPU time used so far; it never decreases.
    pub cpu_us: u64,
    /// CPU use since the previous sample, where 100 is one CPU. The first sample has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub cpu_percent: Option<f64>,
    pub memory_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_bytes_max: Option<u64>,
    /// Bytes used in the writable file system at `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub disk_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub disk_bytes_max: Option<u64>,
    pub processes: u32,
    /// There were more processes than a sample covers.
    pub partial: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub oom_kills: Option<u64>,
    /// The share of the last ten seconds in which something waited for a CPU, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub cpu_pressure_percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub memory_pressure_percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub io_pressure_percent: Option<f64>,
    /// Bytes read from block devices so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub read_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub written_bytes: Option<u64>,
    /// The part of `cpu_us` in programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub cpu_user_us: Option<u64>,
    /// The part of `cpu_us` in the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub cpu_system_us: Option<u64>,
    /// How long the limit on CPU time has kept programs from running so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub cpu_throttled_us: Option<u64>,
    /// The most memory at once so far, cache included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_bytes_peak: Option<u64>,
    /// Pages of files on disks. The kernel can drop them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub cache_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub swap_bytes: Option<u64>,
}

impl From<Samples> for MetricsPage {
    fn from(samples: Samples) -> Self {
        let Samples { missing, oldest, next, cpus, scope, .. } = samples;
        let samples = samples.samples.iter().map(MetricsSample::from).collect();
        let scope = match scope {
            Scope::Machine => MetricsScope::Machine,
            Scope::Namespace => MetricsScope::Namespace,
            Scope::Agent => MetricsScope::Agent,
        };
        Self { samples, missing, oldest, next, cpus, scope }
    }
}

impl From<&Sample> for MetricsSample {
    fn from(sample: &Sample) -> Self {
        let percent = |share: Option<u32>| share.map(|share| f64::from(share) / HUNDREDTHS);
        Self {
            number: sample.number,
            at_ms: sample.time_ms,
            uptime_ms: sample.uptime_ms,
            cpu_us: sample.cpu_us,
            cpu_percent: sample.cpu_percent(),
            memory_bytes: sample.memory_bytes,
            memory_bytes_max: sample.memory_bytes_max,
            disk_bytes: sample.disk_bytes,
            disk_bytes_max: sample.disk_bytes_max,
            processes: sample.processes,
            partial: sample.partial,
            oom_kills: sample.oom_kills,
            cpu_pressure_percent: percent(sample.cpu_pressure),
            memory_pressure_percent: percent(sample.memory_pressure),
            io_pressure_percent: percent(sample.io_pressure),
            read_bytes: sample.read_bytes,
            written_bytes: sample.written_bytes,
            cpu_user_us: sample.cpu_user_us,
            cpu_system_us: sample.cpu_system_us,
            cpu_throttled_us: sample.cpu_throttled_us,
            memory_bytes_peak: sample.memory_bytes_peak,
            cache_bytes: sample.cache_bytes,
            swap_bytes: sample.swap_bytes,
        }
    }
}

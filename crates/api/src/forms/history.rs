//! The form of a sandbox's metrics over time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use sandbox::telemetry::{Bucket, Gauge, History};

/// What 100 % is in the numbers of agents.
const HUNDREDTHS: f64 = 100.0;

/// What a sandbox used over time.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsHistory {
    pub from_ms: u64,
    pub to_ms: u64,
    /// The length of a point.
    pub step_ms: u64,
    /// Oldest first. A step without samples has no point.
    pub points: Vec<MetricsPoint>,
    /// Parts of the time of which nothing is known.
    pub gaps: Vec<MetricsGap>,
}

/// A part of the time of which nothing is known.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsGap {
    pub from_ms: u64,
    pub to_ms: u64,
}

/// What a sandbox used in one step. What is not known is absent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsPoint {
    /// When the step began.
    pub at_ms: u64,
    /// The time that its samples account for. It may exceed the step: a sandbox in which nothing runs is sampled
    /// every twelve seconds.
    pub covered_ms: u64,
    pub samples: u64,
    /// CPU time used in it.
    pub cpu_us: u64,
    /// CPU use, where 100 is one CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MetricsRange")]
    pub cpu_percent: Option<MetricsRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MetricsRange")]
    pub memory_bytes: Option<MetricsRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_bytes_max: Option<u64>,
    /// Bytes used in the writable file system at `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MetricsRange")]
    pub disk_bytes: Option<MetricsRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub disk_bytes_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MetricsRange")]
    pub processes: Option<MetricsRange>,
    /// The share of ten seconds in which something waited for a CPU, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MetricsRange")]
    pub cpu_pressure_percent: Option<MetricsRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MetricsRange")]
    pub memory_pressure_percent: Option<MetricsRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MetricsRange")]
    pub io_pressure_percent: Option<MetricsRange>,
    /// Processes killed because memory ran out, in this step.
    pub oom_kills: u64,
    /// Bytes read from block devices in this step.
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Bytes sent to the outside in this step.
    pub egress_sent_bytes: u64,
    pub egress_received_bytes: u64,
    /// CPU time of programs in this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub cpu_user_us: Option<u64>,
    /// CPU time of the kernel in this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub cpu_system_us: Option<u64>,
    /// How long the limit on CPU time kept programs from running in this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub cpu_throttled_us: Option<u64>,
    /// The most memory at once since the sandbox began, cache included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_bytes_peak: Option<u64>,
    /// Pages of files on disks. The kernel can drop them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MetricsRange")]
    pub cache_bytes: Option<MetricsRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MetricsRange")]
    pub swap_bytes: Option<MetricsRange>,
}

/// The least value, the mean over time, and the greatest value.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsRange {
    pub min: f64,
    pub mean: f64,
    pub max: f64,
}

impl MetricsRange {
    fn of(gauge: Gauge, unit: f64) -> Self {
        let [min, mean, max] =
            [gauge.min, gauge.mean, gauge.max].map(|value| f64::from(value) * unit);
        Self { min, mean, max }
    }
}

impl From<History> for MetricsHistory {
    fn from(history: History) -> Self {
        let gap = |(from_ms, to_ms)| MetricsGap { from_ms, to_ms };
        Self {
            from_ms: history.window.from_ms,
            to_ms: history.window.to_ms,
            step_ms: history.window.step_ms,
            points: history.points.iter().map(|(at_ms, bucket)| point(*at_ms, bucket)).collect(),
            gaps: history.gaps.into_iter().map(gap).collect(),
        }
    }
}

fn point(at_ms: u64, bucket: &Bucket) -> MetricsPoint {
    let percent = |gauge: Option<Gauge>| {
        gauge.map(|Gauge { min, mean, max }| {
            let [min, mean, max] = [min, mean, max].map(|value| f64::from(value) / HUNDREDTHS);
            MetricsRange { min, mean, max }
        })
    };
    let kib = |gauge: Option<Gauge>| gauge.map(|gauge| MetricsRange::of(gauge, 1024.0));
    let limit = |kib: Option<u32>| kib.map(|kib| u64::from(kib) * 1024);
    MetricsPoint {
        at_ms,
        covered_ms: bucket.covered_ms.into(),
        samples: bucket.samples.into(),
        cpu_us: bucket.counters.cpu_us,
        cpu_percent: percent(bucket.cpu),
        memory_bytes: kib(bucket.memory_kib),
        memory_bytes_max: limit(bucket.memory_kib_max),
        disk_bytes: kib(bucket.disk_kib),
        disk_bytes_max: limit(bucket.disk_kib_max),
        processes: bucket.processes.map(|gauge| MetricsRange::of(gauge, 1.0)),
        cpu_pressure_percent: percent(bucket.cpu_pressure),
        memory_pressure_percent: percent(bucket.memory_pressure),
        io_pressure_percent: percent(bucket.io_pressure),
        oom_kills: bucket.oom_kills.into(),
        read_bytes: bucket.counters.read_bytes,
        written_bytes: bucket.counters.written_bytes,
        egress_sent_bytes: bucket.counters.sent_bytes,
        egress_received_bytes: bucket.counters.received_bytes,
        cpu_user_us: bucket.cpu_parts.user_us,
        cpu_system_us: bucket.cpu_parts.system_us,
        cpu_throttled_us: bucket.cpu_parts.throttled_us,
        memory_bytes_peak: limit(bucket.memory_kib_peak),
        cache_bytes: kib(bucket.cache_kib),
        swap_bytes: kib(bucket.swap_kib),
    }
}

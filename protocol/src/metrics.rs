//! What a sandbox uses: samples of all of it, and the usage of one session or context.
//!
//! The agent's `metrics` module makes them, the bridge reads them from a hostile guest. Pure.
//!
//! Every number counts something whole; percentages are in hundredths of a percent, as 100 % of one
//! CPU is 10 000, because messages have no fractions.

use serde::{Deserialize, Serialize};

use crate::ids::{ContextName, SessionId};
use crate::{decode_enum, decode_struct};

/// Asks for samples that the host does not have yet, oldest first, at most
/// [`crate::limits::METRICS_PAGE_MAX`] of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskMetrics {
    /// The number of the last sample that the host has, 0 for none; one that the agent has not
    /// taken yet is `invalid`. Absent: nothing but the newest sample is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Answer when there is such a sample, instead of with an empty page.
    #[serde(default)]
    pub wait: bool,
}

decode_struct!(AskMetrics: ; since, wait);

/// Some samples, and which others there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsPage {
    /// Their numbers are consecutive.
    pub samples: Vec<Sample>,
    /// The oldest sample that the agent still has, or `next` if it has none: what a host lacks below it is
    /// lost.
    pub oldest: u64,
    /// The number that the next sample will have.
    pub next: u64,
    /// CPUs that the sandbox may use at once.
    pub cpus: u32,
    pub scope: Scope,
}

decode_struct!(MetricsPage: samples, oldest, next, cpus, scope);

/// What the samples measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// A machine with its own kernel, which the sandbox has to itself.
    Machine,
    /// The processes of one PID namespace on a kernel that has others too.
    Namespace,
    /// The agent and all that it has started, on a machine where others live too.
    Agent,
}

decode_enum!(Scope: Machine, Namespace, Agent);

/// What the sandbox used at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// From 1, without a gap.
    pub number: u64,
    /// Wall clock of the guest, milliseconds since 1970.
    pub time_ms: u64,
    /// Since the agent began, by a clock that never steps.
    pub uptime_ms: u64,
    /// CPU time used so far; never falls.
    pub cpu_us: u64,
    /// CPU used since the sample before, in hundredths of a percent of one CPU; the first has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_hundredths: Option<u32>,
    /// Memory of programs and of files in memory, without what the kernel can drop at once.
    pub memory_bytes: u64,
    /// Their limit, if the sandbox has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_max: Option<u64>,
    /// Taken in the file system that is written to at `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes_max: Option<u64>,
    pub processes: u32,
    /// There were more processes than one sample looks at, so CPU and memory are of some of them.
    #[serde(default)]
    pub partial: bool,
    /// Processes that the kernel has killed for want of memory so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    /// The share of the last ten seconds in which something waited for a CPU, in hundredths of a
    /// percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_pressure: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_pressure: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_pressure: Option<u32>,
    /// From and to block devices so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// The parts of `cpu_us` in programs and in the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_user_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_system_us: Option<u64>,
    /// How long a quota has kept programs from running so far, if there can be one that the agent sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_throttled_us: Option<u64>,
    /// The most memory at once so far, with cache, if the kernel has kept it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_peak: Option<u64>,
    /// Pages of files on disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_bytes: Option<u64>,
}

decode_struct! {
    Sample:
    number, time_ms, uptime_ms, cpu_us, memory_bytes, processes; cpu_hundredths, memory_bytes_max,
    disk_bytes, disk_bytes_max, partial, oom_kills, cpu_pressure, memory_pressure, io_pressure,
    read_bytes, written_bytes, cpu_user_us, cpu_system_us, cpu_throttled_us, memory_bytes_peak, cache_bytes,
    swap_bytes
}

impl Sample {
    /// CPU used since the sample before, where 100 is one CPU.
    pub fn cpu_percent(&self) -> Option<f64> {
        self.cpu_hundredths.map(|hundredths| f64::from(hundredths) / 100.0)
    }
}

/// Requests the current usage of one session or one context. Exactly one is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskUsage {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextName>,
}

decode_struct!(AskUsage: ; session, context);

/// The usage of a session or a context's interpreter, with all that it has started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeUsage {
    /// The CPU time is the kernel's account of its control group, with that of processes that have
    /// ended. Otherwise it is a sum over those that live and the children that they have waited
    /// for, as is all else that the kernel does not account to a group here.
    pub grouped: bool,
    pub cpu_us: u64,
    pub memory_bytes: u64,
    /// The most at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_peak: Option<u64>,
    pub processes: u32,
    /// From and to block devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
}

decode_struct! {
    TreeUsage:
    grouped, cpu_us, memory_bytes, processes; memory_bytes_peak, read_bytes, written_bytes
}

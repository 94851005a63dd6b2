//! Samples of requests about a sandbox's usage.

use protocol::metrics::{AskMetrics, AskUsage, MetricsPage, Sample, Scope, TreeUsage};

use super::{repl, session};

pub fn ask_metrics() -> AskMetrics {
    AskMetrics { since: Some(u64::MAX), wait: true }
}

pub fn metrics_page() -> MetricsPage {
    MetricsPage {
        samples: vec![metrics_sample()],
        oldest: u64::MAX,
        next: u64::MAX,
        cpus: u32::MAX,
        scope: Scope::Namespace,
    }
}

fn metrics_sample() -> Sample {
    Sample {
        number: u64::MAX,
        time_ms: u64::MAX,
        uptime_ms: u64::MAX,
        cpu_us: u64::MAX,
        cpu_hundredths: Some(u32::MAX),
        memory_bytes: u64::MAX,
        memory_bytes_max: Some(u64::MAX),
        disk_bytes: Some(u64::MAX),
        disk_bytes_max: Some(u64::MAX),
        processes: u32::MAX,
        partial: true,
        oom_kills: Some(u64::MAX),
        cpu_pressure: Some(u32::MAX),
        memory_pressure: Some(u32::MAX),
        io_pressure: Some(u32::MAX),
        read_bytes: Some(u64::MAX),
        written_bytes: Some(u64::MAX),
        cpu_user_us: Some(u64::MAX),
        cpu_system_us: Some(u64::MAX),
        cpu_throttled_us: Some(u64::MAX),
        memory_bytes_peak: Some(u64::MAX),
        cache_bytes: Some(u64::MAX),
        swap_bytes: Some(u64::MAX),
    }
}

pub fn ask_usage() -> AskUsage {
    AskUsage { session: Some(session()), context: Some(repl::context()) }
}

pub fn tree_usage() -> TreeUsage {
    TreeUsage {
        grouped: true,
        cpu_us: u64::MAX,
        memory_bytes: u64::MAX,
        memory_bytes_peak: Some(u64::MAX),
        processes: u32::MAX,
        read_bytes: Some(u64::MAX),
        written_bytes: Some(u64::MAX),
    }
}

pub fn scopes() -> Vec<Scope> {
    variants!(Scope {
        Scope::Machine => Scope::Machine,
        Scope::Namespace => Scope::Namespace,
        Scope::Agent => Scope::Agent,
    })
}

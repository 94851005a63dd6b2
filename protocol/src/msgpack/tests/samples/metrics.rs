//! Requests about a sandbox's usage.

use super::Draw;
use crate::metrics::{AskMetrics, AskUsage, MetricsPage, Sample, Scope, TreeUsage};

impl Draw<'_> {
    pub(super) fn ask_metrics(&mut self) -> AskMetrics {
        AskMetrics { since: self.maybe(Self::number), wait: self.yes() }
    }

    pub(super) fn ask_usage(&mut self) -> AskUsage {
        AskUsage { session: self.maybe(Self::session), context: self.maybe(Self::context) }
    }

    pub(super) fn metrics_page(&mut self) -> MetricsPage {
        MetricsPage {
            samples: self.some(Self::metrics_sample),
            oldest: self.number(),
            next: self.number(),
            cpus: self.small(),
            scope: self.one_of(&[Scope::Machine, Scope::Namespace, Scope::Agent]),
        }
    }

    fn metrics_sample(&mut self) -> Sample {
        Sample {
            number: self.number(),
            time_ms: self.number(),
            uptime_ms: self.number(),
            cpu_us: self.number(),
            cpu_hundredths: self.maybe(Self::small),
            memory_bytes: self.number(),
            memory_bytes_max: self.maybe(Self::number),
            disk_bytes: self.maybe(Self::number),
            disk_bytes_max: self.maybe(Self::number),
            processes: self.small(),
            partial: self.yes(),
            oom_kills: self.maybe(Self::number),
            cpu_pressure: self.maybe(Self::small),
            memory_pressure: self.maybe(Self::small),
            io_pressure: self.maybe(Self::small),
            read_bytes: self.maybe(Self::number),
            written_bytes: self.maybe(Self::number),
            cpu_user_us: self.maybe(Self::number),
            cpu_system_us: self.maybe(Self::number),
            cpu_throttled_us: self.maybe(Self::number),
            memory_bytes_peak: self.maybe(Self::number),
            cache_bytes: self.maybe(Self::number),
            swap_bytes: self.maybe(Self::number),
        }
    }

    pub(super) fn tree_usage(&mut self) -> TreeUsage {
        TreeUsage {
            grouped: self.yes(),
            cpu_us: self.number(),
            memory_bytes: self.number(),
            memory_bytes_peak: self.maybe(Self::number),
            processes: self.small(),
            read_bytes: self.maybe(Self::number),
            written_bytes: self.maybe(Self::number),
        }
    }
}

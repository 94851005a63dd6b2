//! What a sandbox used, moment by moment, as E2B's and Daytona's clients read it: the agent's own samples, and
//! before them what the host has kept.

use serde_json::{Value, json};

use crate::Api;
use host::instant::{format, now_ms};
use protocol::metrics::Sample;
use sandbox::Record;
use sandbox::refusal::{Code, Refusal};
use sandbox::telemetry::{Bucket, Gauge, Window};

/// Pages of an agent's samples: it keeps no more than a few.
const PAGES_MAX: usize = 8;

/// One moment.
pub struct Used {
    pub time_ms: u64,
    cpus: u64,
    cpu_percent: f64,
    memory_bytes: u64,
    memory_bytes_max: u64,
    cache_bytes: u64,
    disk_bytes: u64,
    disk_bytes_max: u64,
}

impl Used {
    pub fn of_sample(sample: &Sample, cpus: u64) -> Self {
        let memory_bytes_max = sample.memory_bytes_max.or_else(host::memory::total_bytes);
        Self {
            time_ms: sample.time_ms,
            cpus,
            cpu_percent: f64::from(sample.cpu_hundredths.unwrap_or(0)) / 100.0,
            memory_bytes: sample.memory_bytes,
            memory_bytes_max: memory_bytes_max.unwrap_or(0),
            cache_bytes: sample.cache_bytes.unwrap_or(0),
            disk_bytes: sample.disk_bytes.unwrap_or(0),
            disk_bytes_max: sample.disk_bytes_max.unwrap_or(0),
        }
    }

    /// Of a kept step, at its mean.
    fn of_bucket(at_ms: u64, bucket: &Bucket, cpus: u64) -> Self {
        let mean = |gauge: Option<Gauge>| gauge.map_or(0.0, |gauge| f64::from(gauge.mean));
        let bytes = |gauge| (mean(gauge) * 1024.0) as u64;
        let limit = |kib: Option<u32>| kib.map(|kib| u64::from(kib) * 1024);
        let memory_bytes_max = limit(bucket.memory_kib_max).or_else(host::memory::total_bytes);
        Self {
            time_ms: at_ms,
            cpus,
            cpu_percent: mean(bucket.cpu) / 100.0,
            memory_bytes: bytes(bucket.memory_kib),
            memory_bytes_max: memory_bytes_max.unwrap_or(0),
            cache_bytes: bytes(bucket.cache_kib),
            disk_bytes: bytes(bucket.disk_kib),
            disk_bytes_max: limit(bucket.disk_kib_max).unwrap_or(0),
        }
    }

    pub fn shown(&self) -> Value {
        json!({
            "timestamp": format(self.time_ms),
            "timestampUnix": self.time_ms / 1000,
            "cpuCount": self.cpus,
            "cpuUsedPct": self.cpu_percent,
            "memUsed": self.memory_bytes,
            "memTotal": self.memory_bytes_max,
            "memCache": self.cache_bytes,
            "diskUsed": self.disk_bytes,
            "diskTotal": self.disk_bytes_max,
            "diskFree": self.disk_bytes_max.saturating_sub(self.disk_bytes),
        })
    }
}

/// The moments of a sandbox in a part of time, oldest first. Without a beginning they are the agent's own, or of
/// a sandbox that is asleep all that is kept.
pub async fn used(
    api: &Api,
    record: &Record,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
) -> Result<Vec<Used>, Refusal> {
    let to_ms = to_ms.unwrap_or_else(now_ms);
    let own = if record.state.is_asleep() { None } else { Some(own(api, record).await?) };
    let cpus = own.as_ref().map_or_else(|| cpus(record), |(_, cpus)| *cpus);
    let samples = own.map_or_else(Vec::new, |(samples, _)| samples);
    let own_since_ms = samples.first().map_or(to_ms, |sample| sample.time_ms);
    let since_ms = from_ms.unwrap_or(if samples.is_empty() { 0 } else { own_since_ms });
    let since_ms = since_ms.max(record.created_at_ms);
    let mut found = Vec::new();
    let kept_to_ms = own_since_ms.min(to_ms);
    if since_ms < kept_to_ms {
        let window = Window::new(Some(since_ms), Some(kept_to_ms), None, now_ms());
        let window = window.map_err(|error| Refusal::invalid(error.to_string()))?;
        let history = api.registry().history(&record.which(), window).await?;
        // A step that has a sample of the agent is shown by that sample.
        let is_older = |bucket: &Bucket| samples.is_empty() || bucket.to_ms < own_since_ms;
        let older = history.points.iter().filter(|(_, bucket)| is_older(bucket));
        // A step may begin before the part of time does.
        let begin_ms = |at_ms: u64| at_ms.max(since_ms);
        found.extend(older.map(|(at_ms, bucket)| Used::of_bucket(begin_ms(*at_ms), bucket, cpus)));
    }
    let wanted = samples.iter().filter(|sample| (since_ms..=to_ms).contains(&sample.time_ms));
    found.extend(wanted.map(|sample| Used::of_sample(sample, cpus)));
    Ok(found)
}

/// What the agent has, and the CPUs of the sandbox.
async fn own(api: &Api, record: &Record) -> Result<(Vec<Sample>, u64), Refusal> {
    let guest = api.registry().guest(&record.which())?;
    let mut page = guest.metrics(0, false).await?;
    let (cpus, mut samples) = (page.cpus.into(), std::mem::take(&mut page.samples));
    for _ in 1..PAGES_MAX {
        let Some(last) = samples.last().map(|sample| sample.number) else { break };
        if last + 1 >= page.next {
            break;
        }
        page = guest.metrics(last, false).await?;
        samples.append(&mut page.samples);
    }
    Ok((samples, cpus))
}

/// The processors that a sandbox may use: whole ones, and at least one.
pub fn cpus(record: &Record) -> u64 {
    let of_host = || std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    record.cpu_millis.map_or_else(of_host, |millis| u64::from(millis).div_ceil(1000)).max(1)
}

/// What it uses now.
pub async fn newest(api: &Api, record: &Record) -> Result<Used, Refusal> {
    let guest = api.registry().guest(&record.which())?;
    let page = guest.newest_metrics(false).await?;
    let newest = page.newest().map(|sample| Used::of_sample(sample, page.cpus.into()));
    newest.ok_or_else(|| {
        Refusal::new(Code::Unavailable, "there is no sample of what it uses yet")
            .hint("ask again in a second")
    })
}

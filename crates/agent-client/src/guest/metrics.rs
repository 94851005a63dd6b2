//! What a sandbox uses, as its guest reports it: samples that are read page by page, and the usage of one
//! session or context.
//!
//! `sandbox` follows it and keeps what it wants. The guest's numbers cannot be trusted. What is
//! checked: samples have the right order and numbers, and no share is more than the whole.

use protocol::limits::METRICS_PAGE_MAX;
use protocol::message::{Reply, Request};
use protocol::metrics::{AskMetrics, AskUsage, MetricsPage, Sample, Scope, TreeUsage};
use protocol::{ContextName, SessionId};

use super::limits::CPUS_MAX;
use super::requests::pick;
use super::{Guest, GuestError};

/// All of one CPU, in the hundredths of a percent that shares are counted in.
const WHOLE: u32 = 10_000;

/// Samples of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Samples {
    /// Oldest first; their numbers are consecutive.
    pub samples: Vec<Sample>,
    /// How many of the requested samples the guest no longer has. They are older than all of these.
    pub missing: u64,
    /// The number of the oldest sample that the guest still has.
    pub oldest: u64,
    /// The number that the next sample will have: there is more to ask for until a page ends just
    /// before it.
    pub next: u64,
    /// CPUs that the sandbox may use at once.
    pub cpus: u32,
    pub scope: Scope,
}

/// Whose usage is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consumer {
    Session(SessionId),
    /// The interpreter that it has at the moment.
    Context(ContextName),
}

impl Samples {
    /// The number of the last requested sample that was seen or is lost: where to continue.
    pub fn seen(&self) -> u64 {
        self.samples.last().map_or(self.oldest.saturating_sub(1), |sample| sample.number)
    }

    pub fn newest(&self) -> Option<&Sample> {
        self.samples.last()
    }
}

impl Guest {
    /// The samples after number `since`, at most [`METRICS_PAGE_MAX`] of them; 0 requests all that
    /// the guest has. With `wait` the answer comes as soon as there is one, otherwise there may be
    /// none. A `since` that the guest has not reached is refused as `invalid`: it belongs to
    /// another guest.
    pub async fn metrics(&self, since: u64, wait: bool) -> Result<Samples, GuestError> {
        self.ask_metrics(AskMetrics { since: Some(since), wait }).await
    }

    /// The newest sample alone. With `wait` the very first is waited for, otherwise there may be
    /// none in a guest's first moments.
    pub async fn newest_metrics(&self, wait: bool) -> Result<Samples, GuestError> {
        self.ask_metrics(AskMetrics { since: None, wait }).await
    }

    /// What a session or a context uses at the moment, with all that it has started.
    pub async fn usage(&self, of: Consumer) -> Result<TreeUsage, GuestError> {
        let ask = match of {
            Consumer::Session(session) => AskUsage { session: Some(session), context: None },
            Consumer::Context(context) => AskUsage { session: None, context: Some(context) },
        };
        self.ask(Request::Usage(ask), "usage", pick!(Reply::Usage(usage) => usage))?.await
    }

    async fn ask_metrics(&self, ask: AskMetrics) -> Result<Samples, GuestError> {
        let request = Request::Metrics(ask);
        let page = self.ask(request, "metrics", pick!(Reply::Metrics(page) => page))?.await?;
        check(page, &ask)
    }
}

/// Makes sure that a page is one that answers the question.
fn check(page: MetricsPage, ask: &AskMetrics) -> Result<Samples, GuestError> {
    let malformed = |what| Err(GuestError::Malformed { what });
    let MetricsPage { mut samples, oldest, next, cpus, scope } = page;
    if oldest == 0 || oldest > next {
        return malformed("metrics whose oldest sample is none");
    }
    if samples.len() > METRICS_PAGE_MAX {
        return malformed("more samples than a page has");
    }
    let from = match ask.since {
        None => next - 1,
        Some(since) if since >= next => return malformed("metrics of another guest"),
        Some(since) => since + 1,
    };
    let begin = from.max(oldest);
    for (sample, number) in samples.iter().zip(begin..) {
        if sample.number != number || number >= next {
            return malformed("samples out of order");
        }
    }
    if samples.is_empty() && (ask.wait || begin < next) {
        return malformed("no samples although there are some");
    }
    let goes_back =
        |pair: &[Sample]| pair[1].cpu_us < pair[0].cpu_us || pair[1].uptime_ms < pair[0].uptime_ms;
    if samples.windows(2).any(goes_back) {
        return malformed("samples that run backwards");
    }
    let cpus = cpus.clamp(1, CPUS_MAX);
    let bound = |share: &mut Option<u32>, most: u32| *share = share.map(|share| share.min(most));
    for sample in &mut samples {
        bound(&mut sample.cpu_hundredths, WHOLE * cpus);
        for pressure in
            [&mut sample.cpu_pressure, &mut sample.memory_pressure, &mut sample.io_pressure]
        {
            bound(pressure, WHOLE);
        }
    }
    // A request for the newest only does not miss the others.
    let missing = ask.since.map_or(0, |_| begin - from);
    Ok(Samples { samples, missing, oldest, next, cpus, scope })
}

#[cfg(test)]
mod tests;

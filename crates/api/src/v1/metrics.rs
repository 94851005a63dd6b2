//! What sandboxes use: samples of the whole sandbox, and the usage of one session or context.

use hyper::Method;
use protocol::metrics::TreeUsage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Nothing, Query, Reply};
use super::super::stream::{Events, Teller};
use crate::forms::history::MetricsHistory;
use crate::forms::metrics::{MetricsPage, MetricsSample};
use crate::forms::problem::Problem;
use crate::forms::ranges::{NUMBER_MAX, check_range};
use agent_client::guest::metrics::{Consumer, Samples};
use host::instant::now_ms;
use sandbox::refusal::{Code, Refusal};
use sandbox::telemetry::Window;

pub fn operations() -> Vec<Operation> {
    [
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/metrics",
            "get_metrics",
            "Read the metrics of a sandbox.",
            page,
        )
        .about(
            "A sample is taken each second, and the sandbox keeps 15 minutes of them. With \
            `since`, the answer has all samples after that one, one page at a time: a client that \
            was away passes the number of its last sample and misses nothing.\n\n\
            With `from`, `to` or `step`, the answer is what the server has kept, of a sandbox that runs or \
            has stopped: seconds of the last hour, ten seconds of a day, minutes of 30 days. Gaps are \
            listed, never filled.",
        ),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/metrics/stream",
            "follow_metrics",
            "Follow the metrics of a sandbox.",
            follow,
        ),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/sessions/{session}/usage",
            "get_session_usage",
            "Show what a session and all that it started use.",
            session,
        ),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/contexts/{context}/usage",
            "get_context_usage",
            "Show what a context's interpreter and all that it started use.",
            context,
        ),
    ]
    .map(|operation| operation.tag("metrics").problems(&[Code::Conflict]))
    .to_vec()
}

/// Which samples to return.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsQuery {
    /// The number of the last known sample, 0 for none. By default only the newest sample is
    /// returned.
    #[serde(default)]
    #[schemars(with = "u64", range(max = NUMBER_MAX))]
    pub since: Option<u64>,
}

/// Which samples to return, or which time.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsWindowQuery {
    /// The number of the last known sample, 0 for none. By default only the newest sample is
    /// returned. Not with the other parameters.
    #[serde(default)]
    #[schemars(with = "u64", range(max = NUMBER_MAX))]
    pub since: Option<u64>,
    /// The beginning of the history, in milliseconds since 1970; by default an hour before its end.
    #[serde(default)]
    #[schemars(with = "u64", range(max = NUMBER_MAX))]
    pub from: Option<u64>,
    /// Its end; by default now.
    #[serde(default)]
    #[schemars(with = "u64", range(max = NUMBER_MAX))]
    pub to: Option<u64>,
    /// The length of a point in milliseconds. By default one with which there are at most 1,000 points; there
    /// may be 4,000.
    #[serde(default)]
    #[schemars(with = "u64", range(min = 1, max = NUMBER_MAX))]
    pub step: Option<u64>,
}

/// The newest samples, or the history.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MetricsAnswer {
    Samples(MetricsPage),
    History(MetricsHistory),
}

/// An event in a stream of metrics.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MetricsEvent {
    Sample(Box<MetricsSample>),
    /// This many samples before the next one are no longer kept.
    Missing {
        samples: u64,
    },
    /// The stream cannot continue.
    Problem(Problem),
}

/// Resource use of a session or a context, with all that it started.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeUsageShape {
    /// Whether the kernel counts it in a control group; otherwise it is a sum over the live
    /// processes.
    pub grouped: bool,
    pub cpu_us: u64,
    pub memory_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_bytes_peak: Option<u64>,
    pub processes: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub read_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub written_bytes: Option<u64>,
}

async fn page(
    call: Call,
    Query(query): Query<MetricsWindowQuery>,
    _: Nothing,
) -> Result<Reply<MetricsAnswer>, Refusal> {
    let MetricsWindowQuery { since, from, to, step } = query;
    for (field, value, min) in [("from", from, 0), ("to", to, 0), ("step", step, 1)] {
        check_range(field, value, min, NUMBER_MAX)?;
    }
    if from.or(to).or(step).is_some() {
        if since.is_some() {
            let message =
                "since is about the newest samples, and from, to and step are about kept ones";
            return Err(Refusal::invalid(message).hint("leave one of them out"));
        }
        let window = Window::new(from, to, step, now_ms());
        let window = window.map_err(|error| Refusal::invalid(error.to_string()))?;
        let history = call.api.registry().history(&call.which()?, window).await?;
        return Ok(Reply(MetricsAnswer::History(history.into())));
    }
    let guest = call.look()?;
    let samples = match since {
        Some(since) => guest.metrics(since, false).await?,
        None => guest.newest_metrics(false).await?,
    };
    Ok(Reply(MetricsAnswer::Samples(samples.into())))
}

async fn follow(
    mut call: Call,
    Query(query): Query<MetricsQuery>,
    _: Nothing,
) -> Result<Events<MetricsEvent>, Refusal> {
    let (api, which, guest) = (call.api.clone(), call.which()?, call.look()?);
    let first = match query.since {
        Some(since) => guest.metrics(since, true).await?,
        None => guest.newest_metrics(true).await?,
    };
    Events::begin(&mut call, |teller| async move {
        let mut samples = first;
        loop {
            if tell(&teller, &samples).await.is_err() {
                return;
            }
            samples = match guest.metrics(samples.seen(), true).await {
                Ok(samples) => samples,
                Err(error) => {
                    let problem = api.explained(&which, error.into()).await.into();
                    // The client may be gone as well.
                    let _ = teller.tell(&MetricsEvent::Problem(problem)).await;
                    return;
                }
            };
        }
    })
}

async fn tell(
    teller: &Teller<MetricsEvent>,
    samples: &Samples,
) -> Result<(), super::super::body::Gone> {
    if samples.missing > 0 {
        teller.tell(&MetricsEvent::Missing { samples: samples.missing }).await?;
    }
    for sample in &samples.samples {
        teller.tell(&MetricsEvent::Sample(Box::new(sample.into()))).await?;
    }
    Ok(())
}

async fn session(call: Call, _: Nothing, _: Nothing) -> Result<Reply<TreeUsageShape>, Refusal> {
    let (guest, session) = (call.look()?, call.session()?);
    Ok(Reply(guest.usage(Consumer::Session(session)).await?.into()))
}

async fn context(call: Call, _: Nothing, _: Nothing) -> Result<Reply<TreeUsageShape>, Refusal> {
    let (guest, context) = (call.look()?, call.context()?);
    Ok(Reply(guest.usage(Consumer::Context(context)).await?.into()))
}

impl From<TreeUsage> for TreeUsageShape {
    fn from(usage: TreeUsage) -> Self {
        Self {
            grouped: usage.grouped,
            cpu_us: usage.cpu_us,
            memory_bytes: usage.memory_bytes,
            memory_bytes_peak: usage.memory_bytes_peak,
            processes: usage.processes,
            read_bytes: usage.read_bytes,
            written_bytes: usage.written_bytes,
        }
    }
}

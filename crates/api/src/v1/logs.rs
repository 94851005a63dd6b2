//! Logs: the output of a sandbox's sessions, from the disk of the host. They stay after the sandbox
//! has stopped, until it is removed. `reading` reads them.

mod entry;
mod limits;
mod lost;
mod reading;

use hyper::Method;
use protocol::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::super::body::{Gone, NDJSON};
use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Nothing, Query};
use super::super::stream::{Either, Events, Teller};
use super::super::websocket;
use crate::sessions::look_at;
use sandbox::limits::LOG_FOLLOW_PAUSE;
use sandbox::log::Mark;
use sandbox::refusal::Refusal;

use entry::{LogEntry, LogStream};
use limits::{ENTRIES_DEFAULT, ENTRIES_MAX, PAGE_BYTES_MAX, TIME_MS_MAX, TURN_BYTES, TURN_ENTRIES};
use lost::LostReading;
use reading::{Reading, Selection, TurnEnd};

pub fn operations() -> Vec<Operation> {
    let path = "/v1/sandboxes/{namespace}/{name}/logs";
    vec![
        operation(Method::GET, path, "read_log", "Read the log of a sandbox.", read)
            .tag("logs")
            .about(
                "The log holds what the sandbox's sessions wrote. The answer is a page of entries, \
                oldest first. With `Accept: application/x-ndjson`, as a WebSocket, or with \
                `follow`, it is all entries, each as a separate value. The `place` of an entry \
                marks the position after it: a client that was disconnected continues with \
                `after`, and entries that were removed meanwhile to keep the log within its limit \
                come as `missing`. The log can still be read after the sandbox has stopped. Of a sandbox \
                that is gone with its node, it is read from the fleet's log, as far as its `durability` has \
                brought the output there; a `problem` with the code `gone` then follows the last entry.",
            )
            .of_the_lost(),
    ]
}

/// The beginning of a place in the fleet's log: no log on a disk has such a segment.
const NO_SEGMENT: &str = "0-0-";

/// Which part of a log to read.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    /// Only this many of the last lines, over all outputs. Not with `after`.
    #[serde(default)]
    #[schemars(with = "u32", range(max = 4_294_967_295_u32))]
    pub tail: Option<u32>,
    /// Only entries recorded at this time or later, in milliseconds since 1970.
    #[serde(default)]
    #[schemars(with = "u64", range(max = 9_007_199_254_740_991_u64))]
    pub since_ms: Option<u64>,
    /// Only entries recorded at this time or earlier.
    #[serde(default)]
    #[schemars(with = "u64", range(max = 9_007_199_254_740_991_u64))]
    pub until_ms: Option<u64>,
    /// Only this session.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"))]
    pub session: Option<SessionId>,
    /// Only this output. Starts and ends of sessions are still included.
    #[serde(default)]
    #[schemars(with = "LogStream")]
    pub stream: Option<LogStream>,
    /// Continue with new entries until the sandbox ends.
    #[serde(default)]
    pub follow: bool,
    /// Entries per page; 1000 by default. A page with much output ends earlier.
    #[serde(default)]
    #[schemars(with = "u16", range(min = 1, max = 10_000))]
    pub limit: Option<u16>,
    /// The `place` of an entry, or `next` of the previous page.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = "^[0-9]{1,10}-[0-9]{1,8}-[0-9]{1,18}$"))]
    pub after: Option<String>,
}

/// A page of a log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogPage {
    pub entries: Vec<LogEntry>,
    /// Where the next page begins, if there are more entries yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next: Option<String>,
}

async fn read(
    mut call: Call,
    Query(query): Query<LogQuery>,
    _: Nothing,
) -> Result<Either<LogPage, LogEntry>, Refusal> {
    let limit = query.limit.unwrap_or(ENTRIES_DEFAULT);
    if !(1..=ENTRIES_MAX).contains(&limit) {
        let message = format!("limit must be from 1 to {ENTRIES_MAX}, not {limit}");
        return Err(Refusal::invalid(message));
    }
    let follow = query.follow;
    let after = query.after.clone();
    let selection = selection(query)?;
    if let Some(life) = call.lost.take() {
        let after = after.as_deref().map(lost::parse_place).transpose()?;
        // Boxed: few calls wait for it.
        let reading = Box::pin(LostReading::open(&call, *life, selection, after)).await?;
        if is_stream(&call, follow) {
            let events = Events::begin(&mut call, move |teller| async move {
                // A client that is gone needs no message.
                let _ = Box::pin(reading.tell(&teller)).await;
            })?;
            return Ok(Either::Stream(events));
        }
        let page = Box::pin(reading.page(&call, usize::from(limit), PAGE_BYTES_MAX)).await?;
        return Ok(Either::Whole(page));
    }
    let which = call.which()?;
    if let Some(session) = &selection.session {
        // An empty log would say that it wrote nothing.
        look_at(&call.api, &which, session).await?;
    }
    let directory = call.api.registry().log_directory(&which)?;
    let mut reading = Reading::open(directory, selection).await?;
    if is_stream(&call, follow) {
        let deadline = call.ends_at();
        let events = Events::begin(&mut call, move |teller| async move {
            // A client that is gone needs no message.
            let _ = tell(reading, follow, deadline, &teller).await;
        })?;
        return Ok(Either::Stream(events));
    }
    let turn = reading.page(usize::from(limit), PAGE_BYTES_MAX).await?;
    call.memory.grow(turn.entries.iter().map(LogEntry::cost).sum())?;
    let last = turn.entries.last().and_then(|entry| entry.place.clone());
    let next = last.filter(|_| turn.ended == TurnEnd::Full);
    Ok(Either::Whole(LogPage { entries: turn.entries, next }))
}

fn is_stream(call: &Call, follow: bool) -> bool {
    let wants_lines = call.prefers(NDJSON.to_str().unwrap_or_default());
    follow || websocket::is_wanted(&call.headers) || wants_lines
}

fn selection(query: LogQuery) -> Result<Selection, Refusal> {
    for (name, time) in [("since_ms", query.since_ms), ("until_ms", query.until_ms)] {
        if time.is_some_and(|ms| ms > TIME_MS_MAX) {
            let message = format!("{name} must be at most {TIME_MS_MAX}");
            return Err(Refusal::invalid(message));
        }
    }
    let after: Option<Mark> = match query.after.as_deref().map(str::parse).transpose() {
        Ok(after) => after,
        Err(error) => return Err(Refusal::invalid(format!("after: {error}"))),
    };
    if after.is_some() && query.tail.is_some() {
        let message = "tail and after exclude each other: both set where to start";
        return Err(Refusal::invalid(message));
    }
    Ok(Selection {
        tail: query.tail.map(u64::from),
        since_ms: query.since_ms,
        until_ms: query.until_ms,
        session: query.session,
        stream: query.stream,
        after,
    })
}

/// Tells all entries that there are, and if asked for, those that come.
async fn tell(
    mut reading: Reading,
    follow: bool,
    deadline: Option<Instant>,
    teller: &Teller<LogEntry>,
) -> Result<(), Gone> {
    loop {
        let turn = match reading.turn(TURN_ENTRIES, TURN_BYTES).await {
            Ok(turn) => turn,
            Err(problem) => return teller.tell(&LogEntry::problem(problem.into())).await,
        };
        for entry in &turn.entries {
            teller.tell(entry).await?;
        }
        let is_time_over = || {
            deadline.is_some_and(|deadline| deadline <= Instant::now())
                || reading.time_left().is_some_and(|left| left.is_zero())
        };
        match turn.ended {
            TurnEnd::Full | TurnEnd::Paused => {}
            TurnEnd::Closed => return Ok(()),
            TurnEnd::AtEnd if !follow || is_time_over() => return Ok(()),
            TurnEnd::AtEnd => sleep(LOG_FOLLOW_PAUSE).await,
        }
    }
}

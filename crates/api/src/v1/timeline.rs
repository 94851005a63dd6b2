//! The timeline of a sandbox: everything that it did, on one clock. [`services::timeline`] reads it; `entry` has its
//! form.

mod entry;

use hyper::Method;
use protocol::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::super::body::{Gone, NDJSON};
use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Nothing, Query};
use super::super::stream::{Either, Events, Teller};
use super::super::websocket;
use crate::forms::ranges::{NUMBER_MAX, check_range};
use crate::sessions::look_at;
use crate::sessions::turns::{self, broken};
use host::instant::now_ms;
use host::paths::Paths;
use sandbox::Record;
use sandbox::log::{LogError, Only};
use sandbox::refusal::{Code, Refusal};
use sandbox::telemetry::{Bucket, Window};
use services::timeline::{Kind, Places, Selection, Step, Timeline};

use entry::{KindName, TimelineEntry};

/// Entries on a page unless the call names another number: some screens.
const ENTRIES_DEFAULT: u16 = 1000;
/// The most entries of one page.
const ENTRIES_MAX: u16 = 10_000;
/// A page whose entries take so much gets no more of them.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Entries that one turn of a stream finds, and about what they may take.
const TURN_ENTRIES: usize = 256;
const TURN_BYTES: usize = 256 * 1024;

pub fn operations() -> Vec<Operation> {
    vec![
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/timeline",
            "read_timeline",
            "Read everything that a sandbox did, in the order of time.",
            read,
        )
        .tag("logs")
        .about(
            "The output of sessions with its gaps and the sizes of terminals, starts and ends of sessions, what \
             happened to the sandbox, runs of code, egress decisions, artifacts, and what it used, each with the \
             host's time, which never goes back from one entry to the next. `failed` marks what went wrong, and \
             `summary` is a line for people. The answer is a page; with `Accept: application/x-ndjson` or as a \
             WebSocket it is all entries, each as a separate value. A stopped sandbox has its timeline until it is \
             removed.\n\n\
             Runs are those of notebooks, and with `programs` in `[events]` those of all contexts. Egress decisions \
             come from the audit log. What was typed is there of sandboxes whose `record` is `input`, and of changes \
             of files only artifacts are known. What cannot be read is an entry of the kind `unknown`.",
        )
        .problems(&[Code::Io]),
    ]
}

/// Which part of a timeline to read.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimelineQuery {
    /// Only entries of this time or later, in milliseconds since 1970.
    #[serde(default)]
    #[schemars(with = "u64", range(max = NUMBER_MAX))]
    pub from_ms: Option<u64>,
    /// Only entries of this time or earlier.
    #[serde(default)]
    #[schemars(with = "u64", range(max = NUMBER_MAX))]
    pub to_ms: Option<u64>,
    /// Kinds; any of them matches. `unknown` always does.
    #[serde(default)]
    #[schemars(with = "Vec<KindName>", length(max = 16))]
    pub kind: Vec<String>,
    /// No other session than this one. Entries that are about no session stay.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"))]
    pub session: Option<SessionId>,
    /// Entries per page; 1000 by default. A page with much output ends earlier.
    #[serde(default)]
    #[schemars(with = "u16", range(min = 1, max = 10_000))]
    pub limit: Option<u16>,
    /// The `place` of an entry, or `next` of the previous page, read with the same parameters. Within a minute the page
    /// after `next` goes on where that one ended; any other is looked for from the beginning.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = "^[0-9]{1,15}-[0-9]{1,15}$"))]
    pub after: Option<String>,
}

/// A page of a timeline.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimelinePage {
    pub entries: Vec<TimelineEntry>,
    /// Where the next page begins, if there are more entries yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next: Option<String>,
}

async fn read(
    mut call: Call,
    Query(query): Query<TimelineQuery>,
    _: Nothing,
) -> Result<Either<TimelinePage, TimelineEntry>, Refusal> {
    let limit = query.limit.unwrap_or(ENTRIES_DEFAULT);
    check_range("limit", Some(limit.into()), 1, ENTRIES_MAX.into())?;
    let selection = selection(query)?;
    let which = call.which()?;
    if let Only::Named(session) = &selection.sessions {
        // An empty timeline would say that it did nothing.
        look_at(&call.api, &which, session).await?;
    }
    let registry = call.api.registry();
    let source = Source {
        paths: registry.store_paths().clone(),
        record: registry.get(&which)?,
        log: registry.log_directory(&which)?,
    };
    let id = source.record.id.clone();
    let mut reading = if let Some(timeline) = call.api.timelines().take(&id, &selection) {
        Reading { timeline: Some(timeline) }
    } else {
        let samples = samples(&call, &source.record, &selection).await?;
        Reading::open(source, selection, samples).await?
    };
    let wants_lines = call.prefers(NDJSON.to_str().unwrap_or_default());
    if wants_lines || websocket::is_wanted(&call.headers) {
        let deadline = call.ends_at();
        let events = Events::begin(&mut call, move |teller| async move {
            // A client that is gone needs no message.
            let _ = tell(reading, deadline, &teller).await;
        })?;
        return Ok(Either::Stream(events));
    }
    let (mut entries, mut bytes) = (Vec::new(), 0);
    let mut is_over = false;
    while entries.len() < usize::from(limit) && bytes < PAGE_BYTES_MAX && !is_over {
        let left = (usize::from(limit) - entries.len()).min(TURN_ENTRIES);
        let turn = reading.turn(left).await?;
        let cost = turn.entries.iter().map(TimelineEntry::cost).sum::<usize>();
        call.memory.grow(cost)?;
        bytes += cost;
        entries.extend(turn.entries);
        is_over = turn.is_over;
    }
    let next = entries.last().and_then(|entry| entry.place.clone()).filter(|_| !is_over);
    if let (Some(_), Some(timeline)) = (&next, reading.timeline) {
        call.api.timelines().keep(&id, timeline);
    }
    Ok(Either::Whole(TimelinePage { entries, next }))
}

fn selection(query: TimelineQuery) -> Result<Selection, Refusal> {
    check_range("from_ms", query.from_ms, 0, NUMBER_MAX)?;
    check_range("to_ms", query.to_ms, 0, NUMBER_MAX)?;
    let kinds: Result<Vec<Kind>, _> = query.kind.iter().map(|kind| kind.parse()).collect();
    let kinds = kinds.map_err(|error| Refusal::invalid(format!("kind: {error}")))?;
    let after = query.after.as_deref().map(str::parse).transpose();
    let after = after.map_err(|error| Refusal::invalid(format!("after: {error}")))?;
    Ok(Selection {
        sessions: query.session.map_or(Only::All, Only::Named),
        kinds,
        from_ms: query.from_ms.unwrap_or(0),
        to_ms: query.to_ms.unwrap_or(u64::MAX),
        after,
    })
}

/// The history of the time that is wanted, in as coarse steps as a chart has.
async fn samples(
    call: &Call,
    record: &Record,
    selection: &Selection,
) -> Result<Vec<Bucket>, Refusal> {
    let is_wanted = selection.kinds.is_empty() || selection.kinds.contains(&Kind::Metrics);
    let now_ms = now_ms();
    let from_ms = selection.from_ms.max(record.created_at_ms);
    let Ok(window) = Window::new(Some(from_ms), Some(selection.to_ms.min(now_ms)), None, now_ms)
    else {
        return Ok(Vec::new());
    };
    if !is_wanted {
        return Ok(Vec::new());
    }
    let history = call.api.registry().history(&call.which()?, window).await?;
    Ok(history.points.into_iter().map(|(_, bucket)| bucket).collect())
}

/// Whose timeline is read.
struct Source {
    paths: Paths,
    record: Record,
    log: std::path::PathBuf,
}

/// A timeline that is read in turns.
struct Reading {
    /// Away while a turn is on; one that does not come back has failed.
    timeline: Option<Timeline>,
}

struct Turn {
    entries: Vec<TimelineEntry>,
    is_over: bool,
}

impl Reading {
    async fn open(
        source: Source,
        selection: Selection,
        samples: Vec<Bucket>,
    ) -> Result<Self, Refusal> {
        let opening = move || {
            let Source { paths, record, log } = &source;
            Timeline::open(Places { paths, record, log }, selection, samples)
        };
        let timeline = Some(turns::turn(move |_| opening()).await?);
        Ok(Self { timeline })
    }

    /// Reads on, up to so many entries.
    async fn turn(&mut self, entries_max: usize) -> Result<Turn, Refusal> {
        let Some(mut timeline) = self.timeline.take() else { return Err(broken()) };
        let (timeline, turn) = turns::turn(move |room| {
            let (mut entries, mut bytes, mut is_over) = (Vec::new(), 0, false);
            while entries.len() < entries_max && bytes < TURN_BYTES {
                match timeline.step(room)? {
                    Step::Moment(moment) => {
                        let entry = TimelineEntry::new(*moment, timeline.place());
                        bytes += entry.cost();
                        entries.push(entry);
                    }
                    Step::Paused => break,
                    Step::AtEnd => {
                        is_over = true;
                        break;
                    }
                }
            }
            Ok::<_, LogError>((timeline, Turn { entries, is_over }))
        })
        .await?;
        self.timeline = Some(timeline);
        Ok(turn)
    }
}

async fn tell(
    mut reading: Reading,
    deadline: Option<Instant>,
    teller: &Teller<TimelineEntry>,
) -> Result<(), Gone> {
    loop {
        let turn = match reading.turn(TURN_ENTRIES).await {
            Ok(turn) => turn,
            Err(problem) => return teller.tell(&TimelineEntry::problem(problem.into())).await,
        };
        for entry in &turn.entries {
            teller.tell(entry).await?;
        }
        if turn.is_over || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(());
        }
    }
}

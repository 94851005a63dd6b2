//! Events: what happens to the sandboxes of a namespace, from any offset on.

mod nodes;
mod places;

use std::sync::{Arc, Mutex};

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::super::body::{Gone, NDJSON};
use super::super::call::{Call, passed};
use super::super::gather;
use super::super::route::{Operation, operation};
use super::super::shape::{Nothing, Query};
use super::super::stream::{Either, Events as EventStream, Teller};
use super::super::websocket;
use crate::forms::events::{EventInfo, KindName};
use crate::forms::ranges::{NUMBER_MAX, check_range};
use crate::forms::sandboxes::{NAME, UnansweredNode};
use sandbox::Name;
use sandbox::event::Kind;
use sandbox::refusal::{Code, Refusal};
use services::events::limits::{PAGE_MAX, TURN_MAX};
use services::events::{Batch, Entry, Events, Filter, From, Reader};

use nodes::{EventSelection, FleetEvents};
use places::Places;

/// Events on a page unless the call names another number.
const PAGE_DEFAULT: u16 = 100;
/// Sandboxes and kinds that a query may name.
const NAMES_MAX: usize = 64;
/// Reads of the disk that are on at once, of all followers: each takes a millisecond, and hundreds of
/// followers are to wait for each other rather than to be waited for.
const READS_MAX: usize = 2;

static READS: Semaphore = Semaphore::const_new(READS_MAX);

pub fn operations() -> Vec<Operation> {
    vec![
        operation(Method::GET, "/v1/events", "list_events", "Read or follow events.", list)
            .tag("events")
            .about(
                "What happened to the sandboxes of one namespace, oldest first, one page at a time. \
                 With `Accept: application/x-ndjson`, as a WebSocket, or with `follow`, it is all \
                 events, each as a separate value. Events have offsets that only grow: a client that \
                 was disconnected continues with `since` one greater than its last `offset`, over \
                 restarts of the bridge too. If the oldest of them are no longer kept, the first \
                 value is of the kind `gap`. The kinds are in the description of `kind`. With `all_nodes`, of \
                 the whole fleet: by time on a page, and each event with its node, which counts its own \
                 offsets. A client goes on with `resume`. A node that does not answer is in `unanswered`, or \
                 in a stream a value of the kind `unanswered`.",
            )
            .problems(&[Code::Unsupported, Code::RangeNotSatisfiable, Code::Unavailable]),
    ]
}

/// Which events to read.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventQuery {
    /// The namespace; by default the key's, or `default`.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
    /// The first offset to read; by default that of the oldest event that is kept.
    #[serde(default)]
    #[schemars(with = "u64", range(max = NUMBER_MAX))]
    pub since: Option<u64>,
    /// Only events of this time or later, in milliseconds since 1970. Not with `since`.
    #[serde(default)]
    #[schemars(with = "u64", range(max = NUMBER_MAX))]
    pub since_ms: Option<u64>,
    /// Names or ids of sandboxes; any of them matches.
    #[serde(default)]
    #[schemars(inner(regex(pattern = NAME)), length(max = NAMES_MAX))]
    pub sandbox: Vec<String>,
    /// Kinds; any of them matches. `gap`, `events_lost` and `unanswered` always do.
    #[serde(default)]
    #[schemars(with = "Vec<KindName>", length(max = NAMES_MAX))]
    pub kind: Vec<Kind>,
    /// Continue with new events.
    #[serde(default)]
    pub follow: bool,
    /// Events per page; 100 by default.
    #[serde(default)]
    #[schemars(with = "u16", range(min = 1, max = PAGE_MAX))]
    pub limit: Option<u16>,
    /// Those of all nodes of the fleet, instead of the one that is asked.
    #[serde(default)]
    pub all_nodes: bool,
    /// With `all_nodes`: `resume` of the previous page. After a stream, for each node the greatest `offset` and one, as in
    /// `n1:121,n2:89`. A node that it does not name begins at `since_ms`, or at its oldest event.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = PLACES))]
    pub resume: Option<String>,
}

/// [`Places`] as a pattern.
const PLACES: &str = "^[A-Za-z0-9_-]+:[0-9]+(,[A-Za-z0-9_-]+:[0-9]+)*$";

/// A page of events.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventPage {
    pub events: Vec<EventInfo>,
    /// The value of `since` for the next page, which may have no events yet; absent in a namespace in
    /// which nothing has happened, and on a page of all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub next: Option<u64>,
    /// On a page of all nodes: the value of `resume` for the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub resume: Option<String>,
    /// Nodes of the fleet that did not answer: their events are missing here. Absent if all did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<UnansweredNode>,
}

async fn list(
    mut call: Call,
    Query(query): Query<EventQuery>,
    _: Nothing,
) -> Result<Either<EventPage, EventInfo>, Refusal> {
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    check_range("limit", Some(limit.into()), 1, PAGE_MAX as u64)?;
    check_range("since", query.since, 0, NUMBER_MAX)?;
    check_range("since_ms", query.since_ms, 0, NUMBER_MAX)?;
    if query.sandbox.len() > NAMES_MAX || query.kind.len() > NAMES_MAX {
        let message = format!("a query may name {NAMES_MAX} sandboxes and as many kinds");
        return Err(Refusal::invalid(message));
    }
    let namespace = call.one_namespace(query.namespace)?.unwrap_or_else(Name::default_namespace);
    let events = call.api.events()?.clone();
    if let Some(error) = query.sandbox.iter().find_map(|name| name.parse::<Name>().err()) {
        return Err(Refusal::invalid(format!("sandbox: {error}")));
    }
    let is_stream = query.follow
        || websocket::is_wanted(&call.headers)
        || call.prefers(NDJSON.to_str().unwrap_or_default());
    let filter = Filter { sandboxes: query.sandbox, kinds: query.kind };
    let fleet = gather::wanted(&call, query.all_nodes)?.cloned();
    if fleet.is_none() && query.resume.is_some() {
        return Err(Refusal::invalid("resume is for events of all nodes; add all_nodes=true"));
    }
    if let Some(node) = fleet {
        if query.since.is_some() {
            let message = "since is an offset of one node; with all_nodes use resume or since_ms";
            return Err(Refusal::invalid(message));
        }
        let places: Result<Places, _> = query.resume.unwrap_or_default().parse();
        let places = places.map_err(|error| Refusal::invalid(format!("resume: {error}")))?;
        if let Some(offset) = places.of(node.id().as_str()) {
            check_offset(&events, &namespace, offset)?;
        }
        let selection = EventSelection { namespace, filter, since_ms: query.since_ms };
        if !is_stream {
            let page = nodes::page(&call, &node, &selection, places, limit.into()).await?;
            return Ok(Either::Whole(page));
        }
        let (api, caller, places) = (call.api.clone(), call.caller.clone(), Mutex::new(places));
        let merged = Arc::new(FleetEvents { api, caller, node, events, selection, places });
        let telling = async move |teller: Teller<EventInfo>| {
            merged.tell_all(&teller).await?;
            if query.follow { merged.follow(&teller).await } else { Ok(()) }
        };
        return stream(&mut call, query.follow, telling);
    }
    let from = match (query.since, query.since_ms) {
        (Some(_), Some(_)) => {
            let message = "since and since_ms exclude each other: both set where to start";
            return Err(Refusal::invalid(message));
        }
        (Some(offset), None) => From::Offset(check_offset(&events, &namespace, offset)?),
        (None, Some(ms)) => From::Time(ms),
        (None, None) => From::Oldest,
    };
    let mut reader = events.reader(&namespace, from);
    if is_stream {
        let follow = query.follow;
        return stream(&mut call, follow, async move |teller: Teller<EventInfo>| {
            tell(&events, &namespace, reader, &filter, follow, &teller).await
        });
    }
    let found = read(&mut reader, &filter, limit.into()).await?;
    let found: Vec<_> = found.into_iter().map(|entry| EventInfo::new(&namespace, entry)).collect();
    call.memory.grow(found.iter().map(EventInfo::cost).sum())?;
    Ok(Either::Whole(EventPage { events: found, next: reader.next(), ..EventPage::default() }))
}

/// A stream of what `telling` tells.
fn stream<F, A>(
    call: &mut Call,
    follow: bool,
    telling: F,
) -> Result<Either<EventPage, EventInfo>, Refusal>
where
    F: FnOnce(Teller<EventInfo>) -> A + Send + 'static,
    A: Future<Output = Result<(), Gone>> + Send,
{
    let deadline = call.ends_at();
    let stream = EventStream::begin(call, move |teller| async move {
        tokio::select! {
            // A client that is gone needs no message; one whose answer is cut off asks again.
            _ = telling(teller) => {}
            // What has no end is whole wherever it ends.
            () = passed(deadline), if follow => {}
        }
    })?;
    Ok(Either::Stream(stream))
}

/// The next events, at most so many.
async fn read(reader: &mut Reader, filter: &Filter, limit: usize) -> Result<Vec<Entry>, Refusal> {
    let mut found = Vec::new();
    while found.len() < limit {
        let batch = turn(reader, filter, limit - found.len()).await?;
        found.extend(batch.entries);
        if batch.is_at_end {
            break;
        }
    }
    Ok(found)
}

/// Refuses an offset that no event has had: it is of another log, and no event would come.
fn check_offset(events: &Events, namespace: &Name, offset: u64) -> Result<u64, Refusal> {
    let end = events.end(namespace).unwrap_or(0);
    if offset <= end {
        return Ok(offset);
    }
    let message = format!("since is {offset}, but the next event of {namespace} gets {end}");
    Err(Refusal::new(Code::RangeNotSatisfiable, message)
        .details(json!({ "end": end }))
        .hint("read again from the beginning: these are not the events that you have read"))
}

/// Tells all events that there are, and if asked for, those that come.
async fn tell(
    events: &Events,
    namespace: &Name,
    mut reader: Reader,
    filter: &Filter,
    follow: bool,
    teller: &Teller<EventInfo>,
) -> Result<(), Gone> {
    loop {
        let batch = turn(&mut reader, filter, TURN_MAX).await.map_err(|_| Gone)?;
        for entry in batch.entries {
            teller.tell(&EventInfo::new(namespace, entry)).await?;
        }
        if !batch.is_at_end {
            continue;
        }
        if !follow || !events.reached(namespace, reader.next().unwrap_or(0)).await {
            return Ok(());
        }
    }
}

async fn turn(reader: &mut Reader, filter: &Filter, limit: usize) -> Result<Batch, Refusal> {
    let broken = || Refusal::new(Code::Unavailable, "the server is stopping");
    let place = READS.acquire().await.map_err(|_| broken())?;
    let (mut here, filter) = (reader.clone(), filter.clone());
    let reading = spawn_blocking(move || {
        let _place = place;
        let read = here.read(&filter, limit);
        (here, read)
    });
    let (back, read) = reading.await.map_err(|_| broken())?;
    *reader = back;
    read.map_err(|error| Refusal::new(Code::Internal, format!("events cannot be read: {error}")))
}

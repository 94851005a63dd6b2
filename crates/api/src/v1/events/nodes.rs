//! The events of all nodes: a page of them by time, or a stream.
//!
//! ```text
//!  stream:  what there is:   every node's own, to its end ─▶ by time ─▶ client
//!           what comes:      every node's own, without end ─▶ as it arrives ─▶ client
//! ```
//!
//! A node that does not answer is named, and asked again from where it was: nothing of it is skipped, and nothing comes
//! twice.

use std::collections::HashSet;
use std::fmt::{Display, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::places::Places;
use super::{EventPage, turn};
use crate::Api;
use crate::body::Gone;
use crate::call::Call;
use crate::caller::Caller;
use crate::forms::events::EventInfo;
use crate::forms::sandboxes::UnansweredNode;
use crate::forward::{Sender, lines};
use crate::gather::gather;
use crate::limits::{FORWARD_ANSWER_MAX, FORWARD_RETRY_PAUSE};
use crate::stream::Teller;
use hyper::http::uri::PathAndQuery;
use node::{Node, Placement};
use sandbox::Name;
use sandbox::refusal::Refusal;
use services::events::limits::TURN_MAX;
use services::events::{Events, Filter, From};

/// Events of one node that wait for those of others, or for the client.
const WAITING_MAX: usize = 16;
/// Why nothing comes of a node that a client has a place of.
const AWAY: &str = "it is not in the fleet now; leave it out of resume if it does not come back";

/// Which events are asked for.
#[derive(Clone)]
pub struct EventSelection {
    pub namespace: Name,
    pub filter: Filter,
    /// For nodes that have no place.
    pub since_ms: Option<u64>,
}

impl EventSelection {
    fn from(&self, place: Option<u64>) -> From {
        match (place, self.since_ms) {
            (Some(offset), _) => From::Offset(offset),
            (None, Some(ms)) => From::Time(ms),
            (None, None) => From::Oldest,
        }
    }

    /// What another node is asked.
    fn question(&self, place: Option<u64>, more: &str) -> Result<PathAndQuery, Refusal> {
        let mut query = format!("namespace={}{more}", self.namespace);
        let mut add = |field: &str, value: &dyn Display| {
            // Writing to a String cannot fail.
            let _ = write!(query, "&{field}={value}");
        };
        match self.from(place) {
            From::Oldest => {}
            From::Offset(offset) => add("since", &offset),
            From::Time(ms) => add("since_ms", &ms),
        }
        self.filter.sandboxes.iter().for_each(|name| add("sandbox", name));
        self.filter.kinds.iter().for_each(|kind| add("kind", kind));
        let place = format!("/v1/events?{query}");
        place.parse().map_err(|_| Refusal::invalid(format!("the query {query:?}")))
    }
}

/// One page of all nodes.
pub async fn page(
    call: &Call,
    node: &Node,
    selection: &EventSelection,
    mut places: Places,
    limit: usize,
) -> Result<EventPage, Refusal> {
    let mut pages = Vec::new();
    let question = |name: &str| selection.question(places.of(name), &format!("&limit={limit}"));
    let take = |name: &str, page: EventPage| {
        call.memory.grow(page.events.iter().map(EventInfo::cost).sum())?;
        pages.push((name.to_owned(), page));
        Ok(())
    };
    let mut unanswered = gather(call, node, question, take).await?;
    let here = node.id().as_str();
    pages.push((here.to_owned(), page_here(call, selection, places.of(here), limit).await?));
    let is_known = |name: &str| {
        pages.iter().any(|(known, _)| known == name)
            || unanswered.iter().any(|one| one.node == name)
    };
    let left = places.nodes().filter(|name| !is_known(name));
    let left = left.map(|name| UnansweredNode { node: name.to_owned(), why: AWAY.to_owned() });
    let left: Vec<_> = left.collect();
    unanswered.extend(left);
    unanswered.sort_by(|one, other| one.node.cmp(&other.node));
    let events = places.take_first(pages, limit);
    Ok(EventPage { events, next: None, resume: Some(places.to_string()), unanswered })
}

async fn page_here(
    call: &Call,
    selection: &EventSelection,
    place: Option<u64>,
    limit: usize,
) -> Result<EventPage, Refusal> {
    let events = call.api.events()?;
    let mut reader = events.reader(&selection.namespace, selection.from(place));
    let found = super::read(&mut reader, &selection.filter, limit).await?;
    let events =
        found.into_iter().map(|entry| EventInfo::new(&selection.namespace, entry)).collect();
    Ok(EventPage { events, next: reader.next(), ..EventPage::default() })
}

/// Sends the events of all nodes to one client.
pub struct FleetEvents {
    pub api: Api,
    pub caller: Caller,
    pub node: Node,
    pub events: Events,
    pub selection: EventSelection,
    pub places: Mutex<Places>,
}

/// What a task that reads from a node hands over. A `String` is why the node does not answer.
type Arrival = Result<EventInfo, String>;

/// A node whose events are read to their end.
struct Source {
    node: String,
    arrivals: mpsc::Receiver<Arrival>,
    head: Option<EventInfo>,
    is_over: bool,
}

impl FleetEvents {
    fn places(&self) -> MutexGuard<'_, Places> {
        // A map is never half-changed.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, node: &str) -> Option<u64> {
        self.places().of(node)
    }

    fn unanswered(&self, node: &str, why: String) -> EventInfo {
        let offset = self.place(node).unwrap_or_default();
        EventInfo::unanswered(&self.selection.namespace, node, offset, why)
    }

    /// All events that there are, by time.
    pub async fn tell_all(self: &Arc<Self>, teller: &Teller<EventInfo>) -> Result<(), Gone> {
        let (mut tasks, mut sources) = (JoinSet::new(), Vec::new());
        let mut begin = |node: String| {
            let (out, arrivals) = mpsc::channel(WAITING_MAX);
            sources.push(Source { node, arrivals, head: None, is_over: false });
            out
        };
        let out = begin(self.node.id().to_string());
        let reader = Arc::clone(self);
        tasks.spawn(async move { reader.read_here(false, &out).await });
        for to in self.node.others().await.unwrap_or_default() {
            let (reader, out) = (Arc::clone(self), begin(to.node.to_string()));
            tasks.spawn(async move {
                if let Err(why) = reader.read_there(&to, false, &out).await {
                    // Nobody is left to hear it.
                    let _ = out.send(Err(why)).await;
                }
            });
        }
        let is_read = |name: &&str| !sources.iter().any(|source| source.node == **name);
        let away: Vec<_> = self.places().nodes().filter(is_read).map(str::to_owned).collect();
        for name in away {
            teller.tell(&self.unanswered(&name, AWAY.to_owned())).await?;
        }
        loop {
            for source in sources.iter_mut().filter(|one| one.head.is_none() && !one.is_over) {
                match source.arrivals.recv().await {
                    Some(Ok(event)) => source.head = Some(event),
                    Some(Err(why)) => {
                        source.is_over = true;
                        teller.tell(&self.unanswered(&source.node, why)).await?;
                    }
                    None => source.is_over = true,
                }
            }
            let heads = sources.iter().enumerate();
            let heads = heads.filter_map(|(at, one)| Some((one.head.as_ref()?.at_ms, at)));
            let Some((_, at)) = heads.min() else { return Ok(()) };
            let event = sources[at].head.take().expect("it has a head");
            let next = event.offset + 1;
            teller.tell(&event).await?;
            self.places().set(&sources[at].node, next);
        }
    }

    /// Those that come, until the bridge ends.
    pub async fn follow(self: &Arc<Self>, teller: &Teller<EventInfo>) -> Result<(), Gone> {
        let (out, mut arrivals) = mpsc::channel(WAITING_MAX);
        let (reader, own_out) = (Arc::clone(self), out.clone());
        // Both end with this future.
        let (mut own, mut tasks) = (JoinSet::new(), JoinSet::new());
        own.spawn(async move { reader.read_here(true, &own_out).await });
        let mut followed = HashSet::new();
        let mut looks = interval(FORWARD_RETRY_PAUSE);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(event) = arrivals.recv() => {
                    if let Ok(event) = event {
                        teller.tell(&event).await?;
                    }
                }
                _ = looks.tick() => {
                    while let Some(Ok(node)) = tasks.try_join_next() {
                        followed.remove(&node);
                    }
                    for to in self.node.others().await.unwrap_or_default() {
                        let name = to.node.to_string();
                        if followed.insert(name.clone()) {
                            let (reader, out) = (Arc::clone(self), out.clone());
                            tasks.spawn(async move {
                                reader.follow_there(&name, &out).await;
                                name
                            });
                        }
                    }
                }
                _ = own.join_next() => return Ok(()),
            }
        }
    }

    /// Reads what this node has, and with `follow` what comes.
    async fn read_here(&self, follow: bool, out: &mpsc::Sender<Arrival>) {
        let (namespace, node) = (&self.selection.namespace, self.node.id().as_str());
        let mut reader = self.events.reader(namespace, self.selection.from(self.place(node)));
        loop {
            let batch = match turn(&mut reader, &self.selection.filter, TURN_MAX).await {
                Ok(batch) => batch,
                Err(refusal) => return drop(out.send(Err(refusal.message)).await),
            };
            for entry in batch.entries {
                let event = EventInfo::new(namespace, entry);
                let event = EventInfo { node: Some(node.to_owned()), ..event };
                if out.send(Ok(event)).await.is_err() {
                    return;
                }
            }
            if !batch.is_at_end {
                continue;
            }
            if !follow || !self.events.reached(namespace, reader.next().unwrap_or(0)).await {
                return;
            }
        }
    }

    /// Reads what another node has, from its place on. `Err`: why it does not answer.
    async fn read_there(
        &self,
        to: &Placement,
        follow: bool,
        out: &mpsc::Sender<Arrival>,
    ) -> Result<(), String> {
        let name = to.node.as_str();
        let more = if follow { "&follow=true" } else { "" };
        let question = self.selection.question(self.place(name), more);
        let question = question.map_err(|refusal| refusal.message)?;
        let sender = Sender { api: &self.api, caller: self.caller.clone(), is_operator: false };
        let mut lines = lines(sender, to, question).await.map_err(|refusal| refusal.message)?;
        loop {
            let line = if follow {
                tokio::select! {
                    line = lines.next() => line,
                    () = self.node.left(&to.node) => return Err("it has left the fleet".to_owned()),
                }
            } else {
                let line = timeout(FORWARD_ANSWER_MAX, lines.next()).await;
                line.map_err(|_| "it stopped in the middle of its answer".to_owned())?
            };
            let Some(line) = line.map_err(|refusal| refusal.message)? else { return Ok(()) };
            let event: EventInfo = serde_json::from_slice(&line)
                .map_err(|error| format!("its answer is of another form: {error}"))?;
            let next = event.offset + 1;
            if out.send(Ok(EventInfo { node: Some(name.to_owned()), ..event })).await.is_err() {
                return Ok(());
            }
            if follow {
                // It is on its way to the client, which no other task of this node overtakes.
                self.places().set(name, next);
            }
        }
    }

    /// Follows another node until it has left the fleet. That it does not answer is reported once.
    async fn follow_there(&self, name: &str, out: &mpsc::Sender<Arrival>) {
        let mut is_reported = false;
        while !out.is_closed() {
            let others = self.node.others().await.unwrap_or_default();
            let to = others.into_iter().find(|to| to.node.as_str() == name);
            let before = self.place(name);
            let (why, is_gone) = match &to {
                Some(to) => match self.read_there(to, true, out).await {
                    Ok(()) => ("its stream has ended".to_owned(), false),
                    Err(why) => (why, false),
                },
                None => ("it has left the fleet".to_owned(), true),
            };
            is_reported &= self.place(name) == before;
            if !std::mem::replace(&mut is_reported, true)
                && out.send(Ok(self.unanswered(name, why))).await.is_err()
            {
                return;
            }
            if is_gone {
                return;
            }
            sleep(FORWARD_RETRY_PAUSE).await;
        }
    }
}

//! Asks the daemon for the sandboxes and their agents for what they use. Everything that waits is a future of
//! this process's one thread; an agent that does not answer holds up nobody else.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use protocol::Cause;
use protocol::message::SessionInfo;
use protocol::repl::{ContextInfo, ContextState};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::news::{Listing, News, Part};
use crate::context::Context;
use crate::values::signal_name;
use crate::{instant, output};
use agent_client::guest::Guest;
use agent_client::guest::metrics::{Consumer, Samples};
use control::{AllNodes, List, Request};
use sandbox::{Name, Record, SandboxRef, State};

/// How often the sandboxes are listed.
const LIST_PAUSE: Duration = Duration::from_secs(1);
/// How soon an agent that could not be reached is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// How long an agent has for the sessions of its sandbox.
const INSIDE_MAX: Duration = Duration::from_secs(5);
/// Sessions and contexts whose use is asked for; of the others only the names are shown.
const PARTS_MEASURED_MAX: usize = 64;
/// Answers that are taken before the screen is drawn again.
const NEWS_AT_ONCE_MAX: usize = 512;

/// What a future ends with.
enum Done {
    Listed(Result<Listing>),
    /// There was no connection, or it broke.
    Unwatched(SandboxRef),
    Sampled {
        which: SandboxRef,
        guest: Guest,
        samples: Samples,
    },
    Inside {
        which: SandboxRef,
        parts: Option<Vec<Part>>,
    },
}

/// Which sandboxes are shown.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// All namespaces if absent.
    pub namespace: Option<Name>,
    /// Of the whole fleet.
    pub all_nodes: bool,
}

pub struct Watcher<'c> {
    context: &'c Context,
    scope: Scope,
    work: FuturesUnordered<LocalBoxFuture<'c, Done>>,
    /// Sandboxes with a future of theirs.
    watched: BTreeSet<SandboxRef>,
    /// The sandbox whose inside is being asked for.
    inside: Option<SandboxRef>,
}

impl<'c> Watcher<'c> {
    pub fn new(context: &'c Context, scope: Scope) -> Self {
        let work = FuturesUnordered::new();
        work.push(list(context, scope.clone(), Duration::ZERO).boxed_local());
        Self { context, scope, work, watched: BTreeSet::new(), inside: None }
    }

    /// All sandboxes with what each uses, as far as they answer in this time.
    pub async fn once(&mut self, deadline: Duration) -> Result<Vec<News>> {
        let (mut news, mut left) = (Vec::new(), None::<BTreeSet<SandboxRef>>);
        let mut until = None;
        while left.as_ref().is_none_or(|left| !left.is_empty()) {
            let done = match until {
                // The daemon answers in its own time: it waits for nodes that are away.
                None => self.work.next().await,
                Some(until) => timeout_at(until, self.work.next()).await.unwrap_or_default(),
            };
            let Some(done) = done else { break };
            match done {
                Done::Listed(Err(error)) => return Err(error),
                Done::Listed(Ok(listing)) if left.is_none() => {
                    left = Some(running(&listing.records).collect());
                    until = Some(Instant::now() + deadline);
                    news.extend(self.settle(Done::Listed(Ok(listing))));
                }
                done => {
                    if let (Some(left), Done::Unwatched(which) | Done::Sampled { which, .. }) =
                        (&mut left, &done)
                    {
                        left.remove(which);
                    }
                    news.extend(self.settle(done));
                }
            }
        }
        Ok(news)
    }

    /// What is new, all that there is at once. Safe to cancel.
    pub async fn next(&mut self) -> Vec<News> {
        let Some(first) = self.work.next().await else { return std::future::pending().await };
        let mut news: Vec<News> = self.settle(first).into_iter().collect();
        while news.len() < NEWS_AT_ONCE_MAX {
            let Some(Some(done)) = self.work.next().now_or_never() else { break };
            news.extend(self.settle(done));
        }
        news
    }

    /// Asks for the sessions and contexts of a sandbox, unless that is being done.
    pub fn ask_inside(&mut self, which: Option<&SandboxRef>) {
        if let Some(which) = which.filter(|_| self.inside.is_none()) {
            self.inside = Some(which.clone());
            self.work.push(look_inside(self.context, which.clone()).boxed_local());
        }
    }

    /// Says what is new, and has the next question asked.
    fn settle(&mut self, done: Done) -> Option<News> {
        match done {
            Done::Listed(listed) => {
                self.work.push(list(self.context, self.scope.clone(), LIST_PAUSE).boxed_local());
                let listing = match listed {
                    Ok(listing) => listing,
                    Err(error) => return Some(News::Trouble(format!("{error:#}"))),
                };
                for which in running(&listing.records) {
                    if self.watched.insert(which.clone()) {
                        self.work.push(open(self.context, which).boxed_local());
                    }
                }
                Some(News::Listed(listing))
            }
            Done::Unwatched(which) => {
                self.watched.remove(&which);
                None
            }
            Done::Sampled { which, guest, samples } => {
                let sample = samples.newest().copied();
                self.work.push(follow(which.clone(), guest, samples.seen()).boxed_local());
                sample.map(|sample| News::Sampled { which, sample: Box::new(sample) })
            }
            Done::Inside { which, parts } => {
                self.inside = None;
                parts.map(|parts| News::Inside { which, parts, at_ms: instant::now_ms() })
            }
        }
    }
}

fn running(records: &[Record]) -> impl Iterator<Item = SandboxRef> {
    records.iter().filter(|record| matches!(record.state, State::Running)).map(Record::which)
}

async fn list(context: &Context, scope: Scope, pause: Duration) -> Done {
    sleep(pause).await;
    let list = List { namespace: scope.namespace, ..List::default() };
    let listed = async {
        let mut daemon = context.running().await?;
        if scope.all_nodes {
            let all: AllNodes<Vec<Record>> = daemon.ask_all(Request::List(list)).await?;
            return Ok(all.into());
        }
        Ok(daemon.list(list).await?.into())
    };
    Done::Listed(listed.await)
}

/// Connects to an agent, without waking it or counting as work.
async fn open(context: &Context, which: SandboxRef) -> Done {
    let Ok(guest) = context.look(&which, "top").await else {
        sleep(RETRY_PAUSE).await;
        return Done::Unwatched(which);
    };
    match guest.newest_metrics(true).await {
        Ok(samples) => Done::Sampled { which, guest, samples },
        Err(_) => Done::Unwatched(which),
    }
}

/// Waits for the next sample.
async fn follow(which: SandboxRef, guest: Guest, seen: u64) -> Done {
    match guest.metrics(seen, true).await {
        Ok(samples) => Done::Sampled { which, guest, samples },
        Err(_) => Done::Unwatched(which),
    }
}

async fn look_inside(context: &Context, which: SandboxRef) -> Done {
    let parts = timeout(INSIDE_MAX, async {
        let guest = context.look(&which, "top").await.ok()?;
        let parts = parts(&guest).await;
        guest.close().await;
        parts
    });
    let parts = parts.await.ok().flatten();
    Done::Inside { which, parts }
}

/// The contexts and sessions of a sandbox, those that live first.
async fn parts(guest: &Guest) -> Option<Vec<Part>> {
    let (sessions, contexts) = tokio::join!(guest.sessions(0), guest.contexts());
    let mut sessions = sessions.ok()?.sessions;
    sessions
        .sort_by_key(|session| (session.exit.is_some(), std::cmp::Reverse(session.started_at_ms)));
    let contexts = contexts.unwrap_or_default().into_iter().map(of_context);
    let mut parts: Vec<Part> = contexts.chain(sessions.iter().map(of_session)).collect();
    let measured = parts.iter_mut().filter(|part| part.is_alive).take(PARTS_MEASURED_MAX);
    join_all(measured.map(|part| measure(guest, part))).await;
    Some(parts)
}

async fn measure(guest: &Guest, part: &mut Part) {
    let of = match &part.id {
        Some(session) => Consumer::Session(session.clone()),
        None => match part.name.parse() {
            Ok(name) => Consumer::Context(name),
            Err(_) => return,
        },
    };
    // One that has just ended uses nothing.
    let Ok(usage) = guest.usage(of).await else { return };
    part.cpu_us = Some(usage.cpu_us);
    part.memory_bytes = Some(usage.memory_bytes);
    part.processes = Some(usage.processes);
}

fn of_session(session: &SessionInfo) -> Part {
    let state = match &session.exit {
        Some(exit) => match &exit.cause {
            Cause::Exited { code } => format!("exit {code}"),
            Cause::Signaled { signal, .. } | Cause::Killed { signal, .. } => signal_name(*signal),
            Cause::TimedOut { .. } => "timed out".to_owned(),
            _ => "ended".to_owned(),
        },
        None if session.starting => "starting".to_owned(),
        None => "running".to_owned(),
    };
    Part {
        name: session.session.to_string(),
        id: Some(session.session.clone()),
        what: output::printable(&session.command),
        state,
        is_alive: session.exit.is_none(),
        started_at_ms: session.started_at_ms,
        ..Part::default()
    }
}

fn of_context(context: ContextInfo) -> Part {
    let state = match context.running {
        Some(run) => format!("run {run}"),
        None => state_of(context.state).to_owned(),
    };
    Part {
        name: context.context.to_string(),
        what: format!("{}, {} runs", output::printable(&context.language), context.runs),
        context: Some(context.language),
        state,
        is_alive: true,
        started_at_ms: context.opened_at_ms,
        ..Part::default()
    }
}

fn state_of(state: ContextState) -> &'static str {
    match state {
        ContextState::Cold => "cold",
        ContextState::Starting => "starting",
        ContextState::Idle => "idle",
        ContextState::Running => "running",
        ContextState::Interrupting => "interrupting",
    }
}

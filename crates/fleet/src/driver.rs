//! Runs one member over NATS: a task that owns it, turns what happens into events, and carries actions out. The
//! bridge starts one and talks to it by [`Handle`].

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{mpsc, oneshot, watch};

use crate::event::{Action, Answer, Call, Event, Note, Refusal, Reply, Ticket};
use crate::ids::{Incarnation, Millis, Name};
use crate::lease::Leash;
use crate::limits::{EVENTS_MAX, FAILURE_CHARS_MAX, TICK_MS};
use crate::member::{Me, Member, Status};
use crate::nats::{Link, LinkError, ReplyTo};
use crate::records::Room;

/// What a member does to the machines of its host. None of these may wait: what takes time reports with
/// [`Machinery`].
pub trait Machines: Send + 'static {
    fn start(&mut self, incarnation: Incarnation, name: Name, spec: Arc<str>, report: Machinery);
    fn end(&mut self, incarnation: Incarnation, report: Machinery);
    fn end_all(&mut self);
    /// In milliseconds of [`now_ms`].
    fn leash(&mut self, leash: Leash);
    fn note(&mut self, note: &Note);
    /// Whether this host has a thing, as [`Reply::Has`] or [`Reply::HasNot`].
    fn look(&mut self, thing: &str) -> Looking {
        tracing::debug!(thing, "nothing is kept here");
        Box::pin(std::future::ready(Reply::HasNot))
    }
}

/// What finds out whether a host has a thing.
pub type Looking = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// Where machines report what has become of them.
#[derive(Clone)]
pub struct Machinery(mpsc::Sender<Input>);

impl Machinery {
    pub async fn started(&self, incarnation: Incarnation, started: Result<(), String>) {
        let cut = |why: String| why.chars().take(FAILURE_CHARS_MAX).collect();
        self.send(Event::MachineStarted { incarnation, failure: started.err().map(cut) }).await;
    }

    /// Somebody on this host has removed the sandbox.
    pub async fn removed(&self, incarnation: Incarnation) {
        self.send(Event::MachineRemoved { incarnation }).await;
    }

    pub async fn ended(&self, incarnation: Incarnation) {
        self.send(Event::MachineEnded { incarnation }).await;
    }

    async fn send(&self, event: Event) {
        // A driver that has ended needs no reports.
        let _ = self.0.send(Input::Event(event)).await;
    }
}

enum Input {
    Event(Event),
    Asked(crate::event::Request, ReplyTo),
    Called(Call, oneshot::Sender<Answer>),
}

/// A member that runs. It ends when the last handle is dropped.
#[derive(Clone)]
pub struct Handle {
    inputs: mpsc::Sender<Input>,
    status: watch::Receiver<Status>,
    pub link: Link,
}

impl Handle {
    pub async fn call(&self, what: Call) -> Answer {
        let (answered, answer) = oneshot::channel();
        let sent = self.inputs.send(Input::Called(what, answered)).await;
        let answer = if sent.is_ok() { answer.await.ok() } else { None };
        answer.unwrap_or(Answer::Refused(Refusal::Unknown))
    }

    /// Where what becomes of machines is reported that no action was about.
    pub fn machinery(&self) -> Machinery {
        Machinery(self.inputs.clone())
    }

    pub fn status(&self) -> Status {
        *self.status.borrow()
    }

    /// Waits until the status is as wished.
    pub async fn until(&self, is_so: impl FnMut(&Status) -> bool) {
        let mut status = self.status.clone();
        // A driver that has ended changes nothing any more.
        let _ = status.wait_for(is_so).await;
    }
}

/// The clock of leases: it goes on while the host is suspended, so that a lease does not outlive its time then.
pub fn now_ms() -> Millis {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

/// A sandbox that was there before this member.
#[derive(Clone, Debug)]
pub struct Adopted {
    pub incarnation: Incarnation,
    pub name: Name,
    pub needs: Room,
}

/// What an earlier bridge has left.
#[derive(Clone, Debug, Default)]
pub struct Left {
    pub adopted: Vec<Adopted>,
    /// Sandboxes that were removed, and whose records may still be there.
    pub removed: Vec<Incarnation>,
}

/// Joins, with what an earlier bridge has left, and goes on until the last handle is dropped.
pub async fn run(
    me: Me,
    link: Link,
    machines: impl Machines,
    left: Left,
) -> Result<Handle, LinkError> {
    let (inputs, arriving) = mpsc::channel(EVENTS_MAX);
    let mut member = Member::new(me);
    for Adopted { incarnation, name, needs } in left.adopted {
        member.adopt(incarnation, name, needs);
    }
    for incarnation in left.removed {
        member.adopt_removed(incarnation);
    }
    let (shown, status) = watch::channel(member.status(now_ms()));
    let requests = link.listen(member.id()).await?;
    let weak = inputs.downgrade();
    tokio::spawn(read_requests(requests, weak.clone()));
    tokio::spawn(watch_nodes(link.clone(), weak.clone()));
    let driver = Driver {
        member,
        link: link.clone(),
        machines,
        inputs: weak,
        shown,
        replies: HashMap::new(),
        calls: HashMap::new(),
        last: 0,
    };
    tokio::spawn(driver.run(arriving));
    Ok(Handle { inputs, status, link })
}

async fn read_requests(mut requests: crate::nats::Requests, inputs: mpsc::WeakSender<Input>) {
    while let Some((request, reply)) = requests.next().await {
        let Some(inputs) = inputs.upgrade() else { return };
        if inputs.send(Input::Asked(request, reply)).await.is_err() {
            return;
        }
    }
}

/// Watches how nodes describe themselves, and begins again when a watch ends.
async fn watch_nodes(link: Link, inputs: mpsc::WeakSender<Input>) {
    loop {
        if let Ok(mut watch) = link.watch_nodes().await {
            while let Some((id, record)) = watch.next().await {
                let Some(inputs) = inputs.upgrade() else { return };
                if inputs.send(Input::Event(Event::NodeSeen { id, record })).await.is_err() {
                    return;
                }
            }
        }
        if inputs.upgrade().is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(crate::limits::ANSWER_MS)).await;
    }
}

struct Driver<M> {
    member: Member,
    link: Link,
    machines: M,
    inputs: mpsc::WeakSender<Input>,
    shown: watch::Sender<Status>,
    /// Whom to reply to, by the ticket that the member has.
    replies: HashMap<Ticket, ReplyTo>,
    calls: HashMap<Ticket, oneshot::Sender<Answer>>,
    last: Ticket,
}

impl<M: Machines> Driver<M> {
    async fn run(mut self, mut arriving: mpsc::Receiver<Input>) {
        let mut ticks = tokio::time::interval(Duration::from_millis(TICK_MS));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let event = tokio::select! {
                _ = ticks.tick() => Event::Tick,
                input = arriving.recv() => match input {
                    Some(input) => self.event(input),
                    None => return,
                },
            };
            let now = now_ms();
            for action in self.member.handle(now, event) {
                self.act(action);
            }
            let status = self.member.status(now);
            self.shown.send_if_modified(|shown| std::mem::replace(shown, status) != status);
        }
    }

    fn event(&mut self, input: Input) -> Event {
        self.last += 1;
        match input {
            Input::Event(event) => event,
            Input::Asked(request, reply) => {
                self.replies.insert(self.last, reply);
                Event::Asked { ticket: self.last, request }
            }
            Input::Called(what, answered) => {
                self.calls.insert(self.last, answered);
                Event::Called { call: self.last, what }
            }
        }
    }

    /// Nothing here waits: what does is a task that sends its event.
    fn act(&mut self, action: Action) {
        let link = self.link.clone();
        match action {
            Action::Write { ticket, key, expected, value, ttl_s } => self.later(async move {
                let outcome = link.write(&key, expected, value.as_ref(), ttl_s).await;
                Event::Wrote { ticket, outcome }
            }),
            Action::Read { ticket, key } => self.later(async move {
                let entry = link.read(&key).await;
                Event::Read { ticket, entry: known(entry) }
            }),
            Action::Scan { ticket, scope } => {
                let id = self.member.id().clone();
                self.later(async move {
                    let records = link.scan(&scope, &id).await;
                    Event::Scanned { ticket, records: known(records) }
                });
            }
            Action::Ask { ticket, to, request } => self.later(async move {
                let reply = link.ask(&to, &request).await;
                Event::Answered { ticket, reply }
            }),
            Action::Reply { ticket, reply } => {
                if let Some(to) = self.replies.remove(&ticket) {
                    tokio::spawn(async move { link.reply(to, &reply).await });
                }
            }
            Action::Answer { call, answer } => {
                if let Some(answered) = self.calls.remove(&call) {
                    // Who has called may be gone.
                    let _ = answered.send(answer);
                }
            }
            Action::Leash(leash) => self.machines.leash(leash),
            Action::EndAll => self.machines.end_all(),
            Action::Start { incarnation, name, spec } => {
                if let Some(report) = self.report() {
                    self.machines.start(incarnation, name, spec, report);
                }
            }
            Action::End { incarnation } => {
                if let Some(report) = self.report() {
                    self.machines.end(incarnation, report);
                }
            }
            Action::Look { ticket, thing } => {
                if let Some(to) = self.replies.remove(&ticket) {
                    let looking = self.machines.look(&thing);
                    tokio::spawn(async move { link.reply(to, &looking.await).await });
                }
            }
            Action::Note(note) => self.machines.note(&note),
        }
    }

    fn report(&self) -> Option<Machinery> {
        self.inputs.upgrade().map(Machinery)
    }

    fn later(&self, event: impl Future<Output = Event> + Send + 'static) {
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            let event = event.await;
            if let Some(inputs) = inputs.upgrade() {
                // A driver that has ended needs no answers.
                let _ = inputs.send(Input::Event(event)).await;
            }
        });
    }
}

fn known<T>(answer: Result<T, crate::nats::StoreError>) -> Option<T> {
    answer.inspect_err(|error| tracing::debug!(%error, "the store did not answer")).ok()
}

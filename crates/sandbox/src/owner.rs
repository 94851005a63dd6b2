//! The task that owns a sandbox: the only one that changes its state, writes its record and orders
//! its machine about.
//!
//! Orders come through a bounded queue and are answered when they are done, so a stop is answered
//! when the machine is gone. While one is under way, harder ones are still taken: a kill during a
//! stop, a forced removal during a kill.

mod begin;
mod expire;
mod order;
mod suspend;
mod workspace;

use std::future::{Future, pending};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use protocol::limits::STOP_MARGIN_HOST;
use protocol::repl::ContextInfo;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::expiry::{Expiry, ExpiryAction};
use super::log::log_directory;
use super::meter::{Meter, RunTimer};
use super::pool::{Personal, Pool, Shape};
use super::presence::Presence;
use super::record::StoredRecord;
use super::recorder::SharedLog;
use super::snapshot::bytes_of;
use super::stored::HeldImage;
use super::{Event, EventSink, Record, SandboxError, State, StopReason};
use crate::limits::RECORDER_END_MAX;
use agent_client::link::LinkError;
use egress::{EgressGuard, Injections};
use host::instant::now_ms;
use host::secret::Secrets;
use machine::limits::{KILL_DEADLINE, SET_RIGHT_MAX};
use machine::{BoxFuture, Directories, Machine, MachineExit, Running};

use ::workspace::limits::LAST_SYNC_DEADLINE;
use ::workspace::{ExchangeOutcome, Mirror, Workspaces};

pub(super) use order::{Order, Reply};
use suspend::SuspendOutcome;

/// Where a machine may be that was started ahead, and what it is to become.
pub(super) struct PoolRequest {
    pub pool: Arc<Pool>,
    pub shape: Shape,
    pub personal: Personal,
}

/// Where an owner works.
pub(super) struct OwnerSettings {
    pub directories: Directories,
    pub machine: Arc<dyn Machine>,
    pub events: EventSink,
    pub egress: Arc<egress::Settings>,
    pub secrets: Secrets,
    pub meter: Meter,
    pub presence: Arc<Presence>,
    pub workspaces: Workspaces,
    /// Dropped with the owner: then the name is free.
    pub _occupied: Box<dyn Send + Sync>,
}

/// Everything that the loop can see.
enum OwnerEvent {
    Order(Order),
    /// Nobody can order anything any more: the registry is gone.
    Forsaken,
    /// The machine is gone.
    Exited(MachineExit),
    /// The agent is gone for good, and the machine may not be.
    Lost(LinkError),
    /// The machine was killed and is still there.
    Overdue,
    /// A time to live has come to something.
    Due(ExpiryAction),
    /// The agent has said what its contexts do; nothing when it did not answer.
    Looked(Option<Vec<ContextInfo>>),
    /// What takes its time is done.
    Returned(SuspendOutcome),
    /// Something of the workspace has come back.
    Said(ExchangeOutcome),
}

/// The time that programs get to end by themselves.
#[derive(Clone, Copy)]
enum Grace {
    Of(Duration),
    None,
}

impl Grace {
    fn at_most(self) -> Duration {
        match self {
            Self::Of(grace) => grace + STOP_MARGIN_HOST,
            Self::None => Duration::ZERO,
        }
    }
}

/// What the loop does after a happening.
enum NextStep {
    GoOn,
    Remove,
    Leave,
}

/// One sandbox.
pub(super) struct Owner {
    kept: StoredRecord,
    place: OwnerSettings,
    shown: watch::Sender<Record>,
    orders: mpsc::Receiver<Order>,
    log: Option<SharedLog>,
    /// The image that its machine has, as long as it has one.
    image: Option<HeldImage>,
    /// The secrets that stay on this side, until the way out is made.
    injections: Injections,
    life: Option<LiveMachine>,
    /// Why the machine will have ended, when we end it.
    why: Option<StopReason>,
    /// Orders that are answered when the machine is gone.
    waiting: Vec<Reply>,
    /// The sandbox is to be removed when the machine is gone, and these want to know.
    removing: Vec<Reply>,
    /// When a killed machine counts as hanging.
    overdue: Option<Instant>,
    /// Nothing is left of the machine.
    cleaned: bool,
    expiry: Expiry,
    /// The time for which its machine runs, while it does.
    spell: Option<RunTimer>,
    /// An earlier bridge had the machine, which went on without one.
    was_away: bool,
    /// What brings the bucket of a stopped sandbox what it lacks.
    delivery: Option<Mirror>,
}

/// What an owner has only while its machine lives.
struct LiveMachine {
    running: Arc<dyn Running>,
    exited: BoxFuture<'static, MachineExit>,
    lost: Option<Pin<Box<dyn Future<Output = LinkError> + Send>>>,
    recorder: Option<JoinHandle<()>>,
    /// The way out, for as long as this is kept; none where nothing may be reached.
    egress: Option<EgressGuard>,
    /// What brings changes in the workspace back; none without a workspace.
    mirror: Option<Mirror>,
    /// The question to the agent whether something is at work.
    look: Option<BoxFuture<'static, Option<Vec<ContextInfo>>>>,
    /// A pause, a resumption or a snapshot under way.
    errand: Option<BoxFuture<'static, SuspendOutcome>>,
    /// Why not all of the workspace has come back before the end, when it has not.
    kept_back: Arc<OnceLock<String>>,
}

impl Owner {
    pub(super) fn new(
        kept: StoredRecord,
        place: OwnerSettings,
        shown: watch::Sender<Record>,
        orders: mpsc::Receiver<Order>,
    ) -> Self {
        Self {
            kept,
            place,
            shown,
            orders,
            log: None,
            image: None,
            injections: Injections::default(),
            life: None,
            why: None,
            waiting: Vec::new(),
            removing: Vec::new(),
            overdue: None,
            cleaned: false,
            expiry: Expiry::default(),
            spell: None,
            was_away: false,
            delivery: None,
        }
    }

    /// Takes the secrets that stay on this side.
    pub(super) fn inject(&mut self, injections: Injections) {
        self.injections = injections;
    }

    async fn run(mut self) {
        loop {
            let next = match self.next().await {
                OwnerEvent::Order(order) => self.obey(order).await,
                OwnerEvent::Forsaken => NextStep::Leave,
                OwnerEvent::Exited(exit) => {
                    let why = self.why_of(&exit);
                    self.bury(why).await;
                    if self.removing.is_empty() { NextStep::GoOn } else { NextStep::Remove }
                }
                OwnerEvent::Lost(error) => {
                    self.lose(&error).await;
                    NextStep::GoOn
                }
                OwnerEvent::Overdue => {
                    self.give_up().await;
                    NextStep::GoOn
                }
                OwnerEvent::Due(due) => self.act_on(due).await,
                OwnerEvent::Looked(contexts) => {
                    self.judge(contexts).await;
                    NextStep::GoOn
                }
                OwnerEvent::Said(said) => {
                    self.hear(said).await;
                    NextStep::GoOn
                }
                OwnerEvent::Returned(errand) => {
                    self.return_from(errand).await;
                    NextStep::GoOn
                }
            };
            match next {
                NextStep::GoOn => {}
                NextStep::Remove => return self.remove().await,
                NextStep::Leave => return,
            }
        }
    }

    async fn next(&mut self) -> OwnerEvent {
        let (overdue, due) = (self.overdue, self.expiry.next());
        let (exited, lost, look, errand, mirror) = match &mut self.life {
            Some(life) => {
                let (look, errand) = (life.look.as_mut(), life.errand.as_mut());
                let mirror = life.mirror.as_mut();
                (Some(&mut life.exited), life.lost.as_mut(), look, errand, mirror)
            }
            None => (None, None, None, None, self.delivery.as_mut()),
        };
        tokio::select! {
            // A machine that is gone makes everything else moot.
            biased;
            exit = settled(exited) => OwnerEvent::Exited(exit),
            error = settled(lost) => OwnerEvent::Lost(error),
            order = self.orders.recv() => order.map_or(OwnerEvent::Forsaken, OwnerEvent::Order),
            () = reached(overdue) => OwnerEvent::Overdue,
            contexts = settled(look) => OwnerEvent::Looked(contexts),
            errand = settled(errand) => OwnerEvent::Returned(errand),
            said = heard(mirror) => OwnerEvent::Said(said),
            () = reached(due.map(|(at, _)| at)) => {
                due.map_or(OwnerEvent::Forsaken, |(_, due)| OwnerEvent::Due(due))
            }
        }
    }

    async fn obey(&mut self, order: Order) -> NextStep {
        match order {
            Order::Stop { reply, .. } | Order::Kill { reply } if self.life.is_none() => {
                let _ = reply.send(Ok(self.kept.record.clone()));
            }
            Order::Stop { grace, reply } => {
                self.waiting.push(reply);
                // A second stop neither shortens nor lengthens the grace of the first.
                if self.kept.record.state != State::Stopping {
                    self.begin_stop(grace, StopReason::Asked).await;
                }
            }
            Order::Kill { reply } => {
                self.waiting.push(reply);
                self.begin_kill().await;
            }
            Order::Remove { reply, .. } if self.life.is_none() => {
                self.removing.push(reply);
                return NextStep::Remove;
            }
            Order::Remove { force: false, reply } => {
                let (which, state) = (self.kept.record.which(), self.kept.record.state.clone());
                let _ = reply.send(Err(SandboxError::StillRunning { which, state }));
            }
            Order::Remove { force: true, reply } => {
                self.removing.push(reply);
                self.begin_removal().await;
            }
            Order::Extend { ttl_ms, idle_ttl_ms, reply } => {
                let _ = reply.send(self.extend(ttl_ms, idle_ttl_ms).await);
            }
            Order::Pause { reply } => self.pause(reply),
            Order::Resume { reply } => self.resume_paused(reply),
            Order::Snapshot { draft, reply } => self.write_down(*draft, reply),
            Order::Commit { work, reply } => self.commit(work, reply),
            Order::Spent { kind } => self.end_spent(kind).await,
            Order::Sync { reply } => self.sync(reply),
            Order::Leave { reply } => {
                self.let_go().await;
                let _ = reply.send(Ok(self.kept.record.clone()));
                return NextStep::Leave;
            }
        }
        NextStep::GoOn
    }

    /// What programs have left in a workspace comes back before a sandbox is removed, as before a stop.
    /// One that is about to end, has lost its agent or has nothing to bring back is killed at once.
    async fn begin_removal(&mut self) {
        let brings = self.life.as_ref().is_some_and(|life| life.mirror.is_some());
        match self.kept.record.state {
            State::Running | State::Paused { .. } if brings => {
                self.begin_end(Grace::None, StopReason::Killed).await;
            }
            _ => self.begin_kill().await,
        }
    }

    async fn begin_stop(&mut self, grace: Duration, why: StopReason) {
        self.begin_end(Grace::Of(grace), why).await;
    }

    async fn begin_end(&mut self, grace: Grace, why: StopReason) {
        let Some(life) = &mut self.life else { return };
        let running = Arc::clone(&life.running);
        let is_halted = life.errand.is_some() || running.trace().paused;
        // Whoever waits for a pause or a snapshot learns that it is stopped instead.
        life.errand = None;
        self.why = Some(why);
        let goes_on_within = if is_halted { SET_RIGHT_MAX } else { Duration::ZERO };
        let last = life.mirror.as_ref().map(Mirror::ask);
        let syncs_within = if last.is_some() { LAST_SYNC_DEADLINE } else { Duration::ZERO };
        let stops_within = goes_on_within + syncs_within + grace.at_most();
        self.overdue = Some(Instant::now() + stops_within + KILL_DEADLINE);
        self.expiry.ends();
        self.place.presence.close();
        self.enter(State::Stopping).await;
        let (which, events) = (self.kept.record.which(), Arc::clone(&self.place.events));
        let kept_back = self.life.as_ref().map(|life| Arc::clone(&life.kept_back));
        // That it is done shows in the machine's exit.
        tokio::spawn(async move {
            if let Some(last) = last {
                if is_halted && let Some(suspend) = running.suspend() {
                    // What stands still gives nothing.
                    let _ = tokio::time::timeout(SET_RIGHT_MAX, suspend.set_right()).await;
                }
                let why = match tokio::time::timeout(LAST_SYNC_DEADLINE, last).await {
                    Ok(Ok(_)) => None,
                    Ok(Err(_)) => {
                        Some("because it was killed, or too many others were waiting".to_owned())
                    }
                    Err(_) => Some(format!(
                        "because that took longer than {} s",
                        LAST_SYNC_DEADLINE.as_secs()
                    )),
                };
                if let Some(why) = why {
                    let what = format!(
                        "it was stopped before all changes in its workspace were copied back, {why}"
                    );
                    if let Some(kept_back) = kept_back {
                        let _ = kept_back.set(format!("workspace: {what}"));
                    }
                    events(&Event::Trouble { which: Some(which), what });
                }
            }
            match grace {
                Grace::Of(grace) => running.stop(grace).await,
                Grace::None => running.kill(),
            }
        });
    }

    async fn begin_kill(&mut self) {
        let Some(life) = &self.life else { return };
        life.mirror.iter().for_each(Mirror::break_off);
        life.running.kill();
        self.why = Some(StopReason::Killed);
        self.overdue = Some(Instant::now() + KILL_DEADLINE);
        self.expiry.ends();
        self.place.presence.close();
        self.enter(State::Stopping).await;
    }

    /// Why a machine has ended: by our order, or by itself.
    fn why_of(&mut self, exit: &MachineExit) -> StopReason {
        let killed = self.life.as_ref().is_some_and(|life| life.running.was_killed());
        match self.why.take() {
            // It was granted its grace and overran it.
            Some(StopReason::Asked) if killed => StopReason::Killed,
            Some(why) => why,
            None => StopReason::Ended { detail: exit.to_string() },
        }
    }

    /// Says that a killed machine does not die. Its exit is still awaited.
    async fn give_up(&mut self) {
        self.overdue = None;
        let which = self.kept.record.which();
        self.enter(State::Lost { reason: "it was killed, but it still exists".to_owned() }).await;
        for reply in self.waiting.drain(..).chain(self.removing.drain(..)) {
            let seconds = KILL_DEADLINE.as_secs();
            let _ = reply.send(Err(SandboxError::WillNotDie { which: which.clone(), seconds }));
        }
    }

    async fn lose(&mut self, error: &LinkError) {
        if let Some(life) = &mut self.life {
            life.lost = None;
        }
        // An agent that stops says so and closes its link; the machine's end follows.
        if self.kept.record.state == State::Running {
            self.enter(State::Lost { reason: error.to_string() }).await;
        }
    }

    /// Marks the end of the machine, and removes what it left except record, logs and disk.
    async fn bury(&mut self, why: StopReason) {
        if let Some(mut life) = self.life.take() {
            // What was said in the last moment.
            if let Some(guest) = life.running.guest() {
                guest.forsake();
            }
            self.end_workspace(life.mirror.take()).await;
            self.kept.record.warnings.extend(life.kept_back.get().cloned());
            if let Some(mut recorder) = life.recorder
                && tokio::time::timeout(RECORDER_END_MAX, &mut recorder).await.is_err()
            {
                recorder.abort();
            }
        }
        self.place.presence.leave();
        self.overdue = None;
        let closed = self.log.take().map(|log| log.with(|log| log.close(&why.to_string())));
        if let Some(Err(error)) = closed {
            self.trouble(error.to_string());
        }
        self.clean().await;
        self.image = None;
        self.kept.record.pid = None;
        self.kept.record.address = None;
        self.kept.trace = machine::Trace::default();
        let log = log_directory(&self.place.directories.state);
        self.kept.record.log_bytes = Some(bytes_of(&log));
        self.enter(State::Stopped { why, at_ms: now_ms() }).await;
        self.expiry.stopped(&self.kept.record);
        self.deliver();
        for reply in self.waiting.drain(..) {
            let _ = reply.send(Ok(self.kept.record.clone()));
        }
    }

    /// Lets go of a machine that goes on without us. Its agent is told, so that it does not wait
    /// for us to come back for our streams.
    async fn let_go(&mut self) {
        let Some(mut life) = self.life.take() else { return };
        drop(life.egress);
        // The next bridge does the exchanges from here on.
        self.end_workspace(life.mirror.take()).await;
        self.place.presence.leave();
        if let Some(recorder) = life.recorder {
            recorder.abort();
            let _ = recorder.await;
        }
        if let Some(errand) = life.errand {
            // What it has stopped for must not stand still until somebody comes.
            drop(errand);
            if let Some(suspend) = life.running.suspend() {
                let _ = tokio::time::timeout(SET_RIGHT_MAX, suspend.set_right()).await;
            }
        }
        if let Some(guest) = life.running.guest() {
            guest.close().await;
        }
    }

    /// Removes everything, then frees the name, then answers.
    async fn remove(mut self) {
        let replies = std::mem::take(&mut self.removing);
        let (record, events) = (self.kept.record.clone(), Arc::clone(&self.place.events));
        self.log = None;
        self.erase().await;
        drop(self);
        events(&Event::Removed { of: record.subject() });
        for reply in replies {
            let _ = reply.send(Ok(record.clone()));
        }
    }

    /// Removes the sandbox's machine and directories, whatever of them there is.
    async fn erase(&mut self) {
        if let Some(delivery) = self.delivery.take() {
            delivery.end().await;
        }
        self.clean().await;
        // The record goes last: what is left by a crash in between is found by it.
        let state = self.place.directories.state.clone();
        for path in [log_directory(&state), state] {
            if let Err(error) = remove_directory(&path).await {
                self.trouble(format!("{} could not be removed: {error}", path.display()));
            }
        }
    }

    async fn clean(&mut self) {
        if std::mem::replace(&mut self.cleaned, true) {
            return;
        }
        let directories = self.place.directories.clone();
        let runtime = directories.runtime.clone();
        self.place.machine.clean(self.kept.record.id.clone(), Some(directories)).await;
        if let Err(error) = remove_directory(&runtime).await {
            self.trouble(format!("{} could not be removed: {error}", runtime.display()));
        }
    }

    /// Changes the state: on disk, for those who look, and for those who watch.
    async fn enter(&mut self, state: State) {
        self.kept.record.state = state.clone();
        // A record that is about to be removed is not worth the wait for the disk.
        if self.removing.is_empty() {
            self.save().await;
        }
        self.show(state);
    }

    fn show(&mut self, state: State) {
        self.meter(&state);
        self.shown.send_replace(self.kept.record.clone());
        (self.place.events)(&Event::State { of: self.kept.record.subject(), state });
    }

    /// Has the time counted for which a machine lives and does not stand still.
    fn meter(&mut self, state: &State) {
        let runs = matches!(state, State::Running | State::Stopping | State::Lost { .. });
        let Some(life) = self.life.as_ref().filter(|_| runs) else {
            self.spell = None;
            return;
        };
        let running = Arc::clone(&life.running);
        self.begin_spell(&running);
    }

    /// The same for one that has no state yet that says so.
    fn begin_spell(&mut self, running: &Arc<dyn Running>) {
        if self.spell.is_none() {
            let heard = running.guest().map(|guest| guest.heard().clone());
            let was_away = std::mem::take(&mut self.was_away);
            self.spell = Some(self.place.meter.begin(&self.kept.record, heard, was_away));
        }
    }

    async fn save(&mut self) {
        if let Err(error) = self.kept.save(&self.place.directories.state).await {
            self.trouble(format!("its record could not be written: {error}"));
        }
    }

    fn trouble(&self, what: String) {
        let which = Some(self.kept.record.which());
        (self.place.events)(&Event::Trouble { which, what });
    }
}

/// Waits for what there is, and for ever for what there is not.
async fn settled<T>(future: Option<&mut Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// The same for what is said of a workspace.
async fn heard(mirror: Option<&mut Mirror>) -> ExchangeOutcome {
    match mirror {
        Some(mirror) => mirror.said().await,
        None => pending().await,
    }
}

/// Waits for a point in time, and for ever for none.
pub(super) async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => pending().await,
    }
}

async fn remove_directory(path: &Path) -> io::Result<()> {
    match tokio::fs::remove_dir_all(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

//! The task that owns a sandbox: the only one that changes its state, writes its record and orders
//! its machine about.
//!
//! Orders come through a bounded queue and are answered when they are done, so a stop is answered
//! when the machine is gone. While one is under way, harder ones are still taken: a kill during a
//! stop, a forced removal during a kill.

mod away;
mod begin;
mod durable;
mod ending;
mod expire;
mod order;
mod reach;
mod record;
mod sleep;
mod suspend;
mod update;
mod volumes;
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

use super::again::Remaking;
use super::contents::Contents;
use super::event::{Facts, Kind, of_change};
use super::expiry::{Expiry, ExpiryAction};
use super::log::{input_directory, log_directory, provenance_directories};
use super::meter::{Meter, RunTimer};
use super::pool::{Personal, Pool, Shape};
use super::presence::Presence;
use super::record::StoredRecord;
use super::recorder::{Durable, SharedLog};
use super::saver::Saver;
use super::snapshot::bytes_of;
use super::startup::Startup;
use super::stored::HeldImage;
use super::telemetry::Telemetry;
use super::{DurableLogs, Event, EventSink, Names, Phase, Record, SandboxError, State, StopReason};
use agent_client::link::LinkError;
use egress::{EgressGuard, Injections};
use host::instant::now_ms;
use host::secret::Secrets;
use machine::limits::SET_RIGHT_MAX;
use machine::{BoxFuture, Directories, Machine, MachineExit, MachineKind, Machines, Running};

use ::workspace::volume::Volumes;
use ::workspace::{ExchangeOutcome, Mirror, Workspaces};

use away::{ASLEEP, Away};
pub(super) use order::{Order, Reply};
use sleep::WakeReply;
use suspend::SuspendOutcome;

/// A pooled machine's possible place, and what the claimer wants.
pub(super) struct PoolRequest {
    pub pool: Arc<Pool>,
    pub shape: Shape,
    pub personal: Personal,
}

/// What a new machine gets before it is handed out.
pub(super) struct Filling {
    /// The files of the sandbox that it is a fork of.
    pub contents: Option<Contents>,
    /// The commands of its template.
    pub startup: Option<Startup>,
}

/// Asks the caps whether the sandbox of this record may have so many bytes of memory on disk while it sleeps. If so,
/// the reservation is made before anybody else asks.
pub(super) type RoomAsleep =
    Box<dyn Fn(&Record, u64, &mut dyn FnMut()) -> Result<(), SandboxError> + Send + Sync>;

/// An owner's environment.
pub(super) struct OwnerSettings {
    pub directories: Directories,
    pub machine: Arc<dyn Machine>,
    /// For a sandbox whose record does not name its kind: all of them.
    pub machines: Machines,
    pub events: EventSink,
    pub egress: Arc<egress::Settings>,
    pub secrets: Secrets,
    pub meter: Meter,
    pub presence: Arc<Presence>,
    pub telemetry: Telemetry,
    pub workspaces: Workspaces,
    pub volumes: Arc<Volumes>,
    pub names: Option<Arc<dyn Names>>,
    /// Restores its machine from disk; absent where sandboxes end with their bridge.
    pub remaking: Option<Remaking>,
    pub room_asleep: RoomAsleep,
    pub durable_logs: Option<Arc<dyn DurableLogs>>,
    /// Whether the stream of events has its programs and runs.
    pub program_events: bool,
    /// Saves its content before it ends, once there is a saver.
    pub saver: Arc<OnceLock<Saver>>,
    /// Dropped with the owner: then the name is free.
    pub _occupied: Box<dyn Send + Sync>,
}

/// Everything that the loop can see.
enum OwnerEvent {
    Order(Order),
    /// Nobody can send orders any more: the registry is gone.
    RegistryGone,
    /// The machine is gone.
    Exited(MachineExit),
    /// The agent is gone for good, and the machine may not be.
    Lost(LinkError),
    /// The machine was killed and is still there.
    Overdue,
    /// A deadline is due.
    Due(ExpiryAction),
    /// The agent's contexts; `None` if it did not answer.
    Looked(Option<Vec<ContextInfo>>),
    /// An errand has ended.
    Returned(SuspendOutcome),
    /// The record of a new sandbox is on disk, or could not be synced.
    Synced(io::Result<()>),
    /// An unsaved record must be written again.
    Unsaved,
    /// Something of the workspace has come back.
    Exchanged(ExchangeOutcome),
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

/// What the loop does after an event.
enum NextStep {
    GoOn,
    Remove,
    Leave,
}

/// One sandbox.
pub(super) struct Owner {
    stored: StoredRecord,
    place: OwnerSettings,
    shown: watch::Sender<Record>,
    /// The state that the stream of events knows.
    streamed: Phase,
    orders: mpsc::Receiver<Order>,
    log: Option<SharedLog>,
    /// Where its output outlives this host, while its machine lives.
    durable: Option<Durable>,
    /// The image that its machine has, as long as it has one.
    image: Option<HeldImage>,
    /// The secrets that stay on this side, until the way out is made.
    injections: Injections,
    life: Option<LiveMachine>,
    /// Its machine is on disk.
    away: Option<Away>,
    /// Why it went on after its last pause, for the stream of events.
    went_on: &'static str,
    /// Why the machine will have ended, when we end it.
    why: Option<StopReason>,
    /// Orders that are answered when the machine is gone.
    waiting: Vec<Reply>,
    /// These wait for the removal of the sandbox, which follows when the machine is gone.
    removing: Vec<Reply>,
    /// These wait until it is awake. Each is a call that waits, so the calls' own bounds hold for them.
    waking: Vec<WakeReply>,
    /// When a killed machine counts as hanging.
    overdue: Option<Instant>,
    /// Nothing is left of the machine.
    cleaned: bool,
    expiry: Expiry,
    /// The time for which its machine runs, while it does.
    run_timer: Option<RunTimer>,
    /// An earlier bridge had the machine, which continued without one.
    was_away: bool,
    /// Pushes the remaining changes of a stopped sandbox to its bucket.
    delivery: Option<Mirror>,
    /// The record on disk is an older one, and is written again at this time.
    save_again: Option<Instant>,
    /// The disk is taking the record of a new sandbox.
    syncing: Option<BoxFuture<'static, io::Result<()>>>,
}

/// What an owner has only while its machine lives.
struct LiveMachine {
    running: Arc<dyn Running>,
    exited: BoxFuture<'static, MachineExit>,
    lost: Option<Pin<Box<dyn Future<Output = LinkError> + Send>>>,
    recorder: Option<JoinHandle<()>>,
    /// Keeps its samples.
    follower: Option<JoinHandle<()>>,
    /// The way out, for as long as this is kept; none where nothing may be reached.
    egress: Option<EgressGuard>,
    /// Copies changes in the workspace back; `None` without a workspace.
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
        stored: StoredRecord,
        place: OwnerSettings,
        shown: watch::Sender<Record>,
        orders: mpsc::Receiver<Order>,
    ) -> Self {
        Self {
            streamed: stored.record.state.phase(),
            stored,
            place,
            shown,
            orders,
            log: None,
            durable: None,
            image: None,
            injections: Injections::default(),
            life: None,
            away: None,
            went_on: FOUND,
            why: None,
            waiting: Vec::new(),
            removing: Vec::new(),
            waking: Vec::new(),
            overdue: None,
            cleaned: false,
            expiry: Expiry::default(),
            run_timer: None,
            was_away: false,
            delivery: None,
            save_again: None,
            syncing: None,
        }
    }

    /// Takes the secrets that stay on this side.
    pub(super) fn inject(&mut self, injections: Injections) {
        self.injections = injections;
    }

    async fn run(mut self) {
        loop {
            let next = match self.next().await {
                OwnerEvent::Order(order) => self.carry_out(order).await,
                OwnerEvent::RegistryGone => NextStep::Leave,
                OwnerEvent::Exited(exit) => {
                    let why = self.why_of(&exit);
                    self.machine_ended(why).await;
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
                OwnerEvent::Exchanged(outcome) => {
                    self.record_outcome(outcome).await;
                    NextStep::GoOn
                }
                OwnerEvent::Returned(errand) => {
                    self.return_from(errand).await;
                    NextStep::GoOn
                }
                OwnerEvent::Synced(synced) => {
                    self.record_synced(synced);
                    NextStep::GoOn
                }
                OwnerEvent::Unsaved => {
                    let _ = self.save().await;
                    NextStep::GoOn
                }
            };
            match next {
                NextStep::GoOn => {}
                NextStep::Remove => match self.remove().await {
                    Some(owner) => self = owner,
                    None => return,
                },
                NextStep::Leave => return,
            }
        }
    }

    async fn next(&mut self) -> OwnerEvent {
        let (overdue, due, save_again) = (self.overdue, self.expiry.next(), self.save_again);
        let syncing = self.syncing.as_mut();
        let (exited, lost, look, errand, mirror) = if let Some(life) = &mut self.life {
            let (look, errand) = (life.look.as_mut(), life.errand.as_mut());
            let mirror = life.mirror.as_mut();
            (Some(&mut life.exited), life.lost.as_mut(), look, errand, mirror)
        } else {
            let errand = self.away.as_mut().and_then(|away| away.errand.as_mut());
            (None, None, None, errand, self.delivery.as_mut())
        };
        tokio::select! {
            // A machine that is gone makes everything else moot.
            biased;
            exit = settled(exited) => OwnerEvent::Exited(exit),
            error = settled(lost) => OwnerEvent::Lost(error),
            order = self.orders.recv() => order.map_or(OwnerEvent::RegistryGone, OwnerEvent::Order),
            () = reached(overdue) => OwnerEvent::Overdue,
            contexts = settled(look) => OwnerEvent::Looked(contexts),
            errand = settled(errand) => OwnerEvent::Returned(errand),
            outcome = next_outcome(mirror) => OwnerEvent::Exchanged(outcome),
            () = reached(due.map(|(at, _)| at)) => {
                due.map_or(OwnerEvent::RegistryGone, |(_, due)| OwnerEvent::Due(due))
            }
            synced = settled(syncing) => OwnerEvent::Synced(synced),
            () = reached(save_again) => OwnerEvent::Unsaved,
        }
    }

    async fn carry_out(&mut self, order: Order) -> NextStep {
        match order {
            Order::Stop { reply, .. } | Order::Kill { reply } if self.has_ended() => {
                if matches!(self.stored.record.state, State::Damaged { .. }) {
                    self.clean().await;
                    self.enter(State::Stopped { why: StopReason::Killed, at_ms: now_ms() }).await;
                }
                let saved = self.ensure_saved().await;
                let _ = reply.send(saved.map(|()| self.stored.record.clone()));
            }
            Order::Stop { grace, reply } => {
                self.waiting.push(reply);
                // A second stop neither shortens nor lengthens the grace of the first.
                if self.stored.record.state != State::Stopping {
                    self.begin_stop(grace, StopReason::Requested).await;
                }
            }
            Order::Kill { reply } => {
                self.waiting.push(reply);
                self.begin_kill().await;
            }
            Order::Remove { reply, .. } if self.has_ended() => {
                self.removing.push(reply);
                return NextStep::Remove;
            }
            Order::Remove { force: false, reply } => {
                let (which, state) = (self.stored.record.which(), self.stored.record.state.clone());
                let _ = reply.send(Err(SandboxError::StillRunning { which, state }));
            }
            Order::Remove { force: true, reply } => {
                self.place.telemetry.doom();
                self.removing.push(reply);
                self.begin_removal().await;
                if self.has_ended() {
                    return NextStep::Remove;
                }
            }
            Order::Update { update, reply } => {
                let _ = reply.send(self.update(update).await);
            }
            Order::Pause { reply } => self.pause(reply).await,
            Order::Resume { reply } => self.resume_paused(reply),
            Order::Hold { reply } => self.pause_for_lease(reply),
            Order::GoOn { reply } => self.go_on_with_lease(reply),
            Order::Wake { reply } => self.wake(reply),
            Order::Snapshot { draft, reply } => self.write_down(*draft, reply),
            Order::Commit { work, reply } => self.commit(work, reply),
            Order::Fork { work, reply } => self.read_files(work, reply),
            Order::Spent { kind } => self.end_spent(kind).await,
            Order::Sync { reply } => self.sync(reply),
            Order::Leave { reply } => {
                self.release().await;
                let saved = self.ensure_saved().await;
                let _ = reply.send(saved.map(|()| self.stored.record.clone()));
                return NextStep::Leave;
            }
        }
        NextStep::GoOn
    }

    async fn lose(&mut self, error: &LinkError) {
        if let Some(life) = &mut self.life {
            life.lost = None;
        }
        // An agent that stops says so and closes its link; the machine's end follows.
        if self.stored.record.state == State::Running {
            self.enter(State::Lost { reason: error.to_string() }).await;
        }
    }

    /// Marks the end of the machine, and removes what it left except record, logs and disk.
    async fn machine_ended(&mut self, why: StopReason) {
        if let Some(mut life) = self.life.take() {
            // Output of the last moment.
            if let Some(guest) = life.running.guest() {
                guest.machine_ended();
            }
            life.follower.iter().for_each(JoinHandle::abort);
            self.end_workspace(life.mirror.take()).await;
            self.stored.record.warnings.extend(life.kept_back.get().cloned());
            if let Some(mut recorder) = life.recorder
                && tokio::time::timeout(self.recorder_end_max(), &mut recorder).await.is_err()
            {
                recorder.abort();
                // It has the log.
                let _ = recorder.await;
            }
        }
        self.leave_disk();
        self.end_durable(&why).await;
        self.place.telemetry.settle();
        self.place.presence.leave();
        self.waking.clear();
        self.overdue = None;
        let closed = self.log.take().map(|log| log.with(|log| log.close(&why.to_string())));
        if let Some(Err(error)) = closed {
            self.trouble(error.to_string());
        }
        self.clean().await;
        self.image = None;
        self.stored.record.pid = None;
        self.stored.record.address = None;
        self.stored.trace = machine::Trace::default();
        let log = log_directory(&self.place.directories.state);
        let [inputs, ends] = provenance_directories(&log);
        let parts = [input_directory(&log), inputs, ends, log];
        self.stored.record.log_bytes = Some(parts.iter().map(|part| bytes_of(part)).sum());
        self.enter(State::Stopped { why, at_ms: now_ms() }).await;
        self.tell_names_of_stop();
        self.expiry.stopped(&self.stored);
        self.deliver();
        for reply in std::mem::take(&mut self.waiting) {
            let saved = self.ensure_saved().await;
            let _ = reply.send(saved.map(|()| self.stored.record.clone()));
        }
    }

    /// Releases a machine that continues without us. Its agent is informed, so that it does not
    /// wait for us to resume our streams.
    async fn release(&mut self) {
        let Some(mut life) = self.life.take() else { return };
        drop(life.egress);
        life.follower.iter().for_each(JoinHandle::abort);
        self.place.telemetry.settle();
        // The next bridge does the exchanges from here on.
        self.end_workspace(life.mirror.take()).await;
        self.place.presence.leave();
        if let Some(recorder) = life.recorder {
            recorder.abort();
            let _ = recorder.await;
        }
        if let Some(errand) = life.errand {
            // A machine must not stay paused for an errand until somebody comes.
            drop(errand);
            if let Some(suspend) = life.running.suspend() {
                let _ = tokio::time::timeout(SET_RIGHT_MAX, suspend.set_right()).await;
            }
        }
        if let Some(guest) = life.running.guest() {
            guest.close().await;
        }
    }

    async fn clean(&mut self) {
        if std::mem::replace(&mut self.cleaned, true) {
            return;
        }
        let directories = self.place.directories.clone();
        let runtime = directories.runtime.clone();
        let id = &self.stored.record.id;
        if matches!(self.stored.record.state, State::Damaged { .. }) {
            for kind in MachineKind::ALL {
                let machine = self.place.machines.get(kind);
                machine.clean(id.clone(), Some(directories.clone())).await;
            }
        } else {
            self.place.machine.clean(id.clone(), Some(directories)).await;
        }
        for path in [runtime, self.place.directories.state.join(ASLEEP)] {
            if let Err(error) = remove_directory(&path).await {
                self.trouble(format!("{} could not be removed: {error}", path.display()));
            }
        }
    }

    fn show(&mut self, state: State) {
        self.meter(&state);
        self.display();
        let before = std::mem::replace(&mut self.streamed, state.phase());
        if let Some((kind, mut facts)) = of_change(before, &state) {
            let went_on = std::mem::replace(&mut self.went_on, FOUND);
            facts.reason = facts.reason.or((kind == Kind::Resumed).then(|| went_on.to_owned()));
            self.happened(kind, facts);
        }
        (self.place.events)(&Event::State { of: self.stored.record.subject(), state });
    }

    /// Adds an event to the stream.
    pub(super) fn happened(&self, kind: Kind, facts: Facts) {
        let (of, facts) = (self.stored.record.subject(), Box::new(facts));
        (self.place.events)(&Event::Happened { of, kind, facts });
    }

    /// Counts the time for which a machine lives and is not paused.
    fn meter(&mut self, state: &State) {
        let runs = matches!(state, State::Running | State::Stopping | State::Lost { .. });
        let Some(life) = self.life.as_ref().filter(|_| runs) else {
            self.run_timer = None;
            return;
        };
        let running = Arc::clone(&life.running);
        self.start_run_timer(&running);
    }

    /// Starts counting, before the state says that it runs.
    fn start_run_timer(&mut self, running: &Arc<dyn Running>) {
        if self.run_timer.is_none() {
            let output = running.guest().map(|guest| guest.output_counter().clone());
            let was_away = std::mem::take(&mut self.was_away);
            self.run_timer = Some(self.place.meter.begin(&self.stored.record, output, was_away));
        }
    }

    fn trouble(&self, what: String) {
        let which = Some(self.stored.record.which());
        (self.place.events)(&Event::Trouble { which, what });
    }
}

/// Why one goes on that this bridge finds running, and an earlier one had recorded as paused.
const FOUND: &str = "found";

/// Waits for a future if there is one, and forever otherwise.
async fn settled<T>(future: Option<&mut Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// Waits for the workspace's next outcome.
async fn next_outcome(mirror: Option<&mut Mirror>) -> ExchangeOutcome {
    match mirror {
        Some(mirror) => mirror.next_outcome().await,
        None => pending().await,
    }
}

/// Waits for a point in time; forever without one.
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

//! How an owner puts its machine to sleep when nothing is at work in it, and wakes it for a request.
//!
//! ```text
//!            idle for its idle time        frozen, recorded
//!  running ─────────────────────▶ dozing ─────────────────▶ asleep
//!     ▲          a request waits ◀──┘                          │ a request
//!     └───────────────── awake ◀───────────── waking ◀─────────┘
//! ```
//!
//! From the moment in which it dozes off, every request asks to be woken and waits. There is one waker, an
//! errand like a resumption by hand; when it is done, each that waited gets its [`Activity`] with the answer,
//! so that the sandbox cannot doze off again before the request has begun. A machine that cannot be paused is
//! awake again at once.
//!
//! A bridge that dies while the machine is frozen and its record still says `running` leaves a machine that
//! the next bridge lets continue; one that dies between thaw and record leaves a machine that runs, and the
//! next bridge records that.

use tokio::sync::oneshot;
use tokio::time::timeout;

use ::workspace::Mirror;
use ::workspace::limits::LAST_SYNC_DEADLINE;

use super::Owner;
use super::suspend::SuspendOutcome;
use crate::{Activity, OnIdle, SandboxError, State};
use host::instant::now_ms;
use machine::{Capability, MachineError, Resumed};

/// Given to one that waits for a sandbox to wake.
pub(crate) type WakeReply = oneshot::Sender<Result<Option<Activity>, SandboxError>>;

impl Owner {
    /// Begins to pause the machine. The presence says already that it is asleep.
    pub(super) fn doze_off(&mut self) {
        if self.stored.record.on_idle == OnIdle::Snapshot {
            return self.put_down();
        }
        self.doze_off_in_memory();
    }

    pub(super) fn doze_off_in_memory(&mut self) {
        let kind = self.stored.record.machine;
        let Some(life) = self.life.as_mut().filter(|life| life.errand.is_none()) else {
            // Something else is being done with its time, for somebody.
            return self.stay_awake();
        };
        let running = life.running.clone();
        // What it has changed in its workspace must not wait for the next request.
        let last = life.mirror.as_ref().map(Mirror::ask);
        life.errand = Some(Box::pin(async move {
            if let Some(last) = last {
                let _ = timeout(LAST_SYNC_DEADLINE, last).await;
            }
            let paused = match running.suspend() {
                Some(suspend) => suspend.pause().await,
                None => Err(MachineError::lacks(kind, Capability::Pause, "be paused")),
            };
            SuspendOutcome::DozedOff(paused)
        }));
    }

    pub(super) async fn dozed_off(&mut self, paused: Result<(), MachineError>) {
        match paused {
            Ok(()) if self.stored.record.state == State::Running => {
                self.expiry.pauses();
                let since_ms = now_ms();
                self.enter_living(State::Paused {
                    since_ms,
                    by_idle: true,
                    by_lease: false,
                    on_disk: false,
                })
                .await;
                if !self.waking.is_empty() {
                    self.rouse();
                }
            }
            // It was lost meanwhile, or is ending.
            Ok(()) => self.waking.clear(),
            Err(error) => {
                self.trouble(format!("it is idle, and could not be paused: {error}"));
                self.stay_awake();
            }
        }
    }

    /// It is not asleep after all: its idle time begins again.
    pub(super) fn stay_awake(&mut self) {
        self.place.presence.stay_open();
        self.expiry.look_again(self.place.presence.idle_for());
        self.answer_waking(&Ok(()));
    }

    /// Answers when the sandbox is awake.
    pub(super) fn wake(&mut self, reply: WakeReply) {
        match self.stored.record.state {
            State::Running if !self.place.presence.is_asleep() => {
                let _ = reply.send(Ok(self.place.presence.begin()));
            }
            State::Running => self.waking.push(reply),
            State::Paused { by_idle: true, .. } => {
                self.waking.push(reply);
                self.rouse();
            }
            _ => self.refuse(reply),
        }
    }

    /// Begins to resume the machine, unless that is under way.
    pub(super) fn rouse(&mut self) {
        self.went_on = "request";
        if self.away.is_some() {
            return self.restore(None);
        }
        let kind = self.stored.record.machine;
        let Some(life) = self.life.as_mut().filter(|life| life.errand.is_none()) else { return };
        let running = life.running.clone();
        life.errand = Some(Box::pin(async move {
            let resumed = match running.suspend() {
                Some(suspend) => suspend.resume().await,
                None => Err(MachineError::lacks(kind, Capability::Pause, "be resumed")),
            };
            SuspendOutcome::Woke(resumed)
        }));
    }

    pub(super) async fn woke(&mut self, resumed: Result<Resumed, MachineError>) {
        if self.has_gone_on() {
            self.resumed().await;
        }
        self.answer_waking(&resumed.map(drop));
    }

    /// Answers all that wait.
    pub(super) fn answer_waking(&mut self, woke: &Result<(), MachineError>) {
        let which = self.stored.record.which();
        for reply in self.waking.drain(..) {
            // A machine that runs is awake, even if its agent was slow to say so.
            let answer = match (self.place.presence.begin(), woke) {
                (Some(activity), _) => Ok(Some(activity)),
                (None, Ok(())) => Ok(None),
                (None, Err(error)) => {
                    Err(SandboxError::NotWoken { which: which.clone(), why: error.to_string() })
                }
            };
            let _ = reply.send(answer);
        }
    }

    /// Refuses a sandbox that is to sleep on a host that cannot pause it.
    pub(super) fn check_sleep(&self, running: &dyn machine::Running) -> Result<(), SandboxError> {
        let record = &self.stored.record;
        if record.on_idle.is_stop() {
            return Ok(());
        }
        let then = record.on_idle;
        let on_disk = then == OnIdle::Snapshot;
        if on_disk && self.place.remaking.is_none() {
            let why = "it ends with its bridge, and nobody would restore it".to_owned();
            return Err(SandboxError::CannotSleep { then, why });
        }
        let may = match running.suspend() {
            Some(suspend) if on_disk => suspend.may_snapshot(),
            Some(suspend) => suspend.may_pause(),
            None => Err(MachineError::lacks(record.machine, Capability::Pause, "be paused")),
        };
        may.map_err(|error| SandboxError::CannotSleep { then, why: error.to_string() })
    }
}

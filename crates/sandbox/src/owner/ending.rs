//! How an owner ends its machine: in order, at once, and when it does not end.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::workspace::Mirror;
use ::workspace::limits::LAST_SYNC_DEADLINE;
use machine::MachineExit;
use machine::limits::{KILL_DEADLINE, SET_RIGHT_MAX};
use tokio::time::Instant;

use super::{Grace, Owner};
use crate::event::{Facts, Kind};
use crate::limits::SAVE_DEADLINE;
use crate::program_events::ProgramEvents;
use crate::{Event, SandboxError, State, StopReason};

impl Owner {
    /// Changes in a workspace are copied back before a removal, as before a stop. A sandbox that is about to
    /// end, has lost its agent or has nothing to copy is killed at once.
    pub(super) async fn begin_removal(&mut self) {
        let brings = self.life.as_ref().is_some_and(|life| life.mirror.is_some());
        match self.stored.record.state {
            State::Running | State::Paused { .. } if brings => {
                self.begin_end(Grace::None, StopReason::Killed).await;
            }
            _ => self.begin_kill().await,
        }
    }

    pub(super) async fn begin_stop(&mut self, grace: Duration, why: StopReason) {
        self.begin_end(Grace::Of(grace), why).await;
    }

    pub(super) async fn begin_end(&mut self, grace: Grace, why: StopReason) {
        if self.away.is_some() {
            // Nothing of it runs that could do anything more.
            return self.machine_ended(why).await;
        }
        let Some(life) = &mut self.life else { return };
        let running = Arc::clone(&life.running);
        let is_halted = life.errand.is_some() || running.trace().paused;
        // Callers of a pause or a snapshot learn that it is stopped instead.
        life.errand = None;
        // A caller that ends it has saved it already; this is for ends by the bridge itself.
        let saver =
            matches!(why, StopReason::Expired { .. }).then(|| Arc::clone(&self.place.saver));
        let saver = saver.filter(|saver| saver.get().is_some() && running.guest().is_some());
        self.why = Some(why);
        let goes_on_within = if is_halted { SET_RIGHT_MAX } else { Duration::ZERO };
        let saves_within = if saver.is_some() { SAVE_DEADLINE } else { Duration::ZERO };
        let last = life.mirror.as_ref().map(Mirror::ask);
        let syncs_within = if last.is_some() { LAST_SYNC_DEADLINE } else { Duration::ZERO };
        let stops_within = goes_on_within + saves_within + syncs_within + grace.at_most();
        self.overdue = Some(Instant::now() + stops_within + KILL_DEADLINE);
        self.expiry.ends();
        self.place.presence.close();
        self.waking.clear();
        self.enter(State::Stopping).await;
        let (which, events) = (self.stored.record.which(), Arc::clone(&self.place.events));
        let id = self.stored.record.id.clone();
        let telemetry = self.place.telemetry.clone();
        let kept_back = self.life.as_ref().map(|life| Arc::clone(&life.kept_back));
        // The machine's exit shows the result.
        tokio::spawn(async move {
            if (last.is_some() || saver.is_some())
                && is_halted
                && let Some(suspend) = running.suspend()
            {
                // A paused machine cannot save anything.
                let _ = tokio::time::timeout(SET_RIGHT_MAX, suspend.set_right()).await;
            }
            if let Some(saver) = saver.as_deref().and_then(OnceLock::get) {
                let saving = tokio::time::timeout(SAVE_DEADLINE, saver(which.clone(), id)).await;
                let why = match saving {
                    Ok(saved) => saved.err(),
                    Err(_) => Some(format!("that took longer than {} s", SAVE_DEADLINE.as_secs())),
                };
                if let Some(why) = why {
                    let what = format!("it expired with notebooks that could not be saved: {why}");
                    events(&Event::Trouble { which: Some(which.clone()), what });
                }
            }
            if let Some(last) = last {
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
            if let Some(guest) = running.guest().filter(|_| !is_halted) {
                telemetry.take_last(&guest).await;
            }
            match grace {
                Grace::Of(grace) => running.stop(grace).await,
                Grace::None => running.kill(),
            }
        });
    }

    pub(super) async fn begin_kill(&mut self) {
        if self.away.is_some() {
            return self.machine_ended(StopReason::Killed).await;
        }
        let Some(life) = &self.life else { return };
        life.mirror.iter().for_each(Mirror::break_off);
        let runs = self.stored.record.state == State::Running && life.errand.is_none();
        let running = Arc::clone(&life.running);
        if let Some(guest) = running.guest().filter(|_| runs) {
            self.place.telemetry.take_last(&guest).await;
        }
        running.kill();
        self.why = Some(StopReason::Killed);
        self.overdue = Some(Instant::now() + KILL_DEADLINE);
        self.expiry.ends();
        self.place.presence.close();
        self.waking.clear();
        self.enter(State::Stopping).await;
    }

    /// Why a machine has ended: by our order, or by itself.
    pub(super) fn why_of(&mut self, exit: &MachineExit) -> StopReason {
        let killed = self.life.as_ref().is_some_and(|life| life.running.was_killed());
        match self.why.take() {
            // It was granted its grace and overran it.
            Some(StopReason::Requested) if killed => StopReason::Killed,
            Some(why) => why,
            None if StopReason::is_for_memory(exit) => {
                self.happened(Kind::OutOfMemory, self.memory_facts());
                StopReason::ended(exit, self.stored.record.memory_mib)
            }
            None => StopReason::ended(exit, self.stored.record.memory_mib),
        }
    }

    /// What adds its programs to the stream of events.
    pub(super) fn program_events(&self) -> ProgramEvents {
        let (of, events) = (self.stored.record.subject(), Arc::clone(&self.place.events));
        let limit_bytes = self.memory_facts().limit_bytes;
        ProgramEvents::new(of, events, limit_bytes, self.place.program_events)
    }

    fn memory_facts(&self) -> Facts {
        let limit_bytes = self.stored.record.memory_mib.map(|mib| mib * 1024 * 1024);
        Facts { limit_bytes, ..Facts::none() }
    }

    /// Says that a killed machine does not die. Its exit is still awaited.
    pub(super) async fn give_up(&mut self) {
        self.overdue = None;
        let which = self.stored.record.which();
        self.enter(State::Lost { reason: "it was killed, but it still exists".to_owned() }).await;
        for reply in self.waiting.drain(..).chain(self.removing.drain(..)) {
            let seconds = KILL_DEADLINE.as_secs();
            let _ = reply.send(Err(SandboxError::WillNotDie { which: which.clone(), seconds }));
        }
    }
}

//! How an owner gets its sandbox: newly created, or found as an earlier bridge left it.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::timeout;

use super::{Filling, LiveMachine, Order, Owner, PoolRequest, Reply};
use crate::contents::Contents;
use crate::event::{Facts, Kind};
use crate::limits::{STOP_GRACE_DEFAULT, THAW_DEADLINE};
use crate::log::{ProvenanceLog, Writer, log_directory};
use crate::pool::{self, ClaimedMachine};
use crate::recorder::{Recorder, SharedLog};
use crate::snapshot::Hold;
use crate::startup::{self, StartupPlace};
use crate::stored::{HeldImage, RequestedImage};
use crate::{Event, SandboxError, State, StopReason};
use agent_client::guest::Guest;
use egress::{EgressGuard, copy_names};
use host::instant::now_ms;
use host::paths::make_private_directory;
use machine::{Adoption, Directories, MachineSpec, Running};
use workspace::Mirror;

impl Owner {
    /// Makes the sandbox, and begins to own it until it is removed.
    pub(crate) async fn create(
        mut self,
        spec: MachineSpec,
        wanted: Option<RequestedImage>,
        ahead: Option<PoolRequest>,
        filling: Filling,
        hold: Option<Hold>,
        reply: Reply,
    ) {
        let claimed = match &ahead {
            Some(PoolRequest { pool, shape, personal }) => pool.claim(shape, personal).await,
            None => None,
        };
        let made = match claimed {
            Some(claimed) => self.take_over(claimed).await,
            None => self.try_create(spec, wanted, ahead, filling).await,
        };
        // What it starts from has been read.
        drop(hold);
        match made {
            Ok(()) => {
                let _ = reply.send(Ok(self.place.presence.show(self.stored.record.clone())));
                // A task of its own, so that nothing of the creation stays for as long as the sandbox.
                tokio::spawn(self.run());
            }
            Err(error) => {
                // Leftovers are reported as trouble; the answer is the reason for the failure.
                let _ = self.erase().await;
                self.release_name().await;
                let ended = self.waiting.drain(..).chain(self.removing.drain(..));
                let ended: Vec<_> = ended.collect();
                let mut record = self.stored.record.clone();
                self.happened(Kind::Failed, Facts::cause(&error));
                drop(self);
                let _ = reply.send(Err(error));
                record.state = State::Stopped { why: StopReason::Killed, at_ms: now_ms() };
                for reply in ended {
                    let _ = reply.send(Ok(record.clone()));
                }
            }
        }
    }

    /// Claims a machine of the pool for this sandbox. The record is written once, in its final form: if a
    /// bridge is cut off before, the next one ends the machine; if after, it has the sandbox.
    async fn take_over(&mut self, claimed: ClaimedMachine) -> Result<(), SandboxError> {
        let ClaimedMachine { id, directories, running, image, warnings } = claimed;
        let state = directories.state.clone();
        self.stored.record.id = id;
        self.place.directories = directories;
        self.place.telemetry.move_to(&self.stored.record, &state);
        if let Some(held) = &image {
            held.describe(&mut self.stored);
        }
        self.image = image;
        self.happened(Kind::Created, Facts::creation(&self.stored.record));
        self.open_log();
        self.know(&running);
        self.stored.record.warnings.extend(warnings);
        let egress = match self.begin_egress(&running).await {
            Ok(egress) => egress,
            Err(error) => {
                running.kill();
                return Err(error);
            }
        };
        self.stored.record.state = State::Running;
        if let Err(source) = self.stored.write_unsynced(&state) {
            running.kill();
            return Err(SandboxError::Files { action: "write", path: state, source });
        }
        pool::record::forget(&state);
        self.sync_record_soon();
        self.enliven(running, egress, None);
        self.show(State::Running);
        Ok(())
    }

    async fn try_create(
        &mut self,
        mut spec: MachineSpec,
        wanted: Option<RequestedImage>,
        ahead: Option<PoolRequest>,
        mut filling: Filling,
    ) -> Result<(), SandboxError> {
        self.happened(Kind::Created, Facts::creation(&self.stored.record));
        let Directories { runtime, state } = self.place.directories.clone();
        for path in [runtime, state.clone()] {
            let made = make_private_directory(&path);
            made.map_err(|source| SandboxError::Files { action: "make", path, source })?;
        }
        let written = self.stored.write_unsynced(&state);
        let failed = |source| SandboxError::Files { action: "write", path: state.clone(), source };
        written.map_err(failed)?;
        self.open_log();
        if let Some(wanted) = wanted {
            self.furnish(wanted, &mut spec).await?;
        }
        if let Some(snapshot) = spec.restore.as_deref().and_then(Path::parent) {
            // The names that its programs remember keep their addresses, as far as its own rules
            // allow them.
            let (from, to) = (snapshot.to_owned(), self.place.directories.state.clone());
            let copied = tokio::task::spawn_blocking(move || copy_names(&from, &to)).await;
            let path = self.place.directories.state.clone();
            copied
                .unwrap_or_else(|error| Err(std::io::Error::other(error)))
                .map_err(|source| SandboxError::Files { action: "write", path, source })?;
        }
        let restored = match &ahead {
            Some(PoolRequest { pool, shape, .. }) => pool.restore(shape, &spec).await,
            None => None,
        };
        let (running, not_restored) = match restored {
            Some(Ok(running)) => {
                // They have made it ready before its snapshot was written.
                filling.startup = None;
                (running, None)
            }
            Some(Err(error)) => (self.place.machine.start(spec).await?, Some(error)),
            None => (self.place.machine.start(spec).await?, None),
        };
        self.know(&running);
        let booted = "it was booted, because its template's snapshot could not be restored";
        let warning = not_restored.map(|error| format!("{booted}: {error}"));
        self.stored.record.warnings.extend(warning);
        // Its run time counts from here on, not only from when it can be used.
        self.start_run_timer(&running);
        let egress = match self.begin_egress(&running).await {
            Ok(egress) => egress,
            Err(error) => {
                running.kill();
                running.exited().await;
                return Err(error);
            }
        };
        let mirror = match self.open_workspace(&running).await {
            Ok(mirror) => mirror,
            Err(error) => {
                drop(egress);
                running.kill();
                running.exited().await;
                return Err(error);
            }
        };
        let filled = match self.mount_volumes(&running).await {
            Ok(()) => self.fill(filling, &running).await,
            Err(error) => Err(error),
        };
        if let Err(error) = filled {
            drop(egress);
            running.kill();
            running.exited().await;
            return Err(error);
        }
        // A sandbox that is reported as running must survive a restart: the next bridge would remove one with
        // an earlier state.
        self.stored.record.state = State::Running;
        if let Err(source) = self.stored.write_unsynced(&state) {
            drop(egress);
            running.kill();
            running.exited().await;
            self.end_workspace(mirror).await;
            return Err(SandboxError::Files { action: "write", path: state, source });
        }
        self.sync_record_soon();
        self.enliven(running, egress, mirror);
        self.show(State::Running);
        Ok(())
    }

    /// Gives a new machine what it begins with: the files of a fork, or what the commands of a template make of it.
    async fn fill(
        &mut self,
        filling: Filling,
        running: &Arc<dyn Running>,
    ) -> Result<(), SandboxError> {
        if let Some(contents) = filling.contents {
            self.put_contents(contents, running).await?;
        }
        let Some(startup) = filling.startup else { return Ok(()) };
        let which = self.stored.record.which();
        let Some(guest) = running.guest() else {
            let reason = "it did not answer after its start".to_owned();
            return Err(SandboxError::Lost { which, reason });
        };
        let record = &self.stored.record;
        let place = StartupPlace { user: record.user.clone(), workdir: record.workdir.clone() };
        let ready = startup::run(&guest, &startup, &place);
        let ready = self.unless_ended(ready, "template was being made ready").await?;
        ready.map_err(|source| SandboxError::NotReady { which, source: Box::new(source) })
    }

    /// Gives a fork the files of its original, before anything runs in it.
    async fn put_contents(
        &mut self,
        contents: Contents,
        running: &Arc<dyn Running>,
    ) -> Result<(), SandboxError> {
        let which = self.stored.record.which();
        let Some(guest) = running.guest() else {
            let reason = "it did not answer after its start".to_owned();
            return Err(SandboxError::Lost { which, reason });
        };
        let put = self.unless_ended(contents.put(&guest), "files were being copied").await?;
        put.map(drop).map_err(|source| SandboxError::Fork { which, source: Box::new(source) })
    }

    /// Gives the machine its image. The record names it before anything runs from it, so that
    /// nobody removes it, even if this bridge is gone.
    async fn furnish(
        &mut self,
        wanted: RequestedImage,
        spec: &mut MachineSpec,
    ) -> Result<(), SandboxError> {
        self.unless_ended(wanted.fetch(), "image was being pulled").await??;
        self.image = wanted.furnish(spec).await?;
        if let Some(held) = &self.image {
            held.describe(&mut self.stored);
            let state = self.place.directories.state.clone();
            let written = self.stored.save(&state).await;
            let failed = |source| SandboxError::Files { action: "write", path: state, source };
            written.map_err(failed)?;
        }
        Ok(())
    }

    /// Waits for a step of a sandbox's creation. Ending the sandbox cancels the wait, and so does a reached
    /// daily limit.
    pub(super) async fn unless_ended<T>(
        &mut self,
        work: impl Future<Output = T>,
        during: &'static str,
    ) -> Result<T, SandboxError> {
        let mut work = std::pin::pin!(work);
        loop {
            let order = tokio::select! {
                done = &mut work => return Ok(done),
                order = self.orders.recv() => order,
            };
            let which = self.stored.record.which();
            match order {
                Some(Order::Stop { reply, .. } | Order::Kill { reply }) => self.waiting.push(reply),
                Some(Order::Remove { force: true, reply }) => self.removing.push(reply),
                Some(Order::Spent { .. }) => return Err(SandboxError::CreationSpent { which }),
                None | Some(Order::Leave { .. }) => return Err(SandboxError::Stopping),
                Some(other) => {
                    other.refuse(&which);
                    continue;
                }
            }
            return Err(SandboxError::CreationEnded { which, during });
        }
    }

    /// Holds a sandbox whose record cannot be read until it is removed.
    pub(crate) fn hold(self) {
        let (of, state) = (self.stored.record.subject(), self.stored.record.state.clone());
        (self.place.events)(&Event::State { of, state });
        tokio::spawn(self.run());
    }

    /// Takes over what an earlier bridge had, and runs its owner in a new task.
    pub(crate) async fn adopt(mut self) {
        let id = self.stored.record.id.clone();
        let which = self.stored.record.which();
        match self.stored.record.state.clone() {
            State::Stopped { .. } => {
                self.expiry.stopped(&self.stored);
                self.deliver();
            }
            State::Creating => {
                let _ = self.erase().await;
                let why = format!("the creation of {which} was interrupted");
                self.happened(Kind::Failed, Facts::cause(&why));
                (self.place.events)(&Event::Cleaned { id: id.to_string(), why });
                return;
            }
            State::Paused { on_disk: true, .. } => {
                self.open_log();
                self.find_away().await;
                if self.away.is_some() {
                    (self.place.events)(&Event::Adopted { of: self.stored.record.subject() });
                }
            }
            before @ (State::Running
            | State::Paused { .. }
            | State::Stopping
            | State::Lost { .. }
            | State::Damaged { .. }) => {
                self.open_log();
                self.forget_draft().await;
                let (directories, trace) =
                    (self.place.directories.clone(), self.stored.trace.clone());
                match self.place.machine.adopt(id, directories, trace).await {
                    Adoption::Alive(running) => {
                        self.was_away = !matches!(before, State::Paused { .. });
                        self.trace(&running);
                        let egress = self.reopen_egress(&running);
                        let mirror = self.reopen_workspace(&running).await;
                        self.enliven(running, egress, mirror);
                        (self.place.events)(&Event::Adopted { of: self.stored.record.subject() });
                        self.resume(&before).await;
                    }
                    Adoption::Dead => {
                        self.sweep_workspace().await;
                        self.machine_ended(StopReason::BridgeAway).await;
                    }
                }
            }
        }
        tokio::spawn(self.run());
    }

    /// Brings an adopted sandbox into the state that it was on its way to.
    async fn resume(&mut self, before: &State) {
        let stands_still = self.life.as_ref().is_some_and(|life| life.running.trace().paused);
        if stands_still && matches!(before, State::Paused { .. }) {
            self.expiry.pauses();
            if before.is_asleep() {
                self.place.presence.sleep();
            }
            return self.enter(before.clone()).await;
        }
        let guest = self.life.as_ref().and_then(|life| life.running.guest());
        let Some(guest) = guest else {
            let reason = "its agent does not answer".to_owned();
            return self.enter(State::Lost { reason }).await;
        };
        if *before == State::Stopping {
            self.begin_stop(STOP_GRACE_DEFAULT, StopReason::Requested).await;
        } else {
            thaw(guest).await;
            self.enter(State::Running).await;
            // A record that called it paused had stopped its idle time.
            self.expire_as_recorded();
        }
    }

    /// Records facts about a machine that was started here.
    fn know(&mut self, running: &Arc<dyn Running>) {
        self.stored.record.warnings = running.warnings();
        self.stored.record.warnings.extend(self.image.iter().flat_map(HeldImage::warnings));
        self.trace(running);
    }

    /// Puts down how a machine is found again.
    pub(super) fn trace(&mut self, running: &Arc<dyn Running>) {
        self.stored.trace = running.trace();
        self.stored.record.pid = self.stored.trace.process.as_ref().map(|process| process.pid);
        self.stored.record.address = self.stored.trace.address.clone();
    }

    /// Opens the egress of a new machine that can do what was asked of it.
    async fn begin_egress(
        &mut self,
        running: &Arc<dyn Running>,
    ) -> Result<Option<EgressGuard>, SandboxError> {
        self.check_sleep(running.as_ref())?;
        self.open_egress(running).await
    }

    /// Begins to watch and to record a machine that lives.
    pub(super) fn enliven(
        &mut self,
        running: Arc<dyn Running>,
        egress: Option<EgressGuard>,
        mirror: Option<Mirror>,
    ) {
        // From here on others use it, and its output is recorded.
        self.rule_output(&running);
        self.rule_input(&running);
        let ends = Arc::new(ProvenanceLog::new(&log_directory(&self.place.directories.state)));
        self.keep_provenance(&running, &ends);
        let guest = running.guest();
        if self.place.presence.is_asleep() {
            self.place.presence.meet(guest.clone());
        } else {
            self.place.presence.open(guest.clone());
        }
        self.expire_as_recorded();
        let programs = self.program_events();
        let recorder = guest.clone().zip(self.log.clone()).map(|(guest, log)| {
            let (which, events) = (self.stored.record.which(), Arc::clone(&self.place.events));
            let presence = Arc::clone(&self.place.presence);
            let (durable, programs) = (self.durable.clone(), programs.clone());
            let keeps_output = self.stored.record.record.has_output();
            let recorder = Recorder {
                guest,
                log,
                which,
                events,
                presence,
                durable,
                programs,
                ends: Arc::clone(&ends),
                telemetry: self.place.telemetry.clone(),
                keeps_output,
            };
            tokio::spawn(recorder.run())
        });
        let follower = guest.clone().map(|guest| {
            let (telemetry, presence) = (self.place.telemetry.clone(), &self.place.presence);
            tokio::spawn(telemetry.follow(guest, Arc::clone(presence), self.shown.subscribe()))
        });
        if let Some(guest) = &guest {
            programs.observe(guest);
        }
        let exited = running.exited();
        let lost = guest.map(|guest| Box::pin(guest.lost()) as Pin<Box<_>>);
        self.life = Some(LiveMachine {
            running,
            exited,
            lost,
            recorder,
            follower,
            egress,
            mirror,
            look: None,
            errand: None,
            kept_back: Arc::default(),
        });
    }

    fn open_log(&mut self) {
        self.open_durable();
        match Writer::open(&log_directory(&self.place.directories.state)) {
            Ok(writer) => {
                if writer.cut_bytes() > 0 {
                    let bytes = writer.cut_bytes();
                    self.trouble(format!(
                        "{bytes} bytes of a torn record were removed from its log"
                    ));
                }
                self.log = Some(SharedLog::new(writer));
            }
            // The sandbox is more important than its log; its agent keeps output that nobody
            // records.
            Err(error) => self.trouble(error.to_string()),
        }
    }
}

/// Thaws programs that a bridge froze to read their files, and left so because it died.
async fn thaw(guest: Guest) {
    // One that does not answer thaws by itself.
    let _ = timeout(THAW_DEADLINE, guest.thaw()).await;
}

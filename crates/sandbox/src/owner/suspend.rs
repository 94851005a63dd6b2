//! How an owner pauses or resumes its machine, takes its snapshot, or saves it as an image. These
//! take long, so each is an errand beside the owner's other work: a kill works meanwhile.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Owner, Reply};
use crate::contents::Reading;
use crate::event::{Facts, Kind};
use crate::snapshot::{Draft, Snapshot};
use crate::stored::HeldImage;
use crate::{SandboxError, State};
use host::instant::now_ms;
use image::Image;
use machine::{BoxFuture, Capability, MachineError, Resumed, Running};

pub(crate) type SnapshotReply = oneshot::Sender<Result<Snapshot, SandboxError>>;
pub(crate) type ForkReply = oneshot::Sender<Result<Reading, SandboxError>>;
pub(crate) type CommitReply = oneshot::Sender<Result<Image, SandboxError>>;

/// A machine that was restored from its own memory on disk.
pub(super) struct Restored {
    pub running: Arc<dyn Running>,
    pub image: Option<HeldImage>,
}

/// The outcome of an errand, and who waits for it.
pub(super) enum SuspendOutcome {
    Paused {
        done: Result<(), MachineError>,
        by_lease: bool,
        reply: Reply,
    },
    Resumed(Result<Resumed, MachineError>, Reply),
    DozedOff(Result<(), MachineError>),
    Woke(Result<Resumed, MachineError>),
    /// It was written to disk, or the reason why not.
    PutDown(Result<(), String>),
    /// It goes on after that.
    StoodUp,
    /// Its processes have ended, or would not.
    PutAway {
        has_ended: bool,
    },
    Restored(Result<Restored, SandboxError>, Option<Reply>),
    Written(Result<Snapshot, SandboxError>, SnapshotReply),
    Committed(Result<Image, SandboxError>, CommitReply),
    Read(Result<Reading, SandboxError>, ForkReply),
}

impl Owner {
    pub(super) async fn pause(&mut self, reply: Reply) {
        match self.stored.record.state {
            State::Paused { by_idle: true, .. } | State::Paused { by_lease: true, .. } => {
                self.stay_paused(reply).await;
            }
            State::Paused { .. } => drop(reply.send(Ok(self.stored.record.clone()))),
            State::Running => self.begin_pause(false, reply),
            _ => self.refuse(reply),
        }
    }

    fn begin_pause(&mut self, by_lease: bool, reply: Reply) {
        let kind = self.stored.record.machine;
        self.send(reply, |running, reply| {
            Box::pin(async move {
                let done = match running.suspend() {
                    Some(suspend) => suspend.pause().await,
                    None => Err(MachineError::lacks(kind, Capability::Pause, "be paused")),
                };
                SuspendOutcome::Paused { done, by_lease, reply }
            })
        });
    }

    /// Its node has no lease for the moment: it is paused, if it runs. One that is paused already stays so when the
    /// lease is renewed.
    pub(super) fn pause_for_lease(&mut self, reply: Reply) {
        match self.stored.record.state {
            State::Running => self.begin_pause(true, reply),
            _ => drop(reply.send(Ok(self.stored.record.clone()))),
        }
    }

    /// The lease is renewed.
    pub(super) fn go_on_with_lease(&mut self, reply: Reply) {
        if self.stored.record.state.is_held() {
            self.resume_paused(reply);
        } else {
            let _ = reply.send(Ok(self.stored.record.clone()));
        }
    }

    /// From now on only a resumption has it continue.
    async fn stay_paused(&mut self, reply: Reply) {
        let of_life = self.life.as_ref().is_some_and(|life| life.errand.is_some());
        if of_life || self.away.as_ref().is_some_and(|away| away.errand.is_some()) {
            // It is being woken, for somebody, or goes on with its node's lease.
            let which = self.stored.record.which();
            return drop(reply.send(Err(SandboxError::Busy { which })));
        }
        self.place.presence.stay_open();
        let (since_ms, on_disk) = (now_ms(), self.away.is_some());
        let state = State::Paused { since_ms, by_idle: false, by_lease: false, on_disk };
        self.enter_living(state).await;
        let _ = reply.send(self.outcome(Ok(())).await);
    }

    pub(super) fn resume_paused(&mut self, reply: Reply) {
        let kind = self.stored.record.machine;
        match self.stored.record.state {
            State::Running => {
                let _ = reply.send(Ok(self.place.presence.show(self.stored.record.clone())));
            }
            State::Paused { on_disk: true, .. } => {
                self.went_on = "asked";
                self.restore(Some(reply));
            }
            State::Paused { by_lease, .. } => {
                self.went_on = if by_lease { "lease" } else { "asked" };
                self.send(reply, |running, reply| {
                    Box::pin(async move {
                        let resumed = match running.suspend() {
                            Some(suspend) => suspend.resume().await,
                            None => Err(MachineError::lacks(kind, Capability::Pause, "be resumed")),
                        };
                        SuspendOutcome::Resumed(resumed, reply)
                    })
                });
            }
            _ => self.refuse(reply),
        }
    }

    pub(super) fn write_down(&mut self, draft: Draft, reply: SnapshotReply) {
        let kind = self.stored.record.machine;
        match self.stored.record.state {
            State::Running => self.send(reply, |running, reply| {
                Box::pin(async move {
                    let written = match running.suspend() {
                        Some(suspend) => suspend.snapshot(&draft.machine()).await,
                        None => {
                            Err(MachineError::lacks(kind, Capability::Snapshot, "be snapshotted"))
                        }
                    };
                    let finish = || draft.finish();
                    let finished = match written {
                        Ok(()) => {
                            tokio::task::spawn_blocking(finish).await.unwrap_or_else(|error| {
                                Err(SandboxError::Draw(std::io::Error::other(error)))
                            })
                        }
                        Err(error) => Err(error.into()),
                    };
                    SuspendOutcome::Written(finished, reply)
                })
            }),
            _ => self.refuse(reply),
        }
    }

    /// Freezes the programs while their files are read. It is an errand like the others, so that no two thaw
    /// each other's programs.
    pub(super) fn commit(
        &mut self,
        work: BoxFuture<'static, Result<Image, SandboxError>>,
        reply: CommitReply,
    ) {
        match self.stored.record.state {
            State::Running => self.send(reply, |_, reply| {
                Box::pin(async move { SuspendOutcome::Committed(work.await, reply) })
            }),
            _ => self.refuse(reply),
        }
    }

    /// The same for the files of a fork.
    pub(super) fn read_files(
        &mut self,
        work: BoxFuture<'static, Result<Reading, SandboxError>>,
        reply: ForkReply,
    ) {
        match self.stored.record.state {
            State::Running => self.send(reply, |_, reply| {
                Box::pin(async move { SuspendOutcome::Read(work.await, reply) })
            }),
            _ => self.refuse(reply),
        }
    }

    /// Begins an errand, if there is none.
    fn send<T>(
        &mut self,
        reply: oneshot::Sender<Result<T, SandboxError>>,
        errand: impl FnOnce(
            Arc<dyn Running>,
            oneshot::Sender<Result<T, SandboxError>>,
        ) -> BoxFuture<'static, SuspendOutcome>,
    ) {
        let which = self.stored.record.which();
        match &mut self.life {
            Some(life) if life.errand.is_none() => {
                life.errand = Some(errand(Arc::clone(&life.running), reply));
            }
            Some(_) => drop(reply.send(Err(SandboxError::Busy { which }))),
            None => self.refuse(reply),
        }
    }

    pub(super) fn refuse<T>(&self, reply: oneshot::Sender<Result<T, SandboxError>>) {
        let (which, state) = (self.stored.record.which(), self.stored.record.state.clone());
        let _ = reply.send(Err(match state {
            State::Paused { by_lease: true, .. } => SandboxError::Held { which },
            State::Paused { .. } => SandboxError::Paused { which },
            state => SandboxError::NotRunning { which, state },
        }));
    }

    pub(super) async fn return_from(&mut self, errand: SuspendOutcome) {
        if let Some(life) = &mut self.life {
            life.errand = None;
        }
        if let Some(away) = &mut self.away {
            away.errand = None;
        }
        match errand {
            SuspendOutcome::Paused { done, by_lease, reply } => {
                // A machine that was lost meanwhile is not.
                if done.is_ok() && self.stored.record.state == State::Running {
                    self.expiry.pauses();
                    let (since_ms, by_idle) = (now_ms(), false);
                    let state = State::Paused { since_ms, by_idle, by_lease, on_disk: false };
                    self.enter_living(state).await;
                }
                let _ = reply.send(self.outcome(done).await);
            }
            SuspendOutcome::Resumed(done, reply) => {
                if self.has_gone_on() {
                    self.resumed().await;
                }
                let done = done.map(drop);
                self.answer_waking(&done);
                let _ = reply.send(self.outcome(done).await);
            }
            SuspendOutcome::DozedOff(done) => self.dozed_off(done).await,
            SuspendOutcome::Woke(done) => self.woke(done).await,
            SuspendOutcome::PutDown(written) => self.has_been_put_down(written).await,
            SuspendOutcome::StoodUp => self.stay_awake(),
            SuspendOutcome::PutAway { has_ended } => self.is_away(has_ended),
            SuspendOutcome::Restored(done, reply) => self.has_been_restored(done, reply).await,
            SuspendOutcome::Written(written, reply) => {
                if let Ok(snapshot) = written.as_ref()
                    && !snapshot.is_nameless()
                {
                    let snapshot = Some(snapshot.name.to_string());
                    self.happened(Kind::Snapshotted, Facts { snapshot, ..Facts::none() });
                }
                drop(reply.send(written));
            }
            SuspendOutcome::Read(read, reply) => drop(reply.send(read)),
            SuspendOutcome::Committed(committed, reply) => {
                if let Ok(image) = &committed {
                    let image = Some(image.digest.to_string());
                    self.happened(Kind::Committed, Facts { image, ..Facts::none() });
                }
                drop(reply.send(committed));
            }
        }
    }

    /// Whether a machine that is recorded as paused runs.
    pub(super) fn has_gone_on(&self) -> bool {
        let runs = self.life.as_ref().is_some_and(|life| !life.running.trace().paused);
        runs && matches!(self.stored.record.state, State::Paused { .. })
    }

    pub(super) async fn resumed(&mut self) {
        let unknown = self.life.as_ref().filter(|life| life.recorder.is_none());
        let unknown = unknown.map(|life| Arc::clone(&life.running));
        if let Some(running) = unknown {
            // The bridge that paused it is gone: this one connects to its agent only now.
            let egress = self.reopen_egress(&running);
            let mirror = self.reopen_workspace(&running).await;
            self.enliven(running, egress, mirror);
        }
        self.enter_living(State::Running).await;
        // After the state: nothing begins in one that still shows as paused.
        self.place.presence.stay_open();
        self.expire_as_recorded();
    }

    /// Enters a state of a living machine, and records whether it is paused.
    pub(super) async fn enter_living(&mut self, state: State) {
        if let Some(life) = &self.life {
            self.stored.trace = life.running.trace();
        }
        self.enter(state).await;
    }

    async fn outcome(
        &mut self,
        done: Result<(), MachineError>,
    ) -> Result<crate::Record, SandboxError> {
        done.map_err(SandboxError::from)?;
        self.ensure_saved().await?;
        Ok(self.place.presence.show(self.stored.record.clone()))
    }
}

//! How an owner puts its machine on disk when nothing is at work in it, and restores it for a request.
//!
//! ```text
//!           frozen, saved        recorded          its processes end
//!  running ───────────────▶ put down ────────▶ away ───────────────▶ asleep
//!     ▲    a request waits ◀───┘                                        │ a request
//!     └──── recorded ◀──── restored, and its memory on disk removed ◀───┘
//! ```
//!
//! The record decides which of the two is the sandbox. As long as it says `running`, the machine is, and the next
//! bridge has it continue and removes what is on disk. As soon as it says `on_disk`, the snapshot is, and the next
//! bridge ends what is left of the machine. No request is carried out by a machine before its record says that it
//! runs, so nothing that somebody was answered is ever lost or done twice.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use ::workspace::Mirror;
use ::workspace::limits::LAST_SYNC_DEADLINE;

use super::suspend::{Restored, SuspendOutcome};
use super::{Owner, Reply, remove_directory};
use crate::snapshot::{Snapshots, bytes_of, taken};
use crate::{SandboxError, State, StopReason};
use host::instant::now_ms;
use host::paths::make_private_directory;
use host::room::free_bytes;
use machine::limits::{KILL_DEADLINE, SET_RIGHT_MAX};
use machine::vmm::{MANIFEST, SCRATCH};
use machine::{BoxFuture, Capability, MachineError, Running};

/// The directory of its memory, in the sandbox's own state.
pub(super) const ASLEEP: &str = "asleep";

/// What an owner has while its machine is on disk.
#[derive(Default)]
pub(super) struct Away {
    /// The end of its processes, or its restoration.
    pub errand: Option<BoxFuture<'static, SuspendOutcome>>,
}

impl Owner {
    /// Whether it has a machine neither here nor on disk.
    pub(super) fn has_ended(&self) -> bool {
        self.life.is_none() && self.away.is_none()
    }

    fn asleep(&self) -> PathBuf {
        self.place.directories.state.join(ASLEEP)
    }

    /// Begins to write the machine to disk. The presence says already that it is asleep.
    pub(super) fn put_down(&mut self) {
        let (record, state) = (&self.stored.record, &self.place.directories.state);
        let (kind, into) = (record.machine, self.asleep());
        let bytes = Snapshots::expected(record, state, record.name.clone());
        if self.life.as_ref().is_none_or(|life| life.errand.is_some()) {
            // Something else is being done with its time, for somebody.
            return self.stay_awake();
        }
        if let Err(error) = self.reserve_asleep(bytes) {
            self.trouble(format!("it is idle, and is paused instead of written to disk: {error}"));
            return self.doze_off_in_memory();
        }
        let Some(life) = &mut self.life else { return };
        let running = life.running.clone();
        // On disk it copies nothing back any more.
        let last = life.mirror.as_ref().map(Mirror::ask);
        life.errand = Some(Box::pin(async move {
            if let Some(last) = last
                && !matches!(timeout(LAST_SYNC_DEADLINE, last).await, Ok(Ok(Ok(_))))
            {
                let why = "the changes in its workspace could not be copied back before".to_owned();
                return SuspendOutcome::PutDown(Err(why));
            }
            if let Err(error) = make_room(into.clone(), bytes).await {
                return SuspendOutcome::PutDown(Err(error.to_string()));
            }
            let written = match running.suspend() {
                Some(suspend) => suspend.put_down(&into).await,
                None => Err(MachineError::lacks(kind, Capability::Snapshot, "be snapshotted")),
            };
            SuspendOutcome::PutDown(written.map_err(|error| error.to_string()))
        }));
    }

    /// Reserves what its memory may take on disk, if the caps allow it.
    fn reserve_asleep(&mut self, bytes: u64) -> Result<(), SandboxError> {
        let (shown, record) = (&self.shown, &self.stored.record);
        (self.place.room_asleep)(record, bytes, &mut || {
            shown.send_modify(|record| record.asleep_bytes = bytes);
        })?;
        self.stored.record.asleep_bytes = bytes;
        Ok(())
    }

    /// Its memory is on disk no more, or is about to be removed, and counts for nobody.
    pub(super) fn leave_disk(&mut self) {
        self.away = None;
        self.stored.record.asleep_bytes = 0;
    }

    pub(super) async fn has_been_put_down(&mut self, written: Result<(), String>) {
        // What was reserved is over.
        self.leave_disk();
        if self.stored.record.state != State::Running {
            // It was lost meanwhile, or is ending.
            self.display();
            return self.waking.clear();
        }
        if let Err(why) = written {
            self.trouble(format!("it is idle, and could not be written to disk: {why}"));
            return self.stand_up();
        }
        if !self.waking.is_empty() {
            return self.stand_up();
        }
        let before = self.stored.clone();
        let (since_ms, by_idle) = (now_ms(), true);
        let state = State::Paused { since_ms, by_idle, by_lease: false, on_disk: true };
        self.stored.record.state = state.clone();
        (self.stored.record.pid, self.stored.record.address) = (None, None);
        self.stored.record.asleep_bytes = memory_bytes(&self.asleep());
        self.stored.trace = machine::Trace::default();
        if self.save().await.is_err() {
            // The next bridge would not know that the snapshot is the sandbox.
            self.stored = before;
            return self.stand_up();
        }
        self.expiry.pauses();
        self.put_away().await;
        self.show(state);
    }

    /// Has a machine continue that was written to disk, or not.
    fn stand_up(&mut self) {
        let asleep = self.asleep();
        self.display();
        let Some(life) = &mut self.life else { return };
        let running = life.running.clone();
        life.errand = Some(Box::pin(async move {
            if let Some(suspend) = running.suspend() {
                let _ = timeout(SET_RIGHT_MAX, suspend.set_right()).await;
            }
            let _ = remove_directory(&asleep).await;
            SuspendOutcome::StoodUp
        }));
    }

    /// Releases a machine that is on disk, and begins to end its processes.
    async fn put_away(&mut self) {
        let Some(mut life) = self.life.take() else { return };
        drop(life.egress);
        life.follower.iter().for_each(JoinHandle::abort);
        self.place.telemetry.settle();
        self.end_workspace(life.mirror.take()).await;
        self.place.presence.put_away();
        if let Some(recorder) = life.recorder {
            // What it has not recorded is in the agent's memory, and is recorded later.
            recorder.abort();
            let _ = recorder.await;
        }
        self.end_processes(life.running);
    }

    fn end_processes(&mut self, running: Arc<dyn Running>) {
        let (machine, id) = (Arc::clone(&self.place.machine), self.stored.record.id.clone());
        let (directories, asleep) = (self.place.directories.clone(), self.asleep());
        let errand = Box::pin(async move {
            let mut has_ended = false;
            for _ in 0..KILLS {
                running.kill();
                has_ended = timeout(KILL_DEADLINE / KILLS, running.exited()).await.is_ok();
                if has_ended {
                    break;
                }
            }
            let scratch = directories.state.join(SCRATCH);
            machine.clean(id, Some(directories)).await;
            if asleep.join(SCRATCH).exists() {
                // The snapshot has a copy.
                let _ = tokio::fs::remove_file(scratch).await;
            }
            SuspendOutcome::PutAway { has_ended }
        });
        self.away = Some(Away { errand: Some(errand) });
    }

    /// Its processes have ended.
    pub(super) fn is_away(&mut self, has_ended: bool) {
        if !has_ended {
            let seconds = KILL_DEADLINE.as_secs();
            self.trouble(format!(
                "its memory is on disk, and its machine still exists {seconds} s after it was killed"
            ));
        }
        if !self.waking.is_empty() {
            self.rouse();
        }
    }

    /// Begins to restore the machine, unless that is under way.
    pub(super) fn restore(&mut self, reply: Option<Reply>) {
        let record = self.stored.record.clone();
        let (machine, remaking) = (Arc::clone(&self.place.machine), self.place.remaking.clone());
        let (directories, from) = (self.place.directories.clone(), self.asleep());
        let Some(away) = self.away.as_mut().filter(|away| away.errand.is_none()) else {
            if let Some(reply) = reply {
                let _ = reply.send(Err(SandboxError::Busy { which: record.which() }));
            }
            return;
        };
        away.errand = Some(Box::pin(async move {
            let restoring = async {
                let remaking = remaking.ok_or(SandboxError::Stopping)?;
                let path = directories.runtime.clone();
                let failed = |action| move |source| SandboxError::Files { action, path, source };
                make_private_directory(&directories.runtime).map_err(failed("make"))?;
                // A restoration that was cut off has left it.
                let _ = tokio::fs::remove_file(directories.state.join(SCRATCH)).await;
                let (spec, image) = remaking.restored(&record, directories, from).await?;
                Ok(Restored { running: machine.start(spec).await?, image })
            };
            SuspendOutcome::Restored(restoring.await, reply)
        }));
    }

    pub(super) async fn has_been_restored(
        &mut self,
        restored: Result<Restored, SandboxError>,
        reply: Option<Reply>,
    ) {
        let Restored { running, image } = match restored {
            Ok(restored) => restored,
            Err(error) => return self.stay_away(&error, reply),
        };
        let before = self.stored.clone();
        self.stored.record.state = State::Running;
        self.leave_disk();
        self.trace(&running);
        if let Err(error) = self.save().await {
            // The next bridge would restore it again, without what happens in it from now on.
            self.stored = before;
            self.stay_away(&error, reply);
            return self.end_processes(running);
        }
        self.image = image.or(self.image.take());
        if let Err(error) = remove_directory(&self.asleep()).await {
            self.trouble(format!("its memory on disk could not be removed: {error}"));
        }
        let egress = self.open_egress(&running).await.unwrap_or_else(|error| {
            self.trouble(format!("it has no egress: {error}"));
            None
        });
        let mirror = self.reopen_workspace(&running).await;
        self.enliven(running, egress, mirror);
        self.show(State::Running);
        self.place.presence.stay_open();
        self.expire_as_recorded();
        self.answer_waking(&Ok(()));
        if let Some(reply) = reply {
            let _ = reply.send(Ok(self.place.presence.show(self.stored.record.clone())));
        }
    }

    /// It could not be restored, and the next request tries it again.
    fn stay_away(&mut self, error: &SandboxError, reply: Option<Reply>) {
        let (which, why) = (self.stored.record.which(), error.to_string());
        self.trouble(format!("its memory is on disk, and could not be restored: {why}"));
        for waiting in self.waking.drain(..) {
            let (which, why) = (which.clone(), why.clone());
            let _ = waiting.send(Err(SandboxError::NotWoken { which, why }));
        }
        if let Some(reply) = reply {
            let _ = reply.send(Err(SandboxError::NotWoken { which, why }));
        }
    }

    /// Finds a machine on disk that an earlier bridge has put there, and ends what that one has left of its
    /// processes.
    pub(super) async fn find_away(&mut self) {
        let (id, directories) = (self.stored.record.id.clone(), self.place.directories.clone());
        self.place.machine.clean(id, Some(directories)).await;
        if !self.asleep().join(MANIFEST).is_file() {
            return self.machine_ended(StopReason::BridgeAway).await;
        }
        self.away = Some(Away::default());
        if self.stored.record.state.is_asleep() {
            self.place.presence.sleep();
        } else {
            self.place.presence.stay_open();
        }
        self.expire_as_recorded();
        self.display();
    }

    /// Removes what an earlier bridge has written of a machine that was not put away after all.
    pub(super) async fn forget_draft(&mut self) {
        self.leave_disk();
        if let Err(error) = remove_directory(&self.asleep()).await {
            self.trouble(format!("its old memory on disk could not be removed: {error}"));
        }
    }
}

/// What is on disk of a machine that sleeps, besides its writable layer, which counts by itself.
fn memory_bytes(asleep: &Path) -> u64 {
    let layer = asleep.join(SCRATCH).metadata().map_or(0, |found| taken(&found));
    bytes_of(asleep).saturating_sub(layer)
}

/// First the machine is killed, then what holds it.
const KILLS: u32 = 2;

/// Makes an empty directory, if the disk has room for so much in it.
async fn make_room(directory: PathBuf, bytes: u64) -> io::Result<()> {
    remove_directory(&directory).await?;
    let making = spawn_blocking(move || {
        make_private_directory(&directory)?;
        let free = free_bytes(&directory)?;
        if free < bytes {
            let why = format!("it takes up to {bytes} bytes, and {free} are free");
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        Ok(())
    });
    making.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

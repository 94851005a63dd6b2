//! The snapshot of a shelf: a machine that the commands of a template have made ready, written once, from which
//! later ones are restored instead of booted.
//!
//! ```text
//!            booted, ready             written
//!  (none) ───────────────▶ (writing) ─────────▶ kept ──▶ restored, any number of times
//!     ▲                        │ no room, failed    │ another shape, a restoration failed, the shelf is gone
//!     └────────────────────────┴────────────────────┘
//! ```
//!
//! It has no name, lies with the other snapshots, and goes with its bridge: the next one removes what a killed
//! bridge has left of it. It counts for the cap on disk space of the template's namespace. [`super::start`] makes
//! and uses it, and the owner of a sandbox for which no machine was ready; both boot one if the restoration fails.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Shape;
use crate::snapshot::{Draft, Nameless, Snapshot};
use crate::{Record, SandboxError};
use machine::vmm::SCRATCH;
use machine::{Machine, MachineError, MachineSpec, Running};

/// Begins a snapshot of a machine of this record, in this directory, if there is room for it.
pub(in super::super) type Reserve =
    Box<dyn Fn(&Record, &Path) -> Result<Draft, SandboxError> + Send + Sync>;

/// What a shelf has of its snapshot.
#[derive(Default)]
pub(super) struct Warmed(Mutex<State>);

#[derive(Default)]
struct State {
    kept: Option<Arc<WarmSnapshot>>,
    is_being_written: bool,
    /// Why it was not written last, so that this is reported once.
    refusal: Option<String>,
    /// Machines that were restored.
    restored: u64,
}

/// A snapshot of a machine that is ready. Its files are gone with the last user.
#[derive(Debug)]
pub(in super::super) struct WarmSnapshot {
    shape: Shape,
    snapshot: Snapshot,
    files: Nameless,
}

/// Somebody writes the snapshot of a shelf. Dropping it lets another try.
pub(super) struct Writing<'a>(&'a Warmed);

impl Warmed {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in it is ever half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The snapshot of a machine of this shape. One of another shape is dropped: the image has changed.
    pub fn of(&self, shape: &Shape) -> Option<Arc<WarmSnapshot>> {
        let mut state = self.state();
        state.kept.take_if(|kept| kept.shape != *shape);
        state.kept.clone()
    }

    /// Begins to write one, unless there is one or somebody else does.
    pub fn begin(&self) -> Option<Writing<'_>> {
        let mut state = self.state();
        if state.is_being_written || state.kept.is_some() {
            return None;
        }
        state.is_being_written = true;
        Some(Writing(self))
    }

    /// Notes why none was written. Whether that is news.
    pub fn refused(&self, why: &str) -> bool {
        let refusal = &mut self.state().refusal;
        let is_news = refusal.as_deref() != Some(why);
        *refusal = Some(why.to_owned());
        is_news
    }

    /// Counts a restoration.
    pub fn has_restored(&self) {
        self.state().restored += 1;
    }

    /// Drops a snapshot from which no machine could be restored, so that it is written again.
    pub fn drop_broken(&self, broken: &Arc<WarmSnapshot>) {
        self.state().kept.take_if(|kept| Arc::ptr_eq(kept, broken));
    }

    /// Drops the snapshot.
    pub fn clear(&self) {
        self.state().kept = None;
    }

    pub fn snapshot(&self) -> Option<Snapshot> {
        self.state().kept.as_ref().map(|kept| kept.snapshot.clone())
    }

    pub fn restored(&self) -> u64 {
        self.state().restored
    }
}

impl Writing<'_> {
    /// It is written.
    pub fn keep(self, shape: Shape, snapshot: Snapshot, files: Nameless) {
        let mut state = self.0.state();
        state.kept = Some(Arc::new(WarmSnapshot { shape, snapshot, files }));
        state.refusal = None;
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.state().is_being_written = false;
    }
}

impl WarmSnapshot {
    /// Restores a machine of this specification. What a failure has made is gone again.
    pub async fn restore(
        &self,
        machine: &dyn Machine,
        spec: &MachineSpec,
    ) -> Result<Arc<dyn Running>, MachineError> {
        let restored = MachineSpec { restore: Some(self.files.machine()), ..spec.clone() };
        let started = machine.start(restored).await;
        if let (Err(_), Some(directories)) = (&started, &spec.directories) {
            // A machine that is booted begins with an empty layer.
            let copy: PathBuf = directories.state.join(SCRATCH);
            let _ = tokio::fs::remove_file(copy).await;
        }
        started
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writes_at_a_time_and_a_reason_is_news_once() {
        let warmed = Warmed::default();
        let writing = warmed.begin().unwrap();
        assert!(warmed.begin().is_none(), "two write it");
        drop(writing);
        assert!(warmed.begin().is_some(), "nobody may try again");
        assert!(warmed.refused("no room"));
        assert!(!warmed.refused("no room"));
        assert!(warmed.refused("no disk"));
    }
}

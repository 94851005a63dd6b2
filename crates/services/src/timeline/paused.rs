//! Timelines between two pages: the next page goes on where the last one ended, instead of reading everything before
//! it once more. A page that finds none, because it came late or many others came meanwhile, reads from the beginning.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use machine::SandboxId;

use super::{Selection, Timeline};

/// Timelines that wait for their next page. Each holds an open file, and up to half a megabyte of what it has read ahead.
const PAUSED_MAX: usize = 16;
/// How long one waits: a client that reads page by page asks at once, and a person within a minute.
const PAUSED_FOR: Duration = Duration::from_secs(60);

/// Bounded; the one that waits the longest goes first.
#[derive(Default)]
pub struct PausedTimelines(Mutex<VecDeque<Paused>>);

struct Paused {
    of: SandboxId,
    timeline: Timeline,
    since: Instant,
}

impl PausedTimelines {
    /// Keeps a timeline for the page after its place.
    pub fn keep(&self, of: &SandboxId, timeline: Timeline) {
        let mut paused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        paused.retain(|one| one.since.elapsed() < PAUSED_FOR);
        if paused.len() >= PAUSED_MAX {
            paused.pop_front();
        }
        paused.push_back(Paused { of: of.clone(), timeline, since: Instant::now() });
    }

    /// The timeline of this sandbox that has read just what is before this place, for the same selection.
    pub fn take(&self, of: &SandboxId, selection: &Selection) -> Option<Timeline> {
        let place = selection.after?;
        let mut paused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        paused.retain(|one| one.since.elapsed() < PAUSED_FOR);
        let is_it = |one: &Paused| one.of == *of && one.timeline.is_at(place, selection);
        let at = paused.iter().position(is_it)?;
        paused.remove(at).map(|one| one.timeline)
    }
}

//! The meter: how long the sandboxes of each namespace and key have run today, and how much output they have
//! written.
//!
//! A day is one of UTC. The counts are saved every few seconds, and when the bridge ends. For sandboxes that
//! the next bridge finds alive it also counts the time in between. When others ended is unknown, so they
//! count until the last save. Output between the last save and a kill of the bridge is not counted.
//!
//! Owners report when their machines run, by a [`RunTimer`]; the registry asks who has reached a
//! limit.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::caps::{Caps, Scope, Spent};
use super::{ExpiryKind, Record, SandboxRef};
use crate::limits::{METER_BYTES_MAX, METERED_SCOPES_MAX};
use agent_client::guest::OutputCounter;
use host::instant::{DAY_MS, now_ms};
use host::paths::write_durably;

/// Clones are the same meter.
#[derive(Clone, Debug)]
pub(super) struct Meter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    file: String,
    day: Mutex<Day>,
}

#[derive(Debug, Default)]
struct Day {
    /// Days since 1970.
    number: u64,
    spent: BTreeMap<Scope, Spent>,
    running: HashMap<u64, Running>,
    /// The number of the next spell.
    next: u64,
    /// Up to when an earlier bridge has counted.
    before_ms: u64,
    is_changed: bool,
}

/// A machine that runs.
#[derive(Debug)]
struct Running {
    which: SandboxRef,
    scopes: Vec<Scope>,
    since: Instant,
    output: Option<OutputCounter>,
    /// How much of that is counted.
    bytes: u64,
}

/// The time for which a machine runs. It is over when this is dropped.
#[derive(Debug)]
pub(super) struct RunTimer {
    meter: Meter,
    number: u64,
}

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredUse {
    day: u64,
    at_ms: u64,
    spent: Vec<StoredScope>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredScope {
    #[serde(flatten)]
    scope: Scope,
    #[serde(flatten)]
    spent: Spent,
}

impl Meter {
    /// Reads the counts of an earlier bridge. An unreadable file counts as empty, and is reported.
    pub(super) fn open(path: &Path) -> (Self, Option<io::Error>) {
        let (stored, trouble) = match read(path) {
            Ok(stored) => (stored, None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (StoredUse::default(), None),
            Err(error) => (StoredUse::default(), Some(error)),
        };
        let today = now_ms() / DAY_MS;
        let mut day = Day { number: today, before_ms: stored.at_ms, ..Day::default() };
        if stored.day == today {
            day.spent = stored.spent.into_iter().map(|row| (row.scope, row.spent)).collect();
        }
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (Self(Arc::new(Inner { directory, file, day: Mutex::new(day) })), trouble)
    }

    fn day(&self) -> MutexGuard<'_, Day> {
        // Sums may be a spell short after a panic, and are never half-changed.
        self.0.day.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A machine runs from now on; one that an earlier bridge had ran meanwhile too.
    pub(super) fn begin(
        &self,
        record: &Record,
        output: Option<OutputCounter>,
        was_away: bool,
    ) -> RunTimer {
        let scopes = Caps::scopes(record.namespace.as_str(), record.key.as_deref());
        let mut day = self.day();
        if was_away {
            let now = now_ms();
            let midnight = day.number.saturating_mul(DAY_MS);
            let since = day.before_ms.max(record.created_at_ms).max(midnight);
            let run_ms = now.saturating_sub(since);
            day.add(&scopes, Spent { run_ms, output_bytes: 0 });
        }
        let number = day.next;
        day.next += 1;
        let bytes = output.as_ref().map_or(0, OutputCounter::bytes);
        let (which, since) = (record.which(), Instant::now());
        day.running.insert(number, Running { which, scopes, since, output, bytes });
        RunTimer { meter: self.clone(), number }
    }

    /// The usage of a scope today; `None` if it is not counted because there are too many.
    pub(super) fn spent(&self, scope: &Scope) -> Option<Spent> {
        let mut day = self.day();
        day.count();
        match day.spent.get(scope) {
            Some(spent) => Some(*spent),
            None => (day.spent.len() < METERED_SCOPES_MAX).then(Spent::default),
        }
    }

    /// Running sandboxes whose daily limit is reached.
    pub(super) fn exhausted(&self, caps: &Caps) -> Vec<(SandboxRef, ExpiryKind)> {
        let mut day = self.day();
        day.count();
        let why = |running: &Running| {
            running.scopes.iter().find_map(|scope| caps.is_spent(scope, *day.spent.get(scope)?))
        };
        let over = day.running.values().filter_map(|one| Some((one.which.clone(), why(one)?)));
        over.collect()
    }

    /// Saves the counts, if they have changed.
    pub(super) fn mark(&self) -> io::Result<()> {
        let mut day = self.day();
        day.count();
        if !std::mem::take(&mut day.is_changed) {
            return Ok(());
        }
        let row =
            |(scope, spent): (&Scope, &Spent)| StoredScope { scope: scope.clone(), spent: *spent };
        let stored = StoredUse {
            day: day.number,
            at_ms: now_ms(),
            spent: day.spent.iter().map(row).collect(),
        };
        drop(day);
        write_durably(&self.0.directory, &self.0.file, &serde_json::to_vec(&stored)?)
    }
}

impl Day {
    /// Adds the usage since the last call, all of it to the current day.
    fn count(&mut self) {
        let now = Instant::now();
        let mut running = std::mem::take(&mut self.running);
        for one in running.values_mut() {
            let used = one.take(now);
            self.add(&one.scopes, used);
        }
        self.running = running;
        let today = now_ms() / DAY_MS;
        if self.number != today {
            self.number = today;
            self.spent.clear();
            self.is_changed = true;
        }
    }

    fn add(&mut self, scopes: &[Scope], used: Spent) {
        if used == Spent::default() {
            return;
        }
        self.is_changed = true;
        for scope in scopes {
            if self.spent.len() >= METERED_SCOPES_MAX && !self.spent.contains_key(scope) {
                continue;
            }
            let spent = self.spent.entry(scope.clone()).or_default();
            spent.run_ms = spent.run_ms.saturating_add(used.run_ms);
            spent.output_bytes = spent.output_bytes.saturating_add(used.output_bytes);
        }
    }
}

impl Running {
    /// Its usage since the last call. A part of a millisecond is left for the next one.
    fn take(&mut self, now: Instant) -> Spent {
        let whole = now.saturating_duration_since(self.since).as_millis() as u64;
        self.since += std::time::Duration::from_millis(whole);
        let bytes = self.output.as_ref().map_or(0, OutputCounter::bytes);
        let output_bytes = bytes - std::mem::replace(&mut self.bytes, bytes);
        Spent { run_ms: whole, output_bytes }
    }
}

impl Drop for RunTimer {
    fn drop(&mut self) {
        let mut day = self.meter.day();
        day.count();
        day.running.remove(&self.number);
    }
}

fn read(path: &Path) -> io::Result<StoredUse> {
    let mut bytes = Vec::new();
    File::open(path)?.take(METER_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Spec;
    use crate::caps::Cap;
    use machine::SandboxId;

    fn record(which: &str, key: &str) -> Record {
        let mut spec = Spec::new(which.parse().unwrap());
        spec.key = Some(key.to_owned());
        Record::new(SandboxId::draw().unwrap(), &spec, now_ms())
    }

    fn place(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("burrow-meter-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        directory.join("usage.json")
    }

    #[tokio::test(start_paused = true)]
    async fn time_is_counted_while_a_machine_runs_for_its_namespace_and_its_key() {
        let (meter, _) = Meter::open(&place("time"));
        let (a, k) = (Scope::Namespace("a".to_owned()), Scope::Key("k".to_owned()));
        let run_ms = |scope| meter.spent(scope).unwrap().run_ms;
        let first = meter.begin(&record("a/x", "k"), None, false);
        tokio::time::advance(Duration::from_millis(700)).await;
        let second = meter.begin(&record("b/y", "k"), None, false);
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!((run_ms(&a), run_ms(&k)), (1000, 1300));
        drop(first);
        tokio::time::advance(Duration::from_millis(50)).await;
        assert_eq!((run_ms(&a), run_ms(&k)), (1000, 1350));
        drop(second);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!((run_ms(&a), run_ms(&k)), (1000, 1350));
    }

    #[tokio::test(start_paused = true)]
    async fn those_are_named_that_have_had_enough() {
        let (meter, _) = Meter::open(&place("enough"));
        let mut caps = Caps::default();
        caps.per_key.run_ms = Some(1000);
        let own = Cap { run_ms: Some(5000), ..Cap::default() };
        caps.keys.insert("large".to_owned(), own);
        let _spells = [record("a/x", "k"), record("a/y", "large")]
            .map(|record| meter.begin(&record, None, false));
        tokio::time::advance(Duration::from_millis(999)).await;
        assert_eq!(meter.exhausted(&caps), []);
        tokio::time::advance(Duration::from_millis(1)).await;
        let expected = ("a/x".parse().unwrap(), ExpiryKind::RunTime);
        assert_eq!(meter.exhausted(&caps), [expected]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_bridge_goes_on_from_what_is_written() {
        let path = place("next");
        let (meter, _) = Meter::open(&path);
        let record = record("a/x", "k");
        let timer = meter.begin(&record, None, false);
        tokio::time::advance(Duration::from_secs(2)).await;
        meter.mark().unwrap();
        // Killed: what is counted now is in no file.
        tokio::time::advance(Duration::from_secs(2)).await;
        let (next, trouble) = Meter::open(&path);
        assert!(trouble.is_none());
        let scope = Scope::Key("k".to_owned());
        assert_eq!(next.spent(&scope).unwrap().run_ms, 2000);
        // The one that is found ran meanwhile, by the wall clock, as far as that is of today.
        let marked_ms = now_ms() - 5000;
        next.day().before_ms = marked_ms;
        let mut found = record.clone();
        found.created_at_ms = marked_ms - 1;
        let _found = next.begin(&found, None, true);
        let away_ms = 5000.min(now_ms() % DAY_MS);
        let counted = next.spent(&scope).unwrap().run_ms;
        assert!(counted >= 2000 + away_ms, "{counted}");
        drop(timer);
        std::fs::write(&path, "{").unwrap();
        assert!(Meter::open(&path).1.is_some());
    }
}

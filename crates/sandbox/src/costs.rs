//! What sandboxes and namespaces have cost: CPU time, memory over time, bytes of disks and connections.
//!
//! The agents' counters are absolute. For each sandbox the last sample that was counted is kept in the same file
//! as the sums, which is replaced as a whole: so nothing is counted twice and nothing of a living sandbox is
//! missed, whenever a bridge is killed. The sums of a namespace are kept by the hour, and outlive its sandboxes.
//! Finished days are files of their own. What programs and runs have cost is counted beside it ([`programs`]).
//!
//! `telemetry` counts here; the registry reads and saves.

mod days;
mod programs;

use std::collections::BTreeMap;
use std::io;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::metrics::Sample;
use serde::{Deserialize, Serialize};

use crate::Record;
use crate::limits::COSTS_ROWS_MAX;
use crate::log::EndsPosition;
use days::{CURRENT, DayRow, Row};
use host::instant::{DAY_MS, now_ms};
use host::paths::{make_private_directory, write_durably};
use machine::SandboxId;

pub(crate) use programs::CountedEnd;
use programs::ProgramRows;
pub use programs::{APP_SESSION_PREFIX, ProgramCost, ProgramKey, ProgramKind, ProgramUse, sum};

pub(crate) const MS_PER_HOUR: u64 = 3_600_000;

/// The namespace under which the use of those is counted that are too many.
pub const OTHERS: &str = "(others)";

/// An amount of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// The time over which it was sampled.
    pub run_ms: u64,
    pub cpu_us: u64,
    /// Memory times time, in KiB and milliseconds.
    pub memory_kib_ms: u64,
    /// From and to block devices.
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Over connections to the outside.
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

impl Cost {
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu_us as f64 / 1e6
    }

    pub fn gib_seconds(&self) -> f64 {
        gib_seconds(self.memory_kib_ms)
    }
}

fn gib_seconds(kib_ms: u64) -> f64 {
    kib_ms as f64 / (1024.0 * 1024.0 * 1000.0)
}

impl AddAssign for Cost {
    fn add_assign(&mut self, more: Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.run_ms, more.run_ms);
        add(&mut self.cpu_us, more.cpu_us);
        add(&mut self.memory_kib_ms, more.memory_kib_ms);
        add(&mut self.read_bytes, more.read_bytes);
        add(&mut self.written_bytes, more.written_bytes);
        add(&mut self.sent_bytes, more.sent_bytes);
        add(&mut self.received_bytes, more.received_bytes);
    }
}

/// Whose use is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Payer {
    id: SandboxId,
    namespace: String,
}

impl Payer {
    pub fn of(record: &Record) -> Self {
        Self { id: record.id.clone(), namespace: record.namespace.to_string() }
    }
}

/// Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Costs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    book: Mutex<Book>,
    /// One reader or writer of the files at a time.
    files: Mutex<()>,
}

#[derive(Debug, Default)]
struct Book {
    /// By hour since 1970 and namespace.
    rows: BTreeMap<(u64, String), Cost>,
    programs: ProgramRows,
    accounts: BTreeMap<SandboxId, Account>,
    is_changed: bool,
}

/// A sandbox that there is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Account {
    #[serde(flatten)]
    cost: Cost,
    /// The last one that is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<Sample>,
    /// How far the ends of its programs and runs are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends: Option<EndsPosition>,
}

impl Costs {
    /// Reads what earlier bridges have counted, for the sandboxes that there still are. What is unreadable is set
    /// aside, and reported.
    pub fn open(
        directory: &Path,
        exists: impl Fn(&SandboxId) -> bool,
    ) -> (Self, Option<io::Error>) {
        let (stored, trouble) = days::open(directory);
        let accounts = stored
            .sandboxes
            .into_iter()
            .filter_map(|(id, account)| Some((id.parse().ok()?, account)));
        let book = Book {
            rows: stored.hours.into_iter().map(Row::split).collect(),
            programs: stored.programs.into_iter().map(ProgramUse::split).collect(),
            accounts: accounts.filter(|(id, _)| exists(id)).collect(),
            is_changed: false,
        };
        let (directory, files) = (directory.to_owned(), Mutex::default());
        (Self(Arc::new(Inner { directory, book: Mutex::new(book), files })), trouble)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Sums may be a sample short after a panic, and are never half-changed.
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> MutexGuard<'_, ()> {
        self.0.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last sample that is counted.
    pub fn last(&self, of: &Payer) -> Option<Sample> {
        self.book().accounts.get(&of.id)?.last
    }

    /// What comes is counted from this sample on.
    pub fn begin_at(&self, of: &Payer, sample: &Sample) {
        let mut book = self.book();
        book.accounts.entry(of.id.clone()).or_default().last = Some(*sample);
        book.is_changed = true;
    }

    /// The agent counts from nothing again.
    pub fn begin_again(&self, of: &Payer) {
        self.begin_at(of, &Sample::default());
    }

    /// Counts what was used up to a sample.
    pub fn count(&self, of: &Payer, sample: &Sample, more: Cost, at_ms: u64) {
        self.book().add(of, more, at_ms).last = Some(*sample);
    }

    pub fn count_carried(&self, of: &Payer, sent_bytes: u64, received_bytes: u64, at_ms: u64) {
        if sent_bytes > 0 || received_bytes > 0 {
            self.book().add(of, Cost { sent_bytes, received_bytes, ..Cost::default() }, at_ms);
        }
    }

    /// The sandbox is removed; its use stays counted for its namespace.
    pub fn forget(&self, of: &Payer) {
        let mut book = self.book();
        book.is_changed |= book.accounts.remove(&of.id).is_some();
    }

    /// What a sandbox has used since it was created.
    pub fn of_sandbox(&self, of: &Payer) -> Cost {
        self.book().accounts.get(&of.id).map(|account| account.cost).unwrap_or_default()
    }

    /// What namespaces have used in the hours that have a part between the two times. Reads files.
    pub fn of_namespaces(
        &self,
        namespace: Option<&str>,
        from_ms: u64,
        to_ms: u64,
    ) -> io::Result<BTreeMap<String, Cost>> {
        let hours = from_ms / MS_PER_HOUR..to_ms.div_ceil(MS_PER_HOUR);
        let _files = self.files();
        let current = self.book().rows.clone();
        let is_current = |day: u64| current.range((day * 24, String::new())..).next().is_some();
        let mut sums = BTreeMap::<String, Cost>::new();
        let mut add = |(hour, of): (u64, String), cost: Cost| {
            if hours.contains(&hour) && namespace.is_none_or(|wanted| wanted == of) {
                *sums.entry(of).or_default() += cost;
            }
        };
        // A day that was about to be moved into its own file is in both.
        let first_current = current.keys().next().map_or(u64::MAX, |(hour, _)| hour / 24);
        for day in days::list::<Row>(&self.0.directory)? {
            let is_wanted = day >= hours.start / 24 && day <= hours.end / 24;
            if is_wanted && (day < first_current || !is_current(day)) {
                for row in days::read::<Row>(&self.0.directory, day)? {
                    let (key, cost) = row.split();
                    add(key, cost);
                }
            }
        }
        for (key, cost) in current {
            add(key, cost);
        }
        Ok(sums)
    }

    /// How far the ends of a sandbox's programs and runs are counted; `None` before the first.
    pub fn ends_position(&self, of: &Payer) -> Option<EndsPosition> {
        self.book().accounts.get(&of.id)?.ends
    }

    /// Counts ends up to this position. Those of days that are in files of their own by now are of the first day that
    /// is not.
    pub fn count_ends(&self, of: &Payer, ends: Vec<CountedEnd>, reached: EndsPosition) {
        let first_open = first_open_day();
        let mut book = self.book();
        book.is_changed = true;
        let account = book.accounts.entry(of.id.clone()).or_default();
        let is_new = account.ends.replace(reached).is_none();
        for end in ends {
            let day = end.at_ms / DAY_MS;
            // Nobody knows what was counted of a sandbox whose account is lost, along with the sums of the open days.
            if !is_new || day >= first_open {
                programs::add(&mut book.programs, day.max(first_open), &of.namespace, end);
            }
        }
    }

    /// What programs, runs and apps have cost on the days that have a part between the two times. Reads files.
    pub fn of_programs(
        &self,
        namespace: Option<&str>,
        from_ms: u64,
        to_ms: u64,
    ) -> io::Result<Vec<ProgramUse>> {
        let wanted = from_ms / DAY_MS..to_ms.div_ceil(DAY_MS);
        let _files = self.files();
        let current = self.book().programs.clone();
        let mut rows = Vec::new();
        let is_wanted = |row: &ProgramUse| {
            wanted.contains(&row.of.day) && namespace.is_none_or(|of| of == row.of.namespace)
        };
        for day in days::list::<ProgramUse>(&self.0.directory)? {
            // A day that was about to be moved into its own file is in both.
            let is_current = || current.keys().any(|key| key.day == day);
            if wanted.contains(&day) && !is_current() {
                rows.extend(days::read::<ProgramUse>(&self.0.directory, day)?);
            }
        }
        rows.extend(current.into_iter().map(ProgramUse::of));
        rows.retain(is_wanted);
        Ok(sum(rows))
    }

    /// Saves the counts, if they have changed, and moves finished days into files of their own. Only one of
    /// two days ago is finished: what an agent has kept is counted later.
    pub fn mark(&self) -> io::Result<()> {
        let _files = self.files();
        let mut book = self.book();
        if !std::mem::take(&mut book.is_changed) {
            return Ok(());
        }
        let (rows, accounts) = (book.rows.clone(), book.accounts.clone());
        let programs = book.programs.clone();
        drop(book);
        let written = self.write(rows, programs, accounts);
        if written.is_err() {
            self.book().is_changed = true;
        }
        written
    }

    fn write(
        &self,
        mut rows: BTreeMap<(u64, String), Cost>,
        mut programs: ProgramRows,
        accounts: BTreeMap<SandboxId, Account>,
    ) -> io::Result<()> {
        let directory = &self.0.directory;
        make_private_directory(directory)?;
        let (today, first_open) = (now_ms() / DAY_MS, first_open_day());
        let first = (first_open * 24, String::new());
        let open = rows.split_off(&first);
        if !rows.is_empty() {
            days::archive::<Row>(directory, rows, today)?;
            let mut book = self.book();
            book.rows = book.rows.split_off(&first);
        }
        let is_open = |key: &ProgramKey| key.day >= first_open;
        let finished: ProgramRows = programs.extract_if(.., |key, _| !is_open(key)).collect();
        if !finished.is_empty() {
            days::archive::<ProgramUse>(directory, finished, today)?;
            self.book().programs.retain(|key, _| is_open(key));
        }
        let stored = days::Stored {
            hours: open.into_iter().map(Row::of).collect(),
            programs: programs.into_iter().map(ProgramUse::of).collect(),
            sandboxes: accounts
                .into_iter()
                .map(|(id, account)| (id.to_string(), account))
                .collect(),
        };
        write_durably(directory, CURRENT, &serde_json::to_vec(&stored)?)
    }
}

/// Days before this one are in files of their own, or about to be.
fn first_open_day() -> u64 {
    (now_ms() / DAY_MS).saturating_sub(1)
}

impl Book {
    /// Adds to the sandbox and to its namespace.
    fn add(&mut self, to: &Payer, more: Cost, at_ms: u64) -> &mut Account {
        self.is_changed = true;
        let mut row = (at_ms / MS_PER_HOUR, to.namespace.clone());
        if self.rows.len() >= COSTS_ROWS_MAX && !self.rows.contains_key(&row) {
            OTHERS.clone_into(&mut row.1);
        }
        *self.rows.entry(row).or_default() += more;
        let account = self.accounts.entry(to.id.clone()).or_default();
        account.cost += more;
        account
    }
}

#[cfg(test)]
mod tests;

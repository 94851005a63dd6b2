//! What programs, runs of contexts and apps have cost, by the day, the namespace and their name.
//!
//! Their ends are read from the files of each sandbox, from a position that is saved together with the sums: a bridge that
//! is killed counts again from what was saved.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use agent_client::guest::{ProgramEnd, Provenance, RunRecord};
use host::instant::{self, DAY_MS};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OTHERS, gib_seconds};
use crate::limits::{PROGRAM_NAMES_MAX, PROGRAM_ROWS_MAX};

/// The sessions of apps are named after this and the app: `app.NAME.ID`.
pub const APP_SESSION_PREFIX: &str = "app";

/// What has ended.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ProgramKind {
    /// A program; its name is the last part of its path.
    Command,
    /// A run of a context, under the context's name.
    Run,
    /// A web app.
    App,
}

/// Whose ends are summed up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProgramKey {
    /// Since 1970, by the host's clock in UTC.
    pub day: u64,
    pub namespace: String,
    pub kind: ProgramKind,
    pub name: String,
}

/// What ends have cost together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramCost {
    pub ends: u64,
    /// From each start to its end.
    pub run_us: u64,
    pub cpu_us: u64,
    /// The peak of each, times its time, in KiB and milliseconds.
    #[serde(default)]
    pub memory_kib_ms: u64,
    /// From and to block devices; not known of runs.
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// One row of the sums.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramUse {
    #[serde(flatten)]
    pub of: ProgramKey,
    #[serde(flatten)]
    pub cost: ProgramCost,
}

/// An end that is not counted yet.
#[derive(Debug)]
pub(crate) struct CountedEnd {
    pub at_ms: u64,
    kind: ProgramKind,
    name: String,
    cost: ProgramCost,
}

pub(super) type ProgramRows = BTreeMap<ProgramKey, ProgramCost>;

impl ProgramKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Run => "run",
            Self::App => "app",
        }
    }

    /// Whether bytes of block devices are known of it.
    pub fn has_bytes(self) -> bool {
        match self {
            Self::Command | Self::App => true,
            Self::Run => false,
        }
    }
}

impl ProgramKey {
    /// The day as a date.
    pub fn date(&self) -> String {
        let mut date = instant::format(self.day.saturating_mul(DAY_MS));
        date.truncate(date.find('T').unwrap_or(date.len()));
        date
    }
}

impl ProgramCost {
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu_us as f64 / 1e6
    }

    pub fn peak_gib_seconds(&self) -> f64 {
        gib_seconds(self.memory_kib_ms)
    }
}

/// Of a peak that may have been there all the time.
fn kib_ms(bytes_peak: u64, time_us: u64) -> u64 {
    let product = u128::from(bytes_peak) * u128::from(time_us) / (1024 * 1000);
    u64::try_from(product).unwrap_or(u64::MAX)
}

impl AddAssign for ProgramCost {
    fn add_assign(&mut self, more: Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.ends, more.ends);
        add(&mut self.run_us, more.run_us);
        add(&mut self.cpu_us, more.cpu_us);
        add(&mut self.memory_kib_ms, more.memory_kib_ms);
        add(&mut self.read_bytes, more.read_bytes);
        add(&mut self.written_bytes, more.written_bytes);
    }
}

impl CountedEnd {
    /// Nothing of what did not run.
    pub fn of(at_ms: u64, what: &Provenance) -> Option<Self> {
        match what {
            Provenance::Program(end) => Some(Self::of_program(at_ms, end)),
            Provenance::Run(run) => Some(Self::of_run(at_ms, run)),
            Provenance::File(_)
            | Provenance::InputBegun(_)
            | Provenance::Input(_)
            | Provenance::Unseen {} => None,
        }
    }

    fn of_program(at_ms: u64, end: &ProgramEnd) -> Self {
        let cost = ProgramCost {
            ends: 1,
            run_us: end.duration_us,
            cpu_us: end.cpu_us,
            memory_kib_ms: kib_ms(end.memory_bytes_peak, end.duration_us),
            read_bytes: end.read_bytes,
            written_bytes: end.written_bytes,
        };
        match app_of(end.session.as_str()) {
            Some(app) => Self { at_ms, kind: ProgramKind::App, name: app.to_owned(), cost },
            None => Self { at_ms, kind: ProgramKind::Command, name: end.program.clone(), cost },
        }
    }

    fn of_run(at_ms: u64, run: &RunRecord) -> Self {
        let finished = &run.finished;
        let cost = ProgramCost {
            ends: 1,
            run_us: finished.duration_us,
            cpu_us: finished.cpu_us.unwrap_or(0),
            memory_kib_ms: kib_ms(finished.memory_bytes_peak.unwrap_or(0), finished.duration_us),
            ..ProgramCost::default()
        };
        Self { at_ms, kind: ProgramKind::Run, name: run.context.to_string(), cost }
    }
}

/// The app whose session has this name.
fn app_of(session: &str) -> Option<&str> {
    let (app, _id) =
        session.strip_prefix(APP_SESSION_PREFIX)?.strip_prefix('.')?.rsplit_once('.')?;
    Some(app)
}

/// Adds an end to the row of its name, or, where there are too many, of all others.
pub(super) fn add(rows: &mut ProgramRows, day: u64, namespace: &str, end: CountedEnd) {
    let CountedEnd { kind, name, cost, .. } = end;
    let mut key = ProgramKey { day, namespace: namespace.to_owned(), kind, name };
    if !rows.contains_key(&key) && names_of(rows, &key) >= PROGRAM_NAMES_MAX {
        OTHERS.clone_into(&mut key.name);
    }
    if !rows.contains_key(&key) && rows.len() >= PROGRAM_ROWS_MAX {
        OTHERS.clone_into(&mut key.name);
        OTHERS.clone_into(&mut key.namespace);
    }
    *rows.entry(key).or_default() += cost;
}

/// How many rows the namespace has of this kind and day.
fn names_of(rows: &ProgramRows, key: &ProgramKey) -> usize {
    let first = ProgramKey { name: String::new(), ..key.clone() };
    let is_same = |other: &ProgramKey| {
        (other.day, &other.namespace, other.kind) == (key.day, &key.namespace, key.kind)
    };
    rows.range(first..).take_while(|(other, _)| is_same(other)).count()
}

/// Adds up rows of several files or nodes.
pub fn sum(rows: impl IntoIterator<Item = ProgramUse>) -> Vec<ProgramUse> {
    let mut sums = ProgramRows::new();
    for ProgramUse { of, cost } in rows {
        *sums.entry(of).or_default() += cost;
    }
    sums.into_iter().map(|(of, cost)| ProgramUse { of, cost }).collect()
}

//! The files of costs: the current one, and for each finished day one of namespaces and one of programs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::programs::{ProgramCost, ProgramKey, ProgramUse};
use super::{Account, Cost};
use crate::limits::{COSTS_BYTES_MAX, COSTS_DAYS_MAX};
use host::paths::write_durably;

pub(super) const CURRENT: &str = "current.json";
const SET_ASIDE: &str = "current.damaged";

/// The current file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Stored {
    pub hours: Vec<Row>,
    /// Absent in the files of bridges that did not count them.
    #[serde(default)]
    pub programs: Vec<ProgramUse>,
    pub sandboxes: BTreeMap<String, Account>,
}

/// What a namespace has used in one hour.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Row {
    /// Since 1970.
    hour: u64,
    namespace: String,
    #[serde(flatten)]
    cost: Cost,
}

/// A row of a day's file.
pub(super) trait DayRow: Serialize + DeserializeOwned {
    type Key: Ord;
    type Sum;
    /// What the names of the files end with, after the day.
    const SUFFIX: &'static str;

    fn day(key: &Self::Key) -> u64;
    fn of(row: (Self::Key, Self::Sum)) -> Self;
    fn split(self) -> (Self::Key, Self::Sum);
}

impl DayRow for Row {
    type Key = (u64, String);
    type Sum = Cost;
    const SUFFIX: &'static str = ".json";

    fn day((hour, _): &Self::Key) -> u64 {
        hour / 24
    }

    fn of(((hour, namespace), cost): (Self::Key, Cost)) -> Self {
        Self { hour, namespace, cost }
    }

    fn split(self) -> (Self::Key, Cost) {
        ((self.hour, self.namespace), self.cost)
    }
}

impl DayRow for ProgramUse {
    type Key = ProgramKey;
    type Sum = ProgramCost;
    const SUFFIX: &'static str = ".programs.json";

    fn day(key: &ProgramKey) -> u64 {
        key.day
    }

    fn of((of, cost): (ProgramKey, ProgramCost)) -> Self {
        Self { of, cost }
    }

    fn split(self) -> (ProgramKey, ProgramCost) {
        (self.of, self.cost)
    }
}

/// The current file. One that cannot be read is set aside.
pub(super) fn open(directory: &Path) -> (Stored, Option<io::Error>) {
    let path = directory.join(CURRENT);
    match parse(&path) {
        Ok(stored) => (stored, None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (Stored::default(), None),
        Err(error) => {
            let _ = fs::rename(&path, directory.join(SET_ASIDE));
            (Stored::default(), Some(error))
        }
    }
}

/// The finished days that there are, as days since 1970.
pub(super) fn list<R: DayRow>(directory: &Path) -> io::Result<Vec<u64>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.strip_suffix(R::SUFFIX)?.parse().ok()).collect())
}

pub(super) fn read<R: DayRow>(directory: &Path, day: u64) -> io::Result<Vec<R>> {
    parse(&directory.join(file_name::<R>(day)))
}

fn file_name<R: DayRow>(day: u64) -> String {
    format!("{day}{}", R::SUFFIX)
}

/// Writes the files of finished days, and removes those that are too old. A row that is there already was
/// written by a bridge that was killed before it had saved the rest, and is the same.
pub(super) fn archive<R: DayRow>(
    directory: &Path,
    rows: BTreeMap<R::Key, R::Sum>,
    today: u64,
) -> io::Result<()> {
    let mut by_day = BTreeMap::<u64, Vec<R>>::new();
    for (key, sum) in rows {
        by_day.entry(R::day(&key)).or_default().push(R::of((key, sum)));
    }
    for (day, rows) in by_day {
        let mut all: BTreeMap<_, _> = match read::<R>(directory, day) {
            Ok(known) => known.into_iter().map(R::split).collect(),
            Err(_) => BTreeMap::new(),
        };
        all.extend(rows.into_iter().map(R::split));
        let rows: Vec<R> = all.into_iter().map(R::of).collect();
        write_durably(directory, &file_name::<R>(day), &serde_json::to_vec(&rows)?)?;
    }
    for day in list::<R>(directory)? {
        if day + COSTS_DAYS_MAX < today {
            fs::remove_file(directory.join(file_name::<R>(day)))?;
        }
    }
    Ok(())
}

fn parse<T: for<'a> Deserialize<'a>>(path: &Path) -> io::Result<T> {
    let mut bytes = Vec::new();
    File::open(path)?.take(COSTS_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

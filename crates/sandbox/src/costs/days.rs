//! The files of costs: the current one, and one for each finished day.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Account, Cost};
use crate::limits::{COSTS_BYTES_MAX, COSTS_DAYS_MAX};
use host::paths::write_durably;

pub(super) const CURRENT: &str = "current.json";
const SET_ASIDE: &str = "current.damaged";
const SUFFIX: &str = ".json";

/// The current file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Stored {
    pub hours: Vec<Row>,
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

impl Row {
    pub fn of(((hour, namespace), cost): ((u64, String), Cost)) -> Self {
        Self { hour, namespace, cost }
    }

    pub fn split(self) -> ((u64, String), Cost) {
        ((self.hour, self.namespace), self.cost)
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
pub(super) fn list(directory: &Path) -> io::Result<Vec<u64>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.strip_suffix(SUFFIX)?.parse().ok()).collect())
}

pub(super) fn read(directory: &Path, day: u64) -> io::Result<Vec<Row>> {
    parse(&directory.join(format!("{day}{SUFFIX}")))
}

/// Writes the files of finished days, and removes those that are too old. A row that is there already was
/// written by a bridge that was killed before it had saved the rest, and is the same.
pub(super) fn archive(
    directory: &Path,
    rows: BTreeMap<(u64, String), Cost>,
    today: u64,
) -> io::Result<()> {
    let mut by_day = BTreeMap::<u64, Vec<Row>>::new();
    for (key, cost) in rows {
        by_day.entry(key.0 / 24).or_default().push(Row::of((key, cost)));
    }
    for (day, rows) in by_day {
        let mut all: BTreeMap<_, _> = match read(directory, day) {
            Ok(known) => known.into_iter().map(Row::split).collect(),
            Err(_) => BTreeMap::new(),
        };
        all.extend(rows.into_iter().map(Row::split));
        let rows: Vec<Row> = all.into_iter().map(Row::of).collect();
        write_durably(directory, &format!("{day}{SUFFIX}"), &serde_json::to_vec(&rows)?)?;
    }
    for day in list(directory)? {
        if day + COSTS_DAYS_MAX < today {
            fs::remove_file(directory.join(format!("{day}{SUFFIX}")))?;
        }
    }
    Ok(())
}

fn parse<T: for<'a> Deserialize<'a>>(path: &Path) -> io::Result<T> {
    let mut bytes = Vec::new();
    File::open(path)?.take(COSTS_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

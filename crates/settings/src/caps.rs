//! `[caps]`: limits of namespaces and keys. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use sandbox::caps::{Cap, Caps};

use super::limits::{ENTRIES_MAX, MEMORY_MIB_MAX};
use super::shown::{quote, show_cpus};
use super::value::{InvalidValue, RawValue, show_duration, show_size};
use host::similar::nearest;

const TABLES: [&str; 4] = ["per_namespace", "per_key", "namespace", "key"];
const KEYS: [&str; 7] =
    ["sandboxes", "memory_mib", "cpus", "disk", "ttl", "run_time_per_day", "output_per_day"];
const SANDBOXES_MAX: u64 = 1_000_000;

/// Sets `caps.<key>`.
pub fn set(caps: &mut Caps, key: &str, given: &RawValue) -> Result<(), InvalidValue> {
    match key {
        "per_namespace" => caps.per_namespace = read(given)?,
        "per_key" => caps.per_key = read(given)?,
        "namespace" => caps.namespaces = read_all(given)?,
        "key" => caps.keys = read_all(given)?,
        _ => {
            let meant = nearest(key, TABLES);
            return Err(InvalidValue::Key { key: key.to_owned(), known: &TABLES, meant });
        }
    }
    Ok(())
}

/// The tables that set something: their headings, the keys that they come from, and their lines.
pub fn show(caps: &Caps) -> Vec<(String, &'static str, Vec<String>)> {
    let named = |kind: &'static str, all: &BTreeMap<String, Cap>| {
        let table =
            |(name, cap): (&String, &Cap)| (format!("{kind}.{}", quote(name)), kind, lines(cap));
        all.iter().map(table).collect::<Vec<_>>()
    };
    let mut tables = vec![
        ("per_namespace".to_owned(), "per_namespace", lines(&caps.per_namespace)),
        ("per_key".to_owned(), "per_key", lines(&caps.per_key)),
    ];
    tables.retain(|(_, _, lines)| !lines.is_empty());
    tables.extend(named("namespace", &caps.namespaces));
    tables.extend(named("key", &caps.keys));
    tables
}

fn lines(cap: &Cap) -> Vec<String> {
    let shown = |ms| quote(show_duration(Duration::from_millis(ms)));
    let lines = [
        cap.sandboxes.map(|count| format!("sandboxes = {count}")),
        cap.memory_mib.map(|mib| format!("memory_mib = {mib}")),
        cap.cpu_millis.map(|millis| {
            // No more is read than a number of this kind holds.
            let millis = u32::try_from(millis).unwrap_or(u32::MAX);
            format!("cpus = {}", show_cpus(millis))
        }),
        cap.disk_bytes.map(|bytes| format!("disk = {}", quote(show_size(bytes)))),
        cap.ttl_ms.map(|ms| format!("ttl = {}", shown(ms))),
        cap.run_ms.map(|ms| format!("run_time_per_day = {}", shown(ms))),
        cap.output_bytes.map(|bytes| format!("output_per_day = {}", quote(show_size(bytes)))),
    ];
    lines.into_iter().flatten().collect()
}

fn read_all(given: &RawValue) -> Result<BTreeMap<String, Cap>, InvalidValue> {
    let table = given.table()?;
    if table.len() > ENTRIES_MAX {
        return Err(InvalidValue::TooMany { entries_max: ENTRIES_MAX });
    }
    let inside =
        |name: &String, wrong| InvalidValue::Inside { key: name.clone(), wrong: Box::new(wrong) };
    let entry = |(name, given): &(String, RawValue)| {
        read(given).map(|cap| (name.clone(), cap)).map_err(|wrong| inside(name, wrong))
    };
    table.iter().map(entry).collect()
}

fn read(given: &RawValue) -> Result<Cap, InvalidValue> {
    let mut cap = Cap::default();
    for (key, value) in given.table()? {
        let inside = |wrong| InvalidValue::Inside { key: key.clone(), wrong: Box::new(wrong) };
        match key.as_str() {
            "sandboxes" => cap.sandboxes = Some(value.whole(0, SANDBOXES_MAX).map_err(inside)?),
            "memory_mib" => {
                cap.memory_mib = Some(value.whole(0, MEMORY_MIB_MAX).map_err(inside)?);
            }
            "cpus" => cap.cpu_millis = Some(value.cpu_millis().map_err(inside)?.into()),
            "disk" => cap.disk_bytes = Some(value.bytes(0, u64::MAX).map_err(inside)?),
            "ttl" => {
                let ttl = value.duration(Duration::from_secs(1)).map_err(inside)?;
                cap.ttl_ms = Some(millis(ttl));
            }
            "run_time_per_day" => {
                let time = value.duration(Duration::from_secs(1)).map_err(inside)?;
                cap.run_ms = Some(millis(time));
            }
            "output_per_day" => {
                cap.output_bytes = Some(value.bytes(0, u64::MAX).map_err(inside)?);
            }
            _ => {
                let meant = nearest(key, KEYS);
                return Err(InvalidValue::Key { key: key.clone(), known: &KEYS, meant });
            }
        }
    }
    Ok(cap)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

//! `[workspaces.NAME]`: a directory or bucket that sandboxes may work on, and which changes are
//! copied back. Pure.

use super::buckets;
use super::secrets::{read_path, read_reach, show_reach};
use super::shown::{quote, quote_all};
use super::value::{InvalidValue, RawValue, show_size};
use host::similar::nearest;
use workspace::limits::{BYTES_MAX, ENTRIES_MAX, WRITE_PREFIXES_MAX};
use workspace::{Entry, Policy, parse_prefix};

/// All keys of such a table.
const KEYS: [&str; 17] = [
    "path",
    "namespaces",
    "mount",
    "read_only",
    "write",
    "file_bytes_max",
    "total_bytes_max",
    "entries_max",
    "bucket",
    "endpoint",
    "region",
    "prefix",
    "path_style",
    "access_key",
    "secret_key",
    "session_token",
    "ca",
];

/// Limits that have no effect on a mounted directory.
const LIMITS: [&str; 3] = ["file_bytes_max", "total_bytes_max", "entries_max"];

/// Reads the table of one workspace.
pub fn read(given: &RawValue) -> Result<Entry, InvalidValue> {
    let (mut path, mut reach, mut policy) = (None, None, Policy::default());
    let mut bucket = buckets::BucketKeys::default();
    for (key, value) in given.table()? {
        if let Some(taken) = bucket.take(key, value) {
            taken.map_err(|wrong| InvalidValue::Inside {
                key: key.clone(),
                wrong: Box::new(wrong),
            })?;
            continue;
        }
        let read = match key.as_str() {
            "path" => read_path(value).map(|read| path = Some(read)),
            "namespaces" => read_reach(value).map(|read| reach = Some(read)),
            "mount" => value.truth().map(|read| policy.mount = read),
            "read_only" => value.truth().map(|read| policy.read_only = read),
            "write" => read_prefixes(value).map(|read| policy.write = read),
            "file_bytes_max" => value.bytes(1, BYTES_MAX).map(|read| policy.file_bytes_max = read),
            "total_bytes_max" => {
                value.bytes(1, BYTES_MAX).map(|read| policy.total_bytes_max = read)
            }
            "entries_max" => value.whole(1, ENTRIES_MAX).map(|read| policy.entries_max = read),
            _ => {
                let meant = nearest(key, KEYS);
                return Err(InvalidValue::Key { key: key.clone(), known: &KEYS, meant });
            }
        };
        read.map_err(|wrong| InvalidValue::Inside { key: key.clone(), wrong: Box::new(wrong) })?;
    }
    let is_limit = |(key, _): &&(String, RawValue)| LIMITS.contains(&key.as_str());
    if let Some((key, _)) = given.table()?.iter().find(is_limit).filter(|_| policy.mount) {
        return Err(InvalidValue::MountLimit { key: key.clone() });
    }
    let (path, bucket) = match (path, bucket.bucket()?) {
        (Some(_), Some(_)) => return Err(InvalidValue::WorkspaceTwice),
        (None, None) => return Err(InvalidValue::WorkspacePath),
        (None, Some(_)) if policy.mount => return Err(InvalidValue::MountBucket),
        (path, bucket) => (path.unwrap_or_default(), bucket),
    };
    let reach = reach.ok_or(InvalidValue::Namespaces)?;
    Ok(Entry { path, bucket, reach, policy })
}

/// The lines of such a table.
pub fn show(entry: &Entry) -> Vec<String> {
    let Policy { mount, read_only, write, file_bytes_max, total_bytes_max, entries_max } =
        &entry.policy;
    let mut lines = match &entry.bucket {
        Some(bucket) => buckets::show(bucket),
        None => vec![format!("path = {}", quote(entry.path.to_string_lossy()))],
    };
    lines.extend([
        format!("namespaces = {}", show_reach(&entry.reach)),
        format!("mount = {mount}"),
        format!("read_only = {read_only}"),
        format!("write = {}", quote_all(write)),
    ]);
    let limits = [
        format!("file_bytes_max = {}", quote(show_size(*file_bytes_max))),
        format!("total_bytes_max = {}", quote(show_size(*total_bytes_max))),
        format!("entries_max = {entries_max}"),
    ];
    lines.extend(limits.into_iter().filter(|_| !mount));
    lines
}

fn read_prefixes(value: &RawValue) -> Result<Vec<String>, InvalidValue> {
    let texts = value.texts()?;
    if texts.len() > WRITE_PREFIXES_MAX {
        return Err(InvalidValue::TooMany { entries_max: WRITE_PREFIXES_MAX });
    }
    let read = |text: &str| parse_prefix(text).ok_or_else(|| InvalidValue::Prefix(text.to_owned()));
    texts.into_iter().map(read).collect()
}

//! Reads the log: queries, followers, and the check of the chain. Readers take no lock: lines are
//! only ever appended, and an incomplete last line is ignored.

use std::io;
use std::path::Path;

use super::entry::{Outcome, Record};
use super::segment::{Segment, digest_of, lines, parse, segments};
use host::instant;

/// The records that are wanted. An absent field matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub since_ms: Option<u64>,
    pub until_ms: Option<u64>,
    pub namespace: Option<String>,
    pub sandbox: Option<String>,
    /// A key's id or label, a user's name or number, or a kind of them.
    pub who: Option<String>,
    pub operation: Option<String>,
    pub outcome: Option<Outcome>,
    /// Those with a greater number.
    pub after: Option<u64>,
}

impl Filter {
    pub fn matches(&self, record: &Record) -> bool {
        let entry = &record.entry;
        let is = |wanted: &Option<String>, found: Option<&String>| {
            wanted.as_ref().is_none_or(|wanted| found == Some(wanted))
        };
        // Of a sandbox, the name and the id are both looked for.
        let sandbox =
            is(&self.sandbox, entry.sandbox.as_ref()) || is(&self.sandbox, entry.id.as_ref());
        self.after.is_none_or(|after| record.seq > after)
            && self.since_ms.is_none_or(|since| record.time >= instant::format(since))
            && self.until_ms.is_none_or(|until| record.time < instant::format(until))
            && is(&self.namespace, entry.namespace.as_ref())
            && sandbox
            && is(&self.operation, Some(&entry.operation))
            && self.who.as_ref().is_none_or(|who| entry.who.is(who))
            && self.outcome.is_none_or(|outcome| entry.outcome == outcome)
    }
}

/// Files without a record that is wanted by its number are not opened.
fn relevant(directory: &Path, after: Option<u64>) -> io::Result<Vec<Segment>> {
    let segments = segments(directory)?;
    let next = after.unwrap_or(0) + 1;
    let begin = segments.iter().rposition(|segment| segment.first <= next).unwrap_or(0);
    Ok(segments[begin.min(segments.len())..].to_vec())
}

/// The content of a file; empty if the file was removed meanwhile.
fn content(segment: &Segment) -> io::Result<Vec<u8>> {
    match segment.read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

/// The first records that match, at most so many, by their numbers. With `newest`, the last ones.
pub fn read(
    directory: &Path,
    filter: &Filter,
    limit: usize,
    newest: bool,
) -> io::Result<Vec<Record>> {
    let mut segments = relevant(directory, filter.after)?;
    if newest {
        segments.reverse();
    }
    let mut found: Vec<Record> = Vec::new();
    for segment in segments {
        let bytes = content(&segment)?;
        let matching = lines(&bytes).filter_map(parse).filter(|record| filter.matches(record));
        if newest {
            let mut here: Vec<_> = matching.collect();
            here.drain(..here.len().saturating_sub(limit - found.len()));
            here.append(&mut found);
            found = here;
        } else {
            found.extend(matching.take(limit - found.len()));
        }
        if found.len() >= limit {
            break;
        }
    }
    Ok(found)
}

/// The records since the last call, which `filter.after` remembers.
pub fn follow(directory: &Path, filter: &mut Filter) -> io::Result<Vec<Record>> {
    let everything = Filter { after: filter.after, ..Filter::default() };
    let mut new = read(directory, &everything, usize::MAX, false)?;
    filter.after = new.last().map(|record| record.seq).or(filter.after);
    let wanted = Filter { after: None, ..filter.clone() };
    new.retain(|record| wanted.matches(record));
    Ok(new)
}

/// The result of verifying a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub records: u64,
    /// The records among them with a digest of the one before.
    pub chained: u64,
    pub first: Option<u64>,
    pub last: Option<u64>,
    /// The digest of the last line. Stored elsewhere, it proves the whole log.
    pub digest: Option<String>,
    pub fault: Option<Fault>,
}

/// The first thing that is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("{file}, line {line} is not a record")]
    NotARecord { file: String, line: usize },
    #[error("{file}, line {line} has the number {found}, but {expected} was expected")]
    Number { file: String, line: usize, found: u64, expected: u64 },
    #[error("{file}, line {line} does not match the digest of the line before it")]
    Chain { file: String, line: usize },
    #[error("{file}, line {line} has no digest of the line before it, but earlier lines do")]
    Unchained { file: String, line: usize },
}

/// Compares every record with the one before it, until one does not match.
pub fn verify(directory: &Path) -> io::Result<Verified> {
    let mut seen = Verified::default();
    let mut is_chained = false;
    for segment in segments(directory)? {
        let bytes = content(&segment)?;
        for (at, text) in lines(&bytes).enumerate() {
            let file = segment.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let line = at + 1;
            let Some(record) = parse(text) else {
                seen.fault = Some(Fault::NotARecord { file, line });
                return Ok(seen);
            };
            // Who takes the chain away says so in a record of its own.
            let says = record.entry.facts.get("chain").and_then(serde_json::Value::as_bool);
            let expected = seen.last.map_or(record.seq, |last| last + 1);
            let fault = if record.seq != expected {
                Some(Fault::Number { file, line, found: record.seq, expected })
            } else if record.prev.is_some() && seen.digest.is_some() && record.prev != seen.digest {
                Some(Fault::Chain { file, line })
            } else if record.prev.is_none() && is_chained && says != Some(false) {
                Some(Fault::Unchained { file, line })
            } else {
                None
            };
            if fault.is_some() {
                seen.fault = fault;
                return Ok(seen);
            }
            is_chained = says.unwrap_or(is_chained || record.prev.is_some());
            seen.records += 1;
            seen.chained += u64::from(record.prev.is_some());
            seen.first = seen.first.or(Some(record.seq));
            (seen.last, seen.digest) = (Some(record.seq), Some(digest_of(text)));
        }
    }
    Ok(seen)
}

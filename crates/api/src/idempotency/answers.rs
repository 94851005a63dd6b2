//! The answers to idempotent calls on disk: one file each, in the state directory.
//!
//! An answer is durable before its client gets it, so that a bridge that is killed after it still
//! knows it. What cannot be read is removed: the call is then carried out again, and the names of what
//! it makes refuse a second one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use host::hex::digits;
use host::paths::{make_private_directory, write_durably};
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::{Answer, Fingerprint, Mark};
use crate::limits::{IDEMPOTENT_ANSWER_BYTES_MAX, IDEMPOTENT_CALLS_MAX};

/// The suffix of a file's name, after the digest of its call.
const EXTENSION: &str = "json";
/// A file may have so many bytes: escapes of JSON make a text up to six times as long, and what else is
/// said is short.
const FILE_BYTES_MAX: u64 = 6 * IDEMPOTENT_ANSWER_BYTES_MAX as u64 + 64 * 1024;

/// The directory of the answers.
#[derive(Debug)]
pub struct AnswerFiles(PathBuf);

/// An answer as it is in its file.
#[derive(Debug, Serialize, Deserialize)]
struct File {
    caller: String,
    key: String,
    fingerprint: Fingerprint,
    since_ms: u64,
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

/// The content of a file.
#[derive(Debug)]
pub struct Known {
    pub mark: Mark,
    pub fingerprint: Fingerprint,
    pub since_ms: u64,
    pub answer: Answer,
}

impl AnswerFiles {
    pub fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// All that are there, the oldest first. Files that are none, and those that `is_over` names, are
    /// removed.
    pub fn read_all(&self, is_over: impl Fn(u64) -> bool) -> Vec<Known> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut all = Vec::new();
        // Twice as many as there can be: what a crash left beside them is removed, too.
        for path in entries.map(|entry| entry.path()).take(2 * IDEMPOTENT_CALLS_MAX) {
            match read(&path).filter(|known| !is_over(known.since_ms)) {
                Some(known) => all.push(known),
                None => drop(fs::remove_file(&path)),
            }
        }
        all.sort_by_key(|known| known.since_ms);
        all
    }

    /// Writes an answer durably. One that is no text is not kept over a restart.
    pub fn write(
        &self,
        mark: &Mark,
        fingerprint: Fingerprint,
        since_ms: u64,
        answer: &Answer,
    ) -> io::Result<()> {
        let Ok(body) = String::from_utf8(answer.body.to_vec()) else { return Ok(()) };
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.to_string(), value.to_str().ok()?.to_owned()))
        };
        let file = File {
            caller: mark.0.clone(),
            key: mark.1.clone(),
            fingerprint,
            since_ms,
            status: answer.status.as_u16(),
            headers: answer.headers.iter().filter_map(text).collect(),
            body,
        };
        make_private_directory(&self.0)?;
        write_durably(&self.0, &name_of(mark), &serde_json::to_vec(&file)?)
    }

    pub fn remove(&self, mark: &Mark) {
        // One that stays is removed when it is too old.
        let _ = fs::remove_file(self.0.join(name_of(mark)));
    }
}

/// Whatever callers and keys are called, this is a name for a file.
fn name_of((caller, key): &Mark) -> String {
    let mut digest = Context::new(&SHA256);
    for part in [caller, key] {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    format!("{}.{EXTENSION}", digits(digest.finish().as_ref()))
}

fn read(path: &Path) -> Option<Known> {
    let is_fit = fs::metadata(path).is_ok_and(|found| found.len() <= FILE_BYTES_MAX);
    let bytes = is_fit.then(|| fs::read(path).ok()).flatten()?;
    let file: File = serde_json::from_slice(&bytes).ok()?;
    let mark = (file.caller, file.key);
    if path.file_name()?.to_str()? != name_of(&mark) {
        return None;
    }
    let mut headers = HeaderMap::new();
    for (name, value) in file.headers {
        headers.append(HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?);
    }
    let status = StatusCode::from_u16(file.status).ok()?;
    let answer = Answer { status, headers, body: file.body.into() };
    Some(Known { mark, fingerprint: file.fingerprint, since_ms: file.since_ms, answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let name = format!("burrow-answers-{name}-{}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&directory);
            Self(directory)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn answer(body: &str) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        Answer { status: StatusCode::CREATED, headers, body: body.to_owned().into() }
    }

    fn mark(key: &str) -> Mark {
        ("key a".to_owned(), key.to_owned())
    }

    #[test]
    fn an_answer_reads_back_as_it_was_written_and_the_oldest_is_first() {
        let directory = Directory::new("back");
        let files = AnswerFiles::new(directory.0.clone());
        files.write(&mark("../b\n"), [2; 32], 20, &answer("{\"ä\":\"\\\"\"}")).unwrap();
        files.write(&mark("a"), [1; 32], 10, &answer("")).unwrap();
        files.write(&mark("old"), [1; 32], 1, &answer("")).unwrap();
        let all = files.read_all(|since_ms| since_ms < 10);
        assert_eq!(all.iter().map(|known| known.since_ms).collect::<Vec<_>>(), [10, 20]);
        let (last, expected) = (&all[1], answer("{\"ä\":\"\\\"\"}"));
        assert_eq!((&last.mark, last.fingerprint), (&mark("../b\n"), [2; 32]));
        assert_eq!(last.answer.status, expected.status);
        assert_eq!((&last.answer.headers, &last.answer.body), (&expected.headers, &expected.body));
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 2, "what is over is removed");
        files.remove(&mark("a"));
        assert_eq!(files.read_all(|_| false).len(), 1);
    }

    #[test]
    fn a_damaged_file_is_removed_and_costs_its_answer_alone() {
        let directory = Directory::new("damaged");
        let files = AnswerFiles::new(directory.0.clone());
        for key in ["a", "b"] {
            files.write(&mark(key), [1; 32], 10, &answer("{}")).unwrap();
        }
        fs::write(directory.0.join(name_of(&mark("a"))), "{\"caller\":").unwrap();
        fs::write(directory.0.join("left.new"), "").unwrap();
        let all = files.read_all(|_| false);
        assert_eq!(all.iter().map(|known| &known.mark).collect::<Vec<_>>(), [&mark("b")]);
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 1);
    }
}

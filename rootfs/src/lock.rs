//! Locks: the packages of a recipe, each with the digest that it must have.
//!
//! `rootfs lock` writes them, and `build` fetches exactly what they list. They are text in columns,
//! sorted, so that a change of one package is a change of one line.

use std::io;
use std::path::{Component, Path, PathBuf};

use crate::digest::Sha256;

/// The columns, as the first line of a lock names them.
const COLUMNS: &str = "# name version archive bytes sha256 path";

/// Which of Debian's archives has a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Archive {
    Main,
    Security,
}

impl Archive {
    pub fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Security => "security",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Main, Self::Security].into_iter().find(|archive| archive.name() == name)
    }
}

/// One package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin {
    pub name: String,
    pub version: String,
    pub archive: Archive,
    pub bytes: u64,
    pub sha256: Sha256,
    /// Below the archive's address.
    pub path: String,
}

/// All packages of a recipe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// When the archive's index was made, in seconds since 1970; the time of all files.
    pub date_s: u64,
    pub pins: Vec<Pin>,
}

/// Why a lock cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{path}: {source}; make it with `rootfs lock {name}`")]
    Missing { path: PathBuf, name: String, source: io::Error },
    #[error("cannot parse line {line} of the lock; write it again with `rootfs lock`")]
    Syntax { line: usize },
}

impl Lock {
    /// Reads the lock of a recipe.
    pub fn read(directory: &Path, name: &str) -> Result<Self, LockError> {
        let path = directory.join(format!("{name}.lock"));
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text),
            Err(source) => Err(LockError::Missing { path, name: name.to_owned(), source }),
        }
    }

    pub fn parse(text: &str) -> Result<Self, LockError> {
        let mut lock = Self::default();
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let syntax = || LockError::Syntax { line: index + 1 };
            if let Some(date) = line.strip_prefix("date ") {
                lock.date_s = date.parse().map_err(|_| syntax())?;
            } else {
                lock.pins.push(parse_pin(line).ok_or_else(syntax)?);
            }
        }
        lock.pins.sort_unstable();
        Ok(lock)
    }

    /// The text of the lock.
    pub fn encode(&self) -> String {
        let mut pins = self.pins.clone();
        pins.sort_unstable();
        let mut text = format!("{COLUMNS}\ndate {}\n", self.date_s);
        for Pin { name, version, archive, bytes, sha256, path } in pins {
            let archive = archive.name();
            let (bytes, sha256) = (bytes.to_string(), sha256.to_string());
            text += &[&*name, &version, archive, &bytes, &sha256, &path].join(" ");
            text.push('\n');
        }
        text
    }
}

fn parse_pin(line: &str) -> Option<Pin> {
    let mut columns = line.split(' ');
    let pin = Pin {
        name: columns.next()?.to_owned(),
        version: columns.next()?.to_owned(),
        archive: Archive::from_name(columns.next()?)?,
        bytes: columns.next()?.parse().ok()?,
        sha256: columns.next()?.parse().ok()?,
        path: columns.next()?.to_owned(),
    };
    let inside = Path::new(&pin.path).components().all(|part| matches!(part, Component::Normal(_)));
    (columns.next().is_none() && inside).then_some(pin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_the_same_after_writing_and_reading_it() {
        let pin = |name: &str, archive| Pin {
            name: name.into(),
            version: "1:2-3".into(),
            archive,
            bytes: 5,
            sha256: Sha256([0xab; 32]),
            path: format!("pool/{name}.deb"),
        };
        let pins = vec![pin("b", Archive::Main), pin("a", Archive::Security)];
        let lock = Lock { date_s: 12, pins };
        let read = Lock::parse(&lock.encode()).expect("a lock");
        assert_eq!(read.pins.iter().map(|pin| &*pin.name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(read.encode(), lock.encode());
    }

    #[test]
    fn broken_lines_and_paths_that_climb_are_refused() {
        let digest = "0".repeat(64);
        for line in [
            "a 1 main 5".to_owned(),
            format!("a 1 other 5 {digest} pool/a.deb"),
            format!("a 1 main 5 {digest} ../a.deb"),
            format!("a 1 main 5 {digest} /a.deb"),
            format!("a 1 main 5 {digest} pool/a.deb more"),
            "a 1 main 5 00 pool/a.deb".to_owned(),
        ] {
            assert!(matches!(Lock::parse(&line), Err(LockError::Syntax { line: 1 })), "{line}");
        }
    }
}

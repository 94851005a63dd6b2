//! The codec against GNU tar and Python's `tarfile`, in both directions: the common part of both
//! comparisons. A missing program skips the test with a message.

mod gnu;
mod python;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Entry, Kind, Member, entry, file};

/// The largest time of a ustar header is a year 2242; this is later.
const LATE_S: i64 = 9_000_000_000;

/// A directory of one test, gone when the test is.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("burrow-tar-{}-{test}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that stays behind fails no test.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_missing(program: &str) -> bool {
    let missing = Command::new(program).arg("--version").output().is_err();
    if missing {
        eprintln!("skipped: no {program} on this machine");
    }
    missing
}

/// The standard output of a program that must succeed.
fn run(command: &mut Command) -> Vec<u8> {
    let output = command.env("LC_ALL", "C.UTF-8").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn with_time((entry, content): Member, mtime_s: i64, mtime_ns: u32) -> Member {
    (Entry { mtime_s, mtime_ns, ..entry }, content)
}

/// One of everything that a file system can contain and an archive encodes in a special way.
fn specimens() -> Vec<Member> {
    let split = format!("{0}/{0}/{0}", "s".repeat(70));
    let long = format!("{0}/{0}/{0}/ü", "l".repeat(200));
    let empty = |path: &str, kind| (entry(path, kind), Vec::new());
    let link = |path: &str, target: &str| {
        empty(path, Kind::Symlink { target: target.as_bytes().to_vec() })
    };
    let hard = |path: &str, target: &str| {
        empty(path, Kind::HardLink { target: target.as_bytes().to_vec() })
    };
    vec![
        (Entry { mode: 0o2750, ..entry("dir", Kind::Directory) }, Vec::new()),
        (Entry { mode: 0o4755, ..entry("dir/empty", Kind::File { size: 0 }) }, Vec::new()),
        file("dir/plain", &[7; 600]),
        file(split.clone(), &[8; 512]),
        file(long.clone(), b"deep"),
        file("ünï/日本語 🦀", b"unicode"),
        file(b"bytes-\xff\xfe".to_vec(), b"not UTF-8"),
        file("new\nline", b"strange"),
        with_time(file("fraction", b""), 1_600_000_000, 123_456_789),
        with_time(file("late", b""), LATE_S, 0),
        with_time(file("early", b""), -2, 500_000_000),
        link("link", "dir/plain"),
        link("link-out", "/nowhere/../else/"),
        link("link-long", &"t".repeat(300)),
        link("link-unicode", "ünï/日本語 🦀"),
        hard("hard", "dir/plain"),
        hard("hard-long", &long),
        empty("fifo", Kind::Fifo),
    ]
}

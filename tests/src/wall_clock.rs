//! The wall clock of one program, which is set while the program runs. The clocks that measure time go on as they do.
//!
//! `libfaketime` stands between the program and the C library, and reads a file that says how wrong the clock is. What is
//! linked without that library, as the agent is, keeps the clock of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::skip;

/// Where Debian's package `libfaketime` is, for each kind of machine.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
/// How long a program goes by what it has read.
pub const READ_EVERY: Duration = Duration::from_secs(1);

/// See the module's description.
pub struct WallClock {
    library: PathBuf,
    file: PathBuf,
}

/// `libfaketime`. `None`: it is not here, and the test says so.
pub fn library_or_skip() -> Option<PathBuf> {
    let kinds = fs::read_dir(LIBRARIES).into_iter().flatten().flatten();
    let library = kinds.map(|kind| kind.path().join(LIBRARY)).find(|path| path.exists());
    if library.is_none() {
        skip("no libfaketime: the clocks of hosts stay right");
    }
    library
}

impl WallClock {
    /// One that is right, by the library and a file that is made.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn new(library: &Path, file: PathBuf) -> Self {
        let clock = Self { library: library.to_owned(), file };
        clock.set(0);
        clock
    }

    /// What a program is started with whose clock this is.
    ///
    /// # Panics
    /// When the file's name is not text.
    pub fn variables(&self) -> [(&'static str, String); 5] {
        let text = |path: &Path| path.to_str().expect("text").to_owned();
        [
            ("LD_PRELOAD", text(&self.library)),
            ("FAKETIME_TIMESTAMP_FILE", text(&self.file)),
            ("FAKETIME_CACHE_DURATION", READ_EVERY.as_secs().to_string()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("NO_FAKE_STAT", "1".to_owned()),
        ]
    }

    /// Sets it to so many seconds after the right time, or before.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn set(&self, seconds: i64) {
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{seconds:+}\n")).expect("it is ours");
        fs::rename(&next, &self.file).expect("it is ours");
    }
}

/// Removes what the library has left of a program that was killed.
pub fn sweep_after(pid: u32) {
    for name in ["faketime_shm_", "sem.faketime_sem_"] {
        fs::remove_file(format!("/dev/shm/{name}{pid}")).ok();
    }
}

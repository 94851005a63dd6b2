//! A server whose process a test has in its own hands: with pipes, variables and an exit status.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tests::{Burrow, PATIENCE, eventually};

pub struct Own {
    pub burrow: Burrow,
    child: Child,
    log: PathBuf,
}

impl Own {
    /// Starts it, and waits until it says that it listens.
    pub fn start(options: &[&str]) -> Self {
        Self::start_in(Burrow::new(), options, |_| {})
    }

    /// The same in directories that were used before, and with changes to the command.
    pub fn start_in(burrow: Burrow, options: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let log = burrow.scratch().join("own.log");
        let mut command = burrow.command(&[&["serve"], options].concat());
        command.stderr(File::create(&log).unwrap()).stdout(Stdio::null());
        change(&mut command);
        let child = command.spawn().unwrap();
        let own = Self { burrow, child, log };
        eventually("the server listens", || own.burrow.run(&["ps"]).status.success());
        own
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Where it listens, with this scheme.
    pub fn url(&self, scheme: &str) -> String {
        let mut found = None;
        eventually("the server says where it listens", || {
            let log = self.log();
            let mut places = log.lines().filter_map(|line| line.split_once("listening on "));
            found = places.find_map(|(_, place)| {
                place.starts_with(scheme).then(|| place.trim_end().to_owned())
            });
            found.is_some()
        });
        found.unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for the end, and says how long that took.
    pub fn wait(&mut self) -> (ExitStatus, Duration) {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Some(status) = self.has_ended() {
                return (status, began.elapsed());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the server does not end; it said:\n{}", self.log());
    }

    /// Ends it in order and returns its directories.
    pub fn end(mut self) -> Burrow {
        self.signal(Signal::SIGTERM);
        let (status, _) = self.wait();
        assert!(status.success(), "{status:?}\n{}", self.log());
        self.into_burrow()
    }

    /// The directories of one that has ended.
    pub fn into_burrow(mut self) -> Burrow {
        assert!(self.has_ended().is_some(), "it still runs");
        std::mem::take(&mut self.burrow)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.has_ended().is_some() {
            return;
        }
        // A test that failed may have left sandboxes, which only a server can take down.
        let listed = self.burrow.run(&["ps", "--all", "--quiet"]);
        for name in String::from_utf8_lossy(&listed.stdout).lines() {
            self.burrow.run(&["rm", "--force", name]);
        }
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until && self.has_ended().is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

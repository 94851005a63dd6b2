//! The environment for tests of the registry with a real agent: their own directories, and their
//! sandboxes.

use std::fs;
use std::path::PathBuf;
use std::thread::panicking;
use std::time::{Duration, Instant};

use host::paths::Paths;
use machine::Machines;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::Text;
use protocol::requests::{GroupLimits, Program, SpoolSpec, Start, Stdio};
use sandbox::record::StoredRecord;
use sandbox::{Registry, SandboxRef, event};

/// Skips a test, with the reason, where there is no agent binary.
macro_rules! needs_agent {
    () => {
        if let Err(reason) = host::agent::find_agent() {
            println!("skipped: {reason}");
            return;
        }
    };
}

/// Longer than anything takes on the slowest machine; a test that waits so long fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// Directories of a test, removed with it.
pub struct RegistryScene(pub Paths);

impl RegistryScene {
    pub fn new(name: &str) -> Self {
        let base = PathBuf::from(format!("/tmp/burrow-test-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let paths = Paths { runtime: base.join("run"), state: base.join("state") };
        paths.prepare().expect("directories of ours");
        Self(paths)
    }

    pub async fn registry(&self) -> Registry {
        Registry::open(self.0.clone(), Machines::default(), event::nobody())
            .await
            .expect("a registry over empty directories")
    }
}

impl Drop for RegistryScene {
    fn drop(&mut self) {
        // A test that failed has left its sandboxes running.
        for entry in fs::read_dir(self.0.state_boxes()).into_iter().flatten().flatten() {
            let stored = StoredRecord::read(&entry.path());
            if let Some(pid) =
                stored.ok().and_then(|stored| stored.record.pid).filter(|_| panicking())
            {
                let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
            }
        }
        let _ = fs::remove_dir_all(self.0.runtime.parent().expect("it has one"));
    }
}

/// Waits until `look` finds something.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not happen in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn which(text: &str) -> SandboxRef {
    text.parse().expect("a name")
}

/// A shell script as a session that nobody records.
pub fn script(id: &str, script: &str) -> Start {
    Start {
        session: id.parse().expect("a name"),
        program: Program::Script { script: Text::from(script), shell: None },
        cwd: None,
        env: Vec::new(),
        user: None,
        stdio: Stdio::Pipes { stdin: false },
        deadline_ms: None,
        spool: SpoolSpec::default(),
        holders: Vec::new(),
        tied: false,
        limits: GroupLimits::default(),
    }
}

/// The control groups of this name, wherever they are.
pub fn groups_named(name: &str) -> Vec<PathBuf> {
    let mut waiting = vec![PathBuf::from("/sys/fs/cgroup")];
    let mut found = Vec::new();
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name() == name {
                    found.push(entry.path());
                }
                waiting.push(entry.path());
            }
        }
    }
    found
}

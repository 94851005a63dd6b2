//! An agent that runs as an ordinary process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use tempfile::TempDir;

use crate::{agent_path, eventually};

/// Listens at a socket, and ends with this.
pub struct Served {
    pub child: Child,
    pub socket: PathBuf,
    _dir: TempDir,
}

impl Served {
    /// # Panics
    /// When it does not come to listen.
    #[expect(clippy::new_without_default, reason = "it starts a process")]
    pub fn new() -> Self {
        let dir = TempDir::with_prefix("burrow-").expect("a directory");
        let socket = dir.path().join("agent.sock");
        let child = Command::new(agent_path())
            .args([Path::new("serve"), Path::new("--listen"), &socket])
            .spawn()
            .expect("the agent starts");
        eventually("the agent listens", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        Self { child, socket, _dir: dir }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

//! Programs that start a command in namespaces of its own and do nothing else, beside `run`: what a sandbox costs
//! that has an agent, limits, a log and an honest end. Nothing is promised of these figures.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tests::{Burrow, have, skip};

use super::{beside, median, timed};

/// Starts of which the median is taken.
const STARTS: usize = 30;

pub fn figures() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let peers = [bubblewrap(), crun(directory.path())];
    let burrow = Burrow::new();
    let mut own = Vec::new();
    let mut times = vec![Vec::new(); peers.len()];
    // Taken in turns, so that whatever else the machine does meets all alike.
    for _ in 0..STARTS {
        own.push(timed(|| drop(burrow.ok(&["run", "--", "true"]))));
        for (peer, times) in peers.iter().zip(&mut times) {
            times.extend(peer.as_ref().map(Peer::run));
        }
    }
    let own = median(own);
    for (peer, times) in peers.into_iter().zip(times) {
        if let Some(peer) = peer {
            beside(&format!("`run -- true`, beside {}", peer.name), own, median(times));
        }
    }
}

struct Peer {
    name: &'static str,
    program: &'static str,
    arguments: Vec<String>,
}

impl Peer {
    /// Nothing where it is not installed, or cannot run here; the reason is printed.
    fn tried(name: &'static str, program: &'static str, arguments: &[&str]) -> Option<Self> {
        if !have(program) {
            skip(&format!("no {program} here"));
            return None;
        }
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        let peer = Self { name, program, arguments };
        let tried = peer.command().output().expect("it starts");
        if tried.status.success() {
            return Some(peer);
        }
        let stderr = String::from_utf8_lossy(&tried.stderr);
        skip(&format!("{program} does not run here: {}", stderr.trim()));
        None
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.args(&self.arguments).stdin(Stdio::null());
        command
    }

    fn run(&self) -> Duration {
        timed(|| assert!(self.command().output().expect("it starts").status.success()))
    }
}

fn bubblewrap() -> Option<Peer> {
    let arguments = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--unshare-all"];
    Peer::tried("bubblewrap", "bwrap", &[&arguments[..], &["--die-with-parent", "true"]].concat())
}

/// With the configuration that it writes itself, over the host's programs and without a terminal.
fn crun(directory: &Path) -> Option<Peer> {
    if have("crun") {
        configure(directory);
    }
    let bundle = directory.to_str().expect("UTF-8");
    let arguments = ["--cgroup-manager=disabled", "run", "--bundle", bundle, "burrow-bench"];
    if !Path::new(BESIDE_VERSION_1).exists() {
        return Peer::tried("crun", "crun", &arguments);
    }
    let script = format!("umount {BESIDE_VERSION_1} && exec crun \"$@\"");
    let words = [&["-m", "sh", "-c", &script, "crun"], &arguments[..]].concat();
    Peer::tried("crun, after `unshare` and `umount`", "unshare", &words)
}

/// Where control groups of version 2 are beside those of version 1. With both, crun does not run.
const BESIDE_VERSION_1: &str = "/sys/fs/cgroup/unified";

/// Writes a configuration, and a root in which the host's directories of programs are.
fn configure(directory: &Path) {
    let made = Command::new("crun").arg("spec").current_dir(directory).status();
    assert!(made.expect("it starts").success(), "crun writes a configuration");
    let root = directory.join("rootfs");
    fs::create_dir(&root).expect("a new directory");
    let path = directory.join("config.json");
    let text = fs::read_to_string(&path).expect("it is written");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(["true"]);
    let mounts = config["mounts"].as_array_mut().expect("a list");
    for name in ["usr", "bin", "lib", "lib64"] {
        let source = Path::new("/").join(name);
        if let Ok(target) = fs::read_link(&source) {
            symlink(target, root.join(name)).expect("a new link");
        } else if source.exists() {
            let options = ["bind", "ro"];
            let mount = json!({ "destination": source, "type": "bind", "source": source, "options": options });
            mounts.push(mount);
        }
    }
    fs::write(&path, config.to_string()).expect("it can be written");
}

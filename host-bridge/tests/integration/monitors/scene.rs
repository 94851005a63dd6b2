//! The environment of a monitor's stand-in: its own PATH, kit and directories, all removed with it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use host::agent::find_agent;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub const KINDS: [&str; 2] = ["firecracker", "cloud-hypervisor"];

/// Long enough for a busy machine; a test that waits so long fails.
const DEADLINE: Duration = Duration::from_secs(20);

pub struct Scene {
    base: PathBuf,
    kind: &'static str,
    agent: PathBuf,
}

/// A bridge that serves; ended with this.
pub struct Daemon(Child);

impl Daemon {
    /// Killed, without a chance to clean up.
    pub fn kill_hard(self) {
        drop(self);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Scene {
    /// Furnishes one, or says why it cannot be.
    pub fn set(name: &str, kind: &'static str) -> Result<Self, String> {
        let agent = find_agent().map_err(|missing| missing.to_string())?;
        let agent = agent.file().map_err(|error| error.to_string())?;
        let python = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
        if !python.is_ok_and(|status| status.success()) {
            return Err("there is no python3 to play the monitor".to_owned());
        }
        let base =
            PathBuf::from(format!("/tmp/burrow-monitors-{}-{name}-{kind}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        for directory in ["bin", "kit", "run", "state", "tmp", "home"] {
            fs::create_dir_all(base.join(directory)).unwrap();
        }
        let fake =
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/monitors/fake_monitor.py");
        for program in KINDS {
            let path = base.join("bin").join(program);
            let mut file = fs::File::create(&path).unwrap();
            // Its settings cannot come from the bridge, which passes its environment to nobody.
            let play = base.join("play");
            let play = play.display();
            writeln!(file, "#!/bin/sh\n. {play}\nexec {} {fake} {program} \"$@\"", python_path())
                .unwrap();
            file.set_permissions(fs::Permissions::from_mode(0o755)).unwrap();
        }
        for (file, content) in
            [("vmlinux", &b"\x7fELF"[..]), ("initramfs.cpio", b"070701"), ("base.erofs", b"")]
        {
            fs::write(base.join("kit").join(file), content).unwrap();
        }
        let scene = Self { base, kind, agent };
        scene.fault("");
        Ok(scene)
    }

    /// What the stand-in should do wrong.
    pub fn fault(&self, fault: &str) {
        let (agent, log) = (self.agent.display(), self.base.join("requests"));
        let full = self.base.join("full");
        let play = format!(
            "export FAKE_AGENT={agent} FAKE_LOG={} FAKE_FULL={} FAKE_FAULT={fault}\n",
            log.display(),
            full.display()
        );
        fs::write(self.base.join("play"), play).unwrap();
    }

    pub fn kit(&self) -> PathBuf {
        self.base.join("kit")
    }

    /// The bridge's program with these arguments, in this environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_host-bridge"));
        self.furnish(&mut command);
        command.args(arguments);
        command
    }

    fn furnish(&self, command: &mut Command) {
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env("PATH", format!("{}:{path}", self.base.join("bin").display()))
            .env("HOME", self.base.join("home"))
            .env("TMPDIR", self.base.join("tmp"))
            .env("BURROW_RUNTIME_DIR", self.base.join("run"))
            .env("BURROW_STATE_DIR", self.base.join("state"))
            .env("BURROW_IMAGES", self.kit())
            .env("BURROW_AGENT", &self.agent)
            .env("BURROW_SERVER_LISTEN", "off")
            .env("BURROW_TRUST_KVM", "1")
            // A daemon that starts by itself would not be the one that a test has killed.
            .env("BURROW_NO_DAEMON", "1")
            .stdin(Stdio::null());
    }

    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub fn run(&self, command: &[&str]) -> Output {
        self.run_with(&[], command)
    }

    pub fn run_with(&self, more: &[&str], command: &[&str]) -> Output {
        let machine = ["run", "--machine", self.kind, "--image", "base", "--scratch", "64M"];
        // The scratch that is asked for last would be asked for twice.
        let machine = if more.contains(&"--scratch") { &machine[..5] } else { &machine[..] };
        self.command(&[machine, more, &["--"], command].concat()).output().unwrap()
    }

    /// Starts a sandbox that stays, with its writable layer in memory.
    pub fn start(&self, name: &str) {
        self.start_with(name, "64M");
    }

    /// The same with a writable layer of this size, which is on a disk of its own if it is large.
    pub fn start_with(&self, name: &str, scratch: &str) {
        let machine = ["--machine", self.kind, "--image", "base", "--scratch", scratch];
        self.ok(&[&["start", "--name", name][..], &machine].concat());
    }

    /// Starts a bridge, and waits until it can be spoken to.
    pub fn serve(&self) -> Daemon {
        let mut command = self.command(&["serve"]);
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.base.join("serve.log"))
            .unwrap();
        let daemon = Daemon(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        self.eventually("the bridge serves", || {
            self.command(&["ps"]).output().unwrap().status.success()
        });
        daemon
    }

    pub fn eventually(&self, what: &str, mut look: impl FnMut() -> bool) {
        let until = Instant::now() + DEADLINE;
        while !look() {
            let log = fs::read_to_string(self.base.join("serve.log")).unwrap_or_default();
            assert!(Instant::now() < until, "{what}: not in time; the bridge said {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The requests that the stand-in has answered, with their statuses.
    pub fn requests(&self) -> Vec<String> {
        let log = fs::read_to_string(self.base.join("requests")).unwrap_or_default();
        let lines = log.lines().map(|line| {
            let (method, path, status): (String, String, u16) = serde_json::from_str(line).unwrap();
            format!("{method} {path} {status}")
        });
        lines.collect()
    }

    /// The remains of machines: their directories, and their processes.
    pub fn leftovers(&self) -> Vec<String> {
        let mut found = Vec::new();
        for directory in
            [self.base.join("tmp"), self.base.join("run/boxes"), self.base.join("state/boxes")]
        {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            found.extend(entries.map(|entry| entry.path().display().to_string()));
        }
        found.extend(self.processes().into_iter().map(|(_, words)| words));
        found
    }

    /// The processes of this scene's monitors.
    fn processes(&self) -> Vec<(i32, String)> {
        let ours = self.base.display().to_string();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter_map(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let words = text(&words).replace('\0', " ");
            (words.contains("fake_monitor.py") && words.contains(&ours)).then_some((pid, words))
        })
        .collect()
    }

    pub fn kill_monitor(&self) {
        let found = self.processes();
        // The supervisor's words hold those of the monitor; it is a shell.
        let monitor = found.iter().find(|(_, words)| !words.contains("burrow-machine")).unwrap();
        kill(Pid::from_raw(monitor.0), Signal::SIGKILL).unwrap();
    }

    /// The one box's directory of sockets.
    pub fn runtime(&self) -> PathBuf {
        let mut entries = fs::read_dir(self.base.join("run/boxes")).unwrap().flatten();
        entries.next().expect("a sandbox").path()
    }

    /// The inodes of the disks of all sandboxes.
    pub fn disks(&self) -> BTreeSet<u64> {
        let boxes = fs::read_dir(self.base.join("state/boxes")).unwrap().flatten();
        let disks = boxes.filter_map(|found| fs::metadata(found.path().join("scratch.img")).ok());
        disks.map(|disk| disk.ino()).collect()
    }

    /// From now on the stand-in has no room for snapshots.
    pub fn forbid_snapshots(&self) {
        fs::write(self.base.join("full"), b"").unwrap();
    }

    /// How much of the one sandbox's console is kept.
    pub fn console_bytes(&self) -> u64 {
        let mut entries = fs::read_dir(self.base.join("state/boxes")).unwrap().flatten();
        let state = entries.next().expect("a sandbox").path();
        let bytes = |name: &str| fs::metadata(state.join(name)).map_or(0, |found| found.len());
        bytes("console.log") + bytes("console.log.1")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for (pid, _) in self.processes() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = fs::remove_dir_all(&self.base);
    }
}

/// The interpreter itself: the first one on the PATH may be a shell script that searches for it,
/// which takes longer than the interpreter.
fn python_path() -> String {
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let path = found.map(|output| text(&output.stdout).trim().to_owned()).unwrap_or_default();
    if Path::new(&path).is_file() { path } else { "python3".to_owned() }
}

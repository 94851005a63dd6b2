//! What the end-to-end tests share: the two binaries, a bridge with its own directories, and
//! waiting with a deadline.
//!
//! Nothing here makes assertions about Burrow; each test does.

pub mod buckets;
pub mod cable;
pub mod cluster;
pub mod completion;
pub mod contexts;
pub mod deaths;
pub mod door;
pub mod fleet;
pub mod frameworks;
pub mod http;
pub mod images;
pub mod internet;
pub mod libraries;
pub mod listening;
pub mod machines;
pub mod mcp;
pub mod own_host;
pub mod own_port;
pub mod receiver;
pub mod registry;
pub mod sandbox;
pub mod served;
pub mod server;
pub mod small_disk;
pub mod ssh;
pub mod tmux;
pub mod token;
pub mod torture;
pub mod trace;
pub mod wall_clock;
pub mod wired;
pub mod workspaces;

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Whence, lseek};
use tempfile::TempDir;

/// How long a test waits for anything on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Which try of this test this is, counted from 1. One whose times are too short for a slow machine may wait longer the
/// second time: it is still listed as flaky.
fn tries() -> u32 {
    std::env::var("NEXTEST_ATTEMPT").ok().and_then(|number| number.parse().ok()).unwrap_or(1)
}

/// A line for each number, after the same words.
pub fn lines(words: &str, numbers: std::ops::Range<u32>) -> String {
    numbers.fold(String::new(), |text, number| text + words + &number.to_string() + "\n")
}

/// How many times slower programs are when the tests run in emulated machines, or once a test was too slow.
pub fn slowness() -> u32 {
    const EMULATED: u32 = 5;
    let emulated = std::env::var_os("BURROW_TEST_MACHINE").is_some() || is_v2_machine();
    tries() * if emulated { EMULATED } else { 1 }
}

/// Whether this is the machine of `tests/v2/run`, where all that control groups can hold must be held.
pub fn is_v2_machine() -> bool {
    std::env::var_os("BURROW_TEST_V2").is_some()
}

/// A time within which a program gets so far, wherever it runs.
pub fn slowed(time: Duration) -> Duration {
    time * slowness()
}

/// Says why a test does nothing here, and counts it.
///
/// # Panics
/// When the count cannot be written.
#[expect(clippy::print_stdout, reason = "a skip is for the reader of the test's output")]
pub fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    println!("SKIP {name}: {reason}");
    let path = std::env::var_os("BURROW_TEST_SKIPS")
        .map_or_else(|| workspace().join("target/skips.log"), PathBuf::from);
    let mut log = std::fs::File::options().create(true).append(true).open(path).expect("skips.log");
    writeln!(log, "{name}: {reason}").expect("skips.log can be written");
}

/// Where tests keep downloads for programs in a sandbox, or why there is no such place: a sandbox has its own
/// `/tmp`.
///
/// # Errors
/// When a sandbox could not see it.
pub fn kept_for_boxes(name: &str) -> Result<PathBuf, String> {
    let path = workspace().join("target").join(name);
    if path.starts_with("/tmp") {
        return Err(format!("a sandbox has its own /tmp and cannot see {}", path.display()));
    }
    Ok(path)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member of a workspace").to_owned()
}

/// What is written in a file, without its holes: templates of writable layers are little else.
///
/// # Errors
/// When it cannot be read.
pub fn written(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    let mut bytes = Vec::new();
    let mut end = 0;
    while let Ok(start) = lseek(&file, end, Whence::SeekData) {
        end = lseek(&file, start, Whence::SeekHole)?;
        let at = bytes.len();
        bytes.resize(at + (end - start) as usize, 0);
        file.read_exact_at(&mut bytes[at..], start.unsigned_abs())?;
    }
    Ok(bytes)
}

/// The bridge that was built as these tests are: with or without optimisation.
pub fn bridge_path() -> PathBuf {
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    built("BURROW_TEST_BRIDGE", &format!("target/{profile}/host-bridge"))
}

/// The agent that `just _agent` has left.
pub fn agent_path() -> PathBuf {
    built("BURROW_AGENT", "target/x86_64-unknown-linux-musl/release/guest-agent")
}

fn built(variable: &str, path: &str) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(|| workspace().join(path), PathBuf::from);
    assert!(
        path.exists(),
        "{} is missing: `cargo test --workspace --no-run` builds it, and `just _agent` the agent",
        path.display()
    );
    path
}

/// A bridge with its own directories, which are removed with it; so is its daemon.
pub struct Burrow {
    dir: TempDir,
    program: PathBuf,
    daemon: Option<Child>,
    /// The additional environment of the daemon.
    variables: Vec<(String, String)>,
}

impl Burrow {
    /// Without a daemon.
    pub fn new() -> Self {
        // Socket paths are short, so the directory is not below the (long) target directory.
        let dir = TempDir::with_prefix("burrow-").expect("a temporary directory");
        Self { dir, program: bridge_path(), daemon: None, variables: Vec::new() }
    }

    /// With directories below one that was prepared for it.
    pub fn new_in(parent: &Path) -> Self {
        let dir = TempDir::with_prefix_in("b-", parent).expect("a temporary directory");
        Self { dir, program: bridge_path(), daemon: None, variables: Vec::new() }
    }

    /// Runs another file of the program from here on.
    pub fn set_program(&mut self, program: PathBuf) {
        self.program = program;
    }

    /// With this variable for its daemon.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a daemon that answers.
    pub fn serving() -> Self {
        let mut burrow = Self::new();
        burrow.serve();
        burrow
    }

    pub fn runtime(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// With a daemon that has options and answers.
    pub fn serving_with(options: &[&str]) -> Self {
        let mut burrow = Self::new();
        burrow.serve_with(options);
        burrow
    }

    /// Starts the daemon and waits until it answers.
    pub fn serve(&mut self) {
        self.serve_with(&[]);
    }

    /// The same with options.
    pub fn serve_with(&mut self, options: &[&str]) {
        assert!(self.daemon.is_none(), "the daemon runs already");
        let path = self.dir.path().join("serve.log");
        let log = std::fs::File::options().create(true).append(true).open(path).expect("a log");
        let child = self
            .command(&[&["serve"], options].concat())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("the bridge starts");
        self.daemon = Some(child);
        eventually("the daemon answers", || self.run(&["ps"]).status.success());
    }

    pub fn daemon_pid(&self) -> Pid {
        let child = self.daemon.as_ref().expect("a daemon runs");
        Pid::from_raw(child.id() as i32)
    }

    /// Kills the daemon.
    pub fn kill_daemon(&mut self) {
        let mut child = self.daemon.take().expect("a daemon runs");
        child.kill().expect("it is ours");
        child.wait().expect("it was ours");
    }

    /// Asks the daemon to end, and returns its exit code.
    pub fn end_daemon(&mut self) -> Option<i32> {
        let mut child = self.daemon.take().expect("a daemon runs");
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("it is ours");
        let mut ended = None;
        eventually("the daemon ends", || {
            ended = child.try_wait().expect("it is ours");
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }

    /// The bridge with these arguments, not started.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("BURROW_RUNTIME_DIR", self.runtime())
            // The port of the server is one for the whole machine; tests of it choose their own.
            .env("BURROW_SERVER_LISTEN", "off")
            .env("BURROW_STATE_DIR", self.state())
            // Servers that ask for keys give it only where the operator says so; most tests need no
            // image of their own.
            .env("BURROW_PROCESS_ROOT", "/")
            .env("BURROW_AGENT", agent_path())
            // Waiting for a test's daemon must not start another.
            .env("BURROW_NO_DAEMON", "1")
            .stdin(Stdio::null());
        command
    }

    /// Runs the bridge to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the bridge runs")
    }

    /// Runs the bridge, which must succeed, and returns its stdout.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {:?}\n{stderr}", output.status);
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Runs the bridge with `input` on its stdin.
    pub fn feed(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the bridge starts");
        let mut stdin = child.stdin.take().expect("piped");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().expect("the bridge runs");
        // A program need not read all of its input.
        writer.join().expect("no panic").ok();
        output
    }
}

impl Default for Burrow {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Burrow {
    /// Also ends what a failed test has left running.
    fn drop(&mut self) {
        let has_boxes = std::fs::read_dir(self.state().join("boxes"))
            .is_ok_and(|mut boxes| boxes.next().is_some());
        // A test may have killed it by a signal of its own, or its guardian has: its sandboxes run on.
        let has_ended = |child: &mut Child| matches!(child.try_wait(), Ok(Some(_)));
        if self.daemon.as_mut().is_some_and(has_ended) {
            self.daemon = None;
        }
        // One that a verb has started is nobody's child.
        let may_be_unattended = self.daemon.is_none() && self.runtime().exists();
        if self.daemon.is_none() && has_boxes {
            // Only a daemon can remove them.
            self.daemon = self.command(&["serve"]).stderr(Stdio::null()).spawn().ok();
            let deadline = Instant::now() + PATIENCE;
            while Instant::now() < deadline && !self.run(&["ps"]).status.success() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let listed = self.run(&["ps", "--all", "--quiet"]);
        for name in String::from_utf8_lossy(&listed.stdout).lines() {
            self.run(&["rm", "--force", name]);
        }
        if may_be_unattended {
            self.run(&["daemon", "stop", "--sandboxes"]);
        }
        if let Some(mut child) = self.daemon.take() {
            kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).ok();
            let deadline = Instant::now() + Duration::from_secs(5);
            while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// Waits until `condition` holds.
///
/// # Panics
/// When it does not within [`PATIENCE`].
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The memory that a process keeps resident, in bytes; `None` when it is gone.
pub fn resident_bytes(pid: Pid) -> Option<u64> {
    status_bytes(pid, "VmRSS:")
}

/// The process's own memory, without mapped files.
pub fn anonymous_bytes(pid: Pid) -> Option<u64> {
    status_bytes(pid, "RssAnon:")
}

/// The most that the resident memory ever was.
pub fn resident_bytes_peak(pid: Pid) -> Option<u64> {
    status_bytes(pid, "VmHWM:")
}

fn status_bytes(pid: Pid, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// The direct children of a process, whichever of its threads has started them.
pub fn children(pid: Pid) -> Vec<Pid> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let listed = threads.map(|thread| std::fs::read_to_string(thread.path().join("children")));
    let listed = listed.map(Result::unwrap_or_default).collect::<Vec<_>>().join(" ");
    listed.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
}

/// The same; if it is missing, the test prints a skip.
pub fn have_or_skip(program: &str) -> bool {
    let found = have(program);
    if !found {
        skip(&format!("there is no {program} here"));
    }
    found
}

/// The digest of a text, as hexadecimal digits.
///
/// # Panics
/// When there is no `sha256sum`.
pub fn sha256(text: &str) -> String {
    let mut sum = Command::new("sha256sum");
    let mut sum = sum.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    sum.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads all");
    let stdout = sum.wait_with_output().expect("it ends").stdout;
    String::from_utf8_lossy(&stdout).split(' ').next().unwrap_or_default().to_owned()
}

/// Whether a program is on `PATH`.
pub fn have(program: &str) -> bool {
    find(program).is_some()
}

/// Where this host has a program.
///
/// # Panics
/// When it has none of that name.
pub fn path_of(program: &str) -> PathBuf {
    find(program).unwrap_or_else(|| panic!("there is no {program} here"))
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.exists())
}

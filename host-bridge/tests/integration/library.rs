//! The bridge as a library, with a real agent: what a program in Rust does with a sandbox.
//!
//! Every test is skipped, with its reason, where there is no agent binary or this host cannot make
//! namespaces.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use host::agent::find_agent;
use host::paths::Paths;
use host_bridge::WHOLE_OUTPUT_BYTES_MAX;
use host_bridge::{Bridge, BridgeError};
use protocol::Cause;
use sandbox::{Spec, State};

/// The example in `examples/rust`.
const EXAMPLE: &str = "twenty_lines";
/// What its name promises.
const EXAMPLE_LINES_MAX: usize = 20;

/// Directories of a test, removed with it.
struct BridgeDirectory(PathBuf);

impl BridgeDirectory {
    fn new(name: &str) -> Self {
        let base = PathBuf::from(format!("/tmp/burrow-library-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        Self(base)
    }

    fn paths(&self) -> Paths {
        Paths { runtime: self.0.join("run"), state: self.0.join("state") }
    }

    async fn open(&self) -> Bridge {
        // The bridge makes the runtime's own directories; their parents are ours.
        fs::create_dir_all(&self.0).unwrap();
        Bridge::open(self.paths()).await.unwrap()
    }
}

impl Drop for BridgeDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn spec(name: &str) -> Spec {
    Spec::new(name.parse().unwrap())
}

#[tokio::test]
async fn a_program_runs_commands_scripts_and_code_in_a_sandbox() {
    needs_agent!();
    let place = BridgeDirectory::new("whole");
    let bridge = place.open().await;
    let mut wanted = spec("web");
    wanted.workdir = Some("/usr".to_owned());
    wanted.env = vec![("COLOUR".to_owned(), "blue".to_owned())];
    let sandbox = bridge.start(wanted).await.unwrap();

    let output =
        sandbox.exec(["sh", "-c", "pwd; echo $COLOUR; echo no >&2; exit 3"]).await.unwrap();
    assert_eq!(output.stdout_text(), "/usr\nblue\n");
    assert_eq!(output.stderr_text(), "no\n");
    assert_eq!((output.exit_code(), output.is_success(), output.truncated), (3, false, false));

    let output = sandbox.shell("cd /; for n in 1 2; do echo $n; done").await.unwrap();
    assert_eq!(output.stdout, b"1\n2\n");
    assert_eq!(output.record.cause, Cause::Exited { code: 0 });

    sandbox.run("bash", "x=41").await.unwrap();
    let ran = sandbox.run("bash", "echo $((x + 1)); pwd").await.unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout()), "42\n/usr\n");

    let missing = sandbox.exec(["no-such-program"]).await;
    assert!(matches!(missing, Err(BridgeError::Guest(_))), "{missing:?}");
    let unknown = sandbox.run("no such language", "1").await.map(|ran| ran.finished);
    assert!(matches!(unknown, Err(BridgeError::Language { .. })), "{unknown:?}");

    let stopped = sandbox.stop().await.unwrap();
    assert!(stopped.state.is_over());
    assert!(sandbox.exec(["true"]).await.is_err());
    sandbox.remove().await.unwrap();
    assert!(bridge.registry().list(None).is_empty());
}

/// This test is the program that embeds the bridge; its helper is the `host-bridge` of the same build.
#[tokio::test]
async fn an_embedding_program_mounts_a_workspace() {
    needs_agent!();
    let place = BridgeDirectory::new("mount");
    let bridge = place.open().await;
    let project = place.0.join("project");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("theirs"), "from the host\n").unwrap();
    let mut wanted = spec("mounted");
    wanted.workspace = Some(project.to_str().unwrap().to_owned());
    wanted.mount = true;
    let sandbox = bridge.start(wanted).await.unwrap();
    let script = "cat /workspace/theirs; echo from the sandbox > /workspace/ours; \
                  grep -c ' /workspace ' /proc/self/mounts";
    let output = sandbox.shell(script).await.unwrap();
    assert_eq!(output.stdout_text(), "from the host\n1\n", "{}", output.stderr_text());
    assert_eq!(fs::read_to_string(project.join("ours")).unwrap(), "from the sandbox\n");
    sandbox.remove().await.unwrap();
    assert!(project.join("theirs").exists());
}

#[tokio::test]
async fn output_beyond_the_bound_is_cut_and_marked_so() {
    needs_agent!();
    let place = BridgeDirectory::new("cut");
    let bridge = place.open().await;
    let once = bridge.one_shot(&spec("once")).await.unwrap();
    for (more, truncated) in [(0, false), (1, true)] {
        let bytes = WHOLE_OUTPUT_BYTES_MAX + more;
        let output = once.shell(format!("head -c {bytes} /dev/zero")).await.unwrap();
        assert_eq!(output.stdout.len(), WHOLE_OUTPUT_BYTES_MAX);
        assert_eq!(output.truncated, truncated);
        assert!(output.is_success());
    }
    once.end().await;
}

#[tokio::test]
async fn one_bridge_at_a_time_has_the_directories_and_the_next_finds_what_runs() {
    needs_agent!();
    let place = BridgeDirectory::new("next");
    let bridge = place.open().await;
    let sandbox = bridge.start(spec("stays")).await.unwrap();
    sandbox.run("bash", "x=41").await.unwrap();
    let second = Bridge::open(place.paths()).await.map(|_| ());
    assert!(matches!(second, Err(BridgeError::Lock(_))), "{second:?}");
    drop(sandbox);
    assert_eq!(bridge.leave().await, 1);

    let bridge = place.open().await;
    let sandbox = bridge.find(&"stays".parse().unwrap()).unwrap();
    assert_eq!(sandbox.record().unwrap().state, State::Running);
    let ran = sandbox.run("bash", "echo $((x + 1))").await.unwrap();
    assert_eq!(ran.stdout(), b"42\n");
    sandbox.remove().await.unwrap();
}

#[test]
fn the_example_does_what_it_says_in_twenty_lines() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/rust/twenty_lines.rs");
    let text = fs::read_to_string(source).unwrap();
    let is_code = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with("//") && !line.starts_with("#![")
    };
    let lines = text.lines().filter(is_code).count();
    assert!(lines <= EXAMPLE_LINES_MAX, "{lines} lines");

    needs_agent!();
    // Beside `deps`, where this test is.
    let own = std::env::current_exe().unwrap();
    let program = own.ancestors().nth(2).unwrap().join("examples").join(EXAMPLE);
    if !program.exists() {
        println!("skipped: {} is not built", program.display());
        return;
    }
    let place = BridgeDirectory::new("example");
    fs::create_dir_all(&place.0).unwrap();
    let paths = place.paths();
    let output = Command::new(program)
        .env("BURROW_AGENT", find_agent().unwrap().file().unwrap())
        .env("BURROW_RUNTIME_DIR", &paths.runtime)
        .env("BURROW_STATE_DIR", &paths.state)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("root") && stdout.ends_with("\n42\n"), "{stdout}");
    assert!(fs::read_dir(paths.state_boxes()).unwrap().next().is_none(), "a sandbox is left");
}

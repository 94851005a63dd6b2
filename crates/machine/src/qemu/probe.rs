//! Which accelerator works here: found out by booting a guest on it and waiting until it has
//! switched itself off. A device file says nothing; some hosts have one on which every usual guest
//! dies.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::arguments;
use super::board::Board;
use crate::vmm::Plan;
use host::paths::Paths;

/// What executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    Kvm,
    /// QEMU's own translation.
    Tcg,
}

/// What was found out, and why, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    pub accelerator: Accelerator,
    pub reason: String,
}

/// The file in the bridge's runtime directory that keeps what was found out.
const KEPT: &str = "accelerator.json";

/// How long a guest may take to boot and end where the hypervisor is real: that is a fraction of a
/// second.
const PROBE_MAX: Duration = Duration::from_secs(5);
const PROBE_PAUSE: Duration = Duration::from_millis(10);

/// A shell that kills what it runs when its stdin closes, which the kernel sees to whatever becomes of
/// the bridge: a guest on a broken hypervisor never ends.
const TIED: &str = r#"
exec 3<&0 </dev/null
"$@" 3<&- &
machine=$!
{ read -r _; kill -KILL "$machine"; } <&3 2>/dev/null &
tie=$!
exec 3<&-
wait "$machine"
status=$?
kill -KILL "$tie" 2>/dev/null
exit "$status"
"#;

/// Found out once in the life of a bridge.
static FOUND: OnceLock<Probe> = OnceLock::new();

/// The accelerator for this plan's machine.
pub fn known(program: &Path, plan: &Plan) -> Accelerator {
    probe(program, plan).accelerator
}

/// Finds it out, or remembers.
pub fn probe(program: &Path, plan: &Plan) -> Probe {
    FOUND.get_or_init(|| find_out(program, plan)).clone()
}

/// What an earlier bridge has found out since the host was booted, with the same program.
fn find_out(program: &Path, plan: &Plan) -> Probe {
    let Some((path, key)) = kept_at(program) else { return try_out(program, plan) };
    let kept = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if let Some(Kept { key: known, probe }) = kept
        && known == key
    {
        return probe;
    }
    let probe = try_out(program, plan);
    let kept = Kept { key, probe: probe.clone() };
    // Whoever cannot keep it finds it out again.
    if let Ok(bytes) = serde_json::to_vec(&kept) {
        let _ = std::fs::write(path, bytes);
    }
    probe
}

#[derive(Serialize, Deserialize)]
struct Kept {
    key: String,
    probe: Probe,
}

/// Where it is kept, and what it depends on: the host's boot and the program.
fn kept_at(program: &Path) -> Option<(PathBuf, String)> {
    let paths = Paths::from_environment().ok()?;
    paths.prepare().ok()?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let changed = std::fs::metadata(program).ok()?.modified().ok()?;
    let since = changed.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
    Some((paths.runtime.join(KEPT), format!("{} {} {since}", boot.trim(), program.display())))
}

fn try_out(program: &Path, plan: &Plan) -> Probe {
    let tcg = |reason: String| Probe { accelerator: Accelerator::Tcg, reason };
    if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/kvm") {
        return tcg(format!("/dev/kvm: {error}"));
    }
    match boot(program, plan) {
        Ok(()) => {
            let reason = "a guest was booted on it".to_owned();
            Probe { accelerator: Accelerator::Kvm, reason }
        }
        Err(reason) => tcg(format!("/dev/kvm is there, but {reason}")),
    }
}

/// Boots a machine that switches itself off at once.
fn boot(program: &Path, plan: &Plan) -> Result<(), String> {
    let plan = Plan {
        disks: Vec::new(),
        words: vec!["burrow.probe".to_owned()],
        directory: plan.directory.join("probe"),
        ..plan.clone()
    };
    std::fs::create_dir_all(&plan.directory).map_err(|error| error.to_string())?;
    let result = run(program, &plan);
    let _ = std::fs::remove_dir_all(&plan.directory);
    result
}

fn run(program: &Path, plan: &Plan) -> Result<(), String> {
    let words = arguments::basics(program.to_owned(), Accelerator::Kvm, Board::Pc, plan)
        .map_err(|error| error.to_string())?;
    let mut child = std::process::Command::new("/bin/sh")
        .args(["-c", TIED, "burrow-probe"])
        .args(&words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let until = Instant::now() + PROBE_MAX;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("QEMU ended on it with {status}")),
            Ok(None) if Instant::now() < until => std::thread::sleep(PROBE_PAUSE),
            Ok(None) => break,
            Err(error) => return Err(error.to_string()),
        }
    }
    drop(child.stdin.take());
    let _ = child.wait();
    Err(format!("a guest on it did not come up within {} s", PROBE_MAX.as_secs()))
}

//! Which accelerator works here. The probe boots a guest on it and waits until the guest has switched itself
//! off. A device file proves nothing: on some hosts that have one, every usual guest dies.

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

/// The accelerator that works, and why it was chosen, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    pub accelerator: Accelerator,
    pub reason: String,
}

/// The file in the bridge's runtime directory that caches the result.
const CACHE_FILE: &str = "accelerator.json";

/// How long a guest may take to boot and end. On a hypervisor that works it takes a fraction of a second.
const PROBE_MAX: Duration = Duration::from_secs(5);
const PROBE_PAUSE: Duration = Duration::from_millis(10);

/// A shell that kills its child when its stdin closes, which the kernel does even if the bridge is killed: a
/// guest on a broken hypervisor never ends.
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

/// The result of this process, computed once.
static FOUND: OnceLock<Probe> = OnceLock::new();

/// The accelerator for this plan's machine.
pub fn known(program: &Path, plan: &Plan) -> Accelerator {
    probe(program, plan).accelerator
}

/// Probes, or reads the cached result.
pub fn probe(program: &Path, plan: &Plan) -> Probe {
    FOUND.get_or_init(|| find_out(program, plan)).clone()
}

/// The cached result of an earlier bridge, if it is from the same boot of the host and the same program.
fn find_out(program: &Path, plan: &Plan) -> Probe {
    let Some((path, key)) = cache_entry(program) else { return try_out(program, plan) };
    let cached = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if let Some(Cached { key: known, probe }) = cached
        && known == key
    {
        return probe;
    }
    let probe = try_out(program, plan);
    let cached = Cached { key, probe: probe.clone() };
    // If it cannot be written, the next bridge probes again.
    if let Ok(bytes) = serde_json::to_vec(&cached) {
        let _ = std::fs::write(path, bytes);
    }
    probe
}

#[derive(Serialize, Deserialize)]
struct Cached {
    key: String,
    probe: Probe,
}

/// The path of the cached result, named after what it depends on: the host's boot and the program.
fn cache_entry(program: &Path) -> Option<(PathBuf, String)> {
    let paths = Paths::from_environment().ok()?;
    paths.prepare().ok()?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let changed = std::fs::metadata(program).ok()?.modified().ok()?;
    let since = changed.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
    Some((paths.runtime.join(CACHE_FILE), format!("{} {} {since}", boot.trim(), program.display())))
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

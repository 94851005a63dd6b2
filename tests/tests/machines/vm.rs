//! Sandboxes that are machines: a real kernel with the agent as its init, in QEMU. Behaviour that is shared
//! with the process machine is tested by the suites for it, which `just test-vm` runs in machines; here is
//! what only a machine has.

mod ends;
mod inside;
mod starts;
mod work;

use std::future::Future;

use machine::MachineKind;
use sandbox::Spec;
use tests::Burrow;
use tokio::runtime::Builder;

/// The image that all of these boot.
const IMAGE: &str = "python";

/// Makes of a sandbox a machine.
fn machine(spec: &mut Spec) {
    spec.machine = Some(MachineKind::Qemu);
    spec.image = Some(IMAGE.to_owned());
}

/// The words that do the same on the command line.
const MACHINE: [&str; 4] = ["--machine", "qemu", "--image", IMAGE];

fn block_on(test: impl Future<Output = ()>) {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(test);
}

/// Starts a kept sandbox and returns its record.
fn start(burrow: &Burrow, name: &str, more: &[&str]) -> serde_json::Value {
    let arguments = [&["start", "--json", "--name", name], &MACHINE[..], more].concat();
    serde_json::from_str(&burrow.ok(&arguments)).expect("a record")
}

/// The remains of machines: processes of this bridge, and directories.
fn leftovers(burrow: &Burrow) -> Vec<String> {
    let mut found = Vec::new();
    let ours = burrow.scratch().display().to_string();
    for entry in std::fs::read_dir("/proc").expect("a /proc").flatten() {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let is_machine = ["qemu-system", "vhost-device-vsock", "burrow-machine"]
            .iter()
            .any(|name| command.contains(name));
        if is_machine && command.contains(&ours) {
            found.push(command);
        }
    }
    let boxes = burrow.runtime().join("boxes");
    for entry in std::fs::read_dir(boxes).into_iter().flatten().flatten() {
        found.push(entry.path().display().to_string());
    }
    found
}

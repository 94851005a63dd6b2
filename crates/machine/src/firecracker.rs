//! Firecracker: a small virtual machine on the host's hypervisor, configured over its socket.
//!
//! Release 1.8 or newer: older ones show their devices to no kernel that has the driver for them as
//! a module. Its serial line is its stdout, and a machine without ACPI ends when its processor is
//! reset. The program may run in a jail of its own `jailer` ([`Jailer`]); as it is, it runs with the
//! rights of the bridge.

mod halt;
mod jail;

use std::path::Path;

use serde_json::{Value, json};

pub use jail::Jailer;

use super::kind::Program;
use super::vmm::{Api, GUEST_CID, Halt, Monitor, Plan, Programs};
use super::{BoxFuture, MachineError, MachineKind, kvm};

/// The program that is the machine.
pub const PROGRAM: Program = Program {
    label: "firecracker",
    name: "firecracker",
    remedy: "put the binary of one of its releases, 1.8 or newer, on the PATH; it is one static file",
};

/// The kernel's command line: where its console is, that there is no PCI and hardly a keyboard
/// controller to look for, and that a reboot is a reset by that controller.
const KERNEL_WORDS: &str = "console=ttyS0 quiet reboot=k panic=-1 pci=off i8042.noaux i8042.nomux \
    i8042.dumbkbd mitigations=off cryptomgr.notests random.trust_cpu=on rdinit=/init \
    burrow.halt=reboot";

/// Firecracker's own log goes to its stdout, which is the console. At its usual level that would be every
/// request, and at the next one what a guest can provoke at will.
const LOG_LEVEL: &str = "Error";

/// The socket of the vsock, in the directory that the monitor runs in.
const VSOCK: &str = "vsock";

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub struct Firecracker {
    /// Starts the monitor in a jail instead of directly.
    pub jailer: Option<Jailer>,
}

fn api(monitor: &Path) -> Api {
    Api::at(monitor, "Firecracker")
}

impl Monitor for Firecracker {
    fn kind(&self) -> MachineKind {
        MachineKind::Firecracker
    }

    fn programs(&self, plan: &Plan) -> Result<Programs, MachineError> {
        let program = PROGRAM.find()?;
        plan.kit.unpacked_kernel()?;
        kvm::require(self.kind(), plan)?;
        let machine = match &self.jailer {
            Some(jailer) => jailer.enter(&program, plan)?,
            None => vec![
                program.into_os_string(),
                "--api-sock".into(),
                plan.monitor().into_os_string(),
                "--id".into(),
                plan.id.as_str().into(),
                "--level".into(),
                LOG_LEVEL.into(),
            ],
        };
        Ok(Programs { machine, console_is_stdout: true, ..Programs::default() })
    }

    fn begin<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move {
            match &self.jailer {
                Some(jailer) => jailer.open_door(plan)?,
                None => halt::link_disks(plan)?,
            }
            let api = api(&plan.monitor());
            api.listening().await?;
            for (path, body) in orders(plan, self.jailer.is_some())? {
                api.put(&path, Some(body)).await?;
            }
            Ok(())
        })
    }

    fn halt(&self) -> Option<&dyn Halt> {
        Some(self)
    }
}

/// The requests that configure a machine of this plan, in order; the start is last. Pure.
fn orders(plan: &Plan, jailed: bool) -> Result<Vec<(String, Value)>, MachineError> {
    let seen = |inside: &str, path: &Path| {
        if jailed { Path::new("/").join(inside) } else { path.to_owned() }
    };
    let machine = json!({
        "vcpu_count": plan.cpus,
        "mem_size_mib": plan.memory_bytes.div_ceil(1024 * 1024),
        "smt": false,
    });
    let boot = json!({
        "kernel_image_path": seen(jail::KERNEL, &plan.kit.unpacked_kernel()?),
        "initrd_path": seen(jail::INITRAMFS, &plan.kit.initramfs()?),
        "boot_args": format!("{KERNEL_WORDS} {}", plan.words.join(" ")),
    });
    let mut orders =
        vec![("/machine-config".to_owned(), machine), ("/boot-source".to_owned(), boot)];
    for (number, disk) in plan.disks.iter().enumerate() {
        let name = jail::disk(number);
        let path = if jailed { format!("/{name}") } else { halt::relative_disk(number) };
        let drive = json!({
            "drive_id": name,
            "path_on_host": path,
            // The root is our doing: this would only add a word to the kernel's command line.
            "is_root_device": false,
            "is_read_only": disk.read_only,
            // What the guest syncs must be on the host's disk, too.
            "cache_type": if disk.read_only { "Unsafe" } else { "Writeback" },
        });
        orders.push((format!("/drives/{name}"), drive));
    }
    let vsock = if jailed { Path::new("/").join(jail::VSOCK) } else { VSOCK.into() };
    let vsock = json!({ "guest_cid": GUEST_CID, "uds_path": vsock });
    orders.push(("/vsock".to_owned(), vsock));
    orders.push(("/actions".to_owned(), json!({ "action_type": "InstanceStart" })));
    Ok(orders)
}

#[cfg(test)]
pub(crate) mod tests;

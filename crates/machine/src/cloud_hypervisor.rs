//! Cloud Hypervisor: a virtual machine on the host's hypervisor, configured over its socket.
//!
//! It has ACPI, so the guest can power off and the program ends with it. If the guest reboots, as a
//! kernel does after a panic, the monitor boots it again; the agent then gets no answer to its
//! call, and powers off.

mod halt;

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Value, json};

use super::kind::Program;
use super::vmm::{Api, GUEST_CID, Halt, Monitor, Plan, Programs};
use super::{BoxFuture, MachineError, MachineKind, kvm};

/// The program that is the machine.
pub const PROGRAM: Program = Program {
    label: "cloud-hypervisor",
    name: "cloud-hypervisor",
    remedy: "put the binary of one of its releases, 36 or newer, on the PATH; it is one static file",
};

/// The kernel's command line.
const KERNEL_WORDS: &str = "console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests \
    random.trust_cpu=on rdinit=/init";

/// See the module's description.
#[derive(Clone, Copy, Debug, Default)]
pub struct CloudHypervisor;

impl CloudHypervisor {
    /// The machine's configuration and state, as the monitor describes them.
    pub async fn info(&self, monitor: &Path) -> Result<Value, MachineError> {
        Ok(api(monitor).get("/api/v1/vm.info").await?)
    }

    /// Ends the machine without asking it, and the program.
    pub async fn shut_down(&self, monitor: &Path) -> Result<(), MachineError> {
        let api = api(monitor);
        api.put("/api/v1/vm.shutdown", None).await?;
        Ok(api.put("/api/v1/vmm.shutdown", None).await?)
    }
}

fn api(monitor: &Path) -> Api {
    Api::at(monitor, "Cloud Hypervisor")
}

impl Monitor for CloudHypervisor {
    fn kind(&self) -> MachineKind {
        MachineKind::CloudHypervisor
    }

    fn programs(&self, plan: &Plan) -> Result<Programs, MachineError> {
        let program = PROGRAM.find()?;
        plan.kit.unpacked_kernel()?;
        kvm::require(self.kind(), plan)?;
        let mut socket = OsString::from("path=");
        socket.push(plan.monitor());
        let machine = vec![program.into_os_string(), "--api-socket".into(), socket];
        Ok(Programs { machine, ..Programs::default() })
    }

    fn begin<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move {
            let api = api(&plan.monitor());
            api.listening().await?;
            api.put("/api/v1/vm.create", Some(describe(plan)?)).await?;
            Ok(api.put("/api/v1/vm.boot", None).await?)
        })
    }

    fn halt(&self) -> Option<&dyn Halt> {
        Some(self)
    }
}

/// The machine of this plan, in its words. Pure.
fn describe(plan: &Plan) -> Result<Value, MachineError> {
    let disks = plan.disks.iter().enumerate().map(|(number, disk)| {
        json!({
            "id": format!("disk{number}"),
            "path": disk.path,
            "readonly": disk.read_only,
            // Nothing may be guessed from content that a guest may have written.
            "image_type": "Raw",
        })
    });
    Ok(json!({
        "payload": {
            "kernel": plan.kit.unpacked_kernel()?,
            "initramfs": plan.kit.initramfs()?,
            "cmdline": format!("{KERNEL_WORDS} {}", plan.words.join(" ")),
        },
        "cpus": { "boot_vcpus": plan.cpus, "max_vcpus": plan.cpus },
        "memory": { "size": plan.memory_bytes.next_multiple_of(1024 * 1024), "shared": false },
        "disks": disks.collect::<Vec<_>>(),
        "rng": { "src": "/dev/urandom" },
        "serial": { "mode": "Socket", "socket": plan.console() },
        "console": { "mode": "Off" },
        "vsock": { "cid": GUEST_CID, "socket": plan.vsock() },
    }))
}

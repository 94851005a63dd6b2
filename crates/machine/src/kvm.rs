//! Whether this host's hypervisor runs guests.
//!
//! `firecracker` and `cloud_hypervisor` ask before a start, because they need it; `doctor` reports it. If
//! QEMU is there, a guest is run to find out: a device file proves little, and on some hosts every usual
//! guest dies.

use std::fs::File;
use std::io;
use std::path::Path;

use super::qemu::{self, Accelerator, Probe};
use super::vmm::{Kit, Plan};
use super::{MachineError, MachineKind, SandboxId};
use crate::limits::VIRTUAL_MEMORY_BYTES_MIN;

const DEVICE: &str = "/dev/kvm";

/// Says that the hypervisor of this host is known to run guests, so that nothing is tried.
const TRUSTED: &str = "BURROW_TRUST_KVM";

/// What is known about the hypervisor.
#[derive(Debug)]
pub enum Kvm {
    /// A guest was run, or the operator says that it can be.
    Works {
        reason: String,
    },
    /// The device is there and nothing is here to try it with.
    Untried,
    Missing(NoKvm),
}

/// Why no guest runs on it.
#[derive(Debug, thiserror::Error)]
pub enum NoKvm {
    #[error("{DEVICE} is not there")]
    Absent,
    #[error("{DEVICE}: {0}")]
    Denied(io::Error),
    #[error("{0}")]
    Broken(String),
}

impl NoKvm {
    /// How to get it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Absent => {
                "`modprobe kvm_intel` or `modprobe kvm_amd`, with virtualization switched on in the \
                 firmware; inside a virtual machine, its own host must allow nesting; in a \
                 container, pass the device on"
            }
            Self::Denied(_) => "be root, or in the group that owns it: `usermod -aG kvm $USER`",
            Self::Broken(_) => {
                "the qemu machine runs without it; if you know that guests run on it, say so with \
                 BURROW_TRUST_KVM=1"
            }
        }
    }
}

/// Refuses a plan that would have to run on nothing. Where nothing can be tried, the start itself
/// is the trial.
pub fn require(kind: MachineKind, plan: &Plan) -> Result<(), MachineError> {
    match find_out(plan) {
        Kvm::Works { .. } | Kvm::Untried => Ok(()),
        Kvm::Missing(source) => {
            let remedy = source.remedy();
            Err(MachineError::NoHypervisor { kind, source, remedy })
        }
    }
}

/// Finds it out on this plan's machine, or returns the cached result.
pub fn find_out(plan: &Plan) -> Kvm {
    match known() {
        Ok(()) => tried(plan),
        Err(known) => known,
    }
}

/// Finds it out where no machine is planned; with nothing to boot, as far as that goes.
pub fn find_out_with(kit: Option<Kit>, directory: &Path) -> Kvm {
    if let Err(known) = known() {
        return known;
    }
    match kit.and_then(|kit| trial(kit, directory)) {
        Some(plan) => tried(&plan),
        None => Kvm::Untried,
    }
}

/// A machine that only tries it out.
pub fn trial(kit: Kit, directory: &Path) -> Option<Plan> {
    Some(Plan {
        id: SandboxId::draw().ok()?,
        directory: directory.to_owned(),
        temporary: true,
        kit,
        disks: Vec::new(),
        layer: None,
        bind: None,
        memory_bytes: 2 * VIRTUAL_MEMORY_BYTES_MIN,
        cpus: 1,
        words: Vec::new(),
    })
}

/// `Err` with what is known without trying.
fn known() -> Result<(), Kvm> {
    if std::env::var_os(TRUSTED).is_some_and(|value| !value.is_empty() && value != "0") {
        return Err(Kvm::Works { reason: format!("{TRUSTED} says so") });
    }
    match File::options().read(true).write(true).open(DEVICE) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Kvm::Missing(NoKvm::Absent)),
        Err(error) => Err(Kvm::Missing(NoKvm::Denied(error))),
    }
}

fn tried(plan: &Plan) -> Kvm {
    // Without a kernel QEMU would fail for that reason, and prove nothing about the hypervisor.
    let (Ok(program), Ok(_), Ok(_)) =
        (qemu::PROGRAM.find(), plan.kit.kernel(), plan.kit.initramfs())
    else {
        return Kvm::Untried;
    };
    let Probe { accelerator, reason } = qemu::probe(&program, plan);
    match accelerator {
        Accelerator::Kvm => Kvm::Works { reason },
        Accelerator::Tcg => Kvm::Missing(NoKvm::Broken(reason)),
    }
}

//! The rows, in the order of [`MachineKind`]'s variants. See the parent module.

use std::sync::Arc;

use super::{Capability, Hypervisor, Lack, MachineKind, Mount, Profile, Root};
use crate::cloud_hypervisor::{self, CloudHypervisor};
use crate::external::ExternalMachine;
use crate::firecracker::{self, Firecracker};
use crate::limits::{ADOPT_DEADLINE, BOOT_DEADLINE, VIRTUAL_BOOT_DEADLINE};
use crate::process::ProcessMachine;
use crate::qemu::{self, Qemu};
use crate::vmm::VirtualMachines;
use crate::vmm::kit::IMAGE_DEFAULT;

pub(super) const PROFILES: &[Profile] = &[
    Profile {
        kind: MachineKind::Process,
        name: "process",
        about: "Namespaces of this host. Not a security boundary.",
        is_started: true,
        is_virtual: false,
        root: Root::Host,
        mount: Mount::Running,
        lacks: &[NO_SNAPSHOT, NO_EXPORT],
        programs: &[],
        hypervisor: Hypervisor::Unused,
        start_deadline: BOOT_DEADLINE,
        machine: || Arc::new(ProcessMachine::default()),
    },
    Profile {
        kind: MachineKind::Qemu,
        name: "qemu",
        about: "A virtual machine of QEMU.",
        is_started: true,
        is_virtual: true,
        root: Root::Kit(IMAGE_DEFAULT),
        mount: Mount::AtBoot,
        lacks: &[],
        programs: &[qemu::PROGRAM, qemu::RELAY, qemu::share::DAEMON],
        hypervisor: Hypervisor::Optional,
        start_deadline: VIRTUAL_BOOT_DEADLINE,
        machine: || Arc::new(VirtualMachines::new(Qemu::default())),
    },
    Profile {
        kind: MachineKind::Firecracker,
        name: "firecracker",
        about: "A virtual machine of Firecracker.",
        is_started: true,
        is_virtual: true,
        root: Root::Kit(IMAGE_DEFAULT),
        mount: Mount::Never,
        lacks: &[NO_MOUNT, NO_EXPORT_OF_MONITOR],
        programs: &[firecracker::PROGRAM],
        hypervisor: Hypervisor::Required,
        start_deadline: VIRTUAL_BOOT_DEADLINE,
        machine: || Arc::new(VirtualMachines::new(Firecracker::default())),
    },
    Profile {
        kind: MachineKind::CloudHypervisor,
        name: "cloud-hypervisor",
        about: "A virtual machine of Cloud Hypervisor.",
        is_started: true,
        is_virtual: true,
        root: Root::Kit(IMAGE_DEFAULT),
        mount: Mount::Never,
        lacks: &[NO_MOUNT, NO_EXPORT_OF_MONITOR],
        programs: &[cloud_hypervisor::PROGRAM],
        hypervisor: Hypervisor::Required,
        start_deadline: VIRTUAL_BOOT_DEADLINE,
        machine: || Arc::new(VirtualMachines::new(CloudHypervisor)),
    },
    Profile {
        kind: MachineKind::External,
        name: "external",
        about: "A machine that somebody else runs.",
        is_started: false,
        is_virtual: false,
        root: Root::Own,
        mount: Mount::Never,
        lacks: &[
            Lack {
                capability: Capability::Workspace,
                why: "the operator of an external machine decides what it has at /workspace",
                hint: "leave it out and copy the files in and out",
            },
            NO_MOUNT,
            Lack {
                capability: Capability::Egress,
                why: "the operator of an external machine controls its network",
                hint: "leave it out and restrict the network there",
            },
            Lack {
                capability: Capability::Secrets,
                why: "the operator of an external machine sets its environment",
                hint: "leave it out and give the secrets to the agent there",
            },
            Lack {
                capability: Capability::Image,
                why: "the operator of an external machine chooses its root",
                hint: "leave it out and start the machine with the image",
            },
            Lack {
                capability: Capability::Hostname,
                why: "the operator of an external machine chooses its host name",
                hint: "leave it out and name the machine there",
            },
            Lack {
                capability: Capability::Environment,
                why: "the operator of an external machine sets its environment",
                hint: "leave it out and give each program its own with `host-bridge exec -e`",
            },
            Lack {
                capability: Capability::Memory,
                why: "the operator of an external machine limits its memory",
                hint: "leave it out and set the limit there",
            },
            Lack {
                capability: Capability::Scratch,
                why: "the operator of an external machine limits its disk",
                hint: "leave it out and set the limit there",
            },
            Lack {
                capability: Capability::Cpus,
                why: "the operator of an external machine limits its CPUs",
                hint: "leave it out and set the limit there",
            },
            NO_PAUSE,
            NO_SNAPSHOT,
            NO_EXPORT,
        ],
        programs: &[],
        hypervisor: Hypervisor::Unused,
        start_deadline: ADOPT_DEADLINE,
        machine: || Arc::new(ExternalMachine),
    },
];

const NO_MOUNT: Lack = Lack {
    capability: Capability::Mount,
    why: "only process and qemu machines can mount a host directory; the others have no tested \
          virtiofs",
    hint: "leave it out: the sandbox then gets a copy, and its changes are copied back",
};

/// The memory of these machines belongs to processes of this host, or to another host.
const NO_PAUSE: Lack = Lack {
    capability: Capability::Pause,
    why: "the bridge does not control its memory",
    hint: OTHERS_CAN,
};
const NO_SNAPSHOT: Lack = Lack { capability: Capability::Snapshot, ..NO_PAUSE };

const NO_EXPORT: Lack = Lack {
    capability: Capability::Export,
    why: "it has no snapshots",
    hint: "use a machine of qemu",
};

/// QEMU's state of devices names no file of the host.
const NO_EXPORT_OF_MONITOR: Lack = Lack {
    capability: Capability::Export,
    why: "they name files that the monitor opens, so one from elsewhere could open any file of this host",
    hint: "use a machine of qemu, or take the snapshot on each host",
};

const OTHERS_CAN: &str = "process machines and virtual machines can be paused, and snapshots can be taken of virtual machines";

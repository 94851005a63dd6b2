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

pub(super) const PROFILES: &[Profile; 5] = &[
    Profile {
        kind: MachineKind::Process,
        name: "process",
        about: "Namespaces of this host. No security boundary.",
        is_started: true,
        is_virtual: false,
        root: Root::Host,
        mount: Mount::Running,
        lacks: &[NO_PAUSE, NO_SNAPSHOT],
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
        lacks: &[NO_MOUNT, NO_PAUSE_OF_MONITOR, NO_SNAPSHOT_OF_MONITOR],
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
        lacks: &[NO_MOUNT, NO_PAUSE_OF_MONITOR, NO_SNAPSHOT_OF_MONITOR],
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
                why: "what an external machine has at /workspace is up to whoever runs it",
                hint: "leave it out, and copy the files in and out",
            },
            NO_MOUNT,
            Lack {
                capability: Capability::Egress,
                why: "the network of an external machine is up to whoever runs it",
                hint: "leave it out, and have it restricted there",
            },
            Lack {
                capability: Capability::Secrets,
                why: "the environment of an external machine is up to whoever runs it",
                hint: "leave it out, and give the secrets to the agent there",
            },
            Lack {
                capability: Capability::Image,
                why: "the root of an external machine is up to whoever runs it",
                hint: "leave it out, and start the machine with the image",
            },
            Lack {
                capability: Capability::Hostname,
                why: "the name of an external machine is up to whoever runs it",
                hint: "leave it out, and name the machine there",
            },
            Lack {
                capability: Capability::Environment,
                why: "the environment of an external machine is up to whoever runs it",
                hint: "leave it out, and give each program its own: `host-bridge exec -e`",
            },
            Lack {
                capability: Capability::Memory,
                why: "the memory of an external machine is up to whoever runs it",
                hint: "leave it out, and have it bounded there",
            },
            Lack {
                capability: Capability::Scratch,
                why: "the disk of an external machine is up to whoever runs it",
                hint: "leave it out, and have it bounded there",
            },
            Lack {
                capability: Capability::Cpus,
                why: "the processors of an external machine are up to whoever runs it",
                hint: "leave it out, and have them bounded there",
            },
            NO_PAUSE,
            NO_SNAPSHOT,
        ],
        programs: &[],
        hypervisor: Hypervisor::Unused,
        start_deadline: ADOPT_DEADLINE,
        machine: || Arc::new(ExternalMachine),
    },
];

const NO_MOUNT: Lack = Lack {
    capability: Capability::Mount,
    why: "only process and qemu machines mount a directory of the host; on the others virtiofs is \
          not there or not tried",
    hint: "leave it out: the sandbox then has a copy, and its changes come back",
};

/// The memory of these is that of processes of this host, or of another one.
const NO_PAUSE: Lack = Lack {
    capability: Capability::Pause,
    why: "the bridge does not control its memory",
    hint: QEMU_CAN,
};
const NO_SNAPSHOT: Lack = Lack { capability: Capability::Snapshot, ..NO_PAUSE };

/// The monitors can; nobody has tried it with the real program yet.
const NO_PAUSE_OF_MONITOR: Lack = Lack {
    capability: Capability::Pause,
    why: "pausing it was never tried with the real monitor",
    hint: QEMU_CAN,
};
const NO_SNAPSHOT_OF_MONITOR: Lack =
    Lack { capability: Capability::Snapshot, ..NO_PAUSE_OF_MONITOR };

const QEMU_CAN: &str = "a qemu machine can be paused, and a snapshot taken of it";

//! The tables of a machine's boot. Those of the process machine that serve here too are in
//! `boot::steps`' modules.

use super::super::Need::{BestEffort, Fatal};
use super::super::{Step, devices, network, privileges, root};
use super::{disk, host, kernel, modules, net};

/// Drivers, and the host's configuration.
pub(super) const HEAR: &[Step] = &[
    Step { name: "modules", need: BestEffort, run: modules::load_all },
    Step { name: "host", need: Fatal, run: host::receive },
    Step { name: "clock", need: BestEffort, run: kernel::set_clock },
];

/// In an initramfs: the two layers of the future root. The scratch file system is the root afterwards, as on
/// the process machine.
pub(super) const INITRAMFS: &[Step] = &[
    Step { name: "scratch", need: Fatal, run: disk::mount_scratch },
    Step { name: "image", need: Fatal, run: disk::mount_image },
    Step { name: "leave-initramfs", need: Fatal, run: disk::leave_initramfs },
];

/// The overlay over an image that the initramfs has found.
pub(super) const IMAGE: &[Step] = &[
    Step { name: "overlay", need: Fatal, run: disk::mount_overlay },
    Step { name: "run-and-tmp", need: Fatal, run: root::mount_run_and_tmp },
];

/// The overlay over the kernel's read-only mount, as the root.
pub(super) const MOUNTED: &[Step] = &[
    Step { name: "open-root", need: Fatal, run: root::open_lower },
    Step { name: "scratch", need: Fatal, run: disk::mount_scratch_over_root },
    Step { name: "overlay", need: Fatal, run: root::mount_overlay },
    Step { name: "run-and-tmp", need: Fatal, run: root::mount_run_and_tmp },
];

/// The steps of every root.
pub(super) const FURNISH: &[Step] = &[
    Step { name: "devices", need: Fatal, run: kernel::mount_devices },
    Step { name: "terminals", need: BestEffort, run: devices::mount_terminals },
    Step { name: "shared-memory", need: BestEffort, run: kernel::mount_shared_memory },
    Step { name: "message-queues", need: BestEffort, run: devices::mount_message_queues },
    Step { name: "proc", need: Fatal, run: kernel::mount_proc },
    Step { name: "sys", need: BestEffort, run: kernel::mount_sys },
    Step { name: "cgroup", need: BestEffort, run: kernel::mount_cgroup },
];

pub(super) const PIVOT: &[Step] = &[Step { name: "pivot", need: Fatal, run: root::pivot }];

pub(super) const FINISH: &[Step] = &[
    Step { name: "run-and-tmp-in-place", need: BestEffort, run: kernel::mount_run_in_place },
    Step { name: "workspace", need: Fatal, run: kernel::mount_workspace },
    Step { name: "hide", need: Fatal, run: root::hide },
    Step { name: "host-name", need: BestEffort, run: network::set_host_name },
    Step { name: "loopback", need: BestEffort, run: network::raise_loopback },
    Step { name: "network", need: BestEffort, run: net::raise },
    Step { name: "name-files", need: BestEffort, run: network::write_name_files },
    Step { name: "limits", need: BestEffort, run: privileges::raise_limits },
    Step { name: "memory-score", need: BestEffort, run: privileges::open_memory_score },
];

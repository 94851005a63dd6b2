//! The table: every step of stage 1 in order, and whether a sandbox can work without it.
//!
//! `boot::launch` runs it. What a step does is beside its like: the root file system in `root`,
//! devices in `devices`, the kernel's own file systems in `kernel`, names and the loopback in
//! `network`, limits and capabilities in `privileges`.

use super::Need::{BestEffort, Fatal};
use super::{Step, devices, ids, kernel, network, privileges, root};

/// Until `pivot` the sandbox is being built below `Stage::root`; after it, it is `/`.
pub(super) const STEPS: &[Step] = &[
    Step { name: "private-mounts", need: Fatal, run: root::make_mounts_private },
    Step { name: "open-root", need: Fatal, run: root::open_lower },
    Step { name: "scratch", need: Fatal, run: root::mount_scratch },
    Step { name: "overlay", need: Fatal, run: root::mount_overlay },
    Step { name: "other-file-systems", need: BestEffort, run: root::bind_other_file_systems },
    Step { name: "devices", need: Fatal, run: devices::mount_devices },
    Step { name: "terminals", need: BestEffort, run: devices::mount_terminals },
    Step { name: "shared-memory", need: BestEffort, run: devices::mount_shared_memory },
    Step { name: "message-queues", need: BestEffort, run: devices::mount_message_queues },
    Step { name: "proc", need: BestEffort, run: kernel::mount_proc },
    Step { name: "sys", need: BestEffort, run: kernel::mount_sys },
    Step { name: "open-cgroup", need: BestEffort, run: kernel::open_group },
    Step { name: "cgroup", need: BestEffort, run: kernel::mount_cgroup },
    Step { name: "run-and-tmp", need: Fatal, run: root::mount_run_and_tmp },
    Step { name: "pivot", need: Fatal, run: root::pivot },
    // Anything that could not be hidden would be visible, so then there is no sandbox.
    Step { name: "hide", need: Fatal, run: root::hide },
    Step { name: "guard-proc", need: Fatal, run: kernel::guard_proc },
    Step { name: "memory-score", need: BestEffort, run: privileges::open_memory_score },
    // All mounts are there. From here on root is root of the sandbox alone.
    Step { name: "user-namespace", need: Fatal, run: ids::enter_user_namespace },
    Step { name: "host-name", need: BestEffort, run: network::set_host_name },
    Step { name: "loopback", need: BestEffort, run: network::raise_loopback },
    Step { name: "name-files", need: BestEffort, run: network::write_name_files },
    Step { name: "limits", need: BestEffort, run: privileges::raise_limits },
    Step { name: "own-limits", need: BestEffort, run: privileges::own_limits },
    Step { name: "processes", need: BestEffort, run: privileges::bound_processes },
    Step { name: "capabilities", need: Fatal, run: privileges::bound_capabilities },
    Step { name: "landlock", need: BestEffort, run: privileges::confine_files },
    // A sandbox with unknown access must not exist.
    Step { name: "system-calls", need: Fatal, run: privileges::filter_calls },
    Step { name: "own-rights", need: Fatal, run: privileges::drop_rights },
];

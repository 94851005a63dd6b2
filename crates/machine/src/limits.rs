//! Every bound of machines, each with its reason.

use std::time::Duration;

/// The smallest writable layer: below it not even `/tmp` and `/run` of common programs fit.
pub const SCRATCH_BYTES_MIN: u64 = 1024 * 1024;
/// From the launch of a machine to its welcome. A process machine needs milliseconds; a host that
/// swaps may need seconds; anything slower is broken and must be reported.
pub const BOOT_DEADLINE: Duration = Duration::from_secs(20);
/// For a virtual machine, whose kernel boots first: two seconds under software emulation on an idle host, and
/// several times that on a busy one.
pub const VIRTUAL_BOOT_DEADLINE: Duration = Duration::from_secs(40);
/// To mount a directory in a sandbox: a few system calls in a helper process.
pub const BIND_DEADLINE: Duration = Duration::from_secs(10);
/// The longest error message of that helper.
pub const BIND_WORDS_MAX: usize = 1000;
/// Files that the daemon of a shared directory may hold open: one for each that the guest's kernel caches. A
/// guest that wants more gets `EMFILE`; the host has millions.
pub const SHARED_FILES_MAX: u64 = 262_144;
/// The memory of a virtual machine that names none: both interpreters fit, with room to work.
pub const VIRTUAL_MEMORY_BYTES_DEFAULT: u64 = 512 * 1024 * 1024;
/// The part of its memory that a virtual machine's writable layer may fill; a larger layer is on a
/// disk of its own.
pub const VIRTUAL_SCRATCH_PART_OF_MEMORY: u64 = 2;
/// The least that the kernel and the agent boot in.
pub const VIRTUAL_MEMORY_BYTES_MIN: u64 = 72 * 1024 * 1024;
/// For a machine that is restored from a snapshot, whose memory is read first.
pub const VIRTUAL_RESTORE_DEADLINE: Duration = Duration::from_secs(300);
/// Processors of a virtual machine: the number that every monitor supports without further devices.
pub const VIRTUAL_CPUS_MAX: u32 = 32;
/// How long an order to a monitor may take that only changes a state.
pub const MONITOR_ORDER_DEADLINE: Duration = Duration::from_secs(10);
/// How long the guest may take to release a device, with a kernel that is emulated on a busy host.
pub const UNPLUG_DEADLINE: Duration = Duration::from_secs(10);
/// How long writing a whole snapshot may take: a large memory on a slow disk.
pub const SNAPSHOT_WRITE_DEADLINE: Duration = Duration::from_secs(300);
/// How much larger than the memory a snapshot's memory file may be: the state of devices, and the
/// marks between pages.
pub const SNAPSHOT_MARGIN_BYTES: u64 = 64 * 1024 * 1024;
/// After this long of its own time a frozen guest's workload resumes by itself. The guest's time stops while
/// the snapshot is written, so this covers only the time around that, and a clone's time until it is adopted.
pub const SNAPSHOT_WATCHDOG: Duration = Duration::from_secs(60);
/// How long an agent may take to find its links cut and call: its pauses grow to five seconds.
pub const SNAPSHOT_CALL_DEADLINE: Duration = Duration::from_secs(20);
/// The same where it had its vsock before. It does not call if another client of it, such as `exec` in a process of its
/// own, has dialled it first; then it can be dialled here too.
pub const RECONNECT_CALL_DEADLINE: Duration = Duration::from_secs(4);
/// How long a resumed agent may leave a seemingly intact link unanswered before the link is made again, which loses
/// nothing. QEMU's relay now and then misses what the guest has sent just before its processors stopped, until it
/// sends something else; an agent whose link goes on answers in half of this, with an emulated kernel too.
pub const RESUME_PATIENCE: Duration = Duration::from_secs(1);
/// How long an agent may take to call after a snapshot that failed, and may have cut no link.
pub const UNCUT_PATIENCE: Duration = Duration::from_secs(3);
/// How long the kernel may take to freeze every process of a sandbox. One that waits for a disk stops when the
/// disk has answered.
pub const FREEZE_DEADLINE: Duration = Duration::from_secs(5);
/// How often to look whether all have stopped: that takes the kernel about a millisecond.
pub const FREEZE_LOOK_PAUSE: Duration = Duration::from_millis(1);
/// How long resuming a machine may take that was left half-way and must be stopped.
pub const SET_RIGHT_MAX: Duration = Duration::from_secs(30);
/// How often to check the size of a monitor's own log, which is emptied beyond
/// [`CONSOLE_BYTES_MAX`].
pub const MONITOR_LOG_LOOK_PAUSE: Duration = Duration::from_secs(30);
/// How long an agent may take to answer after its machine resumed.
pub const WAKE_DEADLINE: Duration = Duration::from_secs(20);
/// How much of the agent's own log is kept in memory if there is no directory for it: its last
/// lines.
pub const CONSOLE_BYTES_MAX: u64 = 256 * 1024;
/// How much of that log is shown with a failed start: about one screen.
pub const CONSOLE_TAIL_BYTES: usize = 4 * 1024;
/// How long a killed machine may take to disappear. The kernel tears down a PID namespace in
/// milliseconds unless a process hangs in uninterruptible sleep.
pub const KILL_DEADLINE: Duration = Duration::from_secs(10);
/// How long to retry removing a dead machine's control group while the kernel still empties it.
pub const CGROUP_REMOVAL_DEADLINE: Duration = Duration::from_secs(2);
/// Directories of the control group tree that are looked through for a dead machine's groups.
pub const CGROUP_DIRECTORIES_MAX: usize = 4096;
/// The period over which a share of processors is counted: the kernel's own default.
pub const CPU_PERIOD_US: u64 = 100_000;
/// The file that names a process's start: `/proc/<pid>/stat` is one line of at most 52 numbers and
/// a name of 64 bytes.
pub const PROC_STAT_BYTES_MAX: u64 = 4096;
/// The longest grace that a stop may ask for: a day is surely a mistake of units.
pub const STOP_GRACE_MAX: Duration = Duration::from_secs(3600);
/// How long a re-adopted machine's agent is dialled before the sandbox counts as lost.
pub const ADOPT_DEADLINE: Duration = Duration::from_secs(10);
/// How long a cut link to an agent is re-dialled before the sandbox counts as lost. Longer than the
/// agent keeps our streams, so that this end never gives up first.
pub const REDIAL_DEADLINE: Duration = Duration::from_secs(90);
/// A sandbox's record on disk; the largest real one is some kilobytes of environment names.
pub const RECORD_BYTES_MAX: u64 = 1024 * 1024;

/// Processes and threads of one sandbox. Builds and test runners have some hundreds; without a limit one
/// sandbox could use up the host's process numbers.
pub const PROCESSES_MAX: u64 = 4096;

/// The writable layer of a process machine on the host's disk, of one that names no size: scientific
/// Python and a checkout fit. It takes only what is written.
pub const SCRATCH_DISK_BYTES_DEFAULT: u64 = 4 * 1024 * 1024 * 1024;
/// What it may come down to where the disk has little room; with less the layer is in memory.
pub const SCRATCH_DISK_BYTES_LEAST: u64 = 1024 * 1024 * 1024;
/// The part of the free room that one layer without a size may take.
pub const SCRATCH_DISK_PART_OF_FREE: u64 = 4;
/// What must stay free beside a layer of a size that was asked for: the host's records and logs need it.
pub const SCRATCH_DISK_RESERVE_BYTES: u64 = 256 * 1024 * 1024;
/// The sizes that may be asked for. A smaller file system has hardly any room beside its own tables; the
/// largest is that of a virtual machine's layer.
pub const SCRATCH_DISK_BYTES_MIN: u64 = 64 * 1024 * 1024;
pub const SCRATCH_DISK_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;
/// Templates of layers that are kept, one for each size; the oldest is made again when it is needed.
pub const SCRATCH_TEMPLATES_MAX: usize = 16;
/// To mount a layer: some milliseconds, and more on a host that is busy with its disks.
pub const LAYER_DEADLINE: Duration = Duration::from_secs(10);
/// Attempts to seal the agent's copy in memory. The kernel waits for some 150 ms in each.
pub const SEAL_TRIES: u32 = 20;
/// Layers that are mounted ahead for the next starts, of the size of the last one. Each has a loop device and
/// about 100 KiB of the disk. While there is a second one, the next can be made when the host is quiet.
pub const SPARE_LAYERS: usize = 2;
/// From a start to the making of the next layer, unless none is left: the first command of the sandbox comes
/// before it, also on a busy host.
pub const SPARE_LAYER_PAUSE: Duration = Duration::from_millis(50);
/// How long a spare layer waits for the next start.
pub const SPARE_LAYER_IDLE: Duration = Duration::from_secs(60);

const _: () = assert!(
    SCRATCH_DISK_BYTES_LEAST >= SCRATCH_DISK_BYTES_MIN
        && SCRATCH_DISK_BYTES_DEFAULT <= SCRATCH_DISK_BYTES_MAX,
    "every size that is chosen could be asked for"
);

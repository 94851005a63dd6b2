//! Every bound of machines, each with its reason.

use std::time::Duration;

/// The smallest writable layer: below it not even `/tmp` and `/run` of common programs fit.
pub const SCRATCH_BYTES_MIN: u64 = 1024 * 1024;
/// From the launch of a machine to its welcome. A process machine needs milliseconds; a host that
/// swaps may need seconds; what takes longer is broken and shall say so.
pub const BOOT_DEADLINE: Duration = Duration::from_secs(20);
/// The same for a virtual machine, whose kernel boots first: two seconds under software emulation on
/// an idle host, and several times that on a busy one.
pub const VIRTUAL_BOOT_DEADLINE: Duration = Duration::from_secs(40);
/// To mount a directory in a sandbox: a few system calls of a process of its own.
pub const BIND_DEADLINE: Duration = Duration::from_secs(10);
/// What that process may say of its failure.
pub const BIND_WORDS_MAX: usize = 1000;
/// Files that what shows a directory to a virtual machine may hold open: one for each that the guest's
/// kernel remembers. A guest that wants more is told that there are too many; the host has millions.
pub const SHARED_FILES_MAX: u64 = 262_144;
/// The memory of a virtual machine that names none: both interpreters fit, with room to work.
pub const VIRTUAL_MEMORY_BYTES_DEFAULT: u64 = 512 * 1024 * 1024;
/// The part of its memory that a virtual machine's writable layer may fill; a larger layer is on a
/// disk of its own.
pub const VIRTUAL_SCRATCH_PART_OF_MEMORY: u64 = 2;
/// The least that the kernel and the agent boot in.
pub const VIRTUAL_MEMORY_BYTES_MIN: u64 = 72 * 1024 * 1024;
/// The same for one that goes on from a snapshot, whose memory is read first.
pub const VIRTUAL_RESTORE_DEADLINE: Duration = Duration::from_secs(300);
/// Processors of a virtual machine: what every monitor takes without further devices.
pub const VIRTUAL_CPUS_MAX: u32 = 32;
/// How long an order to a monitor may take that only changes a state.
pub const MONITOR_ORDER_DEADLINE: Duration = Duration::from_secs(10);
/// How long the guest may take to let go of a device, with a kernel that is emulated on a busy host.
pub const UNPLUG_DEADLINE: Duration = Duration::from_secs(10);
/// How long a whole snapshot may take to be written: a large memory on a slow disk.
pub const SNAPSHOT_WRITE_DEADLINE: Duration = Duration::from_secs(300);
/// What a snapshot's memory file may have beyond the memory itself: the devices' states, and the
/// marks between pages.
pub const SNAPSHOT_MARGIN_BYTES: u64 = 64 * 1024 * 1024;
/// After so long of its own time a guest's workload goes on by itself. Its time stands still while
/// the snapshot is written, so this is the time around that, and that of a clone until it is adopted.
pub const SNAPSHOT_WATCHDOG: Duration = Duration::from_secs(60);
/// How long an agent may take to find its links cut and call: its pauses grow to five seconds.
pub const SNAPSHOT_CALL_DEADLINE: Duration = Duration::from_secs(20);
/// How long the way to a resumed agent may seem to be whole without an answer, before it is made anew.
pub const RESUME_PATIENCE: Duration = Duration::from_secs(3);
/// How long a machine may take to go on that was left half-way in one of these and is to be stopped.
pub const SET_RIGHT_MAX: Duration = Duration::from_secs(30);
/// How often it is looked how long a monitor's own log has become, which is emptied beyond
/// [`CONSOLE_BYTES_MAX`].
pub const MONITOR_LOG_LOOK_PAUSE: Duration = Duration::from_secs(30);
/// How long an agent may take to answer when its machine goes on.
pub const WAKE_DEADLINE: Duration = Duration::from_secs(20);
/// What is kept of the agent's own log in memory when there is no directory for it: its last words
/// are a few lines.
pub const CONSOLE_BYTES_MAX: u64 = 256 * 1024;
/// What of that log is shown with a failed start: about one screen.
pub const CONSOLE_TAIL_BYTES: usize = 4 * 1024;
/// How long a killed machine may take to be gone. The kernel tears a PID namespace down in
/// milliseconds unless a process hangs in uninterruptible sleep.
pub const KILL_DEADLINE: Duration = Duration::from_secs(10);
/// How long the removal of a dead machine's control group is tried again while the kernel still
/// empties it.
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
/// agent keeps our streams, so that it is never this end that gives up too early.
pub const REDIAL_DEADLINE: Duration = Duration::from_secs(90);
/// A sandbox's record on disk; the largest real one is some kilobytes of environment names.
pub const RECORD_BYTES_MAX: u64 = 1024 * 1024;

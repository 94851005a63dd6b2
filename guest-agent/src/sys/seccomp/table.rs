//! The table of system calls that programs of a process machine may make. What is not in it is refused.
//!
//! It follows Docker's profile for containers without privileges. Each group says why it is there; the end
//! lists what is left out on purpose. docs/reference/system-calls.md is generated from it.

#[allow(
    clippy::wildcard_imports,
    reason = "three hundred names, each of which is in the table"
)]
use libc::*;

/// The table knows numbers up to here. Higher ones are answered like a kernel without them, so that a C
/// library falls back to older calls.
pub const KNOWN_END: u32 = 471;

/// A group of calls and why programs have it.
pub struct Group {
    #[cfg_attr(not(test), expect(dead_code, reason = "it is for readers, and for the page"))]
    pub reason: &'static str,
    pub calls: &'static [c_long],
}

const fn group(reason: &'static str, calls: &'static [c_long]) -> Group {
    Group { reason, calls }
}

/// Calls that not every C library names.
mod newer {
    use libc::c_long;

    #[cfg(target_arch = "x86_64")]
    pub const IO_PGETEVENTS: c_long = 333;
    #[cfg(target_arch = "aarch64")]
    pub const IO_PGETEVENTS: c_long = 292;
    pub const CACHESTAT: c_long = 451;
    pub const FCHMODAT2: c_long = 452;
    pub const MAP_SHADOW_STACK: c_long = 453;
    pub const FUTEX_WAKE: c_long = 454;
    pub const FUTEX_WAIT: c_long = 455;
    pub const FUTEX_REQUEUE: c_long = 456;
    pub const MSEAL: c_long = 462;
    pub const SETXATTRAT: c_long = 463;
    pub const GETXATTRAT: c_long = 464;
    pub const LISTXATTRAT: c_long = 465;
    pub const REMOVEXATTRAT: c_long = 466;
    pub const FILE_GETATTR: c_long = 468;
    pub const FILE_SETATTR: c_long = 469;
}

#[rustfmt::skip]
pub const ALLOWED: &[Group] = &[
    group("read and write what is open", &[
        SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev,
        SYS_preadv2, SYS_pwritev2, SYS_lseek, SYS_sendfile, SYS_splice, SYS_tee, SYS_vmsplice,
        SYS_copy_file_range, SYS_close, SYS_close_range, SYS_dup, SYS_dup3, SYS_fcntl, SYS_ioctl, SYS_flock,
        SYS_fsync, SYS_fdatasync, SYS_sync, SYS_syncfs, SYS_sync_file_range, SYS_ftruncate, SYS_fallocate,
        SYS_fadvise64, SYS_readahead, newer::CACHESTAT,
    ]),
    group("find, make and change files, as far as their permissions allow", &[
        SYS_openat, SYS_openat2, SYS_mkdirat, SYS_mknodat, SYS_unlinkat, SYS_renameat, SYS_renameat2,
        SYS_linkat, SYS_symlinkat, SYS_readlinkat, SYS_faccessat, SYS_faccessat2, SYS_fchmod, SYS_fchmodat,
        newer::FCHMODAT2, SYS_fchown, SYS_fchownat, SYS_utimensat, SYS_truncate, SYS_newfstatat, SYS_fstat,
        SYS_statx, SYS_statfs, SYS_fstatfs, SYS_getdents64, SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_umask,
        SYS_chroot, SYS_name_to_handle_at, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_getxattr,
        SYS_lgetxattr, SYS_fgetxattr, SYS_listxattr, SYS_llistxattr, SYS_flistxattr, SYS_removexattr,
        SYS_lremovexattr, SYS_fremovexattr, newer::SETXATTRAT, newer::GETXATTRAT, newer::LISTXATTRAT,
        newer::REMOVEXATTRAT, newer::FILE_GETATTR, newer::FILE_SETATTR, SYS_inotify_init1,
        SYS_inotify_add_watch, SYS_inotify_rm_watch, SYS_fanotify_mark,
    ]),
    group("memory of one's own", &[
        SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_msync, SYS_mincore, SYS_madvise, SYS_brk,
        SYS_mlock, SYS_mlock2, SYS_munlock, SYS_mlockall, SYS_munlockall, SYS_remap_file_pages,
        SYS_memfd_create, SYS_memfd_secret, SYS_pkey_mprotect, SYS_pkey_alloc, SYS_pkey_free,
        SYS_membarrier, SYS_get_mempolicy, SYS_set_mempolicy, SYS_mbind, SYS_set_mempolicy_home_node,
        newer::MAP_SHADOW_STACK, newer::MSEAL,
    ]),
    group("processes and threads; `clone` and `unshare` without new namespaces", &[
        SYS_clone, SYS_unshare, SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid,
        SYS_set_tid_address, SYS_gettid, SYS_getpid, SYS_getppid, SYS_getpgid, SYS_setpgid, SYS_getsid,
        SYS_setsid, SYS_pidfd_open, SYS_pidfd_send_signal, SYS_prctl, SYS_personality, SYS_set_robust_list,
        SYS_get_robust_list, SYS_rseq, SYS_futex, SYS_futex_waitv, newer::FUTEX_WAKE, newer::FUTEX_WAIT,
        newer::FUTEX_REQUEUE, SYS_restart_syscall, SYS_process_mrelease, SYS_process_madvise,
    ]),
    group("debuggers of one's own processes", &[
        SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd, SYS_kcmp,
    ]),
    group("signals", &[
        SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigpending, SYS_rt_sigtimedwait, SYS_rt_sigqueueinfo,
        SYS_rt_tgsigqueueinfo, SYS_rt_sigsuspend, SYS_rt_sigreturn, SYS_sigaltstack, SYS_kill, SYS_tkill,
        SYS_tgkill, SYS_signalfd4,
    ]),
    group("users, groups and rights, as far as the sandbox has them", &[
        SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getgroups, SYS_setgroups, SYS_setuid,
        SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_getresuid, SYS_setresgid, SYS_getresgid,
        SYS_setfsuid, SYS_setfsgid, SYS_capget, SYS_capset, SYS_seccomp, SYS_landlock_create_ruleset,
        SYS_landlock_add_rule, SYS_landlock_restrict_self,
    ]),
    group("limits and scheduling of one's own processes", &[
        SYS_getrlimit, SYS_setrlimit, SYS_prlimit64, SYS_getrusage, SYS_times, SYS_getpriority,
        SYS_setpriority, SYS_ioprio_get, SYS_ioprio_set, SYS_sched_yield, SYS_sched_getparam,
        SYS_sched_setparam, SYS_sched_getscheduler, SYS_sched_setscheduler, SYS_sched_get_priority_max,
        SYS_sched_get_priority_min, SYS_sched_rr_get_interval, SYS_sched_getaffinity,
        SYS_sched_setaffinity, SYS_sched_getattr, SYS_sched_setattr, SYS_getcpu,
    ]),
    group("to read clocks, to wait, and timers", &[
        SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday,
        SYS_getitimer, SYS_setitimer, SYS_timer_create, SYS_timer_settime, SYS_timer_gettime,
        SYS_timer_getoverrun, SYS_timer_delete, SYS_timerfd_create, SYS_timerfd_settime,
        SYS_timerfd_gettime, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2,
        SYS_ppoll, SYS_pselect6, SYS_eventfd2, SYS_pipe2,
    ]),
    group("sockets of the families in FAMILIES", &[
        SYS_socket, SYS_socketpair, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_connect,
        SYS_shutdown, SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt, SYS_sendto,
        SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg, SYS_recvmmsg,
    ]),
    group("queues, semaphores and shared memory of the sandbox's IPC namespace", &[
        SYS_shmget, SYS_shmat, SYS_shmdt, SYS_shmctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl,
        SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_mq_open, SYS_mq_unlink, SYS_mq_timedsend,
        SYS_mq_timedreceive, SYS_mq_notify, SYS_mq_getsetattr,
    ]),
    group("asynchronous input and output of the older kind, which databases use", &[
        SYS_io_setup, SYS_io_destroy, SYS_io_submit, SYS_io_cancel, SYS_io_getevents, newer::IO_PGETEVENTS,
    ]),
    group("what the kernel says of itself", &[SYS_uname, SYS_sysinfo, SYS_getrandom]),
    #[cfg(target_arch = "x86_64")]
    group("older names of the above", &[
        SYS_open, SYS_creat, SYS_stat, SYS_lstat, SYS_poll, SYS_select, SYS_access, SYS_pipe, SYS_dup2,
        SYS_fork, SYS_vfork, SYS_rename, SYS_mkdir, SYS_rmdir, SYS_link, SYS_unlink, SYS_symlink,
        SYS_readlink, SYS_chmod, SYS_chown, SYS_lchown, SYS_mknod, SYS_utime, SYS_utimes, SYS_futimesat,
        SYS_getdents, SYS_getpgrp, SYS_pause, SYS_alarm, SYS_time, SYS_epoll_create, SYS_epoll_wait,
        SYS_epoll_ctl_old, SYS_epoll_wait_old, SYS_signalfd, SYS_eventfd, SYS_inotify_init,
    ]),
    #[cfg(target_arch = "x86_64")]
    group("what this processor needs of its own", &[
        SYS_arch_prctl, SYS_modify_ldt, SYS_set_thread_area, SYS_get_thread_area,
        // `uretprobe` and `uprobe`: only code that the kernel itself has put into a program makes
        // them.
        335, 336,
    ]),
];

/// What is left out, as the book shows it. The test of the table does not compare it: what is not allowed is
/// refused, whether it is listed here or not.
#[cfg(test)]
pub const REFUSED: &[(&str, &str)] = &[
    (
        "mount umount2 pivot_root move_mount open_tree fsopen fsmount fsconfig fspick mount_setattr \
      open_tree_attr statmount listmount",
        "the sandbox's mounts are finished before programs run",
    ),
    (
        "setns clone3, and clone or unshare with new namespaces",
        "a new user namespace gives every \
      capability back, within it; clone3 hides its flags from a filter, so it is unknown (ENOSYS)",
    ),
    ("keyctl add_key request_key", "the kernel's keyrings are no part of any namespace"),
    (
        "bpf perf_event_open userfaultfd",
        "they look into the kernel, or hold it up in the middle of a call",
    ),
    (
        "io_uring_setup io_uring_enter io_uring_register",
        "its rings make calls that no filter sees (ENOSYS)",
    ),
    (
        "init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff",
        "they \
      change the kernel of the host",
    ),
    ("settimeofday clock_settime clock_adjtime adjtimex", "the clock is the host's"),
    ("sethostname setdomainname", "the sandbox's creator sets the name"),
    ("open_by_handle_at", "it opens files by number, past every directory's permissions"),
    ("move_pages migrate_pages", "they move memory between nodes of the host"),
    (
        "syslog acct quotactl quotactl_fd vhangup iopl ioperm lookup_dcookie nfsservctl fanotify_init \
      lsm_set_self_attr",
        "they belong to the host's administrator",
    ),
];

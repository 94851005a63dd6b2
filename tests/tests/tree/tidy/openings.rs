//! The agent opens paths in one place: `guest-agent/src/lookup.rs`, by the rule of `sys/lookup.rs`.

use std::fs;

use super::{is_test, root, sources};

/// What opens, enters or looks at a path by itself. A call that takes a directory's descriptor and one
/// name is none: it goes nowhere.
const OPENINGS: [&str; 34] = [
    "fs::read",
    "fs::write",
    "fs::remove",
    "fs::create",
    "fs::rename",
    "fs::copy",
    "fs::metadata",
    "fs::symlink_metadata",
    "fs::set_permissions",
    "fs::hard_link",
    "fs::exists",
    "File::open",
    "File::create",
    "File::options",
    "OpenOptions",
    "DirBuilder",
    "canonicalize",
    ".metadata()",
    ".read_dir()",
    ".read_link()",
    ".exists()",
    ".is_dir()",
    ".is_file()",
    ".is_symlink()",
    "AT_FDCWD",
    "openat2(",
    "SYS_open",
    "SYS_chdir",
    "SYS_execve",
    " chdir(",
    "libc::open",
    "Directory::open(",
    "UnixListener::bind",
    "UnixStream::connect",
];

/// Functions that take a path and no directory, where they are imported.
const IMPORTS: [&str; 11] = [
    "open", "stat", "lstat", "statfs", "statvfs", "access", "mkdir", "mkfifo", "unlink", "chdir",
    "chroot",
];

/// Calls that take a directory's descriptor, which an absolute path makes them forget.
const RELATIVE: [&str; 6] =
    ["openat(", "mkdirat(", "unlinkat(", "fstatat(", "fchownat(", "readlinkat("];

/// Who opens paths of its own, and why that is no path of somebody else's.
const ALLOWED: &[(&str, &str)] = &[
    ("boot/ids.rs", "before the sandbox: claims of root's alone, and namespaces of a child"),
    ("boot/kernel.rs", "before anything of the sandbox runs: what is to be covered"),
    ("boot/launch.rs", "before the sandbox: the maps of its own user namespace"),
    ("boot/machine.rs", "before anything of the machine's root runs"),
    ("boot/machine/console.rs", "the same: the kernel's console"),
    ("boot/machine/disk.rs", "the same: the disks, and the root on one"),
    ("boot/machine/host.rs", "the same: the drive of the host's word"),
    ("boot/machine/kernel.rs", "the same: the kernel's own file systems"),
    ("boot/machine/modules.rs", "the same: modules of the initramfs"),
    (
        "boot/network.rs",
        "before anything of the sandbox runs; what an adoption calls uses `lookup`",
    ),
    ("boot/overlay.rs", "places to mount on, in a scratch file system of its own"),
    ("boot/patchwork.rs", "the operator's root, read by the user who starts the sandbox"),
    ("boot/privileges.rs", "`/`, when the sandbox is finished and nothing runs in it"),
    ("boot/root.rs", "the root that the operator names, before anything of it runs"),
    ("boot/supervisor.rs", "outside of the sandbox, for its control group"),
    ("lookup.rs", "it is the rule"),
    ("sys/lookup.rs", "it is the rule"),
    ("sys/spawn.rs", "the rule in the child; `cgroup.procs` of a group that the agent has made"),
    ("sys/prctl.rs", "`/`, which cannot be executed, to be told another reason"),
    ("sys/seccomp/table.rs", "numbers of calls that programs may make, and none is made"),
    ("sys/oom.rs", "the boot, before anything of the sandbox runs"),
    ("sys/mount.rs", "the boot builds the sandbox with it"),
    ("sys/loop_device.rs", "the boot, for the writable layer that the host names"),
    ("sys/namespace.rs", "the boot counts its own threads"),
    ("main.rs", "the socket that the operator names on the command line"),
    ("host.rs", "the boot, before anything of the sandbox runs"),
    ("host/serial.rs", "the boot, before anything of the sandbox runs"),
    ("pid1/hand_over.rs", "the boot, for the init that the operator names"),
    ("cgroup.rs", "the agent's own control group, found at its start"),
    ("cgroup/directory.rs", "the same, by the boot and the start"),
    ("cgroup/older.rs", "the same, by the boot"),
    ("hotplug.rs", "switches of a machine's own kernel, at names that the kernel reports"),
    (
        "process/home.rs",
        "a directory that the boot has made, looked at and given away without following a link",
    ),
    ("metrics/sampler.rs", "`/`, for its free space"),
];

/// The code of a file without its tests and comments.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// A call that is given an absolute path beside its directory.
fn absolute(code: &str) -> Option<&'static str> {
    RELATIVE.into_iter().find(|call| {
        let calls = code.split(call).skip(1);
        calls.filter_map(|rest| rest.split(';').next()).any(|words| words.contains("\"/"))
    })
}

/// The functions of nix that a text imports.
fn imported(code: &str) -> Vec<&str> {
    let statements = code.split(';').map(str::trim);
    let of_nix = statements.filter_map(|statement| statement.strip_prefix("use nix::"));
    of_nix
        .flat_map(|statement| statement.split([',', '{', '}', ' ', '\n']))
        .filter_map(|path| path.rsplit("::").next())
        .filter(|word| !word.is_empty())
        .collect()
}

#[test]
fn nothing_else_in_the_agent_opens_a_path() {
    let src = root().join("guest-agent/src");
    let mut opening = Vec::new();
    for path in sources(&src).into_iter().filter(|path| !is_test(path)) {
        let name = path.strip_prefix(&src).expect("below src").to_string_lossy().into_owned();
        let code = code(&fs::read_to_string(&path).expect("a source"));
        let found = OPENINGS.iter().find(|opening| code.contains(*opening));
        let imports = imported(&code);
        let found = found.or_else(|| IMPORTS.iter().find(|function| imports.contains(function)));
        let Some(found) = found.copied().or_else(|| absolute(&code)) else { continue };
        let is_allowed = ALLOWED.iter().any(|(allowed, _)| *allowed == name);
        assert!(is_allowed, "{name} has {found:?}: open it through `lookup`");
        opening.push(name);
    }
    for (allowed, _) in ALLOWED {
        assert!(opening.iter().any(|name| name == allowed), "{allowed} opens nothing any more");
    }
}

#[test]
fn an_absolute_path_is_found_beside_a_directory() {
    assert_eq!(absolute("openat(&directory,\n    \"/etc\", flags)?;"), Some("openat("));
    assert_eq!(absolute("openat(&directory, name, flags)?; x(\"/etc\")"), None);
}

//! Paths that lead the agent where the sandbox may not go: links of `/proc`, files of the kernel's own
//! file systems, what an image or a program has put where the agent looks.
//!
//! Each test is an attack that a client or the sandbox's code makes by itself. Where the tests run as
//! root, each runs once more as an ordinary user, whose sandboxes are in a user namespace.

use agent_client::guest::contexts::open;
use agent_client::guest::{FileTarget, Guest, GuestError, Upload};
use nix::unistd::Uid;
use protocol::exit::SpawnStage;
use protocol::repl::OpenContext;
use protocol::requests::{MakeDirectory, Move, Program, Remove, Start, WriteMode};
use protocol::{Fault, FaultCode};
use tests::sandbox::Sandbox;
use tests::{PATIENCE, skip};
use tokio::time::timeout;

use crate::ordinary;

/// Descriptors of the agent that are tried: it has far fewer.
const DESCRIPTORS: u32 = 256;

pub(super) fn run(attack: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(attack);
}

/// Where nothing of the sandbox's is.
fn hostile() -> Vec<String> {
    const LINKS: [&str; 13] = [
        "/proc/self/cwd",
        "/proc/self/root",
        "/proc/self/exe",
        "/proc/self/ns/mnt",
        "/proc/thread-self/root",
        "/proc/thread-self/cwd",
        "/proc/1/root",
        "/proc/1/root/etc",
        "/proc/1/cwd",
        "/proc/1/exe",
        "/proc/1/task/1/root",
        "/dev/fd/0",
        "/dev/stdin",
    ];
    const KERNEL: [&str; 14] = [
        "/proc",
        "/proc/1/mem",
        "/proc/1/maps",
        "/proc/1/environ",
        "/proc/1/fd",
        "/proc/self/fdinfo",
        "/proc/sys/kernel/core_pattern",
        "/proc/../proc/1/mem",
        "/tmp/../proc/self/oom_score_adj",
        "/dev/fd",
        "/sys",
        "/sys/kernel",
        "/sys/fs/cgroup",
        "/sys/fs/cgroup/cgroup.procs",
    ];
    let descriptors = (0..DESCRIPTORS).flat_map(|number| {
        [
            format!("/proc/1/fd/{number}"),
            format!("/proc/1/fd/{number}/.."),
            format!("/proc/1/fd/{number}/../burrow-other/cgroup.kill"),
            format!("/proc/1/fd/{number}/cgroup.procs"),
        ]
    });
    LINKS.iter().chain(&KERNEL).map(|path| (*path).to_owned()).chain(descriptors).collect()
}

/// Symlinks in the sandbox that lead to the same, and to them by another link.
async fn plant(sandbox: &mut Sandbox, to: &[String]) -> Vec<String> {
    let script = "mkdir -p /tmp/planted && cd /tmp/planted && n=0 && for path; do \
                  ln -s \"$path\" \"$n\" && ln -s \"$n\" \"again$n\" && n=$((n + 1)); done";
    let mut argv = vec!["sh", "-c", script, "sh"];
    argv.extend(to.iter().map(String::as_str));
    let planted = sandbox.run(&argv).await;
    assert!(planted.stderr.is_empty(), "{}", String::from_utf8_lossy(&planted.stderr));
    (0..to.len())
        .flat_map(|n| [format!("/tmp/planted/{n}"), format!("/tmp/planted/again{n}")])
        .collect()
}

/// How many of the hostile paths are there for sure, and so are denied and not just missing.
const DENIED_LEAST: usize = 40;

/// What the attacks write.
pub(super) const WRITTEN: &[u8] = b"attack";

async fn uploaded(upload: Result<Upload, GuestError>) -> Result<(), GuestError> {
    let mut upload = upload?;
    // A refusal may show already here; the end tells it again, and better.
    upload.write(WRITTEN).await.ok();
    upload.finish().await.map(drop)
}

pub(super) async fn written(guest: &Guest, path: &str, mode: WriteMode) -> Result<(), GuestError> {
    uploaded(guest.write_file(FileTarget { mode, ..FileTarget::replace(path) })).await
}

/// A request, and what a sandbox answered.
type Answer = (&'static str, Result<(), GuestError>);

/// Everything that a client can ask of the file at a path, followed to its end.
async fn ask_all(guest: &Guest, path: &str) -> Vec<Answer> {
    let below = format!("{path}/burrow-attack");
    let ours = "/tmp/burrow-attack";
    let moved = |from: &str, to: &str| {
        guest.rename(Move { from: from.into(), to: to.into(), replace: true })
    };
    let removed = |path: &str, recursive| guest.remove(Remove { path: path.into(), recursive });
    let made = |parents| {
        guest.make_directory(MakeDirectory {
            path: below.as_str().into(),
            permissions: None,
            parents,
        })
    };
    vec![
        ("stat", guest.stat(path, true).await.map(drop)),
        ("read", guest.read_file(path, 0, None).await.map(drop)),
        ("list", guest.list(path).await.map(drop)),
        ("watch", guest.watch(path, false).await.map(drop)),
        ("watch all", guest.watch(path, true).await.map(drop)),
        ("archive", guest.tar_get(path, true).await.map(drop)),
        ("archive below", guest.tar_get(below.as_str(), false).await.map(drop)),
        ("append", written(guest, path, WriteMode::Append {}).await),
        ("write at", written(guest, path, WriteMode::At { offset: 4096 }).await),
        ("replace below", written(guest, &below, WriteMode::Replace {}).await),
        ("create below", written(guest, &below, WriteMode::Create {}).await),
        ("unpack", uploaded(guest.tar_put(path, false, false)).await),
        ("unpack below", uploaded(guest.tar_put(below.as_str(), false, true)).await),
        ("make directory", made(false).await),
        ("make directories", made(true).await),
        ("move there", moved(ours, &below).await),
        ("move from there", moved(&below, ours).await),
        ("remove", removed(&below, false).await),
        ("remove all", removed(&below, true).await),
    ]
}

fn assert_refused(path: &str, answers: Vec<Answer>) {
    for (request, answer) in answers {
        match answer {
            Err(GuestError::Fault(_)) => {}
            other => panic!("{request} {path}: {other:?}"),
        }
    }
}

pub(super) async fn assert_alive(sandbox: &mut Sandbox) {
    let ran = sandbox.run(&["echo", "alive"]).await;
    assert_eq!(ran.stdout, b"alive\n");
}

#[test]
fn no_request_reaches_what_a_process_has_open_or_the_kernel_makes_up() {
    run(async {
        let mut sandbox = Sandbox::start().await;
        written(&sandbox.guest, "/tmp/burrow-attack", WriteMode::Replace {}).await.expect("ours");
        let paths = hostile();
        let planted = plant(&mut sandbox, &paths[..64]).await;
        let mut denied = 0;
        for path in paths.iter().chain(&planted) {
            let answers = ask_all(&sandbox.guest, path).await;
            let is_denied = |(_, answer): &Answer| matches!(answer, Err(error) if error.fault_code() == Some(FaultCode::Denied));
            denied += usize::from(answers.iter().any(is_denied));
            assert_refused(path, answers);
        }
        // The others are not there in this sandbox, and are refused for that alone.
        assert!(denied >= DENIED_LEAST, "{denied} of {} paths were denied", paths.len());
        // Without following, the agent tells of the links of a sandbox, and of none of procfs.
        sandbox
            .guest
            .stat("/tmp/planted/0", false)
            .await
            .expect("it is a symlink of the sandbox's");
        let link = sandbox.guest.stat("/proc/1/exe", false).await;
        assert_eq!(link.unwrap_err().fault_code(), Some(FaultCode::Denied));
        assert_alive(&mut sandbox).await;
        sandbox.end().await;
    });
}

#[test]
fn no_request_of_an_ordinary_user_does_either() {
    ordinary::again("paths::no_request_reaches_what_a_process_has_open_or_the_kernel_makes_up");
}

#[test]
fn a_refusal_says_what_is_there_and_what_to_do() {
    run(async {
        let mut sandbox = Sandbox::start().await;
        let output = |answer: Result<(), GuestError>| match answer {
            Err(GuestError::Fault(Fault { code: FaultCode::Denied, message, .. })) => message,
            other => panic!("{other:?}"),
        };
        let read = sandbox.guest.read_file("/proc/cpuinfo", 0, None).await.map(drop);
        let expected = "\"/proc/cpuinfo\" is on a kernel file system (proc), which the files API does \
                        not serve; use a program in the sandbox, such as cat";
        assert_eq!(output(read), expected);
        let magic = output(sandbox.guest.list("/proc/self/root").await.map(drop));
        assert!(magic.contains("a link of /proc to what a process has open"), "{magic}");
        let ran = sandbox.run(&["cat", "/proc/cpuinfo"]).await;
        assert!(!ran.stdout.is_empty(), "a program still reads it");
        sandbox.end().await;
    });
}

async fn refused_start(sandbox: &mut Sandbox, start: Start) -> Fault {
    match sandbox.guest.start(&start).await {
        Err(GuestError::Fault(fault)) => fault,
        other => panic!("{start:?}: {other:?}"),
    }
}

#[test]
fn no_program_starts_in_a_directory_that_the_sandbox_has_no_path_to() {
    run(async {
        let mut sandbox = Sandbox::start().await;
        let paths = hostile();
        let planted = plant(&mut sandbox, &paths[..64]).await;
        for path in paths.iter().chain(&planted) {
            let cwd = Some(path.as_str().into());
            let start = Start { cwd, ..sandbox.command(&["pwd"]) };
            let fault = refused_start(&mut sandbox, start).await;
            let stage = fault.spawn.as_ref().map(|spawn| spawn.stage);
            assert_eq!(stage, Some(SpawnStage::WorkingDirectory), "{path}: {fault}");
        }
        for (path, why) in [
            ("/proc/1", "it is on a kernel file system, such as /proc or /sys"),
            ("/proc/self/cwd", "or through a link of /proc to what a process has open"),
        ] {
            let start = Start { cwd: Some(path.into()), ..sandbox.command(&["pwd"]) };
            let fault = refused_start(&mut sandbox, start).await;
            assert!(fault.message.contains(why), "{path}: {fault}");
        }
        assert_alive(&mut sandbox).await;
        sandbox.end().await;
    });
}

#[test]
fn no_program_of_an_ordinary_user_does_either() {
    ordinary::again("paths::no_program_starts_in_a_directory_that_the_sandbox_has_no_path_to");
}

#[test]
fn a_working_directory_is_reached_with_the_rights_of_the_programs_user() {
    run(async {
        let mut sandbox = Sandbox::start().await;
        let made = sandbox.run(&["sh", "-c", "mkdir -m 700 /tmp/a && mkdir -m 755 /tmp/a/b"]).await;
        assert!(made.stderr.is_empty());
        let start = |sandbox: &mut Sandbox, user: Option<&str>| Start {
            cwd: Some("/tmp/a/b".into()),
            user: user.map(str::to_owned),
            ..sandbox.command(&["pwd"])
        };
        let own = start(&mut sandbox, None);
        assert_eq!(sandbox.run_start(&own, &[]).await.stdout, b"/tmp/a/b\n");
        if Uid::effective().is_root() {
            let other = start(&mut sandbox, Some("1234"));
            let fault = refused_start(&mut sandbox, other).await;
            assert!(fault.message.ends_with("Permission denied"), "{fault}");
        }
        sandbox.end().await;
    });
}

#[test]
fn nothing_is_executed_through_a_link_of_proc() {
    run(async {
        let mut sandbox = Sandbox::start().await;
        let links = ["/proc/self/exe", "/proc/1/exe", "/proc/1/root/bin/true", "/dev/fd/0"];
        let descriptors = (0..DESCRIPTORS).map(|number| format!("/proc/1/fd/{number}"));
        let paths: Vec<_> = links.map(str::to_owned).into_iter().chain(descriptors).collect();
        let planted = plant(&mut sandbox, &paths[..64]).await;
        for path in paths.iter().chain(&planted) {
            let start = sandbox.command(&[path, "--version"]);
            let fault = refused_start(&mut sandbox, start).await;
            let stage = fault.spawn.as_ref().map(|spawn| spawn.stage);
            assert_eq!(stage, Some(SpawnStage::Exec), "{path}: {fault}");
        }
        sandbox.end().await;
    });
}

#[test]
fn nothing_of_an_ordinary_users_is_either() {
    ordinary::again("paths::nothing_is_executed_through_a_link_of_proc");
}

/// The request that opens a context, made at this path.
fn context_at(change: impl FnOnce(&mut OpenContext)) -> OpenContext {
    let mut ask = open("attack".parse().expect("a name"), "bash");
    change(&mut ask);
    ask
}

#[test]
fn no_context_opens_in_a_directory_or_by_an_interpreter_that_is_not_the_sandboxs() {
    run(async {
        let mut sandbox = Sandbox::start().await;
        for innocent in [
            context_at(|ask| ask.cwd = Some("/tmp".into())),
            context_at(|ask| ask.program = Some("/bin/bash".into())),
        ] {
            sandbox.guest.open_context(&innocent).await.expect("a path of the sandbox's own");
            sandbox.guest.close_context(&innocent.context).await.expect("it is open");
        }
        let mut paths = hostile();
        paths.extend(["/proc/1/root/bin/bash", "/proc/self/root/bin/bash"].map(str::to_owned));
        let planted = plant(&mut sandbox, &paths[..64]).await;
        for path in paths.iter().chain(&planted) {
            let path = path.as_str();
            for (stage, ask) in [
                (SpawnStage::WorkingDirectory, context_at(|ask| ask.cwd = Some(path.into()))),
                (SpawnStage::Exec, context_at(|ask| ask.program = Some(path.into()))),
            ] {
                match sandbox.guest.open_context(&ask).await {
                    Err(GuestError::Fault(fault)) => {
                        let found = fault.spawn.as_ref().map(|spawn| spawn.stage);
                        assert_eq!(found, Some(stage), "{path}: {fault}");
                    }
                    other => panic!("{path}: {other:?}"),
                }
            }
        }
        assert_alive(&mut sandbox).await;
        sandbox.end().await;
    });
}

#[test]
fn no_context_of_an_ordinary_user_does_either() {
    ordinary::again(
        "paths::no_context_opens_in_a_directory_or_by_an_interpreter_that_is_not_the_sandboxs",
    );
}

/// Puts something in the place of a file that the agent reads. False where the sandbox may not.
async fn replace(sandbox: &mut Sandbox, path: &str, with: &str) -> bool {
    let script = format!("rm -f {path} && {with} {path}");
    let ran = sandbox.run(&["sh", "-c", &script]).await;
    ran.stderr.is_empty()
}

#[test]
fn accounts_that_never_end_or_never_come_hold_nobody_up() {
    run(async {
        let mut sandbox = Sandbox::start().await;
        if !replace(&mut sandbox, "/etc/passwd", "echo root:x:0:0::/:/bin/sh >").await {
            return skip("the sandbox's root may not write to /etc");
        }
        for with in
            ["mkfifo", "ln -s /dev/zero", "truncate -s 1G", "ln -s /proc/1/environ", "mkdir"]
        {
            for path in ["/etc/passwd", "/etc/group"] {
                if !replace(&mut sandbox, path, with).await {
                    assert!(with == "mkdir" && !Uid::effective().is_root(), "{with}");
                    // It would need extended attributes of users, which not every tmpfs has.
                    skip("no directory takes the place of a file in an ordinary user's overlay");
                    continue;
                }
                let start = Start { user: Some("ann".into()), ..sandbox.command(&["id"]) };
                let fault = timeout(PATIENCE, refused_start(&mut sandbox, start)).await;
                let fault = fault.unwrap_or_else(|_| panic!("{path}, {with}: the agent waits"));
                let stage = fault.spawn.as_ref().map(|spawn| spawn.stage);
                assert_eq!(stage, Some(SpawnStage::User), "{with}: {fault}");
                assert_alive(&mut sandbox).await;
                let away = sandbox.run(&["rm", "-r", path]).await;
                assert!(away.stderr.is_empty());
            }
        }
        sandbox.end().await;
    });
}

#[test]
fn a_login_shell_that_leads_to_the_agent_is_no_shell() {
    run(async {
        let mut sandbox = Sandbox::start().await;
        for shell in ["/proc/self/exe", "/proc/1/exe", "/tmp/shell"] {
            sandbox.run(&["ln", "-sf", "/proc/1/exe", "/tmp/shell"]).await;
            let with = format!("echo root:x:0:0::/:{shell} >");
            if !replace(&mut sandbox, "/etc/passwd", &with).await {
                return skip("the sandbox's root may not write to /etc");
            }
            let ours = sandbox.command(&["true"]);
            let start = Start { program: Program::LoginShell {}, ..ours };
            let ran = sandbox.run_start(&start, &[]).await;
            assert!(ran.stdout.is_empty(), "{}", String::from_utf8_lossy(&ran.stdout));
            let status = ran.finished.shell_code();
            assert_eq!(status, 0, "{shell}: another shell reads no input, and ends");
        }
        sandbox.end().await;
    });
}

#[test]
fn programs_keep_the_names_that_they_are_started_by() {
    run(async {
        let mut sandbox = Sandbox::start().await;
        let made = "mkdir /tmp/n && cd /tmp/n && cp /bin/cat own && ln -s own other && \
                    printf '#!/bin/sh\necho $0\n' > script && chmod +x script && ln -s script called";
        let made = sandbox.run(&["sh", "-c", made]).await;
        assert!(made.stderr.is_empty(), "{}", String::from_utf8_lossy(&made.stderr));
        // A file by its name, and by the file's when it is named by a link; a script always by what it was
        // called.
        for (program, name) in [("/tmp/n/own", "own\n"), ("/tmp/n/other", "own\n")] {
            let ran = sandbox.run(&[program, "/proc/self/comm"]).await;
            assert_eq!(String::from_utf8_lossy(&ran.stdout), name, "{program}");
        }
        for script in ["/tmp/n/script", "/tmp/n/called"] {
            let ran = sandbox.run(&[script]).await;
            assert_eq!(String::from_utf8_lossy(&ran.stdout), format!("{script}\n"));
        }
        sandbox.end().await;
    });
}

//! Files of a sandbox through the library: whole, in part, as trees, watched, and with the disk full.

use std::time::{Duration, Instant};

use agent_client::guest::{FileTarget, GuestError, Output, Piece, Written};
use protocol::exit::SpawnStage;
use protocol::message::{Change, FileKind};
use protocol::requests::{MakeDirectory, Move, Remove, Start, WriteMode};
use protocol::{Cause, FaultCode};
use tests::PATIENCE;
use tests::sandbox::Sandbox;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

async fn read_all(output: &mut Output) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match soon("more of the stream", output.next()).await {
            Piece::Bytes { bytes, .. } => all.extend_from_slice(&bytes),
            Piece::End => return all,
            piece => panic!("{piece:?} after {} bytes", all.len()),
        }
    }
}

async fn read(sandbox: &Sandbox, path: &str, offset: u64, length: Option<u64>) -> Vec<u8> {
    let (mut output, _, _) =
        sandbox.guest.read_file(path, offset, length).await.expect("it is there");
    read_all(&mut output).await
}

async fn write(
    sandbox: &Sandbox,
    target: FileTarget,
    content: &[u8],
) -> Result<Written, GuestError> {
    let mut upload = sandbox.guest.write_file(target)?;
    // A refusal may show already here; the end tells it again, and better.
    let written = soon("the upload", upload.write(content)).await;
    let finished = soon("the end of the upload", upload.finish()).await;
    assert!(finished.is_err() || written.is_ok(), "{written:?}, and yet {finished:?}");
    finished
}

fn pattern(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn a_file_goes_in_and_comes_out_as_it_was_whole_and_in_part() {
    runtime().block_on(async {
        let mut sandbox = Sandbox::start().await;
        let content = pattern(3_000_001);
        let target = FileTarget {
            permissions: Some(0o640),
            uid: Some(12),
            gid: Some(34),
            parents: true,
            ..FileTarget::replace("/srv/made/for/it/data")
        };
        let written = write(&sandbox, target, &content).await.expect("written");
        assert_eq!(written, Written { bytes: 3_000_001, entries: 1 });
        let info = sandbox.guest.stat("/srv/made/for/it/data", false).await.expect("it is there");
        assert_eq!((info.kind, info.bytes), (FileKind::File, 3_000_001));
        assert_eq!((info.permissions, info.uid, info.gid), (0o640, 12, 34));
        assert!(read(&sandbox, "/srv/made/for/it/data", 0, None).await == content);
        let part = read(&sandbox, "/srv/made/for/it/data", 1_234_567, Some(70_000)).await;
        assert!(part == content[1_234_567..1_304_567], "{} bytes", part.len());

        let at = |offset| FileTarget {
            mode: WriteMode::At { offset },
            ..FileTarget::replace("/srv/made/for/it/data")
        };
        write(&sandbox, at(10), b"within").await.expect("written");
        let append = FileTarget {
            mode: WriteMode::Append {},
            ..FileTarget::replace("/srv/made/for/it/data")
        };
        write(&sandbox, append, b"behind").await.expect("written");
        let head = read(&sandbox, "/srv/made/for/it/data", 8, Some(10)).await;
        assert_eq!(head, [&content[8..10], b"within", &content[16..18]].concat());
        assert_eq!(read(&sandbox, "/srv/made/for/it/data", 3_000_001, None).await, b"behind");

        let create = FileTarget {
            mode: WriteMode::Create {},
            ..FileTarget::replace("/srv/made/for/it/data")
        };
        let error = write(&sandbox, create, b"new").await.expect_err("it is there already");
        assert_eq!(error.fault_code(), Some(FaultCode::Exists), "{error}");
        let error = sandbox.guest.read_file("/nowhere", 0, None).await.expect_err("nothing there");
        assert_eq!(error.fault_code(), Some(FaultCode::NotFound), "{error}");
        let ran = sandbox.run(&["wc", "-c", "/srv/made/for/it/data"]).await;
        assert_eq!(ran.stdout, b"3000007 /srv/made/for/it/data\n", "a program sees the same");
        sandbox.end().await;
    });
}

#[test]
fn directories_are_made_listed_moved_and_removed() {
    runtime().block_on(async {
        let sandbox = Sandbox::start().await;
        let guest = &sandbox.guest;
        let make = |path: &str, parents| MakeDirectory {
            path: path.into(),
            permissions: Some(0o700),
            parents,
        };
        let error = guest.make_directory(make("/a/b/c", false)).await.expect_err("no parent");
        assert_eq!(error.fault_code(), Some(FaultCode::NotFound), "{error}");
        guest.make_directory(make("/a/b/c", true)).await.expect("made");
        // More than a page of them.
        for number in 0..1_500_u32 {
            guest.make_directory(make(&format!("/a/b/c/{number:04}"), false)).await.expect("made");
        }
        let names = guest.list("/a/b/c").await.expect("a listing");
        assert_eq!(names.len(), 1_500);
        assert!(names.windows(2).all(|pair| pair[0].name < pair[1].name));
        let rename =
            |from: &str, to: &str| Move { from: from.into(), to: to.into(), replace: false };
        guest.rename(rename("/a/b/c", "/a/d")).await.expect("moved");
        let error = guest.rename(rename("/a/b", "/a/d")).await.expect_err("something is there");
        assert_eq!(error.fault_code(), Some(FaultCode::Exists), "{error}");
        let remove = |recursive| Remove { path: "/a".into(), recursive };
        assert!(guest.remove(remove(false)).await.is_err(), "it is not empty");
        guest.remove(remove(true)).await.expect("removed");
        let error = guest.stat("/a", false).await.expect_err("gone");
        assert_eq!(error.fault_code(), Some(FaultCode::NotFound), "{error}");
        sandbox.end().await;
    });
}

#[test]
fn a_reader_in_the_sandbox_sees_the_old_file_or_the_new_and_nothing_between() {
    runtime().block_on(async {
        const BYTES: usize = 500_000;
        let mut sandbox = Sandbox::start().await;
        let target = || FileTarget::replace("/data");
        write(&sandbox, target(), &vec![b'a'; BYTES]).await.expect("written");
        let script = format!(
            "import os\nseen = set()\nopen('/begun', 'w').close()\nwhile not os.path.exists('/done'):\n\
             \x20   data = open('/data', 'rb').read()\n\
             \x20   assert len(data) == {BYTES} and len(set(data)) == 1, (len(data), set(data))\n\
             \x20   seen.add(data[0])\nprint(len(seen))"
        );
        let start = sandbox.command(&["python3", "-c", &script]);
        let running = {
            let guest = sandbox.guest.clone();
            tokio::spawn(async move {
                let mut stdout = Vec::new();
                let collect = |bytes: &[u8]| stdout.extend_from_slice(bytes);
                let collecting =
                    agent_client::program::collect(&guest, &start, &[], collect, |_| {});
                let finished = collecting.await.expect("it runs");
                (finished.record.cause, stdout)
            })
        };
        let deadline = Instant::now() + PATIENCE;
        while sandbox.guest.stat("/begun", true).await.is_err() {
            assert!(Instant::now() < deadline, "the reader has not begun");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for round in 1..=40_u8 {
            write(&sandbox, target(), &vec![b'a' + round % 26; BYTES]).await.expect("written");
        }
        write(&sandbox, FileTarget::replace("/done"), b"").await.expect("written");
        let (cause, stdout) = soon("the reader's end", running).await.expect("no panic");
        assert_eq!(cause, Cause::Exited { code: 0 });
        let seen: u32 = String::from_utf8(stdout).expect("UTF-8").trim().parse().expect("a number");
        assert!(seen >= 2, "it saw one content only");
        let left = sandbox.guest.list("/").await.expect("a listing");
        let strange = left.iter().filter(|info| info.name.to_string().contains("burrow")).count();
        assert_eq!(strange, 0, "a temporary file is left: {left:?}");
        sandbox.end().await;
    });
}

#[test]
fn a_full_sandbox_refuses_a_file_with_its_reason_and_leaves_the_old_one() {
    runtime().block_on(async {
        let sandbox = Sandbox::start_as(|spec| spec.scratch_bytes = Some(4 << 20)).await;
        let target = || FileTarget { parents: true, ..FileTarget::replace("/kept/data") };
        write(&sandbox, target(), b"old").await.expect("written");
        let error = write(&sandbox, target(), &pattern(16 << 20)).await.expect_err("no room");
        let GuestError::Fault(fault) = &error else { panic!("{error:?}") };
        assert_eq!((fault.code, fault.errno), (FaultCode::Io, Some(28)), "{error}");
        assert!(fault.message.contains("/kept/data"), "it names the file: {error}");
        assert_eq!(read(&sandbox, "/kept/data", 0, None).await, b"old");
        let left = sandbox.guest.list("/kept").await.expect("a listing");
        assert_eq!(left.len(), 1, "{left:?}");
        // The room that the failed attempt had taken is free again.
        write(&sandbox, target(), &pattern(2 << 20)).await.expect("it fits");
        sandbox.end().await;
    });
}

#[test]
fn a_tree_goes_out_as_an_archive_and_in_again_unchanged() {
    runtime().block_on(async {
        let mut sandbox = Sandbox::start().await;
        let script = "mkdir -p /srv/tree/deep/er && cd /srv/tree && seq 1 200000 > numbers \
                      && ln -s ../numbers deep/link && printf x > 'deep/a b' && chmod 4751 numbers \
                      && for i in $(seq 1 300); do echo $i > deep/er/file-$i; done \
                      && touch -d @1000000000 numbers && ln numbers hard";
        let ran = sandbox.run(&["sh", "-c", script]).await;
        assert_eq!(ran.finished.record.cause, Cause::Exited { code: 0 });
        let mut output = sandbox.guest.tar_get("/srv/tree", false).await.expect("an archive");
        let archive = read_all(&mut output).await;
        let mut upload = sandbox.guest.tar_put("/copy/here", true, true).expect("queued");
        soon("the upload", upload.write(&archive)).await.expect("taken");
        let written = soon("its end", upload.finish()).await.expect("unpacked");
        assert!(written.entries >= 305, "{written:?}");
        let compare = "diff -r --no-dereference /srv/tree /copy/here/tree \
                       && stat -c '%a %Y' /copy/here/tree/numbers && readlink /copy/here/tree/deep/link";
        let ran = sandbox.run(&["sh", "-c", compare]).await;
        let stdout = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert_eq!(stdout, "4751 1000000000\n../numbers\n", "{:?}", String::from_utf8(ran.stderr));
        sandbox.end().await;
    });
}

#[test]
fn a_watch_tells_what_happens_below_it() {
    runtime().block_on(async {
        let mut sandbox = Sandbox::start().await;
        sandbox.run(&["mkdir", "-p", "/srv/watched"]).await;
        let mut watcher = sandbox.guest.watch("/srv/watched", true).await.expect("a watch");
        let script = "cd /srv/watched && echo x > file && mkdir dir && mv file moved && rm moved";
        sandbox.run(&["sh", "-c", script]).await;
        let mut seen = Vec::new();
        while !seen.contains(&(Change::Removed, "moved".to_owned())) {
            let event = soon("the next change", watcher.next()).await.expect("a watch");
            let event = event.expect("the directory is there");
            if event.change == Change::Moved {
                assert_eq!(event.from.as_ref().map(ToString::to_string).as_deref(), Some("file"));
            }
            seen.push((event.change, event.path.to_string()));
        }
        for wanted in [
            (Change::Created, "file"),
            (Change::Modified, "file"),
            (Change::Created, "dir"),
            (Change::Moved, "moved"),
        ] {
            assert!(seen.iter().any(|(c, p)| (*c, p.as_str()) == wanted), "{wanted:?}: {seen:?}");
        }
        // A directory that came later is watched, too.
        sandbox.run(&["sh", "-c", "echo y > /srv/watched/dir/below"]).await;
        let mut below = false;
        while !below {
            let event = soon("the next change", watcher.next()).await.expect("a watch");
            below = event.is_some_and(|event| event.path.to_string() == "dir/below");
        }
        // Unwatched changes are not reported, and dropping the watch ends it.
        drop(watcher);
        let ran = timeout(Duration::from_secs(10), sandbox.run(&["true"])).await;
        assert!(ran.is_ok());
        sandbox.end().await;
    });
}

/// A short form of `security::paths`, for machines too: there the agent has a kernel of its own to protect.
#[test]
fn no_path_leads_to_what_a_process_has_open_or_to_files_of_the_kernel() {
    runtime().block_on(async {
        let mut sandbox = Sandbox::start().await;
        let plant = "mkdir -p /srv/own && cd /srv/own && echo ours > file && cp /bin/true program && \
                     ln -s /proc/1/root/srv/own link && ln -s /proc/1/mem memory && ln -s link again";
        let planted = sandbox.run(&["sh", "-c", plant]).await;
        assert!(planted.stderr.is_empty(), "{}", String::from_utf8_lossy(&planted.stderr));
        // What is sound goes on.
        assert_eq!(read(&sandbox, "/srv/own/file", 0, None).await, b"ours\n");
        let here = Start { cwd: Some("/srv/own".into()), ..sandbox.command(&["./program"]) };
        assert_eq!(sandbox.run_start(&here, &[]).await.finished.shell_code(), 0);
        let directories = ["/proc/1/root/srv/own", "/srv/own/link", "/srv/own/again", "/proc/1/cwd"];
        let others = [
            "/proc/1/mem",
            "/srv/own/memory",
            "/proc/1/maps",
            "/proc/self/exe",
            "/proc/1/fd/0",
            "/proc/1/fd/3",
            "/proc/1/fd/4/..",
            "/sys/kernel",
        ];
        for path in directories.iter().chain(&others) {
            let (file, guest) = (format!("{path}/file"), &sandbox.guest);
            let mode = WriteMode::At { offset: 4096 };
            let at = FileTarget { mode, ..FileTarget::replace(*path) };
            let refused = [
                ("list", guest.list(*path).await.map(drop)),
                ("stat", guest.stat(*path, true).await.map(drop)),
                ("read", guest.read_file(*path, 0, None).await.map(drop)),
                ("read below", guest.read_file(file.as_str(), 0, None).await.map(drop)),
                ("archive", guest.tar_get(*path, true).await.map(drop)),
                ("watch", guest.watch(*path, false).await.map(drop)),
                ("write", write(&sandbox, at, b"attack").await.map(drop)),
                ("write below", write(&sandbox, FileTarget::replace(file.as_str()), b"x").await.map(drop)),
            ];
            for (request, answer) in refused {
                assert!(matches!(answer, Err(GuestError::Fault(_))), "{request} {path}: {answer:?}");
            }
            let cwd = Some((*path).into());
            let within = Start { cwd, ..sandbox.command(&["true"]) };
            let program = format!("{path}/program");
            for (stage, start) in [
                (SpawnStage::WorkingDirectory, within),
                (SpawnStage::Exec, sandbox.command(&[path])),
                (SpawnStage::Exec, sandbox.command(&[&program])),
            ] {
                match sandbox.guest.start(&start).await {
                    Err(GuestError::Fault(fault)) => {
                        assert_eq!(fault.spawn.as_ref().map(|spawn| spawn.stage), Some(stage), "{path}");
                    }
                    other => panic!("{path}, {stage:?}: {other:?}"),
                }
            }
        }
        assert_eq!(read(&sandbox, "/srv/own/file", 0, None).await, b"ours\n");
        sandbox.end().await;
    });
}

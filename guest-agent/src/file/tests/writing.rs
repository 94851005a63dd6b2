use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use protocol::message::Reply;
use protocol::requests::{WriteFile, WriteMode};
use protocol::{Fault, FaultCode, StreamId, Text};

use super::super::write_file;
use super::client::{gone, run, upload, uploaded};
use super::{Scratch, SmallDisk, is_root, text};

fn ask(path: Text, mode: WriteMode) -> WriteFile {
    WriteFile {
        path,
        stream: StreamId(1),
        mode,
        permissions: None,
        uid: None,
        gid: None,
        parents: false,
    }
}

async fn write(ask: WriteFile, content: &[u8]) -> Result<Reply, Fault> {
    write_file(ask, uploaded(content)).await
}

const REPLACE: WriteMode = WriteMode::Replace {};
const CREATE: WriteMode = WriteMode::Create {};
const APPEND: WriteMode = WriteMode::Append {};

#[test]
fn a_new_file_is_complete_with_its_permissions_when_the_answer_comes() {
    run(async {
        let scratch = Scratch::new();
        let content = vec![b'x'; 1_000_000];
        let written = write(ask(scratch.text("f"), REPLACE), &content).await.unwrap();
        assert_eq!(written, Reply::Written { bytes: 1_000_000, entries: 1 });
        assert_eq!(std::fs::read(scratch.at("f")).unwrap(), content);
        assert_eq!(scratch.at("f").metadata().unwrap().mode() & 0o7777, 0o644);
        let ask = WriteFile { permissions: Some(0o4751), ..ask(scratch.text("g"), CREATE) };
        write(ask, b"").await.unwrap();
        assert_eq!(scratch.at("g").metadata().unwrap().mode() & 0o7777, 0o4751);
        assert_eq!(scratch.names(""), ["f", "g"]);
    });
}

#[test]
fn zeros_of_a_new_file_take_no_room_and_are_read_back() {
    run(async {
        let scratch = Scratch::new();
        let mut content = vec![0; 4_000_000];
        content[1_234_567] = 1;
        for mode in [CREATE, REPLACE] {
            write(ask(scratch.text("f"), mode), &content).await.unwrap();
            assert_eq!(std::fs::read(scratch.at("f")).unwrap(), content);
            let stored = scratch.at("f").metadata().unwrap().blocks() * 512;
            assert!(stored < 400_000, "{stored} bytes are stored");
        }
        // Zeros replace existing content.
        write(ask(scratch.text("f"), REPLACE), &vec![b'x'; 20_000]).await.unwrap();
        write(ask(scratch.text("f"), WriteMode::At { offset: 0 }), &[0; 10_000]).await.unwrap();
        write(ask(scratch.text("f"), APPEND), &[0; 10_000]).await.unwrap();
        let expected = [vec![0; 10_000], vec![b'x'; 10_000], vec![0; 10_000]].concat();
        assert_eq!(std::fs::read(scratch.at("f")).unwrap(), expected);
    });
}

#[test]
fn a_replaced_file_keeps_its_permissions_and_owner() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("f", "old");
        std::fs::set_permissions(scratch.at("f"), PermissionsExt::from_mode(0o600)).unwrap();
        if is_root() {
            std::os::unix::fs::chown(scratch.at("f"), Some(1234), Some(4321)).unwrap();
        }
        let before = scratch.at("f").metadata().unwrap();
        write(ask(scratch.text("f"), REPLACE), b"new").await.unwrap();
        let after = scratch.at("f").metadata().unwrap();
        assert_eq!(
            (before.mode(), before.uid(), before.gid()),
            (after.mode(), after.uid(), after.gid())
        );
        assert_ne!(before.ino(), after.ino(), "readers of the old file keep the old content");
        assert_eq!(scratch.read("f"), "new");
    });
}

#[test]
fn a_symlink_stays_and_what_it_points_to_is_replaced() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("directory/f", "old");
        symlink("directory/f", scratch.at("middle")).unwrap();
        symlink(scratch.at("middle"), scratch.at("link")).unwrap();
        write(ask(scratch.text("link"), REPLACE), b"new").await.unwrap();
        assert!(scratch.at("link").is_symlink() && scratch.at("middle").is_symlink());
        assert_eq!(scratch.read("directory/f"), "new");
        assert_eq!(scratch.names("directory"), ["f"]);

        symlink("nowhere", scratch.at("dangling")).unwrap();
        write(ask(scratch.text("dangling"), APPEND), b"made").await.unwrap();
        assert_eq!(scratch.read("nowhere"), "made");

        symlink("loop", scratch.at("loop")).unwrap();
        write(ask(scratch.text("loop"), REPLACE), b"").await.unwrap_err();
    });
}

#[test]
fn create_never_replaces_not_even_a_file_that_appears_meanwhile() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("f", "old");
        symlink("nowhere", scratch.at("link")).unwrap();
        for name in ["f", "link"] {
            let fault = write(ask(scratch.text(name), CREATE), b"new").await.unwrap_err();
            assert_eq!(fault.code, FaultCode::Exists);
        }
        let (client, inlet) = upload();
        let ask = ask(scratch.text("late"), CREATE);
        let writing = tokio::task::spawn_local(write_file(ask, inlet.clone()));
        inlet.push(b"new");
        client.consumed_up_to(3).await;
        scratch.write("late", "faster");
        inlet.finish();
        assert_eq!(writing.await.unwrap().unwrap_err().code, FaultCode::Exists);
        assert_eq!(scratch.read("late"), "faster");
        assert_eq!(scratch.names(""), ["f", "late", "link"]);
    });
}

#[test]
fn at_and_append_write_in_place() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("f", "0123456789");
        let inode = scratch.at("f").metadata().unwrap().ino();
        write(ask(scratch.text("f"), WriteMode::At { offset: 3 }), b"abc").await.unwrap();
        write(ask(scratch.text("f"), APPEND), b"!").await.unwrap();
        assert_eq!(scratch.read("f"), "012abc6789!");
        assert_eq!(scratch.at("f").metadata().unwrap().ino(), inode);
        write(ask(scratch.text("new"), WriteMode::At { offset: 2 }), b"x").await.unwrap();
        assert_eq!(scratch.read("new"), "\0\0x");
        assert_eq!(scratch.at("new").metadata().unwrap().mode() & 0o7777, 0o644);
        let beyond = WriteMode::At { offset: u64::MAX };
        let fault = write(ask(scratch.text("f"), beyond), b"x").await.unwrap_err();
        assert_eq!(fault.errno, Some(libc::EFBIG));
    });
}

#[test]
fn missing_parents_are_made_only_when_asked_for() {
    run(async {
        let scratch = Scratch::new();
        let deep = ask(scratch.text("a/b/f"), REPLACE);
        assert_eq!(write(deep.clone(), b"x").await.unwrap_err().code, FaultCode::NotFound);
        write(WriteFile { parents: true, ..deep }, b"x").await.unwrap();
        assert_eq!(scratch.read("a/b/f"), "x");
    });
}

#[test]
fn a_stream_that_is_given_up_leaves_the_old_file_and_nothing_else() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("f", "old");
        let (client, inlet) = upload();
        let ask = ask(scratch.text("f"), REPLACE);
        let writing = tokio::task::spawn_local(write_file(ask, inlet.clone()));
        inlet.push(b"half of the n");
        client.consumed_up_to(13).await;
        assert_eq!(scratch.names("").len(), 2, "it is written beside");
        inlet.fail(gone());
        assert_eq!(writing.await.unwrap().unwrap_err().code, FaultCode::Gone);
        assert_eq!((scratch.names(""), scratch.read("f")), (vec!["f".to_owned()], "old".into()));
    });
}

#[test]
fn unwritable_paths_are_refused_by_name() {
    run(async {
        let scratch = Scratch::new();
        nix::unistd::mkfifo(&scratch.at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for mode in [REPLACE, APPEND, WriteMode::At { offset: 0 }] {
            for path in [scratch.text("fifo"), scratch.text(""), "/dev/null".into(), "/".into()] {
                let fault = write(ask(path.clone(), mode), b"x").await.unwrap_err();
                assert_eq!(fault.code, FaultCode::Invalid, "{path}: {fault}");
            }
        }
        let permissions = Some(0o10_000);
        let odd = WriteFile { permissions, ..ask(scratch.text("f"), REPLACE) };
        assert_eq!(write(odd, b"").await.unwrap_err().code, FaultCode::Invalid);
        let long = ask(scratch.text(&"x".repeat(256)), REPLACE);
        assert_eq!(write(long, b"").await.unwrap_err().errno, Some(libc::ENAMETOOLONG));
        assert_eq!(scratch.names(""), ["fifo"]);
    });
}

#[test]
fn a_full_disk_is_a_fault_with_a_clear_sentence_and_no_leftover() {
    run(async {
        let scratch = Scratch::new();
        let disk = scratch.at("disk");
        let Some(_mounted) = SmallDisk::mount(&disk, 256 * 1024) else { return };
        std::fs::write(disk.join("f"), "old").unwrap();
        let ask = ask(text(&disk.join("f")), REPLACE);
        let fault = write(ask, &vec![b'x'; 1_000_000]).await.unwrap_err();
        assert_eq!((fault.code, fault.errno), (FaultCode::Io, Some(libc::ENOSPC)));
        assert!(fault.message.ends_with("no space is left on its file system"), "{fault}");
        assert_eq!(scratch.read("disk/f"), "old");
        assert_eq!(scratch.names("disk"), ["f"]);
    });
}

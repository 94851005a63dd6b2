use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use archive::{END_OF_ARCHIVE, Entry, Kind, encode_entry, padding};
use protocol::message::Reply;
use protocol::requests::TarPut;
use protocol::{Fault, FaultCode, StreamId, Text};

use super::super::limits::DEFERRED_BYTES_MAX;
use super::super::tar_put;
use super::client::{gone, run, upload, uploaded};
use super::{Scratch, SmallDisk, is_root, text};

fn ask(path: Text) -> TarPut {
    TarPut { path, stream: StreamId(1), owners: false, parents: false }
}

pub(super) async fn unpack(path: Text, archive: &[u8]) -> Result<Reply, Fault> {
    tar_put(ask(path), uploaded(archive)).await
}

/// An archive under construction.
#[derive(Default)]
struct Tar(Vec<u8>);

impl Tar {
    fn entry(mut self, path: &str, kind: Kind, mode: u32) -> Self {
        let path = path.as_bytes().to_vec();
        let (uid, gid) = (1234, 4321);
        let (mtime_s, mtime_ns) = (1_000_000_000, 5);
        let entry = Entry { path, kind, mode, uid, gid, mtime_s, mtime_ns };
        encode_entry(&entry, &mut self.0).unwrap();
        self
    }

    fn file(self, path: &str, content: &str) -> Self {
        let size = content.len() as u64;
        let mut tar = self.entry(path, Kind::File { size }, 0o640);
        tar.0.extend(content.as_bytes());
        tar.0.extend(padding(size));
        tar
    }

    fn directory(self, path: &str, mode: u32) -> Self {
        self.entry(path, Kind::Directory, mode)
    }

    fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(path, Kind::Symlink { target: target.into() }, 0o777)
    }

    fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(path, Kind::HardLink { target: target.into() }, 0o640)
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend(END_OF_ARCHIVE);
        self.0
    }
}

/// A target for archives, with a file beside it that none of them may reach.
fn target() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("outside/kept", "kept");
    fs::create_dir(scratch.at("target")).unwrap();
    scratch
}

/// Unpacks an archive that must be refused, and checks that nothing outside was touched.
async fn refused(scratch: &Scratch, tar: Tar) -> Fault {
    let fault = unpack(scratch.text("target"), &tar.end()).await.expect_err("this is hostile");
    assert_eq!(scratch.names(""), ["outside", "target"]);
    assert_eq!(scratch.names("outside"), ["kept"]);
    assert_eq!(scratch.read("outside/kept"), "kept");
    fault
}

#[test]
fn entries_are_unpacked_with_their_permissions_and_times() {
    run(async {
        let scratch = target();
        let tar = Tar::default()
            .directory("./", 0o700)
            .directory("d", 0o555)
            .file("d/f", "hello")
            .symlink("d/link", "/anywhere/at all")
            .hard_link("d/same", "d/f")
            .entry("fifo", Kind::Fifo, 0o600)
            .file("implied/parents/f", "x");
        let before = scratch.at("target").metadata().unwrap();
        let reply = unpack(scratch.text("target"), &tar.end()).await.unwrap();
        assert_eq!(reply, Reply::Written { bytes: 6, entries: 7 });
        assert_eq!(scratch.read("target/d/f"), "hello");
        let status = |name: &str| scratch.at(name).symlink_metadata().unwrap();
        assert_eq!(status("target").mode(), before.mode(), "the target stays as it is");
        assert_eq!(status("target/d").mode() & 0o7777, 0o555);
        assert_eq!(status("target/d/f").mode() & 0o7777, 0o640);
        for name in ["target/d", "target/d/f", "target/d/link", "target/fifo"] {
            let status = status(name);
            assert_eq!((status.mtime(), status.mtime_nsec()), (1_000_000_000, 5), "{name}");
            assert_eq!(status.uid(), nix::unistd::geteuid().as_raw(), "{name}");
        }
        assert_eq!(status("target/d/same").ino(), status("target/d/f").ino());
        assert!(status("target/fifo").file_type().is_fifo());
        assert_eq!(status("target/implied").mode() & 0o7777, 0o755);
        fs::set_permissions(scratch.at("target/d"), PermissionsExt::from_mode(0o755)).unwrap();
    });
}

#[test]
fn zeros_of_an_unpacked_file_take_no_room_and_are_read_back() {
    run(async {
        let scratch = target();
        let content = format!("{}x{}", "\0".repeat(2_000_000), "\0".repeat(1_000_000));
        let tar = Tar::default().file("f", &content).file("g", "beside");
        unpack(scratch.text("target"), &tar.end()).await.unwrap();
        assert_eq!(scratch.read("target/f"), content);
        assert_eq!(scratch.read("target/g"), "beside");
        let status = scratch.at("target/f").metadata().unwrap();
        assert!(status.blocks() * 512 < 300_000, "{} blocks are stored", status.blocks());
        assert_eq!(status.mtime(), 1_000_000_000, "it is as long as it gets before its time");
    });
}

#[test]
fn owners_and_set_id_bits_come_only_when_asked_for() {
    if !is_root() {
        println!("skipped: only root may give files away");
        return;
    }
    run(async {
        let scratch = target();
        let tar = Tar::default()
            .entry("f", Kind::File { size: 0 }, 0o4755)
            .directory("d", 0o2755)
            .symlink("link", "f")
            .entry("fifo", Kind::Fifo, 0o600)
            .end();
        unpack(scratch.text("target"), &tar).await.unwrap();
        let status = |name: &str| scratch.at(name).symlink_metadata().unwrap();
        assert_eq!((status("target/f").uid(), status("target/f").mode() & 0o7777), (0, 0o755));
        let owned = TarPut { owners: true, ..ask(scratch.text("target")) };
        tar_put(owned, uploaded(&tar)).await.unwrap();
        for name in ["target/f", "target/d", "target/link", "target/fifo"] {
            assert_eq!((status(name).uid(), status(name).gid()), (1234, 4321), "{name}");
        }
        assert_eq!(status("target/f").mode() & 0o7777, 0o4755);
        assert_eq!(status("target/d").mode() & 0o7777, 0o2755);
    });
}

#[test]
fn existing_files_are_replaced_and_never_written_through() {
    run(async {
        let scratch = target();
        scratch.write("target/f", "old");
        fs::hard_link(scratch.at("outside/kept"), scratch.at("target/linked")).unwrap();
        symlink(scratch.at("outside/kept"), scratch.at("target/link")).unwrap();
        let tar = Tar::default()
            .file("f", "new")
            .file("linked", "new")
            .file("link", "new")
            .directory("f2", 0o755)
            .end();
        unpack(scratch.text("target"), &tar).await.unwrap();
        for name in ["target/f", "target/linked", "target/link"] {
            assert_eq!(scratch.read(name), "new");
        }
        assert!(!scratch.at("target/link").is_symlink());
        assert_eq!(scratch.read("outside/kept"), "kept");
        unpack(scratch.text("target"), &tar).await.expect("it can be done again");
    });
}

#[test]
fn absolute_paths_and_parents_are_refused() {
    run(async {
        let scratch = target();
        let absolute = scratch.at("outside/new").to_str().unwrap().to_owned();
        for path in [absolute.as_str(), "../outside/new", "d/../../outside/new", ".."] {
            let fault = refused(&scratch, Tar::default().file(path, "x")).await;
            assert_eq!(fault.code, FaultCode::Denied, "{path}: {fault}");
        }
        for kind in [Kind::Directory, Kind::Symlink { target: "x".into() }, Kind::Fifo] {
            let tar = Tar::default().entry("../new", kind, 0o777);
            assert_eq!(refused(&scratch, tar).await.code, FaultCode::Denied);
        }
    });
}

#[test]
fn no_entry_goes_through_any_symlink() {
    run(async {
        let scratch = target();
        let outside = scratch.at("outside").to_str().unwrap().to_owned();
        for to in [outside.as_str(), "../outside", "/", "."] {
            let tar = Tar::default().symlink("out", to).file("out/new", "x");
            let fault = refused(&scratch, tar).await;
            assert_eq!(fault.code, FaultCode::Denied, "{fault}");
            assert!(fault.message.contains("\"out/new\" leads through a symlink"), "{fault}");
            let deep = Tar::default().symlink("out", to).file("out/kept/d/new", "x");
            assert_eq!(refused(&scratch, deep).await.code, FaultCode::Denied);
            let directory = Tar::default().symlink("out", to).directory("out", 0o777);
            assert_eq!(refused(&scratch, directory).await.code, FaultCode::Denied);
        }
        symlink("../outside", scratch.at("target/there")).unwrap();
        for tar in [
            Tar::default().file("there/new", "x"),
            Tar::default().directory("there/new", 0o755),
            Tar::default().symlink("there/new", "x"),
            Tar::default().hard_link("mine", "there/kept"),
            Tar::default().file("f", "").hard_link("there/new", "f"),
            Tar::default().entry("there/new", Kind::Fifo, 0o600),
        ] {
            assert_eq!(refused(&scratch, tar).await.code, FaultCode::Denied);
        }
    });
}

#[test]
fn hard_links_lead_nowhere_outside() {
    run(async {
        let scratch = target();
        let absolute = scratch.at("outside/kept").to_str().unwrap().to_owned();
        for to in [absolute.as_str(), "../outside/kept", "d/../../outside/kept"] {
            let fault = refused(&scratch, Tar::default().hard_link("mine", to)).await;
            assert_eq!(fault.code, FaultCode::Denied, "{fault}");
        }
        let missing = refused(&scratch, Tar::default().hard_link("mine", "none")).await;
        assert_eq!(missing.code, FaultCode::NotFound);
        assert!(missing.message.ends_with("(a hard link to \"none\")"), "{missing}");
        let itself = Tar::default().file("f", "x").hard_link("./f", "f");
        assert_eq!(refused(&scratch, itself).await.code, FaultCode::Invalid);
        assert_eq!(scratch.read("target/f"), "x");
        let symlinked = Tar::default()
            .symlink("out", "../outside/kept")
            .hard_link("mine", "out")
            .file("mine", "new")
            .end();
        unpack(scratch.text("target"), &symlinked).await.unwrap();
        assert_eq!(scratch.read("outside/kept"), "kept", "a link to a symlink is a symlink");
    });
}

#[test]
fn a_directory_exchanged_for_a_symlink_while_unpacking_leads_nowhere() {
    run(async {
        let scratch = target();
        let stop = Arc::new(AtomicBool::new(false));
        let (directory, stopping) = (scratch.at("target/d"), stop.clone());
        let exchanger = std::thread::spawn(move || {
            // The other side makes things here too, so that any step may fail.
            while !stopping.load(Ordering::Relaxed) {
                fs::remove_dir_all(&directory).ok();
                symlink("../outside", &directory).ok();
                fs::remove_file(&directory).ok();
                fs::create_dir(&directory).ok();
            }
        });
        let mut denied = 0;
        while denied < 20 {
            let tar = Tar::default().file("d/f", "x").directory("d", 0o700).end();
            let outcome = unpack(scratch.text("target"), &tar).await;
            denied += u32::from(outcome.is_err_and(|fault| fault.code == FaultCode::Denied));
        }
        stop.store(true, Ordering::Relaxed);
        exchanger.join().unwrap();
        assert_eq!(scratch.names("outside"), ["kept"]);
        assert_ne!(scratch.at("outside").metadata().unwrap().mtime(), 1_000_000_000);
    });
}

#[test]
fn a_file_that_claims_to_be_huge_takes_no_more_than_it_brings() {
    run(async {
        let scratch = target();
        let mut tar = Tar::default().file("before", "x");
        tar = tar.entry("huge", Kind::File { size: i64::MAX as u64 }, 0o600);
        tar.0.extend([b'x'; 5000]);
        let fault = unpack(scratch.text("target"), &tar.0).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::Invalid);
        assert!(fault.message.contains("after 1 entries: archive cut off"), "{fault}");
        assert_eq!(scratch.names("target"), ["before"], "half a file does not stay");
    });
}

#[test]
fn invalid_archives_are_refused() {
    run(async {
        let scratch = target();
        for bytes in [&b""[..], &[b'x'; 600], &[0; 512], &Tar::default().file("f", "x").0] {
            let fault = unpack(scratch.text("target"), bytes).await.unwrap_err();
            assert_eq!(fault.code, FaultCode::Invalid, "{fault}");
        }
        unpack(scratch.text("target"), END_OF_ARCHIVE).await.expect("an empty one is one");
        let fault = unpack(scratch.text("outside/kept"), END_OF_ARCHIVE).await.unwrap_err();
        assert!(fault.message.ends_with("Not a directory"), "{fault}");
    });
}

#[test]
fn a_directory_is_replaced_by_no_other_entry_and_replaces_a_file() {
    run(async {
        let scratch = target();
        scratch.write("target/d/f", "kept");
        scratch.write("target/f", "old");
        for tar in [Tar::default().file("d", "x"), Tar::default().symlink("d", "x")] {
            assert_eq!(refused(&scratch, tar).await.code, FaultCode::Exists);
        }
        let file_as_root = Tar::default().file(".", "x");
        assert_eq!(refused(&scratch, file_as_root).await.code, FaultCode::Invalid);
        unpack(scratch.text("target"), &Tar::default().directory("f", 0o755).end()).await.unwrap();
        assert!(scratch.at("target/f").is_dir());
        assert_eq!(scratch.read("target/d/f"), "kept");
    });
}

#[test]
fn the_last_of_several_entries_for_a_directory_counts() {
    run(async {
        let scratch = target();
        let tar = Tar::default()
            .directory("d", 0o700)
            .directory("d/inner", 0o711)
            .directory("d", 0o751)
            .symlink("gone", "x")
            .end();
        unpack(scratch.text("target"), &tar).await.unwrap();
        assert_eq!(scratch.at("target/d").metadata().unwrap().mode() & 0o7777, 0o751);
        assert_eq!(scratch.at("target/d/inner").metadata().unwrap().mode() & 0o7777, 0o711);
    });
}

#[test]
fn more_directories_than_are_remembered_still_get_their_permissions() {
    run(async {
        let scratch = target();
        let mut tar = Tar::default().directory("top", 0o705);
        let count = DEFERRED_BYTES_MAX / 256 + 100;
        for number in 0..count {
            tar = tar.directory(&format!("top/d{number}"), 0o750);
        }
        unpack(scratch.text("target"), &tar.end()).await.unwrap();
        let mode = |name: &str| scratch.at(name).metadata().unwrap().mode() & 0o7777;
        assert_eq!(mode("target/top"), 0o705);
        assert_eq!(scratch.at("target/top").metadata().unwrap().mtime(), 1_000_000_000);
        for number in [0, count / 2, count - 1] {
            assert_eq!(mode(&format!("target/top/d{number}")), 0o750);
        }
    });
}

#[test]
fn a_missing_target_is_made_only_when_asked_for() {
    run(async {
        let scratch = Scratch::new();
        let tar = Tar::default().file("f", "x").end();
        let fault = unpack(scratch.text("a/b"), &tar).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::NotFound);
        let made = TarPut { parents: true, ..ask(scratch.text("a/b")) };
        tar_put(made, uploaded(&tar)).await.unwrap();
        assert_eq!(scratch.read("a/b/f"), "x");
    });
}

#[test]
fn a_stream_that_is_given_up_leaves_whole_entries_alone() {
    run(async {
        let scratch = target();
        let tar = Tar::default().directory("d", 0o711).file("d/f", "x").file("d/half", "yy").end();
        let cut = tar.len() - END_OF_ARCHIVE.len() - 511;
        let (client, inlet) = upload();
        let unpacking =
            tokio::task::spawn_local(tar_put(ask(scratch.text("target")), inlet.clone()));
        inlet.push(&tar[..cut]);
        client.consumed_up_to(cut as u64).await;
        inlet.fail(gone());
        assert_eq!(unpacking.await.unwrap().unwrap_err().code, FaultCode::Gone);
        assert_eq!(scratch.names("target/d"), ["f"]);
        assert_eq!(scratch.at("target/d").metadata().unwrap().mode() & 0o7777, 0o711);
    });
}

#[test]
fn a_full_disk_names_the_entry_at_which_it_was_full() {
    run(async {
        let scratch = target();
        let disk = scratch.at("disk");
        let Some(_mounted) = SmallDisk::mount(&disk, 256 * 1024) else { return };
        let tar = Tar::default().file("small", "x").file("large", &"x".repeat(1_000_000)).end();
        let fault = unpack(text(&disk), &tar).await.unwrap_err();
        assert_eq!(fault.errno, Some(libc::ENOSPC));
        assert_eq!(fault.message, "cannot unpack \"large\": no space is left on its file system");
        assert_eq!(scratch.names("disk"), ["small"]);
    });
}

#[test]
fn devices_are_made_or_their_refusal_is_a_fault() {
    run(async {
        let scratch = target();
        let null = Kind::CharDevice { major: 1, minor: 3 };
        let tar = Tar::default().entry("null", null, 0o666).end();
        match unpack(scratch.text("target"), &tar).await {
            Ok(_) => {
                let status = scratch.at("target/null").metadata().unwrap();
                assert!(status.file_type().is_char_device());
                assert_eq!((status.rdev(), status.mode() & 0o7777), (0x103, 0o666));
            }
            Err(fault) => {
                println!("skipped: no devices can be made here");
                assert_eq!(fault.errno, Some(libc::EPERM));
            }
        }
    });
}

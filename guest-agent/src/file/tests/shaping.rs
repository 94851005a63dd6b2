use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use protocol::message::Reply;
use protocol::requests::{MakeDirectory, Move, Remove};
use protocol::{Fault, FaultCode, Text};

use super::super::limits::TREE_DEPTH_MAX;
use super::super::{make_directory, remove, rename};
use super::client::run;
use super::{Scratch, SmallDisk, text};

async fn make(path: Text, permissions: Option<u32>, parents: bool) -> Result<Reply, Fault> {
    make_directory(MakeDirectory { path, permissions, parents }).await
}

async fn remove_all(path: Text) -> Result<Reply, Fault> {
    remove(Remove { path, recursive: true }).await
}

async fn remove_one(path: Text) -> Result<Reply, Fault> {
    remove(Remove { path, recursive: false }).await
}

#[test]
fn a_directory_is_made_with_just_the_permissions_asked_for() {
    run(async {
        let scratch = Scratch::new();
        make(scratch.text("a"), Some(0o1777), false).await.unwrap();
        assert_eq!(scratch.at("a").metadata().unwrap().mode() & 0o7777, 0o1777);
        make(scratch.text("b"), None, false).await.unwrap();
        assert_eq!(scratch.at("b").metadata().unwrap().mode() & 0o7777, 0o755);
        assert_eq!(make(scratch.text("a"), None, false).await.unwrap_err().code, FaultCode::Exists);
        let deep = make(scratch.text("c/d"), None, false).await;
        assert_eq!(deep.unwrap_err().code, FaultCode::NotFound);
    });
}

#[test]
fn with_parents_a_directory_that_is_there_will_do_and_stays_as_it_is() {
    run(async {
        let scratch = Scratch::new();
        make(scratch.text("a/b/c"), Some(0o700), true).await.unwrap();
        assert_eq!(scratch.at("a/b/c").metadata().unwrap().mode() & 0o7777, 0o700);
        assert_eq!(scratch.at("a/b").metadata().unwrap().mode() & 0o7777, 0o755);
        make(scratch.text("a/b/c"), Some(0o777), true).await.unwrap();
        assert_eq!(scratch.at("a/b/c").metadata().unwrap().mode() & 0o7777, 0o700);
        scratch.write("f", "");
        assert_eq!(make(scratch.text("f"), None, true).await.unwrap_err().code, FaultCode::Exists);
        make("/".into(), None, true).await.unwrap();
    });
}

#[test]
fn a_move_replaces_only_on_request() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("a", "new");
        scratch.write("b", "old");
        let ask = Move { from: scratch.text("a"), to: scratch.text("b"), replace: false };
        assert_eq!(rename(ask.clone()).await.unwrap_err().code, FaultCode::Exists);
        assert_eq!(scratch.read("b"), "old");
        rename(Move { replace: true, ..ask.clone() }).await.unwrap();
        assert_eq!((scratch.read("b"), scratch.names("")), ("new".into(), vec!["b".to_owned()]));
        rename(Move { from: ask.to, to: ask.from, replace: false }).await.unwrap();
        assert_eq!(scratch.names(""), ["a"]);
        let root = Move { from: "/".into(), to: scratch.text("x"), replace: false };
        assert_eq!(rename(root).await.unwrap_err().code, FaultCode::Invalid);
    });
}

#[test]
fn a_move_to_another_file_system_says_what_to_do_instead() {
    run(async {
        let scratch = Scratch::new();
        let disk = scratch.at("disk");
        let Some(_mounted) = SmallDisk::mount(&disk, 64 * 1024) else { return };
        scratch.write("a", "x");
        let ask = Move { from: scratch.text("a"), to: text(&disk.join("a")), replace: false };
        let fault = rename(ask).await.unwrap_err();
        assert_eq!(fault.errno, Some(libc::EXDEV));
        assert!(fault.message.ends_with("it is on another file system, so it must be copied"));
    });
}

#[test]
fn a_tree_is_removed_and_what_its_symlinks_point_to_is_not() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("outside/kept", "kept");
        scratch.write("tree/a/b/c/f", "x");
        for number in 0..500 {
            scratch.write(&format!("tree/many/f{number}"), "x");
        }
        symlink(scratch.at("outside"), scratch.at("tree/a/link")).unwrap();
        symlink("tree", scratch.at("link")).unwrap();
        remove_all(scratch.text("link")).await.unwrap();
        assert!(scratch.at("tree/a/b/c/f").exists(), "only the link is removed");
        remove_all(scratch.text("tree/")).await.unwrap();
        assert_eq!(scratch.names(""), ["outside"]);
        assert_eq!(scratch.read("outside/kept"), "kept");
    });
}

#[test]
fn without_recursion_only_what_is_empty_is_removed() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("d/f", "");
        let fault = remove_one(scratch.text("d")).await.unwrap_err();
        assert_eq!(fault.errno, Some(libc::ENOTEMPTY));
        remove_one(scratch.text("d/f")).await.unwrap();
        remove_one(scratch.text("d")).await.unwrap();
        assert_eq!(remove_one(scratch.text("d")).await.unwrap_err().code, FaultCode::NotFound);
        assert_eq!(remove_all(scratch.text("d")).await.unwrap_err().code, FaultCode::NotFound);
    });
}

#[test]
fn paths_without_a_name_are_never_removed() {
    run(async {
        for path in ["/", "//", "/..", "/tmp/..", "/.", ""] {
            for recursive in [false, true] {
                let fault = remove(Remove { path: path.into(), recursive }).await.unwrap_err();
                assert_eq!(fault.code, FaultCode::Invalid, "{path:?}");
            }
        }
    });
}

#[test]
fn a_removal_stops_at_a_mount() {
    run(async {
        let scratch = Scratch::new();
        let disk = scratch.at("tree/disk");
        let Some(_mounted) = SmallDisk::mount(&disk, 64 * 1024) else { return };
        fs::write(disk.join("kept"), "kept").unwrap();
        for path in ["tree", "tree/disk"] {
            let fault = remove_all(scratch.text(path)).await.unwrap_err();
            assert_eq!(fault.code, FaultCode::Denied, "{fault}");
            assert!(fault.message.contains("/tree/disk\" is a mount point"), "{fault}");
        }
        assert_eq!(scratch.read("tree/disk/kept"), "kept");
    });
}

#[test]
fn a_removal_stops_at_a_directory_mounted_elsewhere_on_the_same_file_system() {
    run(async {
        use nix::mount::{MntFlags, MsFlags, mount, umount2};
        let scratch = Scratch::new();
        scratch.write("outside/kept", "kept");
        fs::create_dir_all(scratch.at("tree/bound")).unwrap();
        let (from, to) = (scratch.at("outside"), scratch.at("tree/bound"));
        let none = None::<&str>;
        if let Err(errno) = mount(Some(&from), &to, none, MsFlags::MS_BIND, none) {
            println!("skipped: cannot bind a directory: {errno}");
            return;
        }
        let fault = remove_all(scratch.text("tree")).await.unwrap_err();
        umount2(&to, MntFlags::MNT_DETACH).unwrap();
        assert_eq!(fault.code, FaultCode::Denied, "{fault}");
        assert_eq!(scratch.read("outside/kept"), "kept");
    });
}

#[test]
fn a_tree_that_is_too_deep_is_refused_with_its_depth() {
    run(async {
        let scratch = Scratch::new();
        let mut deep = scratch.at("tree");
        for _ in 0..TREE_DEPTH_MAX {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        let fault = remove_all(scratch.text("tree")).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::Limit);
        fs::remove_dir(&deep).unwrap();
        remove_all(scratch.text("tree")).await.unwrap();
        assert_eq!(scratch.names(""), [""; 0]);
    });
}

#[test]
fn a_directory_that_is_filled_while_it_is_removed_is_removed_or_reported() {
    run(async {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, Ordering};
        let scratch = Scratch::new();
        fs::create_dir(scratch.at("tree")).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (path, stopping) = (scratch.at("tree"), stop.clone());
        let filler = std::thread::spawn(move || {
            let mut number = 0_u64;
            while !stopping.load(Ordering::Relaxed) {
                fs::write(path.join(format!("f{number}")), "").ok();
                number += 1;
            }
        });
        let outcome = remove_all(scratch.text("tree")).await;
        stop.store(true, Ordering::Relaxed);
        filler.join().unwrap();
        if let Err(fault) = outcome {
            assert_eq!(fault.errno, Some(libc::ENOTEMPTY), "{fault}");
        }
    });
}

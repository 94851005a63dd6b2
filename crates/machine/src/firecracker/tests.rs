use std::path::PathBuf;

use super::*;
use crate::vmm::{Disk, Kit, MachineInputs};

/// A plan over a kit of empty files, in a directory of its own.
pub fn plan(name: &str) -> (PathBuf, Plan) {
    let directory = std::env::temp_dir().join(format!("burrow-fc-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(directory.join("kit")).unwrap();
    for file in ["kit/vmlinux", "kit/initramfs.cpio", "kit/base.erofs", "scratch.img"] {
        std::fs::write(directory.join(file), b"").unwrap();
    }
    let plan = Plan {
        id: "0123456789ab".parse().unwrap(),
        directory: directory.clone(),
        temporary: true,
        kit: Kit::in_directory(directory.join("kit")).unwrap(),
        disks: vec![
            Disk { path: directory.join("kit/base.erofs"), read_only: true },
            Disk { path: directory.join("scratch.img"), read_only: false },
        ],
        layer: None,
        bind: None,
        memory_bytes: 100_000_000,
        cpus: 2,
        words: vec!["burrow.root=/dev/vda".to_owned(), "burrow.ask".to_owned()],
    };
    (directory, plan)
}

#[test]
fn the_orders_for_a_machine_are_complete_and_the_start_is_the_last() {
    let (directory, plan) = plan("orders");
    let orders = orders(&plan, false).unwrap();
    let paths: Vec<_> = orders.iter().map(|(path, _)| path.as_str()).collect();
    let wanted =
        ["/machine-config", "/boot-source", "/drives/disk0", "/drives/disk1", "/vsock", "/actions"];
    assert_eq!(paths, wanted);
    assert_eq!(orders[0].1, json!({ "vcpu_count": 2, "mem_size_mib": 96, "smt": false }));
    let words = orders[1].1["boot_args"].as_str().unwrap();
    assert!(words.contains("reboot=k") && words.contains("burrow.halt=reboot"), "{words}");
    assert!(words.ends_with(" burrow.root=/dev/vda burrow.ask"), "{words}");
    let scratch = json!({
        "drive_id": "disk1",
        "path_on_host": "disks/disk1",
        "is_root_device": false,
        "is_read_only": false,
        "cache_type": "Writeback",
    });
    assert_eq!(orders[3].1, scratch);
    assert_eq!(orders[4].1, json!({ "guest_cid": 3, "uds_path": "vsock" }));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn in_a_jail_everything_is_called_as_it_is_called_there() {
    let (directory, plan) = plan("jailed");
    let orders = orders(&plan, true).unwrap();
    assert_eq!(orders[1].1["kernel_image_path"], "/kernel");
    assert_eq!(orders[1].1["initrd_path"], "/initramfs");
    assert_eq!(orders[2].1["path_on_host"], "/disk0");
    assert_eq!(orders[4].1["uds_path"], "/vsock");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn links_to_disks_are_made_again_and_removed_with_the_machine() {
    let (directory, plan) = plan("links");
    for _ in 0..2 {
        halt::link_disks(&plan).unwrap();
        let inside = std::fs::canonicalize(directory.join("disks/disk1")).unwrap();
        assert_eq!(inside, directory.join("scratch.img").canonicalize().unwrap());
    }
    Plan { temporary: false, ..plan }.remove();
    assert!(!directory.join("disks").exists() && directory.join("scratch.img").exists());
    std::fs::remove_dir_all(directory).unwrap();
}

#[tokio::test]
async fn a_jailed_monitor_is_asked_for_no_pause_and_no_snapshot() {
    let (directory, plan) = plan("no-snapshot");
    let jailed = Firecracker { jailer: Some(Jailer { uid: 1, gid: 1 }) };
    let refused = jailed.pause(&plan.directory).await.unwrap_err().to_string();
    assert!(refused.contains("in a jail"), "{refused}");
    let refused = jailed.load(&plan, &directory).await.unwrap_err();
    assert!(matches!(refused, MachineError::CannotSuspend { .. }), "{refused}");
    std::fs::remove_dir_all(directory).unwrap();
}

#[tokio::test]
async fn a_pause_that_would_fill_the_disk_is_refused_before_anything_is_done() {
    let (directory, plan) = plan("no-room");
    let programs = Programs::default();
    let mut made = MachineInputs::of(MachineKind::Firecracker, &plan, &programs).unwrap();
    made.memory_bytes = 1 << 60;
    made.note(&directory).unwrap();
    // There is no monitor, so a request to it would fail otherwise.
    let refused = Firecracker::default().pause(&directory).await.unwrap_err().to_string();
    assert!(refused.contains("1024.0 PiB") || refused.contains("free"), "{refused}");
    std::fs::remove_dir_all(directory).unwrap();
}

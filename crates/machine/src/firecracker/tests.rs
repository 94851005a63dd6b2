use std::path::PathBuf;

use super::*;
use crate::vmm::{Disk, Kit};

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
        "path_on_host": directory.join("scratch.img"),
        "is_root_device": false,
        "is_read_only": false,
        "cache_type": "Writeback",
    });
    assert_eq!(orders[3].1, scratch);
    assert_eq!(orders[4].1, json!({ "guest_cid": 3, "uds_path": directory.join("vsock") }));
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

#[tokio::test]
async fn a_jailed_monitor_is_asked_for_no_snapshot() {
    let (directory, plan) = plan("no-snapshot");
    let jailed = Firecracker { jailer: Some(Jailer { uid: 1, gid: 1 }) };
    let refused = jailed.snapshot(&plan.monitor(), &directory).await.unwrap_err();
    assert!(matches!(refused, MachineError::Monitor { .. }), "{refused}");
    assert!(jailed.restore(&plan, &directory).await.is_err());
    std::fs::remove_dir_all(directory).unwrap();
}

//! What the agent adds to a machine's boot: the same kernel, modules, image and overlay, and off again, with
//! the agent as init or with a busybox shell script.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use machine::MachineKind;
use tests::machines::{kit, machines_or_skip};
use tests::sandbox::Sandbox;

use super::{Report, beside, median};

/// Boots of which the median is taken, in turns.
const BOOTS: usize = 15;
/// The promise: at most a tenth more.
const RATIO_MAX: f64 = 1.10;

/// A bare init that does the same.
const BARE: &str = "#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs dev /dev
while read -r module device; do
    [ -z \"$device\" ] || $b grep -q \"^0x000$device\" /sys/bus/virtio/devices/*/device || continue
    $b insmod /modules/$module
done < /modules/order
$b mount -t tmpfs -o size=50% scratch /newroot
$b mkdir -p /newroot/upper /newroot/work /newroot/lower /newroot/root
$b mount -t erofs -o ro /dev/vda /newroot/lower
$b mount -t overlay -o lowerdir=/newroot/lower,upperdir=/newroot/upper,workdir=/newroot/work overlay /newroot/root
cd /newroot/root
for point in dev proc sys; do $b mount --move /$point $point; done
$b mount -t cgroup2 cgroup sys/fs/cgroup
$b mount --move . /
exec $b chroot . /bin/sh -c 'hostname burrow 2>/dev/null; echo o > /proc/sysrq-trigger; sleep 60'
";

pub async fn figures(report: &mut Report) {
    if !machines_or_skip() {
        return;
    }
    let Some(busybox) =
        ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists())
    else {
        return tests::skip("there is no busybox to boot beside (Debian: busybox-static)");
    };
    let scratch = tempfile::TempDir::with_prefix("burrow-boot-").expect("a directory");
    let bare = scratch.path().join("bare.cpio");
    write_bare(&bare, Path::new(busybox)).expect("an initramfs");
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..BOOTS {
        floor.push(boot(&bare, ""));
        ours.push(boot(&kit().join("initramfs.cpio"), "burrow.probe burrow.root=/dev/vda"));
    }
    let (ours, floor) = (median(ours), median(floor));
    report.ratio("boot to off, beside a busybox init", ours, floor, RATIO_MAX);
    let sandbox = Sandbox::start_as(|spec| {
        spec.machine = Some(MachineKind::Qemu);
        spec.image = Some("python".to_owned());
    })
    .await;
    let info = sandbox.guest.info();
    let kernel = Duration::from_micros(info.kernel_us.unwrap_or_default());
    beside(
        "main to ready, beside the kernel's own boot",
        Duration::from_micros(info.ready_us),
        kernel,
    );
    println!(
        "{:<52} {:>9.1} ms",
        "main to ready, the agent's own CPU time",
        info.ready_cpu_us as f64 / 1e3
    );
    for step in &info.boot {
        println!("  {:<28} {:>8.1} ms", step.name, step.micros as f64 / 1e3);
    }
    sandbox.end().await;
}

/// From the start of QEMU to its end.
fn boot(initramfs: &Path, words: &str) -> Duration {
    let began = Instant::now();
    let status = Command::new("qemu-system-x86_64")
        .args(["-M", "pc", "-m", "256", "-smp", "1", "-accel", "tcg,thread=multi"])
        .args([
            "-cpu",
            "qemu64,-cx16,+rdrand",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
        ])
        .args(["-no-reboot", "-drive"])
        .arg(format!(
            "if=none,id=disk,format=raw,readonly=on,file={}",
            kit().join("python.erofs").display()
        ))
        .args(["-device", "virtio-blk-pci,drive=disk", "-serial", "null", "-kernel"])
        .arg(kit().join("vmlinux"))
        .arg("-initrd")
        .arg(initramfs)
        .arg("-append")
        .arg(format!(
            "console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests no_timer_check \
             noreplace-smp random.trust_cpu=on rdinit=/init {words}"
        ))
        .stdin(Stdio::null())
        .status()
        .expect("QEMU runs");
    assert!(status.success(), "{status}");
    began.elapsed()
}

/// The kit's initramfs with another init: a later entry of the same name takes the place of the
/// earlier.
fn write_bare(path: &PathBuf, busybox: &Path) -> io::Result<()> {
    let mut archive = fs::read(kit().join("initramfs.cpio"))?;
    archive.resize(archive.len().next_multiple_of(512), 0);
    entry(&mut archive, "bin", 0o40755, b"");
    entry(&mut archive, "bin/busybox", 0o100_755, &fs::read(busybox)?);
    entry(&mut archive, "init", 0o100_755, BARE.as_bytes());
    entry(&mut archive, "TRAILER!!!", 0, b"");
    fs::write(path, archive)
}

/// One entry in the format that kernels read.
fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, content: &[u8]) {
    let fields =
        [9999, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    archive.extend_from_slice(b"070701");
    for field in fields {
        archive.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    archive.extend_from_slice(format!("{name}\0").as_bytes());
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(4), 0);
}

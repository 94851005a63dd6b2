//! Checks what virtual machines need: images, monitors, and a hypervisor that runs guests.
//!
//! The process machine needs none of it, so these checks report `lacks` and never `fails`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::{Check, Verdict};
use crate::values::human_bytes;
use host::paths::Paths;
use machine::kvm::{self, Kvm};
use machine::qemu::{self, Accelerator};
use machine::vmm::{Kit, RELAY, SHARER, find_program};
use machine::{cloud_hypervisor, firecracker};

/// How long a program may take to print its version.
const VERSION_MAX: Duration = Duration::from_secs(5);
/// The maximum length of a version in the report.
const VERSION_CHARS_MAX: usize = 80;

/// All checks. The first call is slow, because it runs a guest.
pub(super) async fn all(paths: &Paths) -> Vec<Check> {
    let kit = Kit::find();
    let (known, directory) = (kit.as_ref().ok().cloned(), paths.runtime.clone());
    // Guests are run by blocking calls.
    let tried = tokio::task::spawn_blocking(move || {
        let accelerator = known.clone().and_then(|kit| try_qemu(kit, &directory));
        (kvm::find_out_with(known, &directory), accelerator)
    });
    let (kvm, accelerator) = tried.await.unwrap_or((Kvm::Untried, None));
    let kit_check = match &kit {
        Ok(kit) => describe_kit(kit),
        Err(error) => Check::new("kit", Verdict::Lacks, error.to_string())
            .fix("only needed for virtual machines; `just images` builds it"),
    };
    vec![
        kit_check,
        describe_kvm(&kvm),
        qemu_check(accelerator).await,
        program("relay", RELAY, "`cargo install vhost-device-vsock --version 0.3.0 --locked`; the \
            qemu machine needs it").await,
        program("virtiofsd", SHARER, qemu::share::REMEDY).await,
        on_kvm("firecracker", firecracker::REMEDY, &kvm).await,
        on_kvm("cloud-hypervisor", cloud_hypervisor::REMEDY, &kvm).await,
        program("e2fsprogs", "mkfs.ext4", "`apt-get install e2fsprogs`, or your distribution's \
            package of that name; only writable layers larger than half of a machine's memory need it")
            .await,
    ]
}

fn describe_kit(kit: &Kit) -> Check {
    let missing = [kit.unpacked_kernel(), kit.initramfs()].into_iter().find_map(Result::err);
    let images = kit.images();
    let sizes = images.iter().map(|name| {
        let bytes = kit.image(name).ok().and_then(|path| path.metadata().ok());
        format!("{name} {}", human_bytes(bytes.map_or(0, |found| found.len())))
    });
    let sizes = sizes.collect::<Vec<_>>().join(", ");
    let at = kit.directory().display();
    match missing {
        None if images.is_empty() => Check::new("kit", Verdict::Lacks, format!("no image at {at}"))
            .fix("`just images` builds some"),
        None => Check::new("kit", Verdict::Works, format!("{sizes}; at {at}")),
        Some(error) => Check::new("kit", Verdict::Lacks, error.to_string())
            .fix("`just images` builds it; firecracker and cloud-hypervisor need it to boot"),
    }
}

fn describe_kvm(kvm: &Kvm) -> Check {
    match kvm {
        Kvm::Works { reason } => Check::new("KVM", Verdict::Works, reason.clone()),
        Kvm::Untried => Check::new(
            "KVM",
            Verdict::Unknown,
            "/dev/kvm exists, but it was not tried with a guest",
        )
        .fix("install QEMU and a kit to try it"),
        Kvm::Missing(why) => Check::new("KVM", Verdict::Lacks, why.to_string()).fix(why.remedy()),
    }
}

/// QEMU's accelerator here, and why; `None` without QEMU or an image to boot.
fn try_qemu(kit: Kit, directory: &Path) -> Option<qemu::Probe> {
    kit.kernel().and(kit.initramfs()).ok()?;
    let program = qemu::qemu().ok()?;
    Some(qemu::probe(&program, &kvm::trial(kit, directory)?))
}

async fn qemu_check(accelerator: Option<qemu::Probe>) -> Check {
    let Ok(found) = qemu::qemu() else {
        return Check::new("qemu", Verdict::Lacks, "qemu-system-x86_64 is not installed").fix(
            "`apt-get install --no-install-recommends qemu-system-x86`, or your distribution's \
             package of it",
        );
    };
    let version = version_of(&found).await;
    let detail = match accelerator {
        Some(qemu::Probe { accelerator: Accelerator::Kvm, reason }) => {
            format!("{version}, on KVM: {reason}")
        }
        Some(qemu::Probe { accelerator: Accelerator::Tcg, reason }) => {
            format!("{version}, without KVM and about ten times slower: {reason}")
        }
        None => format!("{version}; not tried, because there is no kit"),
    };
    Check::new("qemu", Verdict::Works, detail)
}

async fn program(name: &'static str, program: &str, fix: &str) -> Check {
    match find_program(program) {
        Some(found) => Check::new(name, Verdict::Works, version_of(&found).await),
        None => Check::new(name, Verdict::Lacks, format!("{program} is not installed")).fix(fix),
    }
}

/// A monitor that needs KVM.
async fn on_kvm(name: &'static str, fix: &str, kvm: &Kvm) -> Check {
    let check = program(name, name, fix).await;
    match kvm {
        Kvm::Missing(_) if check.verdict == Verdict::Works => Check::new(
            name,
            Verdict::Lacks,
            format!("{}, but KVM does not run guests", check.detail),
        )
        .fix("see KVM above; the qemu machine runs without it"),
        _ => check,
    }
}

/// A program's version, or its path if it prints none.
async fn version_of(program: &Path) -> String {
    let place = program.display().to_string();
    // mkfs.ext4 knows the short flag alone, and says its version where others complain.
    let flag = if place.ends_with("mkfs.ext4") { "-V" } else { "--version" };
    let asked = Command::new(program).arg(flag).stdin(Stdio::null()).kill_on_drop(true).output();
    let Ok(Ok(output)) = tokio::time::timeout(VERSION_MAX, asked).await else { return place };
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).lines().next().unwrap_or_default().trim().to_owned();
    let said: String = said.chars().take(VERSION_CHARS_MAX).collect();
    if said.is_empty() || !output.status.success() { place } else { format!("{said}, at {place}") }
}

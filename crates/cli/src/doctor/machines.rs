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
use machine::MachineKind;
use machine::kind::{Hypervisor, Program};
use machine::kvm::{self, Kvm};
use machine::qemu::{self, Accelerator};
use machine::vmm::{Kit, find_program};

/// Makes the disk of a large writable layer, for virtual machines of every kind.
const MKFS: Program = Program {
    label: "e2fsprogs",
    name: "mkfs.ext4",
    remedy: "`apt-get install e2fsprogs`, or your distribution's package of that name; only writable \
             layers larger than half of a machine's memory need it",
};

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
            .fix("only needed for virtual machines; `./do images` builds it"),
    };
    let mut checks = vec![kit_check, describe_kvm(&kvm)];
    for profile in MachineKind::ALL.map(MachineKind::profile) {
        for (at, needed) in profile.programs.iter().enumerate() {
            checks.push(match profile.hypervisor {
                // The first program is the one that uses the hypervisor.
                Hypervisor::Required if at == 0 => on_kvm(needed, &kvm).await,
                Hypervisor::Optional if at == 0 => accelerated(needed, accelerator.as_ref()).await,
                _ => program(needed).await,
            });
        }
    }
    checks.push(program(&MKFS).await);
    checks
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
            .fix("`./do images` builds some"),
        None => Check::new("kit", Verdict::Works, format!("{sizes}; at {at}")),
        Some(error) => Check::new("kit", Verdict::Lacks, error.to_string()).fix(format!(
            "`./do images` builds it; {} need it to boot",
            on_hypervisor().join(" and ")
        )),
    }
}

/// The kinds that run on a hypervisor only, and boot an unpacked kernel.
fn on_hypervisor() -> Vec<&'static str> {
    let profiles = MachineKind::ALL.map(MachineKind::profile).into_iter();
    let required = profiles.filter(|profile| profile.hypervisor == Hypervisor::Required);
    required.map(|profile| profile.name).collect()
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
    let program = qemu::PROGRAM.find().ok()?;
    Some(qemu::probe(&program, &kvm::trial(kit, directory)?))
}

/// A monitor that runs with a hypervisor and without one.
async fn accelerated(needed: &Program, accelerator: Option<&qemu::Probe>) -> Check {
    let check = program(needed).await;
    if check.verdict != Verdict::Works {
        return check;
    }
    let version = &check.detail;
    let detail = match accelerator {
        Some(qemu::Probe { accelerator: Accelerator::Kvm, reason }) => {
            format!("{version}, on KVM: {reason}")
        }
        Some(qemu::Probe { accelerator: Accelerator::Tcg, reason }) => {
            format!("{version}, without KVM and about ten times slower: {reason}")
        }
        None => format!("{version}; not tried, because there is no kit"),
    };
    Check { detail, ..check }
}

/// A program that is installed or not.
async fn program(needed: &Program) -> Check {
    if let Some(found) = find_program(needed.name) {
        Check::new(needed.label, Verdict::Works, version_of(&found).await)
    } else {
        let detail = format!("{} is not installed", needed.name);
        Check::new(needed.label, Verdict::Lacks, detail).fix(needed.remedy)
    }
}

/// A monitor that needs KVM.
async fn on_kvm(needed: &Program, kvm: &Kvm) -> Check {
    let check = program(needed).await;
    match kvm {
        Kvm::Missing(_) if check.verdict == Verdict::Works => Check::new(
            needed.label,
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
    let running = Command::new(program).arg(flag).stdin(Stdio::null()).kill_on_drop(true).output();
    let Ok(Ok(output)) = tokio::time::timeout(VERSION_MAX, running).await else { return place };
    let version = [output.stdout, output.stderr].concat();
    let version =
        String::from_utf8_lossy(&version).lines().next().unwrap_or_default().trim().to_owned();
    let version: String = version.chars().take(VERSION_CHARS_MAX).collect();
    if version.is_empty() || !output.status.success() {
        place
    } else {
        format!("{version}, at {place}")
    }
}

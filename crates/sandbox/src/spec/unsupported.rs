//! Options that cannot be honoured: those that no sandbox has, and those that its kind of machine
//! lacks. `Spec::check` refuses them with the reason before anything is started: a sandbox that was
//! silently given more or less than it asked for would be trusted wrongly.

use super::Spec;
use crate::{OnIdle, SandboxError};
use machine::kind::Lack;
use machine::{Capability, MachineKind};
use workspace::is_path;
use workspace::volume::VolumeMount;

/// Why a field is not supported, and what to do instead.
struct UnsupportedOption {
    what: &'static str,
    why: &'static str,
    hint: &'static str,
}

const MOUNT_IN_SNAPSHOT: UnsupportedOption = UnsupportedOption {
    what: "mount",
    why: "a machine restored from a snapshot keeps the snapshot's devices and cannot mount a host \
    directory",
    hint: "leave it out to give the sandbox a copy, or start it from its image",
};
const MOUNT_OF_NAME: UnsupportedOption = UnsupportedOption {
    what: "mount",
    why: "the configuration decides with `mount` whether its workspace is mounted",
    hint: "leave it out, or give the path of a directory",
};
const HOST_VOLUMES: UnsupportedOption = UnsupportedOption {
    what: "volumes",
    why: "a sandbox can have one host directory: its workspace",
    hint: "use one directory as the workspace, copied or mounted, name a volume, and copy others with \
    `host-bridge cp`",
};
const VOLUMES_AT_BOOT: UnsupportedOption = UnsupportedOption {
    what: "volumes",
    why: "a machine of this kind mounts one directory of the host, when it boots: its workspace",
    hint: "use a process machine, or keep the files in a workspace",
};
const VOLUMES_WITHOUT_BRIDGE: UnsupportedOption = UnsupportedOption {
    what: "volumes",
    why: "a bridge that serves keeps them, and this sandbox is of no bridge",
    hint: "start the sandbox through the API of `host-bridge serve`",
};
const VOLUMES_IN_SNAPSHOT: UnsupportedOption =
    UnsupportedOption { what: "volumes", ..MOUNT_IN_SNAPSHOT };
const PORTS: UnsupportedOption = UnsupportedOption {
    what: "ports",
    why: "ports of a sandbox are not published on the host",
    hint: "reach them with `host-bridge port-forward` or the API's ports",
};
const SLEEP_WITH_SECRETS: UnsupportedOption = UnsupportedOption {
    what: "on_idle",
    why: "it has secrets, and `snapshot` would write its memory with the secrets to disk",
    hint: "choose `pause`, which keeps the memory, or leave the secrets out",
};
const SLEEP_WITH_MOUNT: UnsupportedOption = UnsupportedOption {
    what: "on_idle",
    why: "a machine with a host directory mounted cannot be written to disk: the directory's open files \
    would stay behind",
    hint: "choose `pause`, or give the sandbox a copy of the directory",
};
const SLEEP_IN_MEMORY: &str = "choose `pause`, which keeps its memory, or `stop`";
const SLEEP_NOT_AT_ALL: &str = "choose `stop`; a qemu machine can be paused or written to disk";

/// Refuses the first option that no machine of any host could honour.
pub(super) fn check_everywhere(spec: &Spec) -> Result<(), SandboxError> {
    refuse(spec.volumes.iter().any(VolumeMount::is_of_host), HOST_VOLUMES)?;
    refuse(!spec.ports.is_empty(), PORTS)
}

/// Refuses the first option that cannot be honoured.
pub(super) fn check(spec: &Spec) -> Result<(), SandboxError> {
    refuse_lack(spec, "workspace", Capability::Workspace, spec.workspace.is_some())?;
    refuse(spec.mount && !spec.workspace.as_deref().is_some_and(is_path), MOUNT_OF_NAME)?;
    refuse_lack(spec, "mount", Capability::Mount, spec.mount)?;
    refuse(spec.mount && spec.snapshot.is_some(), MOUNT_IN_SNAPSHOT)?;
    check_everywhere(spec)?;
    check_volumes(spec)?;
    let has_egress = spec.egress.as_ref().is_some_and(|rules| !rules.is_empty());
    for (option, capability, is_asked) in [
        ("egress", Capability::Egress, has_egress),
        ("secrets", Capability::Secrets, !spec.secrets.is_empty()),
        ("image", Capability::Image, spec.image.is_some()),
        ("hostname", Capability::Hostname, spec.hostname.is_some()),
        ("env", Capability::Environment, !spec.env.is_empty()),
        ("memory_mib", Capability::Memory, spec.memory_mib.is_some()),
        ("scratch_bytes", Capability::Scratch, spec.scratch_bytes.is_some()),
        ("cpus", Capability::Cpus, spec.cpu_millis.is_some()),
        ("on_idle", Capability::Pause, spec.sleeps()),
    ] {
        refuse_lack(spec, option, capability, is_asked)?;
    }
    check_sleep_on_disk(spec)
}

/// Refuses volumes that the machine cannot mount, and paths at which nothing can be.
fn check_volumes(spec: &Spec) -> Result<(), SandboxError> {
    VolumeMount::check(&spec.volumes)?;
    let has_volumes = !spec.volumes.is_empty();
    refuse_lack(spec, "volumes", Capability::Mount, has_volumes)?;
    refuse(has_volumes && spec.machine().mounts_at_boot(), VOLUMES_AT_BOOT)?;
    refuse(has_volumes && spec.snapshot.is_some(), VOLUMES_IN_SNAPSHOT)
}

/// Refuses what a bridge that serves keeps for sandboxes, for a sandbox without one.
pub(crate) fn check_without_bridge(spec: &Spec) -> Result<(), SandboxError> {
    refuse(!spec.volumes.is_empty(), VOLUMES_WITHOUT_BRIDGE)
}

/// Refuses to write a machine to disk when it is idle, if its kind cannot or its memory must not be there.
fn check_sleep_on_disk(spec: &Spec) -> Result<(), SandboxError> {
    if spec.on_idle != Some(OnIdle::Snapshot) {
        return Ok(());
    }
    if let Some(Lack { why, .. }) = spec.machine().lack(Capability::Snapshot) {
        let pauses = spec.machine().lack(Capability::Pause).is_none();
        let hint = if pauses { SLEEP_IN_MEMORY } else { SLEEP_NOT_AT_ALL };
        return Err(SandboxError::Unsupported { what: "on_idle", why, hint });
    }
    refuse(!spec.secrets.is_empty(), SLEEP_WITH_SECRETS)?;
    refuse(spec.mount, SLEEP_WITH_MOUNT)
}

/// Refuses a workspace that is mounted if the machine cannot mount one.
pub(crate) fn check_mount(spec: &Spec) -> Result<(), SandboxError> {
    refuse_lack(spec, "mount", Capability::Mount, true)?;
    refuse(spec.snapshot.is_some(), MOUNT_IN_SNAPSHOT)
}

fn refuse(is_asked: bool, missing: UnsupportedOption) -> Result<(), SandboxError> {
    if is_asked { Err(missing.into()) } else { Ok(()) }
}

fn refuse_lack(
    spec: &Spec,
    what: &'static str,
    capability: Capability,
    is_asked: bool,
) -> Result<(), SandboxError> {
    if is_asked { check_capability(spec.machine(), what, capability) } else { Ok(()) }
}

/// Refuses an option that a kind of machine lacks, with the reason in its row.
pub(crate) fn check_capability(
    machine: MachineKind,
    what: &'static str,
    capability: Capability,
) -> Result<(), SandboxError> {
    match machine.lack(capability) {
        Some(Lack { why, hint, .. }) => Err(SandboxError::Unsupported { what, why, hint }),
        None => Ok(()),
    }
}

impl From<UnsupportedOption> for SandboxError {
    fn from(UnsupportedOption { what, why, hint }: UnsupportedOption) -> Self {
        Self::Unsupported { what, why, hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_options_are_refused_by_name_and_never_ignored() {
        for (json, field) in [
            (r#""machine":"external","workspace":"/src""#, "workspace"),
            (r#""machine":"firecracker","workspace":"/src","mount":true"#, "mount"),
            (r#""machine":"qemu","workspace":"/src","mount":true,"snapshot":"s""#, "mount"),
            (r#""workspace":"named","mount":true"#, "mount"),
            (r#""mount":true"#, "mount"),
            (r#""volumes":["/a:/b"]"#, "volumes"),
            (r#""machine":"qemu","volumes":["a:/b"]"#, "volumes"),
            (r#""machine":"firecracker","volumes":["a:/b"]"#, "volumes"),
            (r#""machine":"external","volumes":["a:/b"]"#, "volumes"),
            (r#""machine":"external","secrets":["TOKEN"]"#, "secrets"),
            (r#""ports":["80:80"]"#, "ports"),
            (r#""machine":"external","egress":["example.org"]"#, "egress"),
            (r#""machine":"external","image":"/srv/root""#, "image"),
            (r#""machine":"external","hostname":"other""#, "hostname"),
            (r#""machine":"external","env":[["A","1"]]"#, "env"),
            (r#""machine":"external","memory_mib":512"#, "memory_mib"),
            (r#""machine":"external","cpu_millis":0"#, "cpus"),
            (r#""machine":"external","scratch_bytes":1048576"#, "scratch_bytes"),
            (r#""machine":"external","on_idle":"pause","idle_ttl_ms":9"#, "on_idle"),
            (r#""machine":"process","on_idle":"snapshot","idle_ttl_ms":9"#, "on_idle"),
            (r#""machine":"external","on_idle":"snapshot","idle_ttl_ms":9"#, "on_idle"),
            (r#""machine":"qemu","on_idle":"snapshot","idle_ttl_ms":9,"secrets":["T"]"#, "on_idle"),
            (
                r#""machine":"qemu","on_idle":"snapshot","idle_ttl_ms":9,"workspace":"/s","mount":true"#,
                "on_idle",
            ),
        ] {
            let spec: Spec = serde_json::from_str(&format!("{{\"name\":\"a\",{json}}}")).unwrap();
            let error = spec.check().unwrap_err();
            let SandboxError::Unsupported { what, why, hint } = error else { panic!("{error}") };
            assert_eq!(what, field);
            assert!(!why.is_empty() && !hint.is_empty());
        }
    }

    #[test]
    fn what_no_machine_has_is_refused_before_a_host_is_chosen() {
        for (json, field) in
            [(r#""volumes":["/a:/b"]"#, "volumes"), (r#""ports":["80:80"]"#, "ports")]
        {
            // Whatever else it asks for, which a machine of another host may have.
            for more in ["", r#","machine":"external","hostname":"other""#] {
                let text = format!("{{\"name\":\"a\",{json}{more}}}");
                let spec: Spec = serde_json::from_str(&text).unwrap();
                let error = spec.check_everywhere().unwrap_err();
                let SandboxError::Unsupported { what, .. } = error else { panic!("{error}") };
                assert_eq!(what, field);
            }
        }
        let text = r#"{"name":"a","machine":"external","hostname":"other"}"#;
        serde_json::from_str::<Spec>(text).unwrap().check_everywhere().unwrap();
    }

    #[test]
    fn to_ask_for_nothing_is_fine() {
        let text = r#"{"name":"a","secrets":[],"volumes":[],"ports":[],"labels":{}}"#;
        let spec: Spec = serde_json::from_str(text).unwrap();
        spec.check().unwrap();
        assert_eq!(spec, Spec::new("a".parse().unwrap()));
    }
}

//! What may be asked for and no machine here can do. It is refused at the creation, with the reason:
//! a sandbox that was silently given more or less than it was asked for would be trusted wrongly.

use super::Spec;
use crate::SandboxError;
use machine::MachineKind;
use workspace::is_path;

/// Why a field cannot be had, and what to do instead.
struct Missing {
    what: &'static str,
    why: &'static str,
    hint: &'static str,
}

const WORKSPACE_ELSEWHERE: Missing = Missing {
    what: "workspace",
    why: "whoever runs an external machine decides what it has at /workspace",
    hint: "leave it out and copy the files in and out",
};
const MOUNT_ELSEWHERE: Missing = Missing {
    what: "mount",
    why: "only process and qemu machines can mount a host directory; the others have no tested virtiofs",
    hint: "leave it out: the sandbox then gets a copy, and its changes are copied back",
};
const MOUNT_IN_SNAPSHOT: Missing = Missing {
    what: "mount",
    why: "a machine restored from a snapshot keeps the snapshot's devices and cannot mount a host \
    directory",
    hint: "leave it out to give the sandbox a copy, or start it from its image",
};
const MOUNT_OF_NAME: Missing = Missing {
    what: "mount",
    why: "the configuration decides with `mount` whether its workspace is mounted",
    hint: "leave it out, or give the path of a directory",
};
const VOLUMES: Missing = Missing {
    what: "volumes",
    why: "a sandbox can have one host directory: its workspace",
    hint: "use one directory as the workspace, copied or mounted, and copy others with `host-bridge cp`",
};
const SECRETS_ELSEWHERE: Missing = Missing {
    what: "secrets",
    why: "whoever runs an external machine sets its environment",
    hint: "leave it out and give the secrets to the agent there",
};
const PORTS: Missing = Missing {
    what: "ports",
    why: "ports of a sandbox are not published on the host",
    hint: "reach them with `host-bridge port-forward` or the API's ports",
};
const EGRESS_ELSEWHERE: Missing = Missing {
    what: "egress",
    why: "whoever runs an external machine controls its network",
    hint: "leave it out and restrict the network there",
};
const IMAGE_ELSEWHERE: Missing = Missing {
    what: "image",
    why: "whoever runs an external machine chooses its root",
    hint: "leave it out and start the machine with the image",
};
const HOSTNAME_ELSEWHERE: Missing = Missing {
    what: "hostname",
    why: "whoever runs an external machine chooses its host name",
    hint: "leave it out and name the machine there",
};
const ENV_ELSEWHERE: Missing = Missing {
    what: "env",
    why: "whoever runs an external machine sets its environment",
    hint: "leave it out and give each program its own with `host-bridge exec -e`",
};
const MEMORY_ELSEWHERE: Missing = Missing {
    what: "memory_mib",
    why: "whoever runs an external machine limits its memory",
    hint: "leave it out and set the limit there",
};
const CPUS_ELSEWHERE: Missing = Missing {
    what: "cpus",
    why: "whoever runs an external machine limits its CPUs",
    hint: "leave it out and set the limit there",
};

const SCRATCH_ELSEWHERE: Missing = Missing {
    what: "scratch_bytes",
    why: "whoever runs an external machine limits its disk",
    hint: "leave it out and set the limit there",
};

/// Refuses the first field that cannot be had.
pub(super) fn check(spec: &Spec) -> Result<(), SandboxError> {
    let elsewhere = spec.machine == MachineKind::External;
    let asked_for = [
        (elsewhere && spec.workspace.is_some(), WORKSPACE_ELSEWHERE),
        (spec.mount && !spec.workspace.as_deref().is_some_and(is_path), MOUNT_OF_NAME),
        (spec.mount && !spec.machine.binds(), MOUNT_ELSEWHERE),
        (spec.mount && spec.snapshot.is_some(), MOUNT_IN_SNAPSHOT),
        (!spec.volumes.is_empty(), VOLUMES),
        (!spec.ports.is_empty(), PORTS),
        (
            elsewhere && spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
            EGRESS_ELSEWHERE,
        ),
        (elsewhere && !spec.secrets.is_empty(), SECRETS_ELSEWHERE),
        (elsewhere && spec.image.is_some(), IMAGE_ELSEWHERE),
        (elsewhere && spec.hostname.is_some(), HOSTNAME_ELSEWHERE),
        (elsewhere && !spec.env.is_empty(), ENV_ELSEWHERE),
        (elsewhere && spec.memory_mib.is_some(), MEMORY_ELSEWHERE),
        (elsewhere && spec.scratch_bytes.is_some(), SCRATCH_ELSEWHERE),
        (elsewhere && spec.cpu_millis.is_some(), CPUS_ELSEWHERE),
    ];
    let missing = asked_for.into_iter().find(|(asked_for, _)| *asked_for);
    missing.map_or(Ok(()), |(_, missing)| Err(missing.into()))
}

/// Refuses a workspace that is mounted, where the machine cannot.
pub(crate) fn check_mount(spec: &Spec) -> Result<(), SandboxError> {
    if !spec.machine.binds() {
        return Err(MOUNT_ELSEWHERE.into());
    }
    if spec.snapshot.is_some() { Err(MOUNT_IN_SNAPSHOT.into()) } else { Ok(()) }
}

impl From<Missing> for SandboxError {
    fn from(Missing { what, why, hint }: Missing) -> Self {
        Self::Unsupported { what, why, hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_refused_by_name_and_never_forgotten() {
        for (json, field) in [
            (r#""machine":"external","workspace":"/src""#, "workspace"),
            (r#""machine":"firecracker","workspace":"/src","mount":true"#, "mount"),
            (r#""machine":"qemu","workspace":"/src","mount":true,"snapshot":"s""#, "mount"),
            (r#""workspace":"named","mount":true"#, "mount"),
            (r#""mount":true"#, "mount"),
            (r#""volumes":["/a:/b"]"#, "volumes"),
            (r#""machine":"external","secrets":["TOKEN"]"#, "secrets"),
            (r#""ports":["80:80"]"#, "ports"),
            (r#""machine":"external","egress":["example.org"]"#, "egress"),
            (r#""machine":"external","image":"/srv/root""#, "image"),
            (r#""machine":"external","hostname":"other""#, "hostname"),
            (r#""machine":"external","env":[["A","1"]]"#, "env"),
            (r#""machine":"external","memory_mib":512"#, "memory_mib"),
            (r#""machine":"external","cpu_millis":0"#, "cpus"),
            (r#""machine":"external","scratch_bytes":1048576"#, "scratch_bytes"),
        ] {
            let spec: Spec = serde_json::from_str(&format!("{{\"name\":\"a\",{json}}}")).unwrap();
            let error = spec.check().unwrap_err();
            let SandboxError::Unsupported { what, why, hint } = error else { panic!("{error}") };
            assert_eq!(what, field);
            assert!(!why.is_empty() && !hint.is_empty());
        }
    }

    #[test]
    fn to_ask_for_nothing_is_fine() {
        let text = r#"{"name":"a","secrets":[],"volumes":[],"ports":[],"labels":{}}"#;
        let spec: Spec = serde_json::from_str(text).unwrap();
        spec.check().unwrap();
        assert_eq!(spec, Spec::new("a".parse().unwrap()));
    }
}

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
    why: "what an external machine has at /workspace is up to whoever runs it",
    hint: "leave it out, and copy the files in and out",
};
const MOUNT_ELSEWHERE: Missing = Missing {
    what: "mount",
    why: "only process and qemu machines mount a directory of the host; on the others virtiofs is not there or not tried",
    hint: "leave it out: the sandbox then has a copy, and its changes come back",
};
const MOUNT_IN_SNAPSHOT: Missing = Missing {
    what: "mount",
    why: "a machine that goes on from a snapshot has the devices that it had then, and no directory of the host",
    hint: "leave it out: the sandbox then has a copy, or start it from its image",
};
const MOUNT_OF_NAME: Missing = Missing {
    what: "mount",
    why: "whether a workspace of the configuration is mounted is said there, with `mount`",
    hint: "leave it out, or name a directory by its path",
};
const VOLUMES: Missing = Missing {
    what: "volumes",
    why: "a sandbox has one directory of the host, which is its workspace",
    hint: "one directory comes in and back as its workspace, or is mounted; others are copied: `host-bridge cp`",
};
const SECRETS_ELSEWHERE: Missing = Missing {
    what: "secrets",
    why: "the environment of an external machine is up to whoever runs it",
    hint: "leave it out, and give the secrets to the agent there",
};
const PORTS: Missing = Missing {
    what: "ports",
    why: "a sandbox's ports are not published on the host",
    hint: "`host-bridge port-forward` or the ports of the API reach them",
};
const EGRESS_ELSEWHERE: Missing = Missing {
    what: "egress",
    why: "the network of an external machine is up to whoever runs it",
    hint: "leave it out, and have it restricted there",
};
const IMAGE_ELSEWHERE: Missing = Missing {
    what: "image",
    why: "the root of an external machine is up to whoever runs it",
    hint: "leave it out, and start the machine with the image",
};
const HOSTNAME_ELSEWHERE: Missing = Missing {
    what: "hostname",
    why: "the name of an external machine is up to whoever runs it",
    hint: "leave it out, and name the machine there",
};
const ENV_ELSEWHERE: Missing = Missing {
    what: "env",
    why: "the environment of an external machine is up to whoever runs it",
    hint: "leave it out, and give each program its own: `host-bridge exec -e`",
};
const MEMORY_ELSEWHERE: Missing = Missing {
    what: "memory_mib",
    why: "the memory of an external machine is up to whoever runs it",
    hint: "leave it out, and have it bounded there",
};
const CPUS_ELSEWHERE: Missing = Missing {
    what: "cpus",
    why: "the processors of an external machine are up to whoever runs it",
    hint: "leave it out, and have them bounded there",
};

const SCRATCH_ELSEWHERE: Missing = Missing {
    what: "scratch_bytes",
    why: "the disk of an external machine is up to whoever runs it",
    hint: "leave it out, and have it bounded there",
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

//! What may be asked for and no machine here can do. It is refused at the creation, with the reason:
//! a sandbox that was silently given more or less than it was asked for would be trusted wrongly.

use super::Spec;
use crate::machine::MachineKind;
use crate::sandbox::SandboxError;

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
const VOLUMES: Missing = Missing {
    what: "volumes",
    why: "no machine of this bridge mounts directories of the host",
    hint: "one directory comes in and back as its workspace; others are copied: `host-bridge cp`",
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
        (!spec.volumes.is_empty(), VOLUMES),
        (!spec.ports.is_empty(), PORTS),
        (
            elsewhere && spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
            EGRESS_ELSEWHERE,
        ),
        (elsewhere && !spec.secrets.is_empty(), SECRETS_ELSEWHERE),
        (elsewhere && spec.memory_mib.is_some(), MEMORY_ELSEWHERE),
        (elsewhere && spec.scratch_bytes.is_some(), SCRATCH_ELSEWHERE),
        (elsewhere && spec.cpu_millis.is_some(), CPUS_ELSEWHERE),
    ];
    match asked_for.into_iter().find(|(asked_for, _)| *asked_for) {
        Some((_, Missing { what, why, hint })) => {
            Err(SandboxError::Unsupported { what, why, hint })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_refused_by_name_and_never_forgotten() {
        for (json, field) in [
            (r#""machine":"external","workspace":"/src""#, "workspace"),
            (r#""volumes":["/a:/b"]"#, "volumes"),
            (r#""machine":"external","secrets":["TOKEN"]"#, "secrets"),
            (r#""ports":["80:80"]"#, "ports"),
            (r#""machine":"external","egress":["example.org"]"#, "egress"),
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

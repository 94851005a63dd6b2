//! A sandbox as microsandbox's clients ask for it, and the specification that it is. Releases 0.6 put the
//! image into an object, and releases 0.7 beside it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::answer::lacking;
use super::limits::{EPHEMERAL_KEPT_MS, SECOND_MS};
use super::network::Network;
use crate::call::Call;
use crate::creation::{drawn_name, make_of, namespace_of};
use crate::placing;
use image::Pull;
use sandbox::refusal::Refusal;
use sandbox::{OnIdle, SandboxRef, Spec};

const MIB: u64 = 1024 * 1024;
/// One processor in thousandths.
const CPU_MILLIS: u32 = 1000;
/// What labels of this door begin with.
pub const OWN_LABELS: &str = "msb.";
/// The label of a sandbox that is removed when it stops.
pub const EPHEMERAL: &str = "msb.ephemeral";
/// The kind of source that is an image by its name.
const OCI: &str = "oci";

/// The body of a creation. A field that it does not know is refused: it may ask for something.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Create {
    name: String,
    source: Option<String>,
    reference: Option<String>,
    /// Of a source that is refused.
    #[serde(rename = "path")]
    _path: Option<Value>,
    image: Option<Image>,
    pull_policy: Option<PullWord>,
    resources: Resources,
    runtime: Runtime,
    env: Vec<Variable>,
    labels: BTreeMap<String, String>,
    rlimits: Vec<Value>,
    mounts: Vec<Value>,
    patches: Vec<Value>,
    network: Network,
    init: Option<Value>,
    security_profile: Option<String>,
    lifecycle: Lifecycle,
    registry: Option<Value>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Image {
    #[serde(rename = "type")]
    kind: String,
    reference: Option<String>,
}

/// When the image is pulled. The clients send `if_missing` by default, so that it stands for the operator's own policy.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum PullWord {
    Never,
    IfMissing,
    Always,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Resources {
    vcpus: Option<u32>,
    memory_mib: Option<u64>,
    disk_size_mib: Option<u64>,
}

/// What programs have. A shell, an entrypoint and a command are words that the client itself sends when it
/// starts a program, and the level is that of the client's own log.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Runtime {
    workdir: Option<String>,
    user: Option<String>,
    scripts: BTreeMap<String, String>,
    #[serde(rename = "shell")]
    _shell: Option<Value>,
    #[serde(rename = "entrypoint")]
    _entrypoint: Option<Value>,
    #[serde(rename = "cmd")]
    _cmd: Option<Value>,
    #[serde(rename = "log_level")]
    _log_level: Option<Value>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Variable {
    key: String,
    value: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Lifecycle {
    ephemeral: bool,
    max_duration_secs: Option<u64>,
    idle_timeout_secs: Option<u64>,
}

impl Create {
    pub fn into_spec(self, call: &Call) -> Result<Spec, Refusal> {
        self.check()?;
        let name = match self.name.as_str() {
            "" => drawn_name("msb")?,
            name => name.parse().map_err(|error| Refusal::invalid(format!("name: {error}")))?,
        };
        let namespace = namespace_of(&call.caller, None);
        let which = placing::name(call, || Ok(SandboxRef { namespace, name }))?;
        call.reaches(&which.namespace)?;
        let mut spec = Spec::new(which);
        let reference = self.reference()?.map(str::to_owned);
        spec.egress = self.network.egress()?;
        spec.pull = match self.pull_policy {
            None | Some(PullWord::IfMissing) => None,
            Some(PullWord::Never) => Some(Pull::Never),
            Some(PullWord::Always) => Some(Pull::Always),
        };
        spec.cpu_millis = self.resources.vcpus.map(|cpus| cpus.saturating_mul(CPU_MILLIS));
        spec.memory_mib = self.resources.memory_mib;
        spec.scratch_bytes = self.resources.disk_size_mib.map(|mib| mib.saturating_mul(MIB));
        spec.workdir = self.runtime.workdir;
        spec.user = self.runtime.user;
        spec.env = self.env.into_iter().map(|one| (one.key, one.value)).collect();
        let ms = |seconds: Option<u64>| seconds.map(|seconds| seconds.saturating_mul(SECOND_MS));
        spec.ttl_ms = ms(self.lifecycle.max_duration_secs);
        spec.idle_ttl_ms = ms(self.lifecycle.idle_timeout_secs);
        // A sandbox that has ended is not there to these clients.
        spec.keep_stopped_ms = Some(0);
        if self.lifecycle.ephemeral {
            spec.keep_stopped_ms = Some(EPHEMERAL_KEPT_MS);
            spec.on_idle = spec.idle_ttl_ms.map(|_| OnIdle::Stop);
            spec.labels.insert(EPHEMERAL.to_owned(), String::new());
        }
        for (key, value) in self.labels {
            if key.starts_with(OWN_LABELS) {
                return Err(Refusal::invalid(format!("labels: {key:?} is this server's own")));
            }
            spec.labels.insert(key, value);
        }
        if let Some(reference) = reference {
            make_of(call.api.registry(), &mut spec, reference);
        }
        Ok(spec)
    }

    /// The name of its image.
    fn reference(&self) -> Result<Option<&str>, Refusal> {
        let (kind, reference) = match &self.image {
            Some(image) => (Some(image.kind.as_str()), image.reference.as_deref()),
            None => (self.source.as_deref(), self.reference.as_deref()),
        };
        match kind {
            None | Some(OCI) => Ok(reference.filter(|text| !text.is_empty())),
            Some(other) => Err(lacking(&format!("a root file system of the kind {other:?}"))),
        }
    }

    /// Refuses what no machine of this server does.
    fn check(&self) -> Result<(), Refusal> {
        let is_strict = |profile: &String| profile != "default";
        let asked = [
            (!self.mounts.is_empty(), "volumes; use a workspace of the server's own API"),
            (!self.rlimits.is_empty(), "rlimits; the operator's caps bound a sandbox"),
            (!self.patches.is_empty(), "patches; write the files once the sandbox runs"),
            (!self.runtime.scripts.is_empty(), "scripts; write the files once the sandbox runs"),
            (self.init.is_some(), "an init of the image"),
            (self.security_profile.as_ref().is_some_and(is_strict), "security profiles"),
            (
                self.registry.as_ref().is_some_and(|registry| registry["mode"] == "inline"),
                "credentials for a registry; the operator sets them",
            ),
        ];
        match asked.into_iter().find(|(is_asked, _)| *is_asked) {
            Some((_, what)) => Err(lacking(what)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandbox::refusal::Code;

    fn read(text: &str) -> Create {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn an_image_is_read_as_both_releases_write_it() {
        let old = read(r#"{"image":{"type":"oci","reference":"python"}}"#);
        let new = read(r#"{"source":"oci","reference":"python"}"#);
        assert_eq!(old.reference().unwrap(), Some("python"));
        assert_eq!(new.reference().unwrap(), Some("python"));
        assert_eq!(read(r#"{"source":"oci","reference":""}"#).reference().unwrap(), None);
        let bind = read(r#"{"image":{"type":"bind","path":"/"}}"#);
        assert_eq!(bind.reference().unwrap_err().code, Code::Unsupported);
        let disk = read(r#"{"source":"disk_image","path":"/dev/sda"}"#);
        assert_eq!(disk.reference().unwrap_err().code, Code::Unsupported);
    }

    /// What the published clients send when nobody has set anything.
    const USUAL: [&str; 2] = [
        r#"{"name":"n","image":{"type":"oci","reference":"python"},"resources":{"vcpus":1,"memory_mib":512},
        "runtime":{"workdir":null,"shell":null,"scripts":{},"entrypoint":null,"cmd":null,"user":null,"log_level":null},
        "env":[],"labels":{},"rlimits":[],"mounts":[],"patches":[],"network":{"enabled":true},"init":null,
        "pull_policy":"if_missing","security_profile":"default",
        "lifecycle":{"ephemeral":false,"max_duration_secs":null,"idle_timeout_secs":null}}"#,
        r#"{"source":"oci","name":"n","runtime":{"workdir":null,"shell":null,"scripts":{},"entrypoint":null,"cmd":null,
        "user":null,"log_level":null},"env":[],"labels":{},"rlimits":[],"mounts":[],
        "network":{"enabled":true,"strict":true},"init":null,"security_profile":"default",
        "lifecycle":{"ephemeral":false,"max_duration_secs":null,"idle_timeout_secs":null},"reference":"python",
        "resources":{"vcpus":1,"memory_mib":512},"patches":[],"pull_policy":"if_missing"}"#,
    ];

    #[test]
    fn a_field_that_nobody_knows_is_refused_wherever_it_is() {
        for usual in USUAL {
            assert!(read(usual).check().is_ok());
        }
        for body in [
            r#"{"hostname":"h"}"#,
            r#"{"resources":{"max_memory_mib":1}}"#,
            r#"{"runtime":{"hostname":"h"}}"#,
            r#"{"lifecycle":{"idle":1}}"#,
            r#"{"network":{"ports":[]}}"#,
            r#"{"pull_policy":"sometimes"}"#,
        ] {
            assert!(serde_json::from_str::<Create>(body).is_err(), "{body}");
        }
    }

    #[test]
    fn what_no_machine_does_is_refused_in_words() {
        for (body, words) in [
            (r#"{"mounts":[{}]}"#, "volumes"),
            (r#"{"rlimits":[{}]}"#, "rlimits"),
            (r#"{"patches":[{}]}"#, "patches"),
            (r#"{"runtime":{"scripts":{"a":"b"}}}"#, "scripts"),
            (r#"{"init":{}}"#, "init"),
            (r#"{"security_profile":"restricted"}"#, "security profiles"),
            (r#"{"registry":{"mode":"inline"}}"#, "credentials"),
        ] {
            let refusal = read(body).check().unwrap_err();
            assert_eq!(refusal.code, Code::Unsupported);
            assert!(refusal.message.contains(words), "{refusal:?}");
        }
        assert!(read(r#"{"init":null,"security_profile":"default"}"#).check().is_ok());
    }
}

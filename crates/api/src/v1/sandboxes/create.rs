//! The body of the call that creates a sandbox.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::caller::Caller;
use crate::creation::namespace_of;
use crate::forms::files::PATH;
use crate::forms::machine::Machine;
use crate::forms::ranges::{CPUS_MAX, cpu_millis};
use crate::forms::sandboxes::{
    LABEL_KEY, LIFETIME_MS_MAX, NAME, PackageList, PullPolicy, TEMPLATE,
};
use image::Pull;
use machine::limits::SCRATCH_BYTES_MIN;
use sandbox::limits::{LABELS_MAX, MEMORY_MIB_MAX, MEMORY_MIB_MIN, WORKDIR_BYTES_MAX};
use sandbox::refusal::Refusal;
use sandbox::{Durability, Name, OnIdle, OnLost, RecordPolicy, SandboxRef, Spec, TemplateName};
use services::build::packages::Packages;
use workspace::volume::VolumeMount;
use workspace::volume::limits::MOUNTS_MAX;

/// A sandbox to make. Only its name is required.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSandbox {
    #[schemars(with = "String", regex(pattern = NAME))]
    pub name: Name,
    /// The namespace; by default the key's, or `default`.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
    /// An image in the server's configuration, or in this host's store by name or digest. With the
    /// scope `admin` also a directory of the host.
    #[serde(default)]
    pub image: Option<String>,
    /// When the image is pulled from its registry: `never`, `missing` or `always`. The default is
    /// the server's policy; only the scope `admin` may ask for more.
    #[serde(default)]
    #[schemars(with = "Option<PullPolicy>")]
    pub pull: Option<Pull>,
    /// The snapshot of its namespace to start from, instead of booting. The snapshot sets the
    /// machine, image, memory, CPUs and writable layer.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("pattern" = NAME))]
    pub snapshot: Option<Name>,
    /// The template of its namespace to make it of, as `name` or `name:tag`, instead of an image. The answer
    /// comes when its ready command has exited with 0. Options given here take precedence over the template's.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("pattern" = TEMPLATE))]
    pub template: Option<TemplateName>,
    /// The machine kind; the default is set by the server's configuration. `process` is not a
    /// security boundary, and `external` is not allowed here.
    #[serde(default)]
    pub machine: Option<Machine>,
    #[serde(default)]
    #[schemars(range(min = MEMORY_MIB_MIN, max = MEMORY_MIB_MAX))]
    pub memory_mib: Option<u64>,
    /// CPUs; fractions are allowed, and 0 asks for the smallest share.
    #[serde(default)]
    #[schemars(range(min = 0, max = CPUS_MAX))]
    pub cpus: Option<f64>,
    /// The environment of every program in it. The values are never shown.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The default working directory of programs: by default the workspace, the image's, or `/sandbox`.
    #[serde(default)]
    #[schemars(regex(pattern = PATH), length(max = WORKDIR_BYTES_MAX))]
    pub workdir: Option<String>,
    /// The default user of programs and interpreters: `name`, `name:group`, `uid` or `uid:gid`. The
    /// default is the image's user.
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    pub user: Option<String>,
    #[serde(default)]
    #[schemars(regex(pattern = NAME))]
    pub hostname: Option<String>,
    /// The size of its private writable layer; at most 64 GiB for a virtual machine.
    #[serde(default)]
    #[schemars(range(min = SCRATCH_BYTES_MIN))]
    pub scratch_bytes: Option<u64>,
    #[serde(default)]
    #[schemars(extend("propertyNames" = { "pattern": LABEL_KEY }, "maxProperties" = LABELS_MAX))]
    pub labels: BTreeMap<String, String>,
    /// The time from its creation until it ends, even if it is busy.
    #[serde(default)]
    #[schemars(range(min = 1, max = LIFETIME_MS_MAX))]
    pub ttl_ms: Option<u64>,
    /// How long it may be idle before it ends or is paused.
    #[serde(default)]
    #[schemars(range(min = 1, max = LIFETIME_MS_MAX))]
    pub idle_ttl_ms: Option<u64>,
    /// What happens then: it ends by default, or is paused until the next request. A request that finds
    /// it paused waits until it runs, and the header `burrow-woke-ms` of the answer says how long.
    #[serde(default)]
    pub on_idle: Option<OnIdle>,
    /// In a fleet, labels that the node must have which makes it. Each node has those of its configuration, and
    /// `node` with its name.
    #[serde(default)]
    #[schemars(extend("propertyNames" = { "pattern": LABEL_KEY }, "maxProperties" = LABELS_MAX))]
    pub node_labels: BTreeMap<String, String>,
    /// Whether what its programs write outlives the host, in a fleet. With `async` it is in the fleet's log a
    /// moment after it was written; with `sync` nobody sees it before. Contexts are refused in such a sandbox.
    #[serde(default)]
    pub durability: Option<Durability>,
    /// What is recorded of its sessions: `off` that they began and how they ended, `on` also what they wrote, `input`
    /// also what was typed into them and written to their stdin, passwords included. The default is the server's
    /// setting, which is `on` unless its operator changed it.
    #[serde(default)]
    pub record: Option<RecordPolicy>,
    /// What becomes of it when it is lost with its node of a fleet. `restart` makes it again at another node, as it was
    /// asked for; `restore` does so from its snapshot that was exported to a bucket last. The new one has the same name and
    /// another id. What it was asked for, with its environment, is kept in the fleet's store meanwhile.
    #[serde(default)]
    pub on_lost: Option<OnLost>,
    /// How long its record and logs are kept after it has stopped.
    #[serde(default)]
    #[schemars(range(max = LIFETIME_MS_MAX))]
    pub keep_stopped_ms: Option<u64>,
    /// What it may reach. The default is the server's setting, which is nothing unless its operator
    /// changed it; an empty list means nothing. `example.org` is that host at ports 80 and 443,
    /// `example.org:5432` that host at that port, `*.example.org` every host below it, `public`
    /// every host of the internet, `@pypi`, `@npm`, `@crates` or `@debian` the hosts of a registry. Rules that the machine kind cannot enforce are refused.
    #[serde(default)]
    pub egress: Option<Vec<String>>,
    /// The workspace, copied to `/workspace`; changes are copied back. The name of a workspace in
    /// the server's configuration, or, with the scope `admin`, a directory of the host.
    #[serde(default)]
    pub workspace: Option<String>,
    /// Packages to install first: on the image, which must be one of this host's store, or over the
    /// host's root, where the sandbox has that and the server asks for no keys. They are kept: the next
    /// sandbox with the same packages starts at once.
    #[serde(default)]
    #[schemars(with = "Option<PackageList>")]
    pub packages: Option<Packages>,
    /// Names of secrets in the server's configuration; their values become environment variables.
    /// Secrets that are unknown or not for this namespace are refused.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub secrets: Vec<String>,
    /// Volumes of the namespace, each as `NAME:/path`. Only a process machine can mount them.
    #[serde(default)]
    #[schemars(with = "Vec<String>", length(max = MOUNTS_MAX))]
    pub volumes: Vec<VolumeMount>,
}

impl CreateSandbox {
    /// The options of the sandbox, without its packages.
    pub fn spec(self, caller: &Caller) -> Result<Spec, Refusal> {
        let namespace = namespace_of(caller, self.namespace);
        Ok(Spec {
            machine: self.machine.map(|Machine(kind)| kind),
            image: self.image,
            pull: self.pull,
            snapshot: self.snapshot,
            template: self.template,
            memory_mib: self.memory_mib,
            cpu_millis: self.cpus.map(cpu_millis).transpose()?,
            env: self.env.into_iter().collect(),
            workdir: self.workdir,
            user: self.user,
            hostname: self.hostname,
            scratch_bytes: self.scratch_bytes,
            labels: self.labels,
            ttl_ms: self.ttl_ms,
            idle_ttl_ms: self.idle_ttl_ms,
            on_idle: self.on_idle,
            node_labels: self.node_labels,
            durability: self.durability,
            record: self.record,
            on_lost: self.on_lost,
            keep_stopped_ms: self.keep_stopped_ms,
            egress: self.egress,
            workspace: self.workspace,
            secrets: self.secrets,
            volumes: self.volumes,
            ..Spec::new(SandboxRef { namespace, name: self.name })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placing::native;

    #[test]
    fn a_specification_that_goes_to_another_node_is_the_same_there() {
        let mut spec = Spec::new("team/web".parse().unwrap());
        let there = |spec: &Spec| {
            let body: CreateSandbox = serde_json::from_value(native(spec)).unwrap();
            body.spec(&Caller::Local).unwrap()
        };
        assert_eq!(there(&spec), spec);
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let pairs = |key: &str| [(key.to_owned(), "v".to_owned())].into();
        spec.machine = Some(sandbox::MachineKind::Qemu);
        spec.image = Some("python".to_owned());
        spec.pull = Some(Pull::Missing);
        spec.template = Some("shop:v1".parse().unwrap());
        (spec.memory_mib, spec.cpu_millis) = (Some(300), Some(1_250));
        spec.env = vec![("A".to_owned(), "b=c".to_owned())];
        (spec.workdir, spec.user) = (Some("/w".to_owned()), Some("u".to_owned()));
        spec.hostname = Some("h".to_owned());
        spec.scratch_bytes = Some(1 << 30);
        (spec.labels, spec.node_labels) = (pairs("team"), pairs("zone"));
        (spec.ttl_ms, spec.idle_ttl_ms, spec.keep_stopped_ms) = (Some(1), Some(2), Some(0));
        (spec.on_idle, spec.durability) = (Some(OnIdle::Pause), Some(Durability::Sync));
        spec.on_lost = Some(OnLost::Restart);
        spec.record = Some(RecordPolicy::Input);
        spec.egress = Some(texts(&["a.org", "@pypi"]));
        spec.secrets = texts(&["token"]);
        assert_eq!(there(&spec), spec);
        // What is made at one host alone, and is therefore set for itself.
        spec.snapshot = Some("base".parse().unwrap());
        spec.workspace = Some("code".to_owned());
        spec.volumes = vec!["data:/srv/data".parse().unwrap()];
        assert_eq!(there(&spec), spec);
    }
}

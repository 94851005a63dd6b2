//! Restarts a sandbox as it was requested: turns its record into a specification.
//!
//! The record has no values of the environment, because those may be secrets; the caller supplies them again.
//! The operator's secrets are read again.

use std::time::Duration;

use super::Registry;
use crate::options::Defaults;
use crate::{Record, SandboxError, SandboxRef, Spec, State, mounted};
use machine::Capability;

impl Registry {
    /// Stops and removes a sandbox, and creates it again for the bridge's own user. What can be refused is
    /// refused before the old one is touched.
    pub async fn restart_for_operator(
        &self,
        which: &SandboxRef,
        grace: Duration,
        env: Vec<(String, String)>,
    ) -> Result<Record, SandboxError> {
        let record = self.get(which)?;
        let of_secrets = self.0.secrets.variables(which.namespace.as_str(), &record.secrets)?;
        let mut of_template = again(&record, env.clone());
        // The template has its values, and is refused here if it is gone.
        self.fill_from_template(&mut of_template)?;
        let given = of_template.env;
        let is_given = |name: &String| {
            of_secrets.contains(name) || given.iter().any(|(given, _)| given == name)
        };
        let missing: Vec<String> =
            record.env_names.iter().filter(|name| !is_given(name)).cloned().collect();
        if !missing.is_empty() {
            return Err(SandboxError::ValuesMissing { which: which.clone(), names: missing });
        }
        if matches!(record.state, State::Damaged { .. }) {
            return Err(SandboxError::Unsupported {
                what: "a restart",
                why: "the record of the sandbox is damaged, and does not say how it was made",
                hint: "remove it with `host-bridge rm --force`, and start another",
            });
        }
        if let Some(directory) = record.packages.clone().filter(|directory| !directory.is_dir()) {
            return Err(SandboxError::PackagesGone { which: which.clone(), directory });
        }
        let spec = again(&record, env);
        let (files, mut settled) = (self.0.files.for_operator(), spec.clone());
        files.settle(&mut settled)?;
        files.settle_scratch(&mut settled, self.store_paths()).await?;
        settled.check()?;
        mounted::find(&spec, &self.0.workspaces, &self.0.own_directories())?;
        // Its image is here, and the policy still allows it.
        self.base_image(&spec).await?;
        if !record.state.is_over() {
            self.stop(which, grace).await?;
        }
        self.remove(which, false).await?;
        // It keeps its settings, even if the defaults have changed.
        self.create_over(&files, &Defaults::default(), spec).await
    }
}

/// The specification, as far as the record has it: everything but the values of the environment.
pub(super) fn again(record: &Record, env: Vec<(String, String)>) -> Spec {
    // The address of a machine that is started here is chosen at each start.
    let is_elsewhere = !record.machine.is_started();
    let is_path = record.workspace.as_ref().is_some_and(|workspace| workspace.starts_with('/'));
    Spec {
        machine: Some(record.machine),
        image: record.image.clone(),
        base: record.base.clone(),
        template: record.template.clone(),
        packages: record.packages.clone(),
        address: record.address.clone().filter(|_| is_elsewhere),
        env,
        hostname: Some(record.hostname.clone()),
        scratch_bytes: record.machine.can(Capability::Scratch).then_some(record.scratch_bytes),
        hide: record.hide.clone(),
        memory_mib: record.memory_mib,
        cpu_millis: record.cpu_millis,
        workdir: record.workdir.clone(),
        user: record.user.clone(),
        labels: record.labels.clone(),
        ttl_ms: record.ttl_ms,
        idle_ttl_ms: record.idle_ttl_ms,
        on_idle: (!record.on_idle.is_stop()).then_some(record.on_idle),
        durability: (!record.durability.is_off()).then_some(record.durability),
        keep_stopped_ms: record.keep_stopped_ms,
        egress: Some(record.egress.clone()),
        workspace: record.workspace.clone(),
        // A workspace of the configuration is specified there.
        mount: record.mounted && is_path,
        secrets: record.secrets.clone(),
        key: record.key.clone(),
        ..Spec::new(record.which())
    }
}

#[cfg(test)]
mod tests {
    use machine::MachineKind;

    use crate::{Durability, OnIdle};

    use super::*;

    #[test]
    fn a_record_says_all_that_was_asked_for_but_values() {
        let mut spec = Spec::new("team/web".parse().unwrap());
        spec.machine = Some(MachineKind::Process);
        spec.image = Some("alpine:3".to_owned());
        spec.base = Some("alpine:2".to_owned());
        spec.template = Some("app:v1".parse().unwrap());
        spec.packages = Some("/var/cache/burrow/packages/k".into());
        spec.hostname = Some("other".to_owned());
        spec.env = vec![("A".to_owned(), "1".to_owned())];
        spec.hide = Some(vec!["/srv".to_owned()]);
        spec.scratch_bytes = Some(64 * 1024 * 1024);
        (spec.memory_mib, spec.cpu_millis) = (Some(512), Some(500));
        (spec.ttl_ms, spec.idle_ttl_ms, spec.keep_stopped_ms) = (Some(1), Some(2), Some(3));
        spec.on_idle = Some(OnIdle::Pause);
        spec.durability = Some(Durability::Sync);
        (spec.workdir, spec.user) = (Some("/srv".to_owned()), Some("web".to_owned()));
        spec.labels.insert("team".to_owned(), "a".to_owned());
        spec.egress = Some(vec!["pypi.org".to_owned()]);
        (spec.workspace, spec.mount) = (Some("/home/me".to_owned()), true);
        spec.secrets = vec!["token".to_owned()];
        let record = Record::new("0123456789ab".parse().unwrap(), &spec, 7);
        assert_eq!(again(&record, spec.env.clone()), spec);
    }
}

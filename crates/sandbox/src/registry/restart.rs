//! Restarts a sandbox as it was requested.
//!
//! The record has no values of the environment, because those may be secrets; the caller supplies them again.
//! The operator's secrets are read again.

use std::time::Duration;

use super::Registry;
use crate::again::again;
use crate::options::Defaults;
use crate::{Record, SandboxError, SandboxRef, State, mounted};

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
        self.find_volumes(&spec)?;
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

//! What a registry shares with builds of images and with descriptions of a sandbox's egress.

use std::sync::Arc;

use super::Registry;
use crate::{Event, HostFiles, Name, Record, SandboxError, SandboxId, Spec};
use egress::EgressSink;
use host::instant::now_ms;
use host::paths::Paths;

impl Registry {
    /// The paths of the image store, where builds run, too.
    pub fn store_paths(&self) -> &Paths {
        self.0.hidden_of_alone.as_ref().unwrap_or(&self.0.paths)
    }

    /// Whether its sandboxes end with this process.
    pub fn is_alone(&self) -> bool {
        self.0.hidden_of_alone.is_some()
    }

    /// What clients' sandboxes see of the host's files.
    pub fn host_files(&self) -> &HostFiles {
        &self.0.files
    }

    /// Takes the decisions about what is installed for a sandbox before it begins, as those about the sandbox.
    pub fn decisions_before(&self, spec: &Spec) -> Result<EgressSink, SandboxError> {
        let id = SandboxId::draw().map_err(SandboxError::Draw)?;
        let (of, events) = (Record::new(id, spec, now_ms()).subject(), self.0.events.clone());
        Ok(Arc::new(move |event| events(&Event::Egress { of: Arc::clone(&of), event })))
    }

    /// The limits of all connections of sandboxes.
    pub fn egress_settings(&self) -> &egress::Settings {
        &self.0.egress
    }

    /// The default egress of a namespace's sandboxes.
    pub fn egress_default(&self, namespace: &Name) -> &[String] {
        self.0.egress_default.of(namespace.as_str())
    }
}

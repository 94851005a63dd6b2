//! What a registry shares with builds of images and with descriptions of a sandbox's egress.

use super::Registry;
use crate::{HostFiles, Name};
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

    /// The limits of all connections of sandboxes.
    pub fn egress_settings(&self) -> &egress::Settings {
        &self.0.egress
    }

    /// The default egress of a namespace's sandboxes.
    pub fn egress_default(&self, namespace: &Name) -> &[String] {
        self.0.egress_default.of(namespace.as_str())
    }
}

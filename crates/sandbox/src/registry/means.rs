//! The options of a registry.

use std::sync::Arc;

use crate::caps::Caps;
use crate::options::Defaults;
use crate::{DurableLogs, HostFiles, Names, Retention, SharedTemplates, Template, pool};
use host::secret::Secrets;
use image::{Images, Policy, Puller};
use workspace::Workspaces;

/// What a registry has for its sandboxes besides machines.
pub struct RegistryOptions {
    /// What it shows of the host's own files.
    pub files: HostFiles,
    /// Defaults of clients' sandboxes.
    pub defaults: Defaults,
    /// Defaults of the operator's sandboxes.
    pub operator_defaults: Defaults,
    /// Machines that are kept ready for those who will ask.
    pub pool: pool::Options,
    /// Settings for all egress.
    pub egress: egress::Settings,
    /// The rules of sandboxes that name none.
    pub egress_default: egress::Defaults,
    /// Secrets that they may name.
    pub secrets: Secrets,
    /// The directories that they may work on.
    pub workspaces: Workspaces,
    /// The images of this host; opened when one is asked for, where they are not given.
    pub images: Option<Images>,
    /// Which images sandboxes may have.
    pub image_policy: Policy,
    /// Pulls images; without it, only images that are here can be used.
    pub puller: Option<Puller>,
    /// Limits for sandboxes together.
    pub caps: Caps,
    /// Which snapshots are kept.
    pub retention: Retention,
    /// The templates of the configuration.
    pub templates: Vec<Template>,
    /// Who gives names; the registry alone where this is absent.
    pub names: Option<Arc<dyn Names>>,
    /// Who keeps templates too; the registry alone where this is absent.
    pub shared_templates: Option<Arc<dyn SharedTemplates>>,
    /// Where output outlives this host; nowhere where this is absent.
    pub durable_logs: Option<Arc<dyn DurableLogs>>,
    /// Whether programs and runs are events.
    pub program_events: bool,
}

impl Default for RegistryOptions {
    fn default() -> Self {
        Self {
            files: HostFiles::default(),
            defaults: Defaults::default(),
            operator_defaults: Defaults::default(),
            pool: pool::Options::none(),
            secrets: Secrets::default(),
            workspaces: Workspaces::default(),
            images: None,
            image_policy: Policy::default(),
            puller: None,
            egress: egress::Settings::default(),
            egress_default: egress::Defaults::default(),
            caps: Caps::default(),
            retention: Retention::default(),
            templates: Vec::new(),
            names: None,
            shared_templates: None,
            durable_logs: None,
            program_events: false,
        }
    }
}

//! What a registry is given.

use crate::caps::Caps;
use crate::pool;
use host::secret::Secrets;
use image::{Images, Policy, Puller};
use workspace::Workspaces;

/// What a registry has for its sandboxes besides machines.
pub struct RegistryOptions {
    /// Machines that are kept ready for those who will ask.
    pub pool: pool::Options,
    /// What holds for whatever sandboxes may reach.
    pub egress: egress::Settings,
    /// What those may reach of which nobody says it.
    pub egress_default: egress::Defaults,
    /// What they may ask for by name.
    pub secrets: Secrets,
    /// The directories that they may work on.
    pub workspaces: Workspaces,
    /// The images of this host; opened when one is asked for, where they are not given.
    pub images: Option<Images>,
    /// Which of them sandboxes may have.
    pub image_policy: Policy,
    /// What brings others in; without, what is here is all that there is.
    pub puller: Option<Puller>,
    /// What they may have together.
    pub caps: Caps,
}

impl Default for RegistryOptions {
    fn default() -> Self {
        Self {
            pool: pool::Options::none(),
            secrets: Secrets::default(),
            workspaces: Workspaces::default(),
            images: None,
            image_policy: Policy::default(),
            puller: None,
            egress: egress::Settings::default(),
            egress_default: egress::Defaults::default(),
            caps: Caps::default(),
        }
    }
}

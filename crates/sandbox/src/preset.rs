//! The sandbox that a session of tools gets without asking: what the person who set the client up has
//! said of it. The control socket carries it, and MCP makes the sandbox from it.

use machine::MachineKind;
use serde::{Deserialize, Serialize};

use crate::Name;

/// What a session's own sandbox is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// The namespace of the key, or the default one, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineKind>,
    /// As a client of the API names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

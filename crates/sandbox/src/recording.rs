//! What the log of a sandbox has of its sessions: a policy that its creator or the configuration sets.

use schemars::JsonSchema;
use serde::Serialize;

use crate::words::words;

/// What is recorded of a sandbox's sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecordPolicy {
    /// That they began and how they ended, and nothing of what they wrote.
    Off,
    /// Also what they wrote.
    #[default]
    On,
    /// Also what was typed into them, which may be passwords.
    Input,
}

words!(RecordPolicy, "what can be recorded", { Off: "off", On: "on", Input: "input" });

impl RecordPolicy {
    pub fn is_on(&self) -> bool {
        *self == Self::On
    }

    /// Whether output is kept.
    pub fn has_output(self) -> bool {
        self != Self::Off
    }

    pub fn has_input(self) -> bool {
        self == Self::Input
    }
}

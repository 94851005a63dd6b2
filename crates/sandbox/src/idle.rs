//! What happens to a sandbox when it has been idle for its idle time. Pure.

use schemars::JsonSchema;
use serde::Serialize;

use crate::words::words;

/// What happens to a sandbox when it has been idle for its idle time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnIdle {
    /// It ends.
    #[default]
    Stop,
    /// Its machine is paused, and continues at the next request.
    Pause,
    /// Its memory is written to disk and freed, and read again at the next request.
    Snapshot,
}

impl OnIdle {
    pub fn is_stop(&self) -> bool {
        *self == Self::Stop
    }
}

words!(OnIdle, "what can happen to an idle sandbox", {
    Stop: "stop",
    Pause: "pause",
    Snapshot: "snapshot",
});

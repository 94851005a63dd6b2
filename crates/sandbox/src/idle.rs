//! What happens to a sandbox when it has been idle for its idle time. Pure.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

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
    pub const NAMES: [&'static str; 3] = ["stop", "pause", "snapshot"];

    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Pause => "pause",
            Self::Snapshot => "snapshot",
        }
    }

    pub fn is_stop(&self) -> bool {
        *self == Self::Stop
    }
}

impl fmt::Display for OnIdle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Nothing that can happen is called that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not what can happen to an idle sandbox: on_idle is \"stop\", \"pause\" or \"snapshot\""
)]
pub struct UnknownOnIdle(String);

impl FromStr for OnIdle {
    type Err = UnknownOnIdle;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "stop" => Ok(Self::Stop),
            "pause" => Ok(Self::Pause),
            "snapshot" => Ok(Self::Snapshot),
            other => Err(UnknownOnIdle(other.chars().take(UNKNOWN_CHARS_SHOWN).collect())),
        }
    }
}

impl<'de> Deserialize<'de> for OnIdle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Enough of an unknown word to recognise it.
const UNKNOWN_CHARS_SHOWN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_the_same_in_text_and_in_json() {
        for name in OnIdle::NAMES {
            let parsed: OnIdle = name.parse().unwrap();
            assert_eq!(parsed.to_string(), name);
            assert_eq!(serde_json::to_string(&parsed).unwrap(), format!("\"{name}\""));
        }
        assert!("sleep".parse::<OnIdle>().unwrap_err().to_string().contains("\"sleep\""));
    }
}

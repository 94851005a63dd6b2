//! When images are pulled from registries, by the configuration and by a sandbox's creator. Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Whether a sandbox's image is pulled. In this order: each value allows what the earlier ones do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pull {
    /// Only images that are here.
    #[default]
    Never,
    /// Pulls missing images.
    Missing,
    /// Asks the registry what the name means now; existing contents are not transferred again.
    Always,
}

impl Pull {
    pub const ALL: [Self; 3] = [Self::Never, Self::Missing, Self::Always];
    pub const NAMES: [&str; 3] = ["never", "missing", "always"];

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl fmt::Display for Pull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No policy is called that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not one of \"never\", \"missing\" and \"always\"")]
pub struct UnknownPull(pub String);

impl FromStr for Pull {
    type Err = UnknownPull;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|pull| pull.name() == text);
        found.ok_or_else(|| UnknownPull(text.to_owned()))
    }
}

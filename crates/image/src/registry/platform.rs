//! Platforms of images, and the choice of one among several. Pure.

use std::fmt;
use std::str::FromStr;

/// `linux/amd64`, `linux/arm64/v8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    pub os: String,
    pub architecture: String,
    /// The newest generation of the architecture that will do; the usual one if absent.
    pub variant: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a platform such as \"linux/amd64\" or \"linux/arm64/v8\"")]
pub struct InvalidPlatform(pub String);

impl Platform {
    /// The platform of sandboxes on this host.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "x86" => "386",
            "aarch64" => "arm64",
            other => other,
        };
        Self { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: None }
    }

    /// How well an image for `other` runs here: `None` if not at all; greater is better.
    pub fn rank(&self, other: &Self) -> Option<u32> {
        if self.os != other.os || self.architecture != other.architecture {
            return None;
        }
        let (own, theirs) = (self.generation()?, other.generation()?);
        (theirs <= own).then_some(theirs)
    }

    /// The number in `v7`; `None` if it is none.
    fn generation(&self) -> Option<u32> {
        match self.variant.as_deref() {
            Some(variant) if !variant.is_empty() => variant.strip_prefix('v')?.parse().ok(),
            _ => Some(match self.architecture.as_str() {
                "arm64" => 8,
                "arm" => 7,
                _ => 1,
            }),
        }
    }
}

impl FromStr for Platform {
    type Err = InvalidPlatform;

    fn from_str(text: &str) -> Result<Self, InvalidPlatform> {
        let invalid = || InvalidPlatform(text.chars().take(80).collect());
        let is_word = |word: &str| {
            let inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            !word.is_empty() && word.bytes().all(inside)
        };
        let words: Vec<&str> = text.split('/').collect();
        let (os, architecture, variant) = match words[..] {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant)),
            _ => return Err(invalid()),
        };
        if !words.into_iter().all(is_word) {
            return Err(invalid());
        }
        let (os, architecture) = (os.to_owned(), architecture.to_owned());
        Ok(Self { os, architecture, variant: variant.map(str::to_owned) })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match self.variant.as_deref() {
            Some(variant) if !variant.is_empty() => write!(f, "/{variant}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        text.parse().unwrap()
    }

    #[test]
    fn generations_up_to_the_own_one_are_accepted() {
        let rank = |own: &str, other: &str| platform(own).rank(&platform(other));
        assert_eq!(rank("linux/amd64", "linux/amd64"), Some(1));
        assert_eq!(rank("linux/amd64", "linux/amd64/v1"), Some(1));
        assert_eq!(rank("linux/amd64", "linux/amd64/v3"), None);
        assert_eq!(rank("linux/amd64/v3", "linux/amd64/v3"), Some(3));
        assert_eq!(rank("linux/arm/v7", "linux/arm/v6"), Some(6));
        assert_eq!(rank("linux/arm64", "linux/arm64/v8"), Some(8));
        for other in ["windows/amd64", "linux/arm64", "linux/amd64/x", "unknown/unknown"] {
            assert_eq!(rank("linux/amd64", other), None, "{other}");
        }
        assert_eq!(platform("linux/arm64/v8").to_string(), "linux/arm64/v8");
        assert_eq!(Platform::host().os, "linux");
        for text in ["", "linux", "linux/", "linux/a/b/c", "linux/a b"] {
            assert!(text.parse::<Platform>().is_err(), "{text}");
        }
    }
}

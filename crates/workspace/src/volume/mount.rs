//! A volume as a sandbox is to have it: by its name, at a path.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::is_name;
use super::limits::{MOUNT_PATH_BYTES_MAX, MOUNTS_MAX};

/// Directories that the kernel or the agent have a use for.
const RESERVED: [&str; 5] = ["/proc", "/sys", "/dev", "/run", crate::WORKSPACE];

/// Written `NAME:/path`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeMount {
    pub name: String,
    /// Where programs find it: an absolute path.
    pub path: String,
}

/// Why a sandbox cannot have volumes like that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMount {
    #[error("volumes: {text:?} must be NAME:/path")]
    Form { text: String },
    #[error(
        "volumes: {path:?} must be an absolute path of at most {MOUNT_PATH_BYTES_MAX} bytes, without \".\", \"..\" and empty parts"
    )]
    Path { path: String },
    #[error("volumes: nothing can be mounted at {path:?}, which is the system's own")]
    Reserved { path: String },
    #[error("volumes: {path:?} and {other:?} are the same directory, or one is in the other")]
    Overlap { path: String, other: String },
    #[error("volumes: there are more than {MOUNTS_MAX}")]
    TooMany,
}

impl VolumeMount {
    /// Whether a directory of the host is meant, as other programs write it.
    pub fn is_of_host(&self) -> bool {
        !is_name(&self.name)
    }

    /// Refuses paths at which nothing can be mounted.
    pub fn check(all: &[Self]) -> Result<(), InvalidMount> {
        if all.len() > MOUNTS_MAX {
            return Err(InvalidMount::TooMany);
        }
        for (place, Self { path, .. }) in all.iter().enumerate() {
            let inner = path.strip_prefix('/').unwrap_or_default();
            let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
            if path.len() > MOUNT_PATH_BYTES_MAX || !inner.split('/').all(is_part) {
                return Err(InvalidMount::Path { path: path.clone() });
            }
            if RESERVED.iter().any(|reserved| holds(reserved, path)) {
                return Err(InvalidMount::Reserved { path: path.clone() });
            }
            let others = all[..place].iter().map(|mount| &mount.path);
            let mut overlapping = others.filter(|other| holds(other, path) || holds(path, other));
            if let Some(other) = overlapping.next() {
                return Err(InvalidMount::Overlap { path: path.clone(), other: other.clone() });
            }
        }
        Ok(())
    }
}

/// Whether a path is that of a directory, or is in it.
fn holds(directory: &str, path: &str) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl FromStr for VolumeMount {
    type Err = InvalidMount;

    fn from_str(text: &str) -> Result<Self, InvalidMount> {
        let Some((name, path)) = text.split_once(':') else {
            let text = text.chars().take(MOUNT_PATH_BYTES_MAX).collect();
            return Err(InvalidMount::Form { text });
        };
        Ok(Self { name: name.to_owned(), path: path.to_owned() })
    }
}

impl TryFrom<String> for VolumeMount {
    type Error = InvalidMount;

    fn try_from(text: String) -> Result<Self, InvalidMount> {
        text.parse()
    }
}

impl From<VolumeMount> for String {
    fn from(mount: VolumeMount) -> Self {
        mount.to_string()
    }
}

impl fmt::Display for VolumeMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(all: &[&str]) -> Result<(), InvalidMount> {
        let all: Result<Vec<VolumeMount>, _> = all.iter().map(|text| text.parse()).collect();
        VolumeMount::check(&all?)
    }

    #[test]
    fn a_volume_is_mounted_at_an_absolute_path_of_its_own() {
        checked(&[]).unwrap();
        checked(&["a:/data", "b:/data2", "a:/srv/data"]).unwrap();
        for refused in
            ["a", "a:", "a:/", "a:data", "a:/x/", "a:/x/../y", "a://x", "a:/./x", "a:/x\0"]
        {
            assert!(checked(&[refused]).is_err(), "{refused:?}");
        }
        for reserved in ["a:/proc", "a:/dev/shm", "a:/workspace", "a:/workspace/x", "a:/run/x"] {
            assert!(
                matches!(checked(&[reserved]), Err(InvalidMount::Reserved { .. })),
                "{reserved}"
            );
        }
        for pair in [["a:/x", "b:/x"], ["a:/x", "b:/x/y"], ["a:/x/y", "b:/x"]] {
            assert!(matches!(checked(&pair), Err(InvalidMount::Overlap { .. })), "{pair:?}");
        }
        let many: Vec<String> = (0..=MOUNTS_MAX).map(|number| format!("a:/v{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(checked(&many), Err(InvalidMount::TooMany));
    }

    #[test]
    fn a_directory_of_the_host_is_no_name() {
        let is_of_host = |text: &str| text.parse::<VolumeMount>().unwrap().is_of_host();
        assert!(!is_of_host("data:/data"));
        for text in ["/srv:/data", "./x:/data", "..:/data", "~/x:/data", ":/data"] {
            assert!(is_of_host(text), "{text}");
        }
    }
}

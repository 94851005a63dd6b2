//! Parses the two ends of a copy: `SANDBOX:PATH`, a path of the host, or `-`. Pure.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use sandbox::SandboxRef;

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `-`: our stdin as a source, our stdout as a destination.
    Standard,
    Host(PathBuf),
    Guest(GuestPath),
}

/// A path inside a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestPath {
    pub which: SandboxRef,
    /// Absolute; a relative path counts from the root, since a sandbox has no directory of ours.
    pub path: String,
}

/// Why a text is not an end of a copy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    #[error("the path is empty")]
    Empty,
    #[error("{0:?} names a sandbox but no path in it: write SANDBOX:/path")]
    NoPath(String),
}

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    /// An argument that begins with `/`, `.` or `~`, or has no `SANDBOX:` in front, is a path of the host;
    /// write `./sandbox:file` for a file of the host with such a name.
    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        match text {
            "" => return Err(InvalidEndpoint::Empty),
            "-" => return Ok(Self::Standard),
            _ => {}
        }
        if let Some((front, path)) = text.split_once(':')
            && let Ok(which) = front.parse::<SandboxRef>()
        {
            if path.is_empty() {
                return Err(InvalidEndpoint::NoPath(text.to_owned()));
            }
            let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
            return Ok(Self::Guest(GuestPath { which, path }));
        }
        Ok(Self::Host(PathBuf::from(text)))
    }
}

impl GuestPath {
    /// Whether the path must be a directory because it ends in a slash.
    pub fn wants_directory(&self) -> bool {
        self.path.ends_with('/') || wants_contents(&self.path)
    }

    /// `path` with one more component.
    pub fn join(&self, name: &str) -> String {
        format!("{}/{name}", self.path.trim_end_matches('/'))
    }
}

/// Whether a path ends in `/.`: then the contents of the directory are meant, not itself.
pub fn wants_contents(path: &str) -> bool {
    path == "." || path.ends_with("/.")
}

/// The last component of a path of a sandbox; `None` for the root and for paths that end in dots.
pub fn base_name(path: &str) -> Option<&str> {
    let name = path.trim_end_matches('/').rsplit('/').next()?;
    (!matches!(name, "" | "." | "..")).then_some(name)
}

/// The directory that a path of a sandbox is in.
pub fn parent(path: &str) -> &str {
    match path.trim_end_matches('/').rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

/// Whether a path of the host ends in a slash, which `Path` forgets.
pub fn ends_in_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(which: &str, path: &str) -> Endpoint {
        let which = which.parse().expect("a sandbox");
        Endpoint::Guest(GuestPath { which, path: path.to_owned() })
    }

    #[test]
    fn a_colon_after_a_sandbox_name_means_the_sandbox() {
        assert_eq!("web:/etc/hosts".parse(), Ok(guest("web", "/etc/hosts")));
        assert_eq!("web:etc".parse(), Ok(guest("web", "/etc")));
        assert_eq!("team/web:/a:b".parse(), Ok(guest("team/web", "/a:b")));
        assert_eq!("C:x".parse(), Ok(guest("C", "/x")), "there are no drives here");
        assert_eq!("web:".parse::<Endpoint>(), Err(InvalidEndpoint::NoPath("web:".to_owned())));
    }

    #[test]
    fn everything_else_is_of_the_host() {
        for text in ["file", "/a:b", "./web:x", "../web:x", "a b:c", "a/b/c:d", ":x", "~x:y"] {
            assert_eq!(text.parse(), Ok(Endpoint::Host(text.into())), "{text}");
        }
        assert_eq!("-".parse(), Ok(Endpoint::Standard));
        assert_eq!("".parse::<Endpoint>(), Err(InvalidEndpoint::Empty));
    }

    #[test]
    fn paths_come_apart_as_in_a_shell() {
        assert_eq!((base_name("/a/b/"), parent("/a/b/")), (Some("b"), "/a"));
        assert_eq!((base_name("/a"), parent("/a")), (Some("a"), "/"));
        assert_eq!((base_name("/"), parent("/")), (None, "/"));
        assert_eq!(base_name("/a/."), None);
        assert!(wants_contents("/a/.") && !wants_contents("/a.") && !wants_contents("/a/"));
    }
}

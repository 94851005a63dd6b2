//! Names of images as people and registries write them: `python:3.11-slim`,
//! `ghcr.io/team/app:v1@sha256:…`, `localhost:5000/x`. Pure.
//!
//! ```text
//!   localhost:5000 / team/app : v1 @ sha256:…
//!   Host             Repository Tag  Digest
//! ```
//!
//! Missing parts get docker's defaults: the host is `docker.io`, a repository there with one component is in
//! `library/`, and without a tag or digest the tag is `latest`. Display is the whole name,
//! [`Reference::short`] the form that a person would write.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::digest::{Digest, InvalidDigest};
use super::limits::{NAME_BYTES_MAX, TAG_BYTES_MAX};
use host::excerpt::excerpt;

/// The registry of names that name none.
const DOCKER_HUB: &str = "docker.io";
/// Its older name.
const DOCKER_HUB_ONCE: &str = "index.docker.io";
/// The repository prefix of its official images.
const LIBRARY: &str = "library";
const TAG_DEFAULT: &str = "latest";
/// Digits of a bare digest, which a name must not look like.
const DIGEST_DIGITS: usize = 64;
/// How much of untrusted text an error shows.
const CHARS_SHOWN_MAX: usize = 300;

/// A registry's host name or address, with its port where that is not the usual one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(String);

/// The path of an image in its registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repository(String);

/// A name that its registry may give to another content tomorrow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(String);

/// The whole name of an image: it has a tag, or a digest, or both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    pub host: Host,
    pub repository: Repository,
    pub tag: Option<Tag>,
    /// If there is also a tag, the digest decides.
    pub digest: Option<Digest>,
}

/// Why a text is not the name of an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReference {
    #[error("the name of an image is empty")]
    Empty,
    #[error(
        "{0:?} is not a registry: write a host name or address, optionally followed by a colon and a port"
    )]
    Host(String),
    #[error("{0:?} is not a repository name: it has capital letters; did you mean {1:?}?")]
    Capitals(String, String),
    #[error(
        "{0:?} is not a repository name: write words of a-z and 0-9, separated by '/', with '.', \
         '_', '__' or '-' inside"
    )]
    Repository(String),
    #[error(
        "{0:?} is not a tag: write 1 to {TAG_BYTES_MAX} of A-Z, a-z, 0-9, '_', '.' and '-', \
             not beginning with '.' or '-'"
    )]
    Tag(String),
    #[error("the name is longer than {NAME_BYTES_MAX} characters: {0:?}…")]
    TooLong(String),
    #[error("{0:?} is a digest without a name: write NAME@sha256:{0}")]
    BareDigest(String),
    #[error(transparent)]
    Digest(#[from] InvalidDigest),
}

impl Host {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Without the port and without an address's brackets.
    pub fn name(&self) -> &str {
        split_port(&self.0).0.trim_matches(['[', ']'])
    }

    pub fn port(&self) -> Option<u16> {
        split_port(&self.0).1.and_then(|port| port.parse().ok())
    }

    pub fn is_docker_hub(&self) -> bool {
        self.0 == DOCKER_HUB
    }

    /// Whether the name shows that requests stay on this machine.
    pub fn is_loopback(&self) -> bool {
        let name = self.name();
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    }
}

/// `host:port`, `[::1]:port`, or either without a port.
fn split_port(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (text, None),
    }
}

impl Repository {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The repository of the same name below a path, as on a mirror.
    pub fn below(&self, prefix: &str) -> Result<Self, InvalidReference> {
        if prefix.is_empty() { Ok(self.clone()) } else { format!("{prefix}/{}", self.0).parse() }
    }
}

impl Tag {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Reference {
    /// The form that a person would write: without defaults.
    pub fn short(&self) -> String {
        let path = self.repository.0.as_str();
        let in_library = path.strip_prefix(LIBRARY).and_then(|rest| rest.strip_prefix('/'));
        let text = match in_library.filter(|rest| is_short(rest)) {
            Some(rest) if self.host.is_docker_hub() => rest.to_owned(),
            _ if self.host.is_docker_hub() && !begins_like_host(path) => path.to_owned(),
            _ => format!("{}/{path}", self.host),
        };
        text + &self.end()
    }

    /// Its registry and repository.
    pub fn place(&self) -> String {
        format!("{}/{}", self.host, self.repository)
    }

    /// The same image by its digest only.
    #[must_use]
    pub fn at(&self, digest: Digest) -> Self {
        Self { tag: None, digest: Some(digest), ..self.clone() }
    }

    /// The tag and digest, each with its separator.
    fn end(&self) -> String {
        let tag = self.tag.as_ref().map_or_else(String::new, |tag| format!(":{tag}"));
        let digest = self.digest.as_ref().map_or_else(String::new, |digest| format!("@{digest}"));
        tag + &digest
    }
}

/// Whether a repository of the library is still that one when the library is not named.
fn is_short(rest: &str) -> bool {
    !rest.contains('/') && !is_bare_digest(rest)
}

/// Whether a path without its host would be read as one with another host.
fn begins_like_host(path: &str) -> bool {
    path.split_once('/').is_some_and(|(first, _)| is_host_like(first))
}

fn is_bare_digest(text: &str) -> bool {
    text.len() == DIGEST_DIGITS && Digest::from_hex(text).is_ok()
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        if text.is_empty() {
            return Err(InvalidReference::Empty);
        }
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest.parse()?)),
            None => (text, None),
        };
        if is_bare_digest(name) {
            return Err(InvalidReference::BareDigest(name.to_owned()));
        }
        let (host, path) = match name.split_once('/') {
            Some((first, path)) if is_host_like(first) => (first, path),
            _ => (DOCKER_HUB, name),
        };
        // A colon in front of the last slash is that of a port or a mistake.
        let last = path.rfind('/').map_or(0, |slash| slash + 1);
        let (repository, tag) = match path[last..].split_once(':') {
            Some((end, tag)) => (&path[..last + end.len()], Some(tag.parse()?)),
            None => (path, None),
        };
        let host: Host = host.parse()?;
        let repository: Repository = if host.is_docker_hub() && !repository.contains('/') {
            repository.parse::<Repository>()?;
            format!("{LIBRARY}/{repository}").parse()?
        } else {
            repository.parse()?
        };
        if host.0.len() + 1 + repository.0.len() > NAME_BYTES_MAX {
            return Err(InvalidReference::TooLong(excerpt(&repository.0, CHARS_SHOWN_MAX)));
        }
        let tag = tag.or_else(|| digest.is_none().then(|| Tag(TAG_DEFAULT.to_owned())));
        Ok(Self { host, repository, tag, digest })
    }
}

/// Whether the part before the first slash is a registry: the first component of a repository has
/// no colons or capitals and is not only dots; hosts almost always have one of these.
fn is_host_like(first: &str) -> bool {
    first == "localhost"
        || first.contains(['.', ':'])
        || first.bytes().any(|byte| byte.is_ascii_uppercase())
}

impl FromStr for Host {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let invalid = || InvalidReference::Host(excerpt(text, CHARS_SHOWN_MAX));
        let (name, port) = split_port(text);
        let has_good_port = port
            .is_none_or(|port| is_number(port) && port.parse::<u16>().is_ok_and(|port| port > 0));
        let bracketed = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let has_good_name = match bracketed {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => name.split('.').all(is_label),
        };
        if !has_good_port || !has_good_name || text.len() > NAME_BYTES_MAX {
            return Err(invalid());
        }
        let host = text.to_ascii_lowercase();
        Ok(Self(if host == DOCKER_HUB_ONCE { DOCKER_HUB.to_owned() } else { host }))
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// One word of a host's name.
fn is_label(label: &str) -> bool {
    /// The limit of the domain name system.
    const LABEL_BYTES_MAX: usize = 63;
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=LABEL_BYTES_MAX).contains(&label.len())
        && label.bytes().all(inside)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

impl FromStr for Repository {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        if text.len() > NAME_BYTES_MAX {
            return Err(InvalidReference::TooLong(excerpt(text, CHARS_SHOWN_MAX)));
        }
        if text.split('/').all(is_component) {
            return Ok(Self(text.to_owned()));
        }
        let lower = text.to_ascii_lowercase();
        Err(if lower != text && lower.split('/').all(is_component) {
            InvalidReference::Capitals(text.to_owned(), lower)
        } else {
            InvalidReference::Repository(excerpt(text, CHARS_SHOWN_MAX))
        })
    }
}

/// Runs of a-z and 0-9, between them a dot, one or two underscores, or any number of hyphens.
fn is_component(component: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let words_and_between = component.as_bytes().chunk_by(|a, b| is_word(*a) == is_word(*b));
    let good = |run: &[u8]| match run {
        [first, ..] if is_word(*first) => true,
        b"." | b"_" | b"__" => true,
        hyphens => hyphens.iter().all(|byte| *byte == b'-'),
    };
    let ends = [component.bytes().next(), component.bytes().last()];
    ends.into_iter().all(|end| end.is_some_and(is_word)) && words_and_between.into_iter().all(good)
}

impl FromStr for Tag {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        let is_good = (1..=TAG_BYTES_MAX).contains(&text.len())
            && text.bytes().all(inside)
            && !text.starts_with(['.', '-']);
        if is_good {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidReference::Tag(excerpt(text, CHARS_SHOWN_MAX)))
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}{}", self.host, self.repository, self.end())
    }
}

#[cfg(test)]
mod tests;

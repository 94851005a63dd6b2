//! Which images sandboxes may have: a list of names and digests, pinned tags, and whether a digest is
//! required. Pure. Code that starts sandboxes for others asks here before it uses an image; a person at the
//! command line is their own operator.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::digest::{Digest, InvalidDigest};
use super::reference::{InvalidReference, Reference};
use super::store::ImageError;
use super::store::limits::PATTERNS_MAX;

/// Matches any characters in a pattern.
const ANY: char = '*';

/// What an operator allows. Without patterns, every image that is here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    patterns: Vec<Pattern>,
    require_digest: bool,
    /// Names with their tags, each with the only content that it may mean.
    pins: BTreeMap<Reference, Digest>,
    /// The images of the operator's own names, which are always allowed as written there.
    own: Vec<String>,
}

/// Patterns for whole names, with `*` for any characters, and optionally with the only allowed digest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    name: String,
    digest: Option<Digest>,
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("{pattern:?} is not a valid pattern: {source}")]
    Digest { pattern: String, source: InvalidDigest },
    #[error("a pattern is empty; write an image name, or * for every image")]
    Empty,
    #[error("at most {max} patterns and {max} pins are allowed")]
    TooMany { max: usize },
    #[error("{pin:?} is not a valid pin: {source}")]
    Pin { pin: String, source: InvalidReference },
    #[error(
        "{pin:?} is not a valid pin: write a name with its tag and its digest, as in python:3.12@sha256:…"
    )]
    NoPin { pin: String },
    #[error("{name} is pinned twice")]
    Twice { name: String },
}

impl FromStr for Pattern {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        let invalid = |source| PolicyError::Digest { pattern: text.to_owned(), source };
        let digest = digest.map(|digest| digest.parse().map_err(invalid)).transpose()?;
        if name.is_empty() {
            return Err(PolicyError::Empty);
        }
        // A name in a person's form is read like a name.
        let whole = name.parse::<Reference>().ok().filter(|_| !name.contains(ANY));
        let name = whole.map_or_else(|| name.to_owned(), |whole| whole.to_string());
        Ok(Self { name, digest })
    }
}

impl Policy {
    pub fn new(patterns: &[String], require_digest: bool) -> Result<Self, PolicyError> {
        if patterns.len() > PATTERNS_MAX {
            return Err(PolicyError::TooMany { max: PATTERNS_MAX });
        }
        let patterns = patterns.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        Ok(Self { patterns, require_digest, ..Self::default() })
    }

    /// Adds tags with a pinned content; they are refused if they refer to another.
    pub fn with_pins(mut self, pins: &[String]) -> Result<Self, PolicyError> {
        if pins.len() > PATTERNS_MAX {
            return Err(PolicyError::TooMany { max: PATTERNS_MAX });
        }
        for pin in pins {
            let invalid = |source| PolicyError::Pin { pin: pin.clone(), source };
            let mut name: Reference = pin.parse().map_err(invalid)?;
            let digest = name.digest.take().filter(|_| name.tag.is_some());
            let digest = digest.ok_or_else(|| PolicyError::NoPin { pin: pin.clone() })?;
            if self.pins.insert(name.clone(), digest).is_some() {
                return Err(PolicyError::Twice { name: name.to_string() });
            }
        }
        Ok(self)
    }

    /// Whether there is no rule, so that nothing is refused.
    pub fn allows_all(&self) -> bool {
        self.patterns.is_empty() && self.pins.is_empty() && !self.require_digest
    }

    /// The digest that a name must have; `None` if it is requested by digest.
    fn pinned(&self, name: &Reference) -> Option<&Digest> {
        self.pins.get(name)
    }

    /// Adds the images of the operator's own names.
    #[must_use]
    pub fn with_own(self, own: impl IntoIterator<Item = String>) -> Self {
        Self { own: own.into_iter().collect(), ..self }
    }

    /// Whether an image may be pulled that is not here: by its name, and the digest that was requested with
    /// it.
    pub fn check_pull(&self, requested: &str, name: &Reference) -> Result<(), ImageError> {
        let refused = |rule| Err(ImageError::NotAllowed { image: requested.to_owned(), rule });
        // Whether it is that content still, is looked at again when it is here.
        if self.own.iter().any(|own| own == requested) || self.pinned(name).is_some() {
            return Ok(());
        }
        if self.require_digest && name.digest.is_none() {
            return refused("it must be named by its digest");
        }
        let plain = Reference { digest: None, ..name.clone() }.to_string();
        let allows = |pattern: &Pattern| match pattern.digest {
            Some(wanted) => Some(wanted) == name.digest || matches(&pattern.name, &plain),
            None => matches(&pattern.name, &plain),
        };
        if self.patterns.is_empty() || self.patterns.iter().any(allows) {
            return Ok(());
        }
        refused("no pattern of image_policy.allow matches it")
    }

    /// Whether an image may be used that was asked for so, has this digest, and is called so here.
    pub fn check(
        &self,
        requested: &str,
        digest: &Digest,
        names: &[String],
    ) -> Result<(), ImageError> {
        let refused = |rule| Err(ImageError::NotAllowed { image: requested.to_owned(), rule });
        let name = requested.parse::<Reference>().ok();
        match name.as_ref().and_then(|name| self.pinned(name)) {
            Some(pinned) if pinned == digest => return Ok(()),
            Some(_) => return refused("image_policy.pins names another digest for it"),
            None if self.own.iter().any(|own| own == requested) => return Ok(()),
            None => {}
        }
        if self.require_digest && !requested.contains(&digest.hex()) {
            return refused("it must be named by its digest");
        }
        // A name with a digest is allowed as that name, whatever it means here by now.
        let own = name.filter(|_| requested.contains('@'));
        let own = own.map(|own| Reference { digest: None, ..own }.to_string());
        let is_named = |pattern: &Pattern| {
            pattern.name == "*" || names.iter().chain(&own).any(|name| matches(&pattern.name, name))
        };
        let allows = |pattern: &Pattern| match pattern.digest {
            // The operator has approved its content.
            Some(wanted) => wanted == *digest,
            None => is_named(pattern),
        };
        if self.patterns.is_empty() || self.patterns.iter().any(allows) {
            return Ok(());
        }
        refused("no pattern of image_policy.allow matches it")
    }
}

/// Whether a name matches a pattern, in which `*` is any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split(ANY);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(patterns: &[&str], requested: &str, name: &str) -> bool {
        let patterns: Vec<_> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        let policy = Policy::new(&patterns, false).unwrap();
        policy.check(requested, &Digest::of(b"x"), &[name.to_owned()]).is_ok()
    }

    #[test]
    fn a_star_stands_for_any_characters_and_nothing_else_does() {
        let name = "docker.io/library/python:3.12";
        for pattern in ["*", "docker.io/library/*", "docker.io/*/python:*", "*:3.12", "python:3.12"]
        {
            assert!(allows(&[pattern], "python:3.12", name), "{pattern}");
        }
        for pattern in
            ["docker.io/library", "python:3.1", "library/*", "*:3", "docker.io/library/p*:4"]
        {
            assert!(!allows(&[pattern], "python:3.12", name), "{pattern}");
        }
        assert!(allows(&[], "python:3.12", name));
        assert!(!allows(&["a*aa"], "aa", "aa"), "no character counts twice");
    }

    #[test]
    fn a_digest_in_the_list_is_that_content_by_whatever_name() {
        let (own, other) = (Digest::of(b"x"), Digest::of(b"y"));
        assert!(allows(
            &[&format!("python@{own}")],
            "anything",
            "docker.io/library/anything:latest"
        ));
        assert!(!allows(
            &[&format!("python@{other}")],
            "python",
            "docker.io/library/python:latest"
        ));
        assert!(Policy::new(&["python@sha256:1".to_owned()], false).is_err());
    }

    #[test]
    fn only_allowed_images_are_pulled() {
        let digest = Digest::of(b"x");
        let pulls = |patterns: &[&str], required: bool, requested: &str| {
            let patterns: Vec<_> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
            let policy = Policy::new(&patterns, required).unwrap();
            let policy = policy.with_own(["ghcr.io/own/app:1".to_owned()]);
            policy.check_pull(requested, &requested.parse().unwrap()).is_ok()
        };
        let pinned = format!("python@{digest}");
        assert!(pulls(&[], false, "python") && pulls(&["docker.io/library/*"], false, "python"));
        assert!(!pulls(&["docker.io/library/*"], false, "ghcr.io/a/b"));
        assert!(!pulls(&[], true, "python") && pulls(&[], true, &pinned));
        // A pinned image may be pulled by its digest, or by its name to check whether it is still the same;
        // using it is checked again.
        assert!(pulls(&[&pinned], false, &pinned) && pulls(&[&pinned], false, "python:latest"));
        assert!(!pulls(&[&pinned], false, "node"));
        assert!(pulls(&["node"], true, "ghcr.io/own/app:1"));
    }

    #[test]
    fn a_tag_that_is_pinned_means_that_content_and_no_other() {
        let (right, wrong) = (Digest::of(b"x"), Digest::of(b"y"));
        let pins = [format!("python:3.12@{right}"), format!("ghcr.io/team/app:1@{right}")];
        let policy = Policy::new(&["docker.io/library/*".to_owned()], true).unwrap();
        let policy = policy.with_own(["ghcr.io/team/app:1".to_owned()]).with_pins(&pins).unwrap();
        let check = |requested: &str, digest: &Digest| policy.check(requested, digest, &[]).is_ok();
        // The pin is the digest that is required, and a word of the operator's like `allow`.
        for requested in ["python:3.12", "docker.io/library/python:3.12", "ghcr.io/team/app:1"] {
            assert!(check(requested, &right) && !check(requested, &wrong), "{requested}");
            assert!(
                policy.check_pull(requested, &requested.parse().unwrap()).is_ok(),
                "{requested}"
            );
        }
        // Another tag is another name, and a digest is treated as before.
        assert!(!check("python:3.13", &right) && !check("python", &right));
        let by_digest = format!("python:3.12@{wrong}");
        assert!(check(&by_digest, &wrong));
    }

    #[test]
    fn invalid_pins_are_refused_with_a_reason() {
        let digest = Digest::of(b"x");
        let reason = |pins: &[String]| {
            Policy::default().with_pins(pins).expect_err("it is no pin").to_string()
        };
        for pin in ["python:3.12".to_owned(), format!("python@{digest}")] {
            assert!(reason(&[pin]).contains("with its tag and its digest"));
        }
        assert!(reason(&["library/*:1@sha256:0".to_owned()]).contains("not a valid pin"));
        let twice = [format!("python:3.12@{digest}"), format!("docker.io/python:3.12@{digest}")];
        assert!(reason(&twice).contains("is pinned twice"));
    }

    #[test]
    fn a_digest_that_is_required_has_to_be_in_what_is_asked_for() {
        let policy = Policy::new(&[], true).unwrap();
        let digest = Digest::of(b"x");
        let check = |requested: &str| policy.check(requested, &digest, &[]).is_ok();
        assert!(check(&digest.to_string()) && check(&format!("python@{digest}")));
        assert!(!check("python") && !check(&digest.hex()[..12]));
    }
}

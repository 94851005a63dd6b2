//! The operator's configuration of registries. Pure, except that it reads from the environment where
//! credentials are.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::credentials::auth_files;
use super::error::PullError;
use super::limits::{
    CONNECT_DEADLINE, HEAD_DEADLINE, IMAGE_BYTES_MAX, LAYERS_AT_ONCE, RETRY_PAUSE_FIRST,
    STALL_DEADLINE,
};
use super::platform::Platform;
use super::url::{Origin, Scheme, origin_of};
use crate::limits::BLOB_BYTES_MAX;
use crate::reference::{Host, InvalidReference, Reference, Repository};

/// The host that serves Docker Hub's images.
const DOCKER_HUB_HOST: &str = "registry-1.docker.io";

/// How images are pulled.
#[derive(Clone, Debug)]
pub struct Options {
    /// By the name in references; a registry that is not here has no mirrors and uses TLS.
    pub registries: BTreeMap<Host, Registry>,
    /// Files of certificates that are trusted for every registry in addition to the host's.
    pub authorities: Vec<PathBuf>,
    /// Files with credentials, in order of preference.
    pub auth_files: Vec<PathBuf>,
    pub platform: Platform,
    pub bounds: Bounds,
    pub times: Times,
    /// The operator names the image, so its registry may have any address. Otherwise only
    /// configured registries may have a private one.
    pub believes_names: bool,
}

/// The settings of one registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// Asked before it, in this order.
    pub mirrors: Vec<Mirror>,
    /// It may be spoken to in the clear.
    pub insecure: bool,
    /// Certificates that are trusted in addition to the host's.
    pub authorities: Option<PathBuf>,
}

/// The operator's settings of a registry, unparsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrySettings {
    pub mirror: Vec<String>,
    pub insecure: bool,
    pub ca: Option<PathBuf>,
}

/// Another server with a registry's images, perhaps below a path of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub host: Host,
    pub prefix: String,
    /// If it was written; otherwise as for any registry of that name.
    pub scheme: Option<Scheme>,
}

/// Limits of one pull.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub layers_at_once: usize,
    pub layer_bytes_max: u64,
    pub image_bytes_max: u64,
}

/// Deadlines.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub connect: Duration,
    pub head: Duration,
    pub stall: Duration,
    pub retry_pause: Duration,
}

/// A place to pull an image from.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub host: Host,
    pub origin: Origin,
    pub repository: Repository,
    pub authorities: Vec<PathBuf>,
}

/// A setting of a registry that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOptions {
    #[error("registries: {0}")]
    Host(InvalidReference),
    #[error("registries.{host}.mirror: {mirror:?}: {source}")]
    Mirror { host: String, mirror: String, source: InvalidReference },
    #[error(
        "registries.{host}.mirror: {mirror:?} is written as http, and neither it is on this host \
             nor has it a section of its own with insecure = true"
    )]
    Clear { host: String, mirror: String },
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            layers_at_once: LAYERS_AT_ONCE,
            layer_bytes_max: BLOB_BYTES_MAX,
            image_bytes_max: IMAGE_BYTES_MAX,
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        Self {
            connect: CONNECT_DEADLINE,
            head: HEAD_DEADLINE,
            stall: STALL_DEADLINE,
            retry_pause: RETRY_PAUSE_FIRST,
        }
    }
}

impl Default for Options {
    /// No registry has anything particular, and there are no credentials.
    fn default() -> Self {
        Self {
            registries: BTreeMap::new(),
            authorities: Vec::new(),
            auth_files: Vec::new(),
            platform: Platform::host(),
            bounds: Bounds::default(),
            times: Times::default(),
            believes_names: true,
        }
    }
}

impl Options {
    /// Options for images that clients name.
    #[must_use]
    pub fn for_clients(self) -> Self {
        Self { believes_names: false, ..self }
    }

    /// Options from the configuration, with the credentials of the current user.
    pub fn from_settings(
        registries: &BTreeMap<String, RegistrySettings>,
        authorities: &[PathBuf],
    ) -> Result<Self, InvalidOptions> {
        let mut options = Self {
            auth_files: auth_files(&|name| std::env::var_os(name)),
            authorities: authorities.to_vec(),
            ..Self::default()
        };
        for (name, given) in registries {
            let host: Host = name.parse().map_err(InvalidOptions::Host)?;
            let mirrors = given.mirror.iter().map(|mirror| {
                let invalid = |source| InvalidOptions::Mirror {
                    host: name.clone(),
                    mirror: mirror.clone(),
                    source,
                };
                Mirror::parse(mirror).map_err(invalid)
            });
            let registry = Registry {
                mirrors: mirrors.collect::<Result<_, _>>()?,
                insecure: given.insecure,
                authorities: given.ca.clone(),
            };
            options.registries.insert(host, registry);
        }
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<(), InvalidOptions> {
        for (host, registry) in &self.registries {
            let clear = |mirror: &&Mirror| {
                mirror.scheme == Some(Scheme::Http) && !self.may_be_plain(&mirror.host)
            };
            if let Some(mirror) = registry.mirrors.iter().find(clear) {
                let mirror = mirror.host.to_string();
                return Err(InvalidOptions::Clear { host: host.to_string(), mirror });
            }
        }
        Ok(())
    }

    /// Whether bytes from there may travel in the clear.
    pub fn may_be_plain(&self, host: &Host) -> bool {
        host.is_loopback() || self.registries.get(host).is_some_and(|registry| registry.insecure)
    }

    /// Whether a redirect to another server is allowed that is not secure.
    pub fn may_follow(&self, from: &Origin, to: &Origin) -> bool {
        if to.scheme == Scheme::Https {
            return true;
        }
        // A remote server must not choose what is requested on this host.
        let is_here = from.is_loopback() && to.is_loopback();
        let host = to.authority().parse::<Host>();
        let is_named = host.is_ok_and(|host| !host.is_loopback() && self.may_be_plain(&host));
        from.scheme == Scheme::Http && (is_here || is_named)
    }

    /// Hosts that may have any address while this endpoint is used: those that the operator has
    /// named. Other redirects must lead to the public internet.
    pub fn named(&self, place: &Endpoint) -> Vec<Origin> {
        let mirrors = self.registries.values().flat_map(|registry| &registry.mirrors);
        let hosts = self.registries.keys().chain(mirrors.map(|mirror| &mirror.host));
        let both = |host: &Host| [Scheme::Http, Scheme::Https].map(|scheme| origin(scheme, host));
        let own = self.believes_names.then(|| place.origin.clone());
        hosts.flat_map(both).chain(own).collect()
    }

    /// Where a reference may be pulled from: its registry's mirrors, then the registry itself.
    pub fn places(&self, reference: &Reference) -> Result<Vec<Endpoint>, PullError> {
        let own = self.registries.get(&reference.host);
        let mirrors = own.map_or(&[][..], |registry| &registry.mirrors);
        let mut places = Vec::with_capacity(mirrors.len() + 1);
        for mirror in mirrors {
            let prefix = |source| PullError::Prefix { prefix: mirror.prefix.clone(), source };
            let repository = reference.repository.below(&mirror.prefix).map_err(prefix)?;
            places.push(self.place(&mirror.host, repository, mirror.scheme));
        }
        places.push(self.place(&reference.host, reference.repository.clone(), None));
        Ok(places)
    }

    fn place(&self, host: &Host, repository: Repository, scheme: Option<Scheme>) -> Endpoint {
        /// Nobody serves anything else there.
        const TLS_PORT: u16 = 443;
        let usual = if self.may_be_plain(host) && host.port() != Some(TLS_PORT) {
            Scheme::Http
        } else {
            Scheme::Https
        };
        let origin = origin(scheme.unwrap_or(usual), host);
        let own = self.registries.get(host).and_then(|own| own.authorities.clone());
        let authorities = own.into_iter().chain(self.authorities.iter().cloned()).collect();
        Endpoint { host: host.clone(), origin, repository, authorities }
    }
}

/// The real address of a registry.
fn origin(scheme: Scheme, host: &Host) -> Origin {
    let mut origin = origin_of(scheme, host);
    if host.is_docker_hub() {
        DOCKER_HUB_HOST.clone_into(&mut origin.name);
    }
    origin
}

impl Mirror {
    /// `HOST[:PORT][/PREFIX]`, with or without `https://` or `http://`.
    pub fn parse(text: &str) -> Result<Self, InvalidReference> {
        let (scheme, rest) = match text.split_once("://") {
            Some(("https", rest)) => (Some(Scheme::Https), rest),
            Some(("http", rest)) => (Some(Scheme::Http), rest),
            _ => (None, text),
        };
        let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_matches('/');
        if !prefix.is_empty() {
            prefix.parse::<Repository>()?;
        }
        Ok(Self { host: host.parse()?, prefix: prefix.to_owned(), scheme })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(registries: &[(&str, &[&str], bool)]) -> Result<Options, InvalidOptions> {
        let registry = |(host, mirror, insecure): &(&str, &[&str], bool)| {
            let mirror = mirror.iter().map(|&mirror| mirror.to_owned()).collect();
            ((*host).to_owned(), RegistrySettings { mirror, insecure: *insecure, ca: None })
        };
        Options::from_settings(&registries.iter().map(registry).collect(), &[])
    }

    fn places(options: &Options, reference: &str) -> Vec<String> {
        let places = options.places(&reference.parse().unwrap()).unwrap();
        places.iter().map(|place| format!("{}/{}", place.origin, place.repository)).collect()
    }

    #[test]
    fn mirrors_come_before_their_registry() {
        let options = with(&[
            ("docker.io", &["localhost:5000", "https://harbor.example/hub"], false),
            ("lan.example:5000", &[], true),
        ]);
        let options = options.unwrap();
        assert_eq!(
            places(&options, "python:3"),
            [
                "http://localhost:5000/library/python",
                "https://harbor.example/hub/library/python",
                "https://registry-1.docker.io/library/python"
            ]
        );
        assert_eq!(places(&options, "ghcr.io/a/b"), ["https://ghcr.io/a/b"]);
        assert_eq!(places(&options, "lan.example:5000/a"), ["http://lan.example:5000/a"]);
        assert_eq!(places(&options, "lan.example/a"), ["https://lan.example/a"]);
        assert_eq!(places(&options, "localhost:443/a"), ["https://localhost/a"]);
    }

    #[test]
    fn invalid_settings_have_a_reason() {
        assert!(matches!(with(&[("a b", &[], false)]), Err(InvalidOptions::Host(_))));
        let mirror = with(&[("docker.io", &["ftp://x/"], false)]);
        assert!(matches!(mirror, Err(InvalidOptions::Mirror { .. })), "{mirror:?}");
        let clear = with(&[("docker.io", &["http://lan.example"], false)]);
        assert!(matches!(clear, Err(InvalidOptions::Clear { .. })));
        let named = [("docker.io", &["http://lan.example"][..], false), ("lan.example", &[], true)];
        assert!(with(&named).is_ok());
    }

    #[test]
    fn nobody_is_led_from_safety_into_the_open_or_onto_this_host() {
        let options = with(&[("lan.example", &[], true)]).unwrap();
        let follows = |from: &str, to: &str| {
            let origin = |text: &str| super::super::url::Url::parse(text).unwrap().origin;
            options.may_follow(&origin(from), &origin(to))
        };
        assert!(follows("https://a.example", "https://cdn.example"));
        assert!(follows("http://localhost:5000", "http://127.0.0.1:9000"));
        assert!(follows("http://localhost:5000", "http://lan.example"));
        assert!(!follows("https://a.example", "http://a.example"));
        assert!(!follows("https://a.example", "http://lan.example"));
        assert!(!follows("https://a.example", "http://127.0.0.1:9000"));
        assert!(!follows("http://lan.example", "http://127.0.0.1:9000"));
        assert!(!follows("http://lan.example", "http://other.example"));
    }
}

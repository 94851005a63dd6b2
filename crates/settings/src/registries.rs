//! `[registries."HOST"]`: settings for one registry. Pure.

use image::registry::RegistrySettings;

use super::limits::{ENTRIES_MAX, MIRRORS_MAX};
use super::shown::{quote, quote_all};
use super::value::{InvalidValue, RawValue};
use super::{Settings, SettingsError};

/// The section with one subsection per registry.
pub const REGISTRIES: &str = "registries";
pub const REGISTRIES_ABOUT: &str = "Settings for the registries that images are pulled from: one \
    section each, as in `[registries.\"docker.io\"]`, with these keys. Without a section, a registry is \
    reached over TLS with the host's certificates, or without TLS if it is on this host and its port is \
    not 443, and clients with keys do not reach it unless it is on the public internet. The same holds \
    for places to which a registry sends a pull: its token server, its storage.";

/// A key of such a section.
pub struct Field {
    pub key: &'static str,
    pub values: &'static str,
    pub about: &'static str,
    pub example: &'static str,
}

pub const KEYS: [Field; 3] = [
    Field {
        key: "mirror",
        values: "a list of `\"HOST[:PORT][/PREFIX]\"`, optionally with `https://` or `http://`",
        about: "Mirrors that are tried first, in this order. They decide which content the \
                registry's tags have, so they must be trusted.",
        example: "[\"mirror.example.org\", \"harbor.example.org/hub\"]",
    },
    Field {
        key: "insecure",
        values: "`true` or `false`",
        about: "Connect without TLS: anybody on the network path can read credentials and \
                replace images.",
        example: "false",
    },
    Field {
        key: "ca",
        values: "an absolute path, or `\"off\"`",
        about: "A file of certificates (PEM) to trust for this registry besides those of the \
                host.",
        example: "\"/etc/burrow/registry-ca.pem\"",
    },
];

/// The keys of a registry and their values as TOML.
pub(super) fn lines(registry: &RegistrySettings) -> [(&'static str, String); 3] {
    let ca = registry.ca.as_ref();
    let ca = ca.map_or_else(|| super::value::OFF.into(), |ca| ca.to_string_lossy());
    [
        ("mirror", quote_all(&registry.mirror)),
        ("insecure", registry.insecure.to_string()),
        ("ca", quote(ca)),
    ]
}

/// Host and key of `HOST.KEY`, where the host has dots of its own.
pub(super) fn split_name(name: &str) -> Option<(&str, &'static str)> {
    let (host, key) = name.rsplit_once('.')?;
    KEYS.iter().find(|known| known.key == key).map(|known| (host, known.key))
}

impl Settings {
    pub(super) fn set_registry(
        &mut self,
        host: &str,
        key: &str,
        given: &RawValue,
    ) -> Result<(), InvalidValue> {
        if !is_registry(host) {
            return Err(InvalidValue::Registry(host.to_owned()));
        }
        if self.registries.len() >= ENTRIES_MAX && !self.registries.contains_key(host) {
            return Err(InvalidValue::TooMany { entries_max: ENTRIES_MAX });
        }
        let mut registry = self.registries.get(host).cloned().unwrap_or_default();
        match key {
            "insecure" => registry.insecure = given.truth()?,
            "ca" => registry.ca = given.path_or_off()?,
            _ => registry.mirror = mirrors(given)?,
        }
        self.registries.insert(host.to_owned(), registry);
        Ok(())
    }
}

fn mirrors(given: &RawValue) -> Result<Vec<String>, InvalidValue> {
    let mirrors = given.texts()?;
    if mirrors.len() > MIRRORS_MAX {
        return Err(InvalidValue::TooMany { entries_max: MIRRORS_MAX });
    }
    let check = |mirror: &str| {
        let rest = mirror.strip_prefix("https://").or_else(|| mirror.strip_prefix("http://"));
        let rest = rest.unwrap_or(mirror);
        let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let letter = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"/._-".contains(&byte)
        };
        if is_registry(host) && prefix.bytes().all(letter) {
            Ok(mirror.to_owned())
        } else {
            Err(InvalidValue::Mirror(mirror.to_owned()))
        }
    };
    mirrors.into_iter().map(check).collect()
}

/// A name or address, with a port or without; its parser says what exactly is valid.
fn is_registry(text: &str) -> bool {
    /// As long as names of hosts may be, and a port.
    const BYTES_MAX: usize = 262;
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte);
    // A word before a colon at the end is another scheme.
    let is_whole = !text.ends_with(':');
    is_whole && (1..=BYTES_MAX).contains(&text.len()) && text.bytes().all(letter)
}

/// The error for an unknown key of a registry.
pub(super) fn unknown_key(place: super::FilePosition, key: &str) -> SettingsError {
    let meant = host::similar::nearest(key, KEYS.iter().map(|known| known.key));
    let (key, meant) = (key.to_owned(), meant.map(str::to_owned));
    SettingsError::UnknownKey { place, section: REGISTRIES, key, meant }
}

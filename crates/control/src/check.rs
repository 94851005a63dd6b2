//! Checks a configuration before anything listens, for `serve` and for `--check-config`. It reads
//! the files that the configuration names and creates nothing.

use std::path::PathBuf;

use super::images::{AliasError, aliases};
use super::pool::{PoolError, pool_options};
use host::tls::{Tls, TlsError, TlsFiles};
use host::trust::{self, TrustError};
use image::registry::{self, InvalidOptions};
use image::{Policy, PolicyError};
use sandbox::pool;
use settings::{Origin, Settings};

/// What a valid configuration results in.
pub struct CheckedSettings {
    pub pool: pool::Options,
    pub image_policy: Policy,
    pub sources: registry::Options,
    pub tls: Option<Tls>,
    /// The stored images that `[images]` names.
    pub aliases: Vec<String>,
}

/// Why a configuration is invalid. Each error names the position.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSettings {
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(transparent)]
    Alias(#[from] AliasError),
    #[error("{origin}: {option}: {source}")]
    Images { origin: Origin, option: &'static str, source: Box<PolicyError> },
    #[error(transparent)]
    Registries(#[from] InvalidOptions),
    #[error("{origin}: server.tls_certificate and server.tls_key: {source}")]
    Tls { origin: Origin, source: Box<TlsError> },
    #[error("{origin}: {option}: {source}")]
    Authorities { origin: Origin, option: String, source: Box<TrustError> },
}

const ALLOW: &str = "image_policy.allow";
const PINS: &str = "image_policy.pins";
const CERTIFICATE: &str = "server.tls_certificate";
const EGRESS_CA: &str = "egress.ca";
const IMAGES_CA: &str = "images.ca";
const OTEL_CA: &str = "otel.ca";

/// Reads the files that the configuration names.
pub fn check_settings(settings: &Settings) -> Result<CheckedSettings, InvalidSettings> {
    let allowed = &settings.image_policy;
    let images = |option| {
        move |source| {
            let (origin, source) = (settings.origin(option), Box::new(source));
            InvalidSettings::Images { origin, option, source }
        }
    };
    let own = aliases(&settings.images)?;
    let policy = Policy::new(&allowed.allow, allowed.require_digest).map_err(images(ALLOW))?;
    let policy = policy.with_pins(&allowed.pins).map_err(images(PINS))?;
    let believe = |option: &str, path: &PathBuf| {
        let refused = |source| {
            let (origin, option) = (settings.origin(option), option.to_owned());
            InvalidSettings::Authorities { origin, option, source: Box::new(source) }
        };
        trust::read(std::slice::from_ref(path)).map(drop).map_err(refused)
    };
    let authorities = [
        (EGRESS_CA, &settings.egress.ca),
        (IMAGES_CA, &settings.images_ca),
        (OTEL_CA, &settings.otel.ca),
    ];
    for (option, files) in authorities {
        files.iter().try_for_each(|path| believe(option, path))?;
    }
    for (host, registry) in &settings.registries {
        if let Some(path) = &registry.ca {
            believe(&format!("registries.{host}.ca"), path)?;
        }
    }
    Ok(CheckedSettings {
        pool: pool_options(settings)?,
        image_policy: policy.with_own(own.clone()),
        sources: registry::Options::from_settings(&settings.registries, &settings.images_ca)?,
        tls: tls(settings)?,
        aliases: own,
    })
}

fn tls(settings: &Settings) -> Result<Option<Tls>, InvalidSettings> {
    let Some((certificate, key)) = settings.server.tls() else { return Ok(None) };
    let files = TlsFiles {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        clients: settings.fleet.ca.clone().filter(|_| settings.fleet.mutual_tls),
    };
    let refused = |source| {
        let (origin, source) = (settings.origin(CERTIFICATE), Box::new(source));
        InvalidSettings::Tls { origin, source }
    };
    Tls::open(files).map(Some).map_err(refused)
}

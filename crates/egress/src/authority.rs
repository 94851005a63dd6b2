//! The authority that one sandbox trusts in addition to all others, for the hosts that it sends secrets to:
//! to inject a secret into a request, the broker must read the request.
//!
//! Its key is valid in that sandbox only, and only for those hosts: the certificate says so itself. It is
//! kept beside the sandbox's record, because programs that have read the certificate once do not read it
//! again when another bridge takes over the sandbox.

mod x509;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring as provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::host::Host;
use super::limits::{AUTHORITY_KEY_BYTES_MAX, PEM_LINE_CHARS};
use host::paths::write_durably;
use x509::{KEY_ID_BYTES, SERIAL_BYTES, TbsCertificate, signed};

/// The file of its key in the sandbox's directory.
const FILE: &str = "egress.key";

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("cannot read or write its key file: {0}")]
    File(#[from] io::Error),
    #[error("its key file is invalid")]
    Key,
    #[error("the kernel provided no random numbers")]
    Random,
    #[error("its certificate was rejected: {0}")]
    Refused(#[from] tokio_rustls::rustls::Error),
}

impl From<ring::error::KeyRejected> for AuthorityError {
    fn from(_: ring::error::KeyRejected) -> Self {
        Self::Key
    }
}

impl From<ring::error::Unspecified> for AuthorityError {
    fn from(_: ring::error::Unspecified) -> Self {
        Self::Random
    }
}

/// The certificate authority of one sandbox.
pub struct Authority {
    key: EcdsaKeyPair,
    key_id: [u8; KEY_ID_BYTES],
    certificate: CertificateDer<'static>,
    random: SystemRandom,
    /// Made when they are first asked for.
    servers: Mutex<HashMap<Host, TlsAcceptor>>,
}

impl Authority {
    /// The authority whose key is in this directory, or a new one; it is valid for these hosts
    /// only.
    pub async fn open(directory: Option<&Path>, hosts: &[Host]) -> Result<Self, AuthorityError> {
        let random = SystemRandom::new();
        let authority = match directory {
            Some(directory) => read(&directory.join(FILE)).await?,
            None => None,
        };
        let key = if let Some(key) = authority {
            key
        } else {
            let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)?;
            let made = made.as_ref().to_vec();
            if let Some(directory) = directory {
                let (directory, bytes) = (directory.to_owned(), made.clone());
                let writing = move || write_durably(&directory, FILE, &bytes);
                tokio::task::spawn_blocking(writing).await.map_err(io::Error::other)??;
            }
            made
        };
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &key, &random)?;
        let point = key.public_key().as_ref();
        let key_id = key_id(point);
        let serial = draw(&random)?;
        let own = TbsCertificate { serial, key: point, key_id: &key_id, authority_key_id: &key_id };
        let certificate = sign(&key, &random, &own.authority(hosts))?;
        Ok(Self { key, key_id, certificate, random, servers: Mutex::default() })
    }

    /// Its certificate as PEM.
    pub fn pem(&self) -> String {
        pem(&self.certificate)
    }

    /// A server of a host, as the sandbox believes it.
    pub fn server(&self, host: &Host) -> Result<TlsAcceptor, AuthorityError> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = servers.get(host) {
            return Ok(server.clone());
        }
        let server = self.make(host)?;
        servers.insert(host.clone(), server.clone());
        Ok(server)
    }

    fn make(&self, host: &Host) -> Result<TlsAcceptor, AuthorityError> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &self.random)?;
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, made.as_ref(), &self.random)?;
        let point = key.public_key().as_ref();
        let (serial, key_id) = (draw(&self.random)?, key_id(point));
        let authority_key_id = &self.key_id;
        let unsigned = TbsCertificate { serial, key: point, key_id: &key_id, authority_key_id };
        let certificate = sign(&self.key, &self.random, &unsigned.host(host))?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.as_ref().to_vec()));
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_no_client_auth()
                .with_single_cert(vec![certificate], key)?;
        // The broker reads only HTTP/1; ALPN tells clients that can do more.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// A certificate as text.
pub fn pem(certificate: &[u8]) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let encoded = STANDARD.encode(certificate);
    for (index, letter) in encoded.chars().enumerate() {
        if index > 0 && index % PEM_LINE_CHARS == 0 {
            text.push('\n');
        }
        text.push(letter);
    }
    text.push_str("\n-----END CERTIFICATE-----\n");
    text
}

/// The key in a file; none when there is no file.
async fn read(path: &Path) -> Result<Option<Vec<u8>>, AuthorityError> {
    match tokio::fs::metadata(path).await {
        Ok(found) if found.len() > AUTHORITY_KEY_BYTES_MAX => Err(AuthorityError::Key),
        Ok(_) => Ok(Some(tokio::fs::read(path).await?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn draw(random: &SystemRandom) -> Result<[u8; SERIAL_BYTES], AuthorityError> {
    let mut serial = [0; SERIAL_BYTES];
    random.fill(&mut serial)?;
    Ok(serial)
}

/// The id of a key: the beginning of its digest.
fn key_id(point: &[u8]) -> [u8; KEY_ID_BYTES] {
    let digest = digest::digest(&digest::SHA256, point);
    let mut id = [0; KEY_ID_BYTES];
    id.copy_from_slice(&digest.as_ref()[..KEY_ID_BYTES]);
    id
}

fn sign(
    key: &EcdsaKeyPair,
    random: &SystemRandom,
    unsigned: &[u8],
) -> Result<CertificateDer<'static>, AuthorityError> {
    let signature = key.sign(random, unsigned)?;
    Ok(CertificateDer::from(signed(unsigned, signature.as_ref())))
}

#[cfg(test)]
mod tests;

//! Explains to the sandbox why a host with injected secrets cannot be reached. Without it the sandbox would
//! only see a broken connection. The text never contains bytes that the host sent or that were to be sent
//! to it.

use std::io;

use tokio_rustls::rustls::{CertificateError, Error as TlsError};

use super::host::Host;

/// A host that is out of reach, and why.
#[derive(Debug, thiserror::Error)]
#[error("{host} cannot be reached: {why}")]
pub struct UnreachableHost<'a> {
    pub host: &'a Host,
    pub why: String,
    /// It is this side that does not want it, and trying again changes nothing.
    pub by_rule: bool,
}

impl<'a> UnreachableHost<'a> {
    /// A host with which there is a connection, but no TLS.
    pub fn by_tls(host: &'a Host, error: &io::Error) -> Self {
        let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        let why = match refused {
            Some(TlsError::InvalidCertificate(wrong)) => said_of(wrong).to_owned(),
            Some(TlsError::AlertReceived(_)) => "it rejected the TLS handshake".to_owned(),
            Some(TlsError::PeerIncompatible(_)) => {
                "it supports no TLS version that is in use".to_owned()
            }
            Some(_) => "its TLS handshake is invalid".to_owned(),
            // These are the kernel's words, or ours.
            None => format!("its connection broke during the TLS handshake: {error}"),
        };
        Self { host, why, by_rule: false }
    }
}

fn said_of(wrong: &CertificateError) -> &'static str {
    use CertificateError as Wrong;
    match wrong {
        Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
            "its certificate is for another name"
        }
        Wrong::Expired | Wrong::ExpiredContext { .. } => "its certificate has expired",
        Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => "its certificate is not valid yet",
        Wrong::UnknownIssuer => {
            "its certificate was issued by an authority that this host does not trust"
        }
        Wrong::Revoked => "its certificate was revoked",
        _ => "its certificate is invalid",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_ours_and_not_what_the_host_has_sent() {
        let host: Host = "a.org".parse().unwrap();
        let evil = "\r\nx: y\u{1b}[31m".to_owned();
        for (error, words) in [
            (TlsError::InvalidCertificate(CertificateError::Expired), "has expired"),
            (TlsError::InvalidCertificate(CertificateError::UnknownIssuer), "does not trust"),
            (TlsError::General(evil), "TLS handshake is invalid"),
        ] {
            let error = io::Error::new(io::ErrorKind::InvalidData, error);
            let message = UnreachableHost::by_tls(&host, &error).to_string();
            assert!(
                message.starts_with("a.org cannot be reached: ") && message.contains(words),
                "{message}"
            );
            assert!(!message.contains(char::is_control), "{message:?}");
        }
        let broken = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert!(UnreachableHost::by_tls(&host, &broken).why.contains("connection broke"));
    }
}

//! The errors of buckets. The reader may not be the operator, so an error names neither the bucket nor its
//! address, and repeats nothing of the server's answer but its error code.

use std::io;
use std::time::Duration;

use super::xml::XmlError;
use host::dial::DialError;
use host::secret::SecretError;

/// Why an operation on a bucket failed.
#[derive(Debug, thiserror::Error)]
pub enum S3Error {
    #[error("cannot reach the bucket's server: {}", unreachable(.0))]
    Unreachable(DialError),
    #[error("the connection to the bucket's server broke: {0}")]
    Cut(hyper::Error),
    #[error("the bucket's server sent nothing for {limit:?}")]
    Slow { limit: Duration },
    #[error("{what} was refused (AccessDenied); the access key needs {wants}")]
    Denied { what: &'static str, wants: &'static str },
    #[error(
        "the bucket does not exist (NoSuchBucket); check `bucket` and `endpoint` of the workspace"
    )]
    NoBucket,
    #[error("the server does not know the access key (InvalidAccessKeyId)")]
    AccessKey,
    #[error("the secret key does not match the access key (SignatureDoesNotMatch)")]
    Signature,
    #[error("the session token is no longer valid ({code})")]
    Session { code: String },
    #[error(
        "the clocks differ too much (RequestTimeTooSkewed): this host has {ours}, the server {theirs}"
    )]
    Skewed { ours: String, theirs: String },
    #[error("the bucket is in another region ({code}); set `region`{}", reported_region(.region.as_deref()))]
    Elsewhere { code: String, region: Option<String> },
    #[error("the bucket's server is busy ({code})")]
    Busy { code: String, retry_after: Option<Duration> },
    #[error("{what} was refused with status {status} ({code})")]
    Refused { what: &'static str, status: u16, code: String },
    #[error("cannot parse the answer to {what}: {why}")]
    Malformed { what: &'static str, why: XmlError },
    #[error("the answer to {what} lacks {lacks}")]
    Lacks { what: &'static str, lacks: &'static str },
    #[error("the answer to {what} has more than {bytes_max} bytes")]
    TooLarge { what: &'static str, bytes_max: u64 },
    #[error("an object ended after {found} of {wanted} bytes")]
    Short { wanted: u64, found: u64 },
    #[error("an object key cannot be put into a request")]
    Key,
    #[error("other clients keep writing it at the same time")]
    Contended,
    #[error("cannot read a key of the bucket: {0}")]
    Secret(#[from] SecretError),
    #[error("a file of the bridge: {0}")]
    File(#[from] io::Error),
}

impl S3Error {
    /// Whether the same may work a moment later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(error) => !matches!(
                error,
                DialError::Tls { .. } | DialError::NotPublic { .. } | DialError::Trust(_)
            ),
            Self::Cut(error) => !error.is_parse() && !error.is_user(),
            Self::Slow { .. } | Self::Busy { .. } | Self::Short { .. } => true,
            _ => false,
        }
    }

    /// Whether it is about all objects, so that another need not be tried.
    pub fn is_general(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_)
                | Self::NoBucket
                | Self::AccessKey
                | Self::Signature
                | Self::Session { .. }
                | Self::Skewed { .. }
                | Self::Elsewhere { .. }
                | Self::Secret(_)
        )
    }
}

/// The reason without the address, which only the operator may know.
fn unreachable(error: &DialError) -> String {
    match error {
        DialError::Unreachable { source, .. } => source.to_string(),
        DialError::Slow { limit, .. } => format!("no connection within {limit:?}"),
        // TLS's message about a certificate contains the host's name.
        DialError::Tls { .. } => "its certificate is not trusted".to_owned(),
        // Only hosts that the operator has not named are checked for this.
        DialError::NotPublic { .. } => "it is not on the public internet".to_owned(),
        DialError::Trust(_) => "the trusted authorities cannot be read".to_owned(),
    }
}

fn reported_region(region: Option<&str>) -> String {
    region.map(|region| format!(" to {region:?}")).unwrap_or_default()
}

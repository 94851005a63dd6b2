//! Why an image was not pulled. No variant has a password, a token or a signed address in it.

use std::io;
use std::time::Duration;

use super::credentials::CredentialsError;
use super::platform::Platform;
use crate::blobs::BlobError;
use crate::digest::{Digest, InvalidDigest};
use crate::reference::{InvalidReference, Reference};
use host::dial::DialError;
use host::trust::TrustError;

/// `at` is always an origin, as in `https://registry.example:5000`.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error("{at} cannot be reached: {source}")]
    Unreachable { at: String, source: io::Error },
    #[error(
        "{at} is not on the public internet: a registry is asked there only if the configuration \
         has a section for it, [registries.\"{}\"]",
        authority(at)
    )]
    NotPublic { at: String },
    #[error("{at}: {what} took longer than {limit:?}")]
    Slow { at: String, what: PullStep, limit: Duration },
    #[error("the TLS connection to {at} is not trusted: {source}")]
    Tls { at: String, source: io::Error },
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("{at} closed the connection: {source}")]
    Cut { at: String, source: hyper::Error },
    #[error("{at} answered with status {status}{message}")]
    Status { at: String, status: u16, message: RegistryMessage, retry_after: Option<Duration> },
    #[error("{at} has no {what}{message}")]
    NotFound { at: String, what: String, message: RegistryMessage },
    #[error(
        "{at} lets nobody read {repository} who does not say who he is, and no file of credentials \
         knows this registry; `docker login` or `skopeo login` writes one"
    )]
    Anonymous { at: String, repository: String },
    #[error("{at} does not let {user} read {repository}{message}")]
    Denied { at: String, user: String, repository: String, message: RegistryMessage },
    #[error("{at} asks for credentials with a scheme that is not supported: {challenge:?}")]
    Challenge { at: String, challenge: String },
    #[error(
        "{at} sends us for a token to {realm:?}, which is neither https nor, for a registry on \
             this host, this host"
    )]
    Realm { at: String, realm: String },
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("{at} redirects more than {redirects_max} times")]
    Redirects { at: String, redirects_max: usize },
    #[error("{at} redirects to {to:?}, which cannot be followed")]
    Redirect { at: String, to: String },
    #[error("{at} redirects to {to}, which is not encrypted")]
    Downgrade { at: String, to: String },
    #[error("{at}: {what} has more than {bytes_max} bytes")]
    TooLarge { at: String, what: String, bytes_max: u64 },
    #[error("{at}: {what} has {found} bytes, but {wanted} were expected")]
    Length { at: String, what: String, wanted: u64, found: u64 },
    #[error("{at}: {what} ended after {found} of {wanted} bytes")]
    Short { at: String, what: String, wanted: u64, found: u64 },
    #[error("{at}: {what} has the digest {found}, but {wanted} was expected")]
    Digest { at: String, what: String, wanted: Digest, found: Digest },
    #[error("{at}: cannot parse {what}: {why}")]
    Malformed { at: String, what: String, why: String },
    #[error(transparent)]
    Unusable(#[from] UnsupportedImage),
    #[error("the mirror's prefix {prefix:?} makes an invalid repository name: {source}")]
    Prefix { prefix: String, source: InvalidReference },
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error("{reference} could not be pulled from any registry: {}", list(reasons))]
    Everywhere { reference: Box<Reference>, reasons: Vec<(String, PullError)> },
}

/// Why an image cannot run here, wherever it comes from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedImage {
    #[error("it has docker's first manifest format, which is no longer supported; push it again")]
    Schema1,
    #[error("it is not a container image but {media_type:?}")]
    NotAnImage { media_type: String },
    #[error("its layer {digest} is {media_type:?}, which only its publisher may distribute")]
    Foreign { digest: Digest, media_type: String },
    #[error("its layer {digest} is {media_type:?}, which is not supported")]
    Layer { digest: Digest, media_type: String },
    #[error("it has an invalid digest: {0}")]
    Digest(#[from] InvalidDigest),
    #[error("it has no image for {wanted}, only for {}", list_platforms(there))]
    Platform { wanted: Platform, there: Vec<String> },
    #[error("it has {count} layers; the limit is {count_max}")]
    Layers { count: usize, count_max: usize },
    #[error("it has {bytes} bytes; the limit is {bytes_max}")]
    Bytes { bytes: u64, bytes_max: u64 },
    #[error("its indexes are nested more than {depth_max} deep")]
    Depth { depth_max: usize },
    #[error("its manifest is ambiguous: {0}")]
    Manifest(String),
}

/// The step that timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullStep {
    Connecting,
    Head,
    Body,
}

impl std::fmt::Display for PullStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connecting => "connecting",
            Self::Head => "the head of its answer",
            Self::Body => "the next part of its answer",
        })
    }
}

/// The message of a registry that refuses a request; bounded, and without control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryMessage(pub String);

impl std::fmt::Display for RegistryMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0) }
    }
}

impl From<DialError> for PullError {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Unreachable { at, source } => Self::Unreachable { at, source },
            DialError::NotPublic { at } => Self::NotPublic { at },
            DialError::Slow { at, limit } => Self::Slow { at, what: PullStep::Connecting, limit },
            DialError::Tls { at, source } => Self::Tls { at, source },
            DialError::Trust(source) => Self::Trust(source),
        }
    }
}

impl PullError {
    /// Whether the same may work a moment later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Slow { .. } | Self::Cut { .. } | Self::Short { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            _ => false,
        }
    }

    /// Whether it is about this host, so that no other source can help.
    pub fn is_ours(&self) -> bool {
        match self {
            // The disk is the same for all.
            Self::Blob(_) | Self::Trust(TrustError::Nobody { .. }) => true,
            _ => false,
        }
    }

    /// The pause that the registry asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// The name of the configuration section.
fn authority(at: &str) -> &str {
    at.split_once("://").map_or(at, |(_, authority)| authority)
}

fn list(reasons: &[(String, PullError)]) -> String {
    let one = |(source, error): &(String, PullError)| format!("{source}: {error}");
    reasons.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn list_platforms(there: &[String]) -> String {
    if there.is_empty() { "nothing".to_owned() } else { there.join(", ") }
}

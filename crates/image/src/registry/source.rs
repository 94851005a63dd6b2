//! One source of an image. It sends requests, adds credentials where the registry asks for them, and
//! follows redirects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Deserialize;

use super::auth::Auth;
use super::error::{PullError, RegistryMessage};
use super::limits::{ERROR_BYTES_MAX, ERROR_CHARS_SHOWN_MAX, REDIRECTS_MAX};
use super::manifest::ACCEPTED;
use super::options::{Endpoint, Options};
use super::transport::{Dialler, RegistryRequest, RegistryResponse, Transport};
use super::url::Url;
use crate::digest::Digest;
use crate::limits::DOCUMENT_BYTES_MAX;
use host::excerpt::excerpt;

/// An endpoint and what is needed to send requests to it.
pub struct Source<'a> {
    pub place: Endpoint,
    pub options: &'a Options,
    transport: Transport,
    auth: Auth,
    /// Bytes of bodies that have come from it.
    fetched: AtomicU64,
}

/// A manifest or an index, as it came.
pub struct FetchedDocument {
    pub bytes: Vec<u8>,
    pub digest: Digest,
    pub content_type: Option<String>,
}

/// A registry's error response.
#[derive(Deserialize)]
struct Errors {
    errors: Vec<OneError>,
}

#[derive(Deserialize)]
struct OneError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl<'a> Source<'a> {
    pub fn new(place: Endpoint, options: &'a Options) -> Self {
        let dialler = Dialler::new(place.authorities.clone()).naming(options.named(&place));
        let transport = Transport::new(dialler, options.times);
        Self { place, options, transport, auth: Auth::default(), fetched: AtomicU64::new(0) }
    }

    pub fn at(&self) -> String {
        self.place.origin.to_string()
    }

    pub fn count(&self, bytes: u64) {
        self.fetched.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn fetched(&self) -> u64 {
        self.fetched.load(Ordering::Relaxed)
    }

    /// A manifest by tag or digest. One requested by digest must match it.
    pub async fn manifest(
        &self,
        name: &str,
        wanted: Option<Digest>,
    ) -> Result<FetchedDocument, PullError> {
        let what = format!("manifest {name:?} of {}", self.place.repository);
        let path = format!("/v2/{}/manifests/{name}", self.place.repository);
        let answer = self.get(&path, &what, Some(ACCEPTED), None).await?;
        let content_type = answer.header("content-type").map(str::to_owned);
        // A digest of another algorithm cannot be checked.
        let promised =
            answer.header("docker-content-digest").and_then(|digest| digest.parse().ok());
        let bytes = answer.body.whole(&what, DOCUMENT_BYTES_MAX).await?;
        self.count(bytes.len() as u64);
        let found = Digest::of(&bytes);
        match wanted.into_iter().chain(promised).find(|digest| *digest != found) {
            Some(wanted) => Err(PullError::Digest { at: self.at(), what, wanted, found }),
            None => Ok(FetchedDocument { bytes, digest: found, content_type }),
        }
    }

    /// The answer that has a blob in it, perhaps from where its first bytes end.
    pub async fn blob(
        &self,
        digest: &Digest,
        offset: Option<u64>,
    ) -> Result<RegistryResponse, PullError> {
        let path = format!("/v2/{}/blobs/{digest}", self.place.repository);
        self.get(&path, &format!("blob {digest}"), None, offset).await
    }

    async fn get(
        &self,
        path: &str,
        what: &str,
        accept: Option<&str>,
        offset: Option<u64>,
    ) -> Result<RegistryResponse, PullError> {
        let mut url = Url::at(&self.place.origin, path);
        let mut was_renewed = false;
        let mut redirects = 0;
        loop {
            // Credentials are for the registry alone, never for where it sends us.
            let is_own = url.origin == self.place.origin;
            let authorization = if is_own { self.auth.held().await } else { None };
            let ask = RegistryRequest {
                authorization: authorization.as_ref(),
                accept,
                offset,
                form: None,
            };
            let answer = self.transport.send(&url, &ask).await?;
            match answer.status {
                200 | 206 => return plain(answer, &url, what),
                401 if is_own && !was_renewed => {
                    was_renewed = true;
                    let used = authorization.as_ref();
                    let (place, options) = (&self.place, self.options);
                    self.auth.renew(&answer, used, place, options, &self.transport).await?;
                }
                301 | 302 | 303 | 307 | 308 => {
                    redirects += 1;
                    if redirects > REDIRECTS_MAX {
                        let redirects_max = REDIRECTS_MAX;
                        return Err(PullError::Redirects { at: self.at(), redirects_max });
                    }
                    url = self.follow(&url, &answer)?;
                }
                _ => return Err(self.refusal(answer, &url, what).await),
            }
        }
    }

    fn follow(&self, from: &Url, answer: &RegistryResponse) -> Result<Url, PullError> {
        let location = answer.header("location").unwrap_or_default();
        let to = from.join(location).ok_or_else(|| {
            // Without path and query, which may contain a signature.
            let to = location.split(['?', '#']).next().unwrap_or_default();
            PullError::Redirect {
                at: from.origin.to_string(),
                to: excerpt(to, ERROR_CHARS_SHOWN_MAX),
            }
        })?;
        // The registry's own scheme counts: two redirects must not do what one may not.
        if to.origin == from.origin || self.options.may_follow(&from.origin, &to.origin) {
            return Ok(to);
        }
        let (at, to) = (from.origin.to_string(), to.origin.to_string());
        Err(PullError::Downgrade { at, to })
    }

    async fn refusal(&self, answer: RegistryResponse, url: &Url, what: &str) -> PullError {
        let at = url.origin.to_string();
        let RegistryResponse { status, .. } = answer;
        let retry_after = answer.header("retry-after").and_then(|value| value.trim().parse().ok());
        let retry_after = retry_after.map(Duration::from_secs);
        // A message from another server is not the registry's, and may repeat a signed URL.
        let message = if url.origin == self.place.origin {
            message_of(answer).await
        } else {
            RegistryMessage::default()
        };
        let repository = self.place.repository.to_string();
        match status {
            404 => PullError::NotFound { at, what: what.to_owned(), message },
            401 if self.auth.is_anonymous().await => PullError::Anonymous { at, repository },
            401 | 403 => {
                PullError::Denied { at, user: self.auth.user().await, repository, message }
            }
            _ => PullError::Status { at, status, message, retry_after },
        }
    }
}

/// Bytes that a server has packed on the way are not those that have the digest.
fn plain(answer: RegistryResponse, url: &Url, what: &str) -> Result<RegistryResponse, PullError> {
    match answer.header("content-encoding") {
        None | Some("identity") => Ok(answer),
        Some(encoding) => Err(PullError::Malformed {
            at: url.origin.to_string(),
            what: what.to_owned(),
            why: format!(
                "it has the content-encoding {:?}, which was not requested",
                excerpt(encoding, ERROR_CHARS_SHOWN_MAX)
            ),
        }),
    }
}

/// The registry's error message; an error without one is an error, too.
async fn message_of(answer: RegistryResponse) -> RegistryMessage {
    let body = answer.body.whole("an error", ERROR_BYTES_MAX).await.unwrap_or_default();
    let Ok(Errors { errors }) = serde_json::from_slice(&body) else {
        return RegistryMessage::default();
    };
    let first = errors.first().map(|error| match (error.code.as_str(), error.message.as_str()) {
        (code, "") => code.to_owned(),
        (_, message) => message.to_owned(),
    });
    RegistryMessage(excerpt(&first.unwrap_or_default(), ERROR_CHARS_SHOWN_MAX))
}

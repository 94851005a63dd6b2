//! Authenticates to a registry. Credentials are only looked up when the registry asks for them.
//!
//! ```text
//!   request ──▶ 401, Basic  ──▶ credentials ──────────────────────▶ request
//!           └─▶ 401, Bearer ──▶ credentials ──▶ token server ──▶ token, until it expires
//! ```
//!
//! Several requests of one pull may be refused at once; one of them fetches the token and the others
//! find it.

use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::challenge::{Challenge, parse_challenges};
use super::credentials::find_credential;
use super::error::{PullError, RegistryMessage};
use super::limits::{TOKEN_BYTES_MAX, TOKEN_LIFE_DEFAULT, TOKEN_LIFE_MARGIN, TOKEN_LIFE_MAX};
use super::options::{Endpoint, Options};
use super::secret::{Authorization, Credential, Secret};
use super::transport::{RegistryRequest, RegistryResponse, Transport};
use super::url::{Url, encode};

/// Our name for token servers.
const CLIENT_ID: &str = "burrow";
/// How much of an untrusted header an error shows.
const CHARS_SHOWN_MAX: usize = 200;

/// The authorization for one pull's requests to one registry.
#[derive(Default)]
pub struct Auth {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Looked for once.
    credential: CredentialState,
    held: Option<CachedToken>,
}

/// Whether there are credentials for this registry.
#[derive(Default)]
enum CredentialState {
    #[default]
    NotYet,
    None,
    Found(Credential),
}

struct CachedToken {
    authorization: Authorization,
    /// `None` if it never expires.
    good_until: Option<Instant>,
}

#[derive(Deserialize)]
struct Grant {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

impl Auth {
    /// The authorization for the next request, if any.
    pub async fn held(&self) -> Option<Authorization> {
        let mut state = self.state.lock().await;
        state.held.take_if(|held| held.good_until.is_some_and(|until| Instant::now() >= until));
        state.held.as_ref().map(|held| held.authorization.clone())
    }

    /// The user name, for messages.
    pub async fn user(&self) -> String {
        match &self.state.lock().await.credential {
            CredentialState::Found(credential) => credential.user(),
            CredentialState::NotYet | CredentialState::None => "a stranger".to_owned(),
        }
    }

    /// Whether there are credentials at all.
    pub async fn is_anonymous(&self) -> bool {
        !matches!(self.state.lock().await.credential, CredentialState::Found(_))
    }

    /// Gets new authorization after a request with `refused`.
    pub async fn renew(
        &self,
        refusal: &RegistryResponse,
        refused: Option<&Authorization>,
        place: &Endpoint,
        options: &Options,
        transport: &Transport,
    ) -> Result<(), PullError> {
        let mut state = self.state.lock().await;
        if state.held.as_ref().is_some_and(|held| Some(&held.authorization) != refused) {
            // Another request was refused as well, and has seen to it.
            return Ok(());
        }
        state.held = None;
        if matches!(state.credential, CredentialState::NotYet) {
            let found =
                find_credential(&options.auth_files, &place.host, &place.repository).await?;
            state.credential = found.map_or(CredentialState::None, CredentialState::Found);
        }
        let credential = match &state.credential {
            CredentialState::Found(credential) => Some(credential.clone()),
            CredentialState::NotYet | CredentialState::None => None,
        };
        let visit = TokenRequest { place, options, transport, credential };
        state.held = Some(visit.held(refusal).await?);
        Ok(())
    }
}

/// What one renewal needs.
struct TokenRequest<'a> {
    place: &'a Endpoint,
    options: &'a Options,
    transport: &'a Transport,
    credential: Option<Credential>,
}

impl TokenRequest<'_> {
    fn at(&self) -> String {
        self.place.origin.to_string()
    }

    async fn held(&self, refusal: &RegistryResponse) -> Result<CachedToken, PullError> {
        let headers = refusal.headers.get_all(hyper::header::WWW_AUTHENTICATE);
        let values: Vec<&str> = headers.iter().filter_map(|value| value.to_str().ok()).collect();
        let challenges: Vec<_> = values.iter().flat_map(|value| parse_challenges(value)).collect();
        let is_bearer = |challenge: &&Challenge| matches!(challenge, Challenge::Bearer { .. });
        match (challenges.iter().find(is_bearer), challenges.first(), &self.credential) {
            (Some(Challenge::Bearer { realm, service, scope }), ..) => {
                self.token(realm, service.as_deref(), scope.as_deref()).await
            }
            (_, Some(Challenge::Basic), Some(Credential::Password { user, password })) => {
                Ok(CachedToken {
                    authorization: Authorization::basic(user, password),
                    good_until: None,
                })
            }
            (_, Some(Challenge::Basic), _) => {
                let repository = self.place.repository.to_string();
                Err(PullError::Anonymous { at: self.at(), repository })
            }
            _ => {
                let challenge: String = values.join(", ").chars().take(CHARS_SHOWN_MAX).collect();
                Err(PullError::Challenge { at: self.at(), challenge })
            }
        }
    }

    /// The scope to request: reading this repository. The registry's own scope is used if it only asks to
    /// read, because the registry may know the repository by another name; a token for more is never
    /// requested.
    fn scope(&self, given: Option<&str>) -> String {
        let reads = |scope: &&str| {
            scope.split(' ').all(|one| one.starts_with("repository:") && one.ends_with(":pull"))
        };
        let own = || format!("repository:{}:pull", self.place.repository);
        given.filter(reads).map_or_else(own, str::to_owned)
    }

    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
    ) -> Result<CachedToken, PullError> {
        let mut url = Url::parse(realm)
            .filter(|url| self.options.may_follow(&self.place.origin, &url.origin))
            .ok_or_else(|| PullError::Realm {
                at: self.at(),
                realm: realm.chars().take(CHARS_SHOWN_MAX).collect(),
            })?;
        let scope = self.scope(scope);
        let asked_at = Instant::now();
        let answer = match &self.credential {
            Some(Credential::Identity(identity)) => {
                let form = form(identity, service.unwrap_or_default(), &scope);
                self.transport
                    .send(&url, &RegistryRequest { form: Some(form), ..RegistryRequest::default() })
                    .await?
            }
            other => {
                if let Some(service) = service {
                    url.push_query("service", service);
                }
                url.push_query("scope", &scope);
                let basic = match other {
                    Some(Credential::Password { user, password }) => {
                        url.push_query("account", user);
                        Some(Authorization::basic(user, password))
                    }
                    _ => None,
                };
                let ask =
                    RegistryRequest { authorization: basic.as_ref(), ..RegistryRequest::default() };
                self.transport.send(&url, &ask).await?
            }
        };
        let status = answer.status;
        let at = url.origin.to_string();
        if status != 200 {
            return Err(self.refused(at, status));
        }
        let what = "the token server's answer";
        let bytes = answer.body.whole(what, TOKEN_BYTES_MAX).await?;
        // A parser's message may quote the token.
        let unclear = |why: &str| PullError::Malformed {
            at: at.clone(),
            what: what.to_owned(),
            why: why.to_owned(),
        };
        let grant: Grant = serde_json::from_slice(&bytes)
            .map_err(|_| unclear("it is not a JSON token response"))?;
        let text = grant.token.or(grant.access_token).filter(|text| !text.is_empty());
        let text = text.ok_or_else(|| unclear("it has no token"))?;
        let life = grant.expires_in.map_or(TOKEN_LIFE_DEFAULT, Duration::from_secs);
        let life = life.clamp(TOKEN_LIFE_DEFAULT, TOKEN_LIFE_MAX).saturating_sub(TOKEN_LIFE_MARGIN);
        let authorization = Authorization::bearer(&Secret::new(text));
        Ok(CachedToken { authorization, good_until: Some(asked_at + life) })
    }

    fn refused(&self, at: String, status: u16) -> PullError {
        let repository = self.place.repository.to_string();
        match (status, &self.credential) {
            (401 | 403, Some(credential)) => {
                let user = credential.user();
                PullError::Denied { at, user, repository, message: RegistryMessage::default() }
            }
            (401 | 403, None) => PullError::Anonymous { at, repository },
            _ => PullError::Status {
                at,
                status,
                message: RegistryMessage::default(),
                retry_after: None,
            },
        }
    }
}

fn form(identity: &Secret, service: &str, scope: &str) -> String {
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", CLIENT_ID),
        ("service", service),
        ("scope", scope),
        ("refresh_token", identity.reveal()),
    ];
    let field = |(name, value): (&str, &str)| format!("{name}={}", encode(value));
    fields.map(field).join("&")
}

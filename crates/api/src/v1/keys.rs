//! The API keys of this server, for callers who may do everything: what `host-bridge keygen` and `keys` do on the host.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Created, Done, Json, Nothing, Query, Reply};
use crate::caller::Caller;
use crate::forms::ranges::check_range;
use crate::forms::sandboxes::NAME;
use access::keys::{
    Access, Issued, KeyId, KeyRequest, KeysError, LABEL_CHARS_MAX, Namespaces, Scopes, Standing,
    Store,
};
use host::instant::{DAY_MS, format, now_ms};
use sandbox::Name;
use sandbox::refusal::{Code, Refusal};

/// How long a key is good for unless the call says otherwise.
const TTL_MS_DEFAULT: u64 = 30 * DAY_MS;
/// Keys count in whole seconds. One for longer than ten years is one that never expires.
const TTL_MS_MIN: u64 = 1000;
const TTL_MS_MAX: u64 = 10 * 365 * DAY_MS;
/// A namespace, or the sign for all.
const NAMESPACES: &str = "^([*]|[A-Za-z0-9][A-Za-z0-9_-]{0,62})$";
const LABEL: &str = "^[^\\u0000-\\u001F\\u007F-\\u009F]+$";

pub fn operations() -> Vec<Operation> {
    [
        operation(Method::GET, "/v1/keys", "list_keys", "List API keys.", list)
            .about(
                "Lists the keys that are good, or all, the oldest first, without what opens anything. A key for one \
                 namespace gets those for that namespace.",
            )
            .problems(&[Code::Unsupported]),
        operation(Method::POST, "/v1/keys", "create_key", "Issue an API key.", make)
            .about(
                "The answer is the only one with the key, which is kept nowhere. It is for no more than the key that \
                 asks for it: for the same namespace, or for any if that is for all; until the same time at most; and \
                 revoked with it. In a fleet it is good at this node.",
            )
            .problems(&[Code::LimitReached, Code::Unsupported]),
        operation(Method::DELETE, "/v1/keys/{key}", "revoke_key", "Revoke an API key.", revoke)
            .about("Revokes the key within a second, and with it those that it has issued, and theirs.")
            .problems(&[Code::Unsupported]),
    ]
    .map(|operation| operation.access(Some(Access::Admin)).tag("keys"))
    .to_vec()
}

/// Which keys to list.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeysQuery {
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
    /// Also those that have expired or are revoked.
    #[serde(default)]
    pub all: bool,
}

/// The keys of this server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyList {
    pub keys: Vec<KeyInfo>,
}

/// A key, without what opens anything.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyInfo {
    pub id: String,
    /// Its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub name: Option<String>,
    /// A namespace, or `*` for all.
    pub namespace: String,
    /// The greatest of its scopes.
    pub scope: ScopeName,
    pub state: KeyState,
    pub created_at: String,
    /// Absent of a key that never expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub expires_at: Option<String>,
    /// The id of the key that has issued it; absent for the operator's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub issued_by: Option<String>,
    /// How many SSH keys stand for it.
    #[serde(default)]
    pub ssh_keys: u64,
}

/// What a key allows. Each includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScopeName {
    /// Lists, logs, metrics, files.
    Read,
    /// Create sandboxes and run code in them.
    #[default]
    Run,
    /// Everything, the server itself included.
    Admin,
}

/// Whether a key is still good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    Valid,
    Expired,
    Revoked,
    /// The secret that has signed it is no longer in use.
    Dropped,
}

/// A key to issue.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    /// By default the namespace of the key that asks, or `default`. `*` is for all.
    #[serde(default)]
    #[schemars(extend("pattern" = NAMESPACES))]
    namespace: Option<String>,
    #[serde(default)]
    scope: ScopeName,
    /// A label that says who uses it.
    #[serde(default)]
    #[schemars(length(min = 1, max = LABEL_CHARS_MAX), extend("pattern" = LABEL))]
    name: Option<String>,
    /// How long it is good for; by default 30 days, or as long as the key that asks if that is less.
    #[serde(default)]
    #[schemars(range(min = TTL_MS_MIN, max = TTL_MS_MAX))]
    ttl_ms: Option<u64>,
    /// It never expires, which only a key that does not either may ask for.
    #[serde(default)]
    never_expires: bool,
}

/// A key, with what opens the server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatedKey {
    /// The key.
    pub key: String,
    pub info: KeyInfo,
}

async fn list(
    call: Call,
    Query(query): Query<KeysQuery>,
    _: Nothing,
) -> Result<Reply<KeyList>, Refusal> {
    let namespace = call.one_namespace(query.namespace)?.map(Namespaces::One);
    let mut keys = with_store(&call, Store::list).await?;
    keys.retain(|(key, standing)| {
        let is_wanted = query.all || *standing == Standing::Valid;
        is_wanted && namespace.as_ref().is_none_or(|namespace| key.namespace == *namespace)
    });
    let keys = keys.into_iter().map(|(key, standing)| KeyInfo::of(key, standing)).collect();
    Ok(Reply(KeyList { keys }))
}

async fn make(
    call: Call,
    _: Nothing,
    Json(request): Json<CreateKey>,
) -> Result<Created<CreatedKey>, Refusal> {
    let namespace = namespace(&call, request.namespace.as_deref())?;
    let expires_at_ms = end(&call, request.ttl_ms, request.never_expires)?;
    let scopes = Scopes::of(&[request.scope.into()]).unwrap_or(Scopes::UNSAID);
    let issued_by = match &call.caller {
        Caller::Holder(grant) => grant.id.clone(),
        _ => None,
    };
    let wanted = KeyRequest { namespace, scopes, expires_at_ms, name: request.name, issued_by };
    let (key, issued) = with_store(&call, move |store| store.issue(wanted)).await?;
    call.trail.fact("key", issued.id.as_str());
    call.trail.fact("scopes", issued.scopes.to_string());
    call.trail.fact("namespaces", issued.namespace.to_string());
    let info = KeyInfo::of(issued, Standing::Valid);
    Ok(Created(CreatedKey { key: key.expose().to_owned(), info }))
}

async fn revoke(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let id: KeyId = call.parameter("key")?;
    call.trail.fact("key", id.as_str());
    let only = call.caller.only_namespace().cloned().map(Namespaces::One);
    with_store(&call, move |store| {
        // One of another namespace is no other than one that there is not.
        let is_another = |(key, _): &(Issued, Standing)| {
            key.id == id && only.as_ref().is_some_and(|only| key.namespace != *only)
        };
        if store.list()?.iter().any(is_another) {
            return Err(KeysError::NoSuchKey { id });
        }
        store.revoke(&id).map(drop)
    })
    .await?;
    Ok(Done)
}

/// What the new key is for, which the caller's covers.
fn namespace(call: &Call, asked: Option<&str>) -> Result<Namespaces, Refusal> {
    let only = call.caller.only_namespace();
    let Some(asked) = asked else {
        let default = only.cloned().unwrap_or_else(Name::default_namespace);
        return Ok(Namespaces::One(default));
    };
    let namespace: Namespaces =
        asked.parse().map_err(|error| Refusal::invalid(format!("namespace: {error}")))?;
    match (&namespace, only) {
        (Namespaces::One(name), _) => call.reaches(name)?,
        (Namespaces::All, Some(only)) => {
            let message = format!("a key for the namespace {only} issues none for all namespaces");
            return Err(Refusal::new(Code::Forbidden, message));
        }
        (Namespaces::All, None) => {}
    }
    Ok(namespace)
}

/// When the new key expires, which is no later than the caller's own.
fn end(call: &Call, ttl_ms: Option<u64>, never: bool) -> Result<Option<u64>, Refusal> {
    let own = match &call.caller {
        Caller::Holder(grant) => grant.expires_at_ms,
        _ => None,
    };
    let asked = match (ttl_ms, never) {
        (Some(_), true) => {
            return Err(Refusal::invalid("ttl_ms and never_expires exclude each other"));
        }
        (Some(ttl_ms), false) => {
            check_range("ttl_ms", Some(ttl_ms), TTL_MS_MIN, TTL_MS_MAX)?;
            Some(now_ms().saturating_add(ttl_ms))
        }
        (None, true) => None,
        (None, false) => {
            let usual = now_ms().saturating_add(TTL_MS_DEFAULT);
            return Ok(Some(own.map_or(usual, |own| own.min(usual))));
        }
    };
    match (own, asked) {
        (Some(own), asked) if asked.is_none_or(|asked| asked > own) => {
            let message =
                format!("the key that asks expires at {}, and issues none for longer", format(own));
            Err(Refusal::new(Code::Forbidden, message))
        }
        _ => Ok(asked),
    }
}

/// Does something with the files of keys.
async fn with_store<T: Send + 'static>(
    call: &Call,
    work: impl FnOnce(&Store) -> Result<T, KeysError> + Send + 'static,
) -> Result<T, Refusal> {
    let Some(keyring) = call.api.keyring() else {
        let message = "this server asks for no keys";
        return Err(Refusal::new(Code::Unsupported, message)
            .hint("start it without `--dev`, and `host-bridge keygen` makes the first one"));
    };
    let store = keyring.store().clone();
    let done = tokio::task::spawn_blocking(move || work(&store)).await;
    let done = done.map_err(|error| Refusal::of(Code::Internal, &error))?;
    done.map_err(|error| {
        let code = match &error {
            KeysError::NoSuchKey { .. } => Code::NotFound,
            KeysError::TooManyKeys { .. } => Code::LimitReached,
            KeysError::Label(_) | KeysError::ExpiredAlready | KeysError::Claims => Code::Invalid,
            KeysError::Files { .. }
            | KeysError::Exposed { .. }
            | KeysError::Damaged { .. }
            | KeysError::TooLarge { .. }
            | KeysError::TooManySecrets { .. }
            | KeysError::NoRandomness
            | KeysError::SshKeyTaken { .. }
            | KeysError::TooManySshKeys => Code::Internal,
        };
        Refusal::new(code, error.to_string()).or_no_room(&error)
    })
}

impl KeyInfo {
    fn of(key: Issued, standing: Standing) -> Self {
        let greatest = key.scopes.iter().last().unwrap_or(Access::Read);
        Self {
            id: key.id.to_string(),
            name: key.name,
            namespace: key.namespace.to_string(),
            scope: greatest.into(),
            state: standing.into(),
            created_at: format(key.issued_at_ms),
            expires_at: key.expires_at_ms.map(format),
            issued_by: key.issued_by.map(|id| id.to_string()),
            ssh_keys: key.ssh_keys.len() as u64,
        }
    }
}

impl From<Access> for ScopeName {
    fn from(access: Access) -> Self {
        match access {
            Access::Read => Self::Read,
            Access::Run => Self::Run,
            Access::Admin => Self::Admin,
        }
    }
}

impl From<ScopeName> for Access {
    fn from(scope: ScopeName) -> Self {
        match scope {
            ScopeName::Read => Self::Read,
            ScopeName::Run => Self::Run,
            ScopeName::Admin => Self::Admin,
        }
    }
}

impl From<Standing> for KeyState {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Valid => Self::Valid,
            Standing::Expired => Self::Expired,
            Standing::Revoked => Self::Revoked,
            Standing::Dropped => Self::Dropped,
        }
    }
}

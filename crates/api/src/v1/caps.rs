//! The caps of the caller, and how much of them is used.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Nothing, Query, Reply};
use crate::forms::sandboxes::NAME;
use sandbox::caps::{Cap, CapUse, Caps, ScopeUse};
use sandbox::refusal::Refusal;
use sandbox::{Name, SandboxError};

pub fn operations() -> Vec<Operation> {
    vec![
        operation(Method::GET, "/v1/caps", "get_caps", "Show caps and their use.", get)
            .tag("sandboxes")
            .about("Shows the caps of the namespace and of the calling key."),
    ]
}

/// Whose caps to show.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CapsQuery {
    /// The namespace; by default the key's, or `default`.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
}

/// The caps of every scope that the caller's sandboxes count towards.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CapsInfo {
    pub scopes: Vec<ScopeInfo>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScopeInfo {
    /// `namespace` or `key`.
    pub scope: String,
    pub name: String,
    pub caps: Vec<CapInfo>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CapInfo {
    /// `sandboxes`, `memory_mib`, `cpu_millis`, `disk_bytes`; `run_ms_per_day` and
    /// `output_bytes_per_day`, of a day of UTC; and `ttl_ms` of each sandbox.
    pub cap: String,
    pub used: u64,
    /// The limit; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub allowed: Option<u64>,
}

async fn get(
    call: Call,
    Query(query): Query<CapsQuery>,
    _: Nothing,
) -> Result<Reply<CapsInfo>, Refusal> {
    let namespace = call.one_namespace(query.namespace)?.unwrap_or_else(Name::default_namespace);
    let key = call.caller.key();
    let scopes = Caps::scopes(namespace.as_str(), key.as_deref()).into_iter().map(|scope| {
        let (used, cap) = call.api.registry().caps(&scope)?;
        let (kind, name) = (scope.kind().to_owned(), scope.name().to_owned());
        Ok(ScopeInfo { scope: kind, name, caps: rows(&used, &cap) })
    });
    Ok(Reply(CapsInfo { scopes: scopes.collect::<Result<_, SandboxError>>()? }))
}

fn rows(used: &ScopeUse, cap: &Cap) -> Vec<CapInfo> {
    let row =
        |row: CapUse| CapInfo { cap: row.cap.to_owned(), used: row.used, allowed: row.allowed };
    // The lifetime of a sandbox is a limit without usage.
    let life = CapUse { cap: "ttl_ms", used: 0, allowed: cap.ttl_ms };
    used.rows(cap).into_iter().chain([life]).map(row).collect()
}

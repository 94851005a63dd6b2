//! The audit log, for callers who may do everything.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Nothing, Query, Reply};
use crate::forms::sandboxes::NAME;
use access::audit::limits::PAGE_MAX;
use access::audit::{self, Filter, Outcome};
use access::keys::Access;
use sandbox::Name;
use sandbox::refusal::{Code, Refusal};

pub fn operations() -> Vec<Operation> {
    vec![
        operation(Method::GET, "/v1/audit", "list_audit", "Read the audit log.", list)
            .access(Some(Access::Admin))
            .tag("audit")
            .about(
                "Lists the records of the audit log, oldest first, one page at a time. A key for \
                one namespace gets the records of that namespace.",
            )
            .problems(&[Code::Unsupported]),
    ]
}

/// The outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeName {
    Ok,
    Refused,
    Failed,
}

/// Which records to list.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// Milliseconds since 1970.
    #[serde(default)]
    #[schemars(with = "u64")]
    pub since_ms: Option<u64>,
    #[serde(default)]
    #[schemars(with = "u64")]
    pub until_ms: Option<u64>,
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
    /// A sandbox's name or id.
    #[serde(default)]
    #[schemars(with = "String")]
    pub sandbox: Option<String>,
    /// A key's id or label, a user's name or number, or `key`, `user`, `local`, `anybody`, `bridge`.
    #[serde(default)]
    #[schemars(with = "String")]
    pub who: Option<String>,
    #[serde(default)]
    #[schemars(with = "String")]
    pub operation: Option<String>,
    #[serde(default)]
    #[schemars(with = "OutcomeName")]
    pub outcome: Option<OutcomeName>,
    /// `next` of the previous page.
    #[serde(default)]
    #[schemars(with = "u64")]
    pub after: Option<u64>,
    /// The maximum number of entries.
    #[serde(default)]
    #[schemars(with = "u16", range(min = 1, max = 1000))]
    pub limit: Option<u16>,
}

/// A page of audit records.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditPage {
    /// The records as in the log: `seq`, `time`, `who`, `door`, `operation`, `outcome`, and further
    /// fields.
    pub records: Vec<Map<String, Value>>,
    /// The value for `after`; absent when there are no more records yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub next: Option<u64>,
}

async fn list(
    call: Call,
    Query(query): Query<AuditQuery>,
    _: Nothing,
) -> Result<Reply<AuditPage>, Refusal> {
    let namespace = call.one_namespace(query.namespace)?;
    let limit = usize::from(query.limit.unwrap_or(100));
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Refusal::invalid(format!("limit must be from 1 to {PAGE_MAX}, not {limit}")));
    }
    let Some(directory) = call.api.audit().directory().cloned() else {
        return Err(Refusal::new(Code::Unsupported, "this server keeps no audit log"));
    };
    let filter = Filter {
        since_ms: query.since_ms,
        until_ms: query.until_ms,
        namespace: namespace.map(|namespace| namespace.to_string()),
        sandbox: query.sandbox,
        who: query.who,
        operation: query.operation,
        outcome: query.outcome.map(|outcome| match outcome {
            OutcomeName::Ok => Outcome::Ok,
            OutcomeName::Refused => Outcome::Refused,
            OutcomeName::Failed => Outcome::Failed,
        }),
        after: query.after,
    };
    let reading = move || audit::read(&directory, &filter, limit, false);
    let read = tokio::task::spawn_blocking(reading).await.map_err(std::io::Error::other);
    let records = read.and_then(|read| read).map_err(|error| {
        Refusal::new(Code::Internal, format!("the audit log cannot be read: {error}"))
    })?;
    let next = records.last().map(|record| record.seq).filter(|_| records.len() == limit);
    let records = records.iter().filter_map(|record| match serde_json::to_value(record) {
        Ok(Value::Object(record)) => Some(record),
        _ => None,
    });
    Ok(Reply(AuditPage { records: records.collect(), next }))
}

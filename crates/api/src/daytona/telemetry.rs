//! What a sandbox used over time, as a series of each figure. The clients first ask for the server's
//! configuration, whether something else has the figures.

use hyper::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::API;
use super::replies::DAEMON_VERSION;
use super::seat;
use crate::body::json_response;
use crate::call::Call;
use crate::route::{Operation, operation};
use crate::samples;
use crate::shape::{Nothing, Query, Raw};
use host::instant::parse;
use sandbox::refusal::Refusal;

/// The names of the clients, with the fields of a moment.
const SERIES: [(&str, &str); 7] = [
    ("daytona.sandbox.cpu.utilization", "cpuUsedPct"),
    ("daytona.sandbox.cpu.limit", "cpuCount"),
    ("daytona.sandbox.memory.usage", "memUsed"),
    ("daytona.sandbox.memory.limit", "memTotal"),
    ("daytona.sandbox.memory.cache", "memCache"),
    ("daytona.sandbox.filesystem.usage", "diskUsed"),
    ("daytona.sandbox.filesystem.total", "diskTotal"),
];

pub fn operations() -> Vec<Operation> {
    [
        operation(
            Method::GET,
            "/daytona/config",
            "daytona_config",
            "What kind of server this is.",
            config,
        ),
        operation(
            Method::GET,
            "/daytona/sandbox/{sandbox}/telemetry/metrics",
            "daytona_history",
            "What a sandbox used over time.",
            history,
        ),
    ]
    .map(|operation| operation.refusing(API))
    .to_vec()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Span {
    from: Option<String>,
    to: Option<String>,
}

/// A point in time in milliseconds. A client may write its zone without a colon.
fn instant(name: &str, text: Option<&String>) -> Result<Option<u64>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    let zoned = text.strip_suffix("+0000").map(|plain| format!("{plain}Z"));
    let found = parse(zoned.as_deref().unwrap_or(text));
    found.map(Some).ok_or_else(|| Refusal::invalid(format!("{name}: {text:?} is no time")))
}

async fn config(_: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let nothing = "";
    Ok(Raw(json_response(
        StatusCode::OK,
        &json!({
            "version": DAEMON_VERSION,
            // There is nobody to log in with, and nothing to look at, but what the keys and the console are for.
            "oidc": {
                "issuer": nothing, "clientId": nothing, "audience": nothing, "provider": "none",
            },
            "linkedAccountsEnabled": false,
            "announcements": {},
            "proxyTemplateUrl": nothing,
            "proxyToolboxUrl": nothing,
            "defaultSnapshot": nothing,
            "dashboardUrl": nothing,
            "maxAutoArchiveInterval": 0,
            "maintananceMode": false,
            "environment": "burrow",
        }),
    )))
}

async fn history(call: Call, Query(span): Query<Span>, _: Nothing) -> Result<Raw, Refusal> {
    let record = seat::find(&call)?;
    let from_ms = instant("from", span.from.as_ref())?;
    let to_ms = instant("to", span.to.as_ref())?;
    let used = samples::used(&call.api, &record, from_ms, to_ms).await?;
    let moments: Vec<Value> = used.iter().map(samples::Used::shown).collect();
    let series = SERIES.map(|(name, field)| {
        let points = moments
            .iter()
            .map(|moment| json!({ "timestamp": moment["timestamp"], "value": moment[field] }));
        json!({ "metricName": name, "dataPoints": points.collect::<Vec<_>>() })
    });
    Ok(Raw(json_response(StatusCode::OK, &json!({ "series": series }))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_taken_in_the_forms_that_the_clients_write() {
        let at = |text: &str| instant("from", Some(&text.to_owned())).unwrap();
        assert_eq!(at("2026-01-01T00:00:00.500000+0000"), at("2026-01-01T00:00:00.500Z"));
        assert!(at("2026-01-01T00:00:00.500Z").is_some());
        assert!(instant("from", Some(&"yesterday".to_owned())).is_err());
        assert_eq!(instant("from", None).unwrap(), None);
    }
}

//! A body for each operation that newcomers try first. A test sends them.

use serde_json::Value;

use agent_client::guest::contexts::language;

/// Stands for the usual language.
const DEFAULT: &str = "{default}";

/// By the operation's id, as they are sent.
const EXAMPLES: [(&str, &str); 12] = [
    ("create_sandbox", r#"{"name":"work","memory_mib":512,"idle_ttl_ms":900000}"#),
    ("extend_sandbox", r#"{"ttl_ms":3600000}"#),
    ("exec", r#"{"argv":["sh","-c","echo $((6 * 7))"],"timeout_ms":10000}"#),
    ("shell", r#"{"script":"echo $((6 * 7))"}"#),
    ("run_in_context", r#"{"code":"x = 6\nx * 7"}"#),
    ("run", r#"{"code":"x = 6\nx * 7","language":"{default}"}"#),
    ("open_context", r#"{"context":"analysis","language":"{default}"}"#),
    ("complete_code", r#"{"code":"impo"}"#),
    ("check_code", r#"{"code":"for n in range(3):"}"#),
    ("start_session", r#"{"argv":["sh","-c","echo begun; sleep 1"]}"#),
    ("forward_port", r#"{"port":8000}"#),
    ("create_preview", r#"{"port":8000,"ttl_ms":3600000}"#),
];

/// The body of an operation, if it has an example.
pub fn of(id: &str) -> Option<Value> {
    let (_, body) = EXAMPLES.iter().find(|(known, _)| *known == id)?;
    serde_json::from_str(&body.replace(DEFAULT, language::DEFAULT)).ok()
}

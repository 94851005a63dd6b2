//! A body for each operation that takes JSON. A test sends them all.

use serde_json::Value;

use agent_client::guest::contexts::language;

/// Stands for the usual language.
const DEFAULT: &str = "{default}";

/// By the operation's id, as they are sent.
const EXAMPLES: &[(&str, &str)] = &[
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
    ("create_key", r#"{"name":"ci","scope":"run","ttl_ms":86400000}"#),
    ("stop_sandbox", r#"{"grace_ms":5000}"#),
    ("fork_sandbox", r#"{"count":2}"#),
    ("interrupt_run", r#"{"grace":{"polite_ms":1000}}"#),
    ("answer_input", r#"{"run":1,"request":1,"line":"yes"}"#),
    ("make_directory", r#"{"path":"/tmp/results/today","parents":true}"#),
    ("move_file", r#"{"from":"/tmp/draft.txt","to":"/tmp/final.txt","replace":true}"#),
    ("resize_session", r#"{"rows":24,"columns":80}"#),
    ("signal_session", r#"{"signal":"TERM","target":"tree"}"#),
    (
        "start_app",
        r#"{"type":"command","command":"exec python3 -m http.server $PORT","name":"files"}"#,
    ),
    ("open_notebook", r#"{"name":"study"}"#),
    ("run_in_notebook", r#"{"code":"x = 6\nx * 7"}"#),
    ("interrupt_notebook", r#"{"grace":{"polite_ms":1000}}"#),
    ("forget_variables", r#"{"names":["x"]}"#),
    ("keep_artifact", r#"{"path":"/tmp/final.txt"}"#),
    ("render", r#"{"command":"echo done > result.txt","outputs":["result.txt"]}"#),
    ("pull_image", r#"{"image":"python:3.12-slim"}"#),
    ("commit_sandbox", r#"{"image":"team/app:1"}"#),
    ("take_snapshot", r#"{"name":"ready"}"#),
    ("export_snapshot_to_bucket", r#"{"to":"s3://data/snapshots/ready.tar"}"#),
    ("import_snapshot_from_bucket", r#"{"from":"s3://data/snapshots/ready.tar"}"#),
    ("create_volume", r#"{"name":"data"}"#),
    ("put_template", r#"{"start":"python3 -m http.server 8000","ready":"true","warm":0}"#),
    ("mark_node", r#"{"readiness":"draining"}"#),
    ("a2a_create", r#"{"name":"agent","memory_mib":512}"#),
    ("a2a_exec", r#"{"cmd":"echo","args":["hello"]}"#),
    ("a2a_run_python", r#"{"code":"print(6 * 7)"}"#),
    ("a2a_run_shell", r#"{"script":"echo $((6 * 7))"}"#),
];

/// The body of an operation, if it has an example.
pub fn of(id: &str) -> Option<Value> {
    let (_, body) = EXAMPLES.iter().find(|(known, _)| *known == id)?;
    serde_json::from_str(&body.replace(DEFAULT, language::DEFAULT)).ok()
}

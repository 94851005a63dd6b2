//! Sessions whose variables survive what a model's client and its server do.

use serde_json::json;
use tests::mcp::{Lines, text};
use tests::{Burrow, have_or_skip};

#[test]
fn a_session_goes_on_in_another_process_with_its_variables() {
    if !have_or_skip("python3") {
        return;
    }
    let burrow = Burrow::new();
    let mut first = Lines::open(&burrow, &[]);
    let code = "x = 41\nfile = open('/etc/hostname')\ndef more(): return x + 1";
    let ran = first.ok("execute", &json!({ "code": code, "session_id": "work" }));
    assert_eq!(ran["session"]["number"], 1, "{ran}");
    let refused = first.call("execute", &json!({ "code": "1", "session_id": "w", "context": "c" }));
    assert_eq!(refused["isError"], true);
    tests::eventually("it is saved", || {
        let answer = first.ok("session_info", &json!({ "session_id": "work" }));
        answer["session"]["unsaved_runs"] == 0
    });
    drop(first);

    let mut second = Lines::open(&burrow, &[]);
    let result = second.call("execute", &json!({ "code": "print(more())", "session_id": "work" }));
    let ran = &result["structuredContent"];
    assert_eq!(ran["stdout"], "42\n", "{result}");
    assert_eq!(ran["session"]["reopened"]["as_of_run"], 1, "{ran}");
    assert!(text(&result).contains("file is missing: an open file"), "{result}");
    let again = second.ok("execute", &json!({ "code": "print(more())", "session_id": "work" }));
    assert_eq!((&again["cache_hit"], &again["stdout"]), (&json!(true), &json!("42\n")));
    let answer = second.ok("session_info", &json!({ "session_id": "work" }));
    assert_eq!(answer["statistics"]["total_executions"], 3, "{answer}");
    let past = second.ok("session_history", &json!({ "session_id": "work", "limit": 2 }));
    assert_eq!(past["runs"][0]["number"], 3, "{past}");
    assert_eq!(past["runs"].as_array().map(Vec::len), Some(2));
    assert_eq!(second.ok("session_list", &json!({}))["sessions"][0]["name"], "work");
    second.ok("session_remove", &json!({ "session_id": "work" }));
    assert_eq!(second.call("session_info", &json!({ "session_id": "work" }))["isError"], true);
}

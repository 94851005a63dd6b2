//! Displays and offers of code, and what agents see of them.

use serde_json::{Value, json};
use tests::Burrow;
use tests::door::BOX;
use tests::http::Client;
use tests::mcp::{Lines, text};

use super::scene::{by_name, captured, content, left_out, names, open};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Something that is shown as a picture.
const PICTURE: &str = "class P:
    def _repr_png_(self):
        return b'\\x89PNG\\r\\n\\x1a\\n' + b'.' * 20
";

fn run(client: &Client, context: &str, code: &str) -> Value {
    let body = json!({ "code": code, "language": "python", "artifacts": true });
    client.post(&format!("{BOX}/contexts/{context}/run"), &body).expect(200).json()
}

#[test]
fn displays_and_offered_files_are_kept_with_written_files() {
    let (_server, client) = open();
    let open = json!({ "context": "python", "language": "python", "cwd": "/tmp/work" });
    let _ = client.post(&format!("{BOX}/contexts"), &open).expect(201);
    let code = format!(
        "{PICTURE}\nimport burrow\nburrow.display(P())\nopen('plain.txt', 'w').write('x')\n\
         open('/tmp/far.bin', 'w').write('{{}}')\n\
         burrow.artifact('/tmp/far.bin', name='near.json', mime='application/json')\n\
         burrow.artifact('plain.txt')\nP()"
    );
    let ran = run(&client, "python", &code);
    assert_eq!(ran["status"], "ok", "{ran}");
    let captured = &ran["captured"];
    assert_eq!(
        names(captured),
        ["figure-1.png", "figure-2.png", "near.json", "plain.txt"],
        "{captured}"
    );
    let artifacts = by_name(captured);
    let figure = &artifacts["figure-1.png"];
    assert_eq!((&figure["category"], &figure["type"]), (&json!("figure"), &json!("image/png")));
    assert!(figure.get("path").is_none(), "{figure}");
    assert_eq!(figure["run"], ran["run"]);
    assert!(content(&client, figure).starts_with(PNG));
    assert_eq!(artifacts["near.json"]["type"], "application/json");
    assert_eq!(artifacts["near.json"]["path"], "/tmp/far.bin");
    // The same run, asked for as a stream.
    let body = json!({ "code": "P()", "artifacts": true });
    let events: Vec<_> = client.lines(&format!("{BOX}/contexts/python/run"), Some(&body)).collect();
    let last: Vec<_> =
        events.iter().rev().take(2).map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(last, ["finished", "artifacts"], "{events:?}");
    let captured = events[events.len() - 2]["captured"].clone();
    assert_eq!(names(&captured), ["figure-1.png"]);
}

#[test]
fn an_offered_path_that_is_no_file_is_left_out_with_its_reason() {
    let (_server, client) = open();
    let _ = captured(&client, "ln -sf /etc/passwd /tmp/link");
    let code = "import burrow\nburrow.artifact('/tmp/link')\n1/0";
    let ran = run(&client, "python", code);
    assert_eq!(ran["status"], "error");
    assert!(names(&ran["captured"]).is_empty(), "{ran}");
    let reasons = left_out(&ran["captured"]);
    assert!(reasons["/tmp/link"].contains("symlink"), "{ran}");
}

#[test]
fn figures_of_the_common_libraries_are_kept() {
    let Some(home) = tests::libraries::python_with("displays", &tests::libraries::SCIENCE) else {
        return;
    };
    let (_server, client) = open();
    let path = |below: &str| home.join(below).to_string_lossy().into_owned();
    let open = json!({
        "context": "science", "language": "python", "program": path("bin/python"),
        "env": { "MPLCONFIGDIR": path("fonts") }, "cwd": "/tmp/work"
    });
    let _ = client.post(&format!("{BOX}/contexts"), &open).expect(201);
    let code = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()\n\
                plt.plot([1, 2]); plt.savefig('saved.png'); plt.close()\n\
                from PIL import Image\nImage.new('RGB', (8, 8), 'red').show()";
    let ran = run(&client, "science", code);
    assert_eq!(ran["status"], "ok", "{ran}");
    let captured = &ran["captured"];
    assert_eq!(names(captured), ["figure-1.png", "figure-2.png", "saved.png"], "{captured}");
    for artifact in by_name(captured).values() {
        assert!(content(&client, artifact).starts_with(PNG));
    }
    assert!(left_out(captured).is_empty(), "{captured}");
}

#[test]
fn an_agent_learns_what_its_calls_have_left_and_cleans_up() {
    let burrow = Burrow::new();
    let mut lines = Lines::open(&burrow, &[]);
    let code = format!("{PICTURE}\nopen('notes.txt', 'w').write('x')\nP()");
    let ran = lines.ok("execute", &json!({ "code": code }));
    let captured = json!({ "artifacts": ran["artifacts"], "left_out": ran["artifacts_left_out"] });
    assert_eq!(names(&captured), ["figure-1.png", "notes.txt"], "{ran}");
    let command = json!({ "command": "printf '\\211PNG\\r\\n\\032\\n....' > small.png; \
        for i in 1 2 3 4 5; do printf '\\211PNG\\r\\n\\032\\n' > p$i.png; done" });
    let result = lines.call("shell_execute", &command);
    let images = result["content"].as_array().unwrap().iter().filter(|one| one["type"] == "image");
    assert_eq!(images.count(), 4, "{result}");
    assert!(text(&result).contains("[artifacts: ") && text(&result).contains("small.png"));
    assert_eq!(result["structuredContent"]["artifacts"].as_array().unwrap().len(), 6);

    let listed = lines.ok("list_artifacts", &json!({ "category": "image", "limit": 2 }));
    assert_eq!((listed["artifacts"].as_array().unwrap().len(), &listed["more"]), (2, &json!(true)));
    let refused = lines.call("cleanup_artifacts", &json!({}));
    assert_eq!(refused["isError"], true);
    let old = lines.ok("cleanup_artifacts", &json!({ "older_than_seconds": 3600 }));
    assert_eq!(old["removed"], 0);
    let removed = lines.ok("cleanup_artifacts", &json!({ "category": "image" }));
    assert_eq!(removed["removed"], 6);
    let removed = lines.ok("cleanup_artifacts", &json!({ "all": true }));
    assert_eq!(removed["removed"], 2);
    let listed = lines.ok("list_artifacts", &json!({}));
    assert_eq!(listed, json!({ "artifacts": [], "more": false }));
}

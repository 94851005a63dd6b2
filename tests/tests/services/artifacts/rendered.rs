//! Commands that make files, and animations.

use serde_json::{Value, json};
use tests::door::BOX;
use tests::mcp::{Lines, text};
use tests::{Burrow, libraries};

use super::scene::{WORK, by_name, content, left_out, names, open};

/// Draws a bar as it goes on, and writes a picture that moves.
const SCRIPT: &str = r"
import os, sys, time
os.makedirs('out/deep', exist_ok=True)
for step in range(5):
    sys.stderr.write(f'\rdrawing: {step * 25:3d}%|{step * chr(35)}|')
    sys.stderr.flush()
    time.sleep(0.05)
open('out/deep/moves.gif', 'wb').write(b'GIF89a' + bytes(100))
open('out/notes.txt', 'w').write('not asked for')
print('done')
";

fn render(outputs: &Value) -> Value {
    json!({ "command": ["python3", "-c", SCRIPT], "cwd": WORK, "outputs": outputs })
}

#[test]
fn a_command_tells_how_far_it_is_and_what_it_has_made() {
    let (_server, client) = open();
    let path = format!("{BOX}/render");
    let events: Vec<_> =
        client.lines(&path, Some(&render(&json!(["out/**/*.gif", "*.mp4"])))).collect();
    let (last, progress) = events.split_last().expect("events");
    let done: Vec<_> = progress.iter().map(|event| event["done"].as_f64().unwrap()).collect();
    assert!(done.is_sorted() && done.contains(&1.0) && done.len() > 1, "{events:?}");
    assert!(progress.iter().all(|event| event["label"] == "drawing"), "{events:?}");
    assert_eq!(last["type"], "result");
    let result = &last["result"];
    assert_eq!((&result["success"], &result["exit_code"]), (&json!(true), &json!(0)));
    assert!(result["log"].as_str().unwrap().contains("done"), "{result}");
    let captured = &result["captured"];
    assert_eq!(names(captured), ["moves.gif"], "{captured}");
    assert_eq!(by_name(captured)["moves.gif"]["type"], "image/gif");
    assert!(content(&client, &by_name(captured)["moves.gif"]).starts_with(b"GIF89a"));
    assert!(left_out(captured)["*.mp4"].contains("no new or changed file"), "{captured}");
}

#[test]
fn a_command_that_fails_is_a_result_with_its_log() {
    let (_server, client) = open();
    let path = format!("{BOX}/render");
    let body = json!({ "command": "echo x > half.bin; echo broken >&2; exit 3", "cwd": WORK });
    let result = client.post(&path, &body).expect(200).json();
    assert_eq!((&result["success"], &result["exit_code"]), (&json!(false), &json!(3)));
    assert_eq!((result["log"].as_str(), &result["truncated"]), (Some("broken\n"), &json!(false)));
    assert_eq!(names(&result["captured"]), ["half.bin"]);
    let body = json!({ "command": "sleep 60", "timeout_ms": 100 });
    let result = client.post(&path, &body).expect(200).json();
    assert_eq!(result["cause"]["type"], "timeout", "{result}");
    assert_eq!(
        client.post(&path, &json!({ "command": ["/no/such"] })).expect(422).code(),
        "spawn_failed"
    );
    for wrong in [json!({ "command": 5 }), json!({}), json!({ "command": "true", "colour": 1 })] {
        let _ = client.post(&path, &wrong).expect(400);
    }
}

#[test]
fn without_manim_the_refusal_says_how_to_get_it() {
    let burrow = Burrow::new();
    let mut lines = Lines::open(&burrow, &[]);
    let has = lines.call("shell_execute", &json!({ "command": "python3 -c 'import manim'" }));
    if has["isError"] == false {
        return tests::skip("this host has manim");
    }
    let result = lines.call("create_manim_animation", &json!({ "code": "x = 1" }));
    assert_eq!(result["isError"], true);
    let message = text(&result);
    assert!(
        message.contains("this sandbox has no manim") && message.contains("libcairo2-dev"),
        "{message}"
    );
    assert_eq!(result["structuredContent"]["success"], false);
    // Nothing of the try is left.
    let left = lines.call("shell_execute", &json!({ "command": "ls -d /tmp/manim-*" }));
    assert_eq!(left["isError"], true, "{left}");
    let refused =
        lines.call("create_manim_animation", &json!({ "code": "x = 1", "scene_name": "--help" }));
    assert!(text(&refused).contains("scene_name"), "{refused}");
}

#[test]
fn manim_renders_a_film_and_says_what_is_wrong_with_code() {
    let Some(home) = libraries::python_with("manim", &["manim"]) else { return };
    let mut burrow = Burrow::serving();
    let path = format!("PATH={}:/usr/bin:/bin", home.join("bin").display());
    burrow.ok(&["start", "--name", "film", "-e", &path]);
    let mut lines = Lines::open(&burrow, &[]);
    let mut call = |code: &str, scene: Option<&str>| {
        let mut body = json!({ "code": code, "quality": "low_quality", "sandbox": "film" });
        if let Some(scene) = scene {
            body["scene_name"] = json!(scene);
        }
        lines.call("create_manim_animation", &body)
    };
    let scene = |name: &str| {
        format!(
            "class {name}(Scene):\n    def construct(self):\n        self.play(Create(Circle()))\n"
        )
    };
    let one = format!("from manim import *\n{}", scene("One"));
    let made = call(&one, None);
    assert_eq!(made["isError"], false, "{made}");
    let film = &made["structuredContent"]["artifacts"][0];
    assert_eq!((&film["name"], &film["category"]), (&json!("One.mp4"), &json!("video")), "{made}");
    let two = format!("{one}{}", scene("Two"));
    assert!(text(&call(&two, None)).contains("`scene_name`"));
    assert_eq!(call(&two, Some("Two"))["structuredContent"]["artifacts"][0]["name"], "Two.mp4");
    assert!(text(&call(&one, Some("Nope"))).contains("no scene Nope"));
    let broken = call("from manim import *\n1/0", None);
    assert_eq!(broken["isError"], true);
    assert!(text(&broken).contains("ZeroDivisionError"), "{broken}");
    burrow.end_daemon();
}

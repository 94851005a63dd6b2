use std::iter;

use protocol::metrics::Sample;
use sandbox::{Record, SandboxRef};
use serde_json::json;

use super::super::keys::Key;
use super::super::news::{News, Part};
use super::{Action, Model, Sort};

fn record(name: &str, created_at_ms: u64) -> Record {
    let record = json!({
        "id": "0123456789ab", "namespace": "default", "name": name, "machine": "process", "hostname": name,
        "scratch_bytes": 0, "env_names": [], "created_at_ms": created_at_ms, "state": "running",
        "labels": {},
    });
    serde_json::from_value(record).expect("a record")
}

fn which(name: &str) -> SandboxRef {
    name.parse().expect("a name")
}

fn sampled(name: &str, cpu_hundredths: u32, memory_bytes: u64) -> News {
    let sample = Sample { cpu_hundredths: Some(cpu_hundredths), memory_bytes, ..sample() };
    News::Sampled { which: which(name), sample: Box::new(sample) }
}

fn sample() -> Sample {
    let sample = json!({
        "number": 1, "time_ms": 1, "uptime_ms": 1, "cpu_us": 1, "memory_bytes": 1, "processes": 1,
    });
    serde_json::from_value(sample).expect("a sample")
}

/// Three sandboxes, of which `busy` takes the CPU and `fat` the memory.
fn model() -> Model {
    let mut model = Model::new(Sort::Cpu);
    let listed = ["calm", "busy", "fat"].iter().zip(1..).map(|(name, at)| record(name, at));
    let listed = listed.collect::<Vec<_>>().into();
    model.take_all([
        News::Listed(listed),
        sampled("busy", 9_000, 10),
        sampled("fat", 100, 1_000),
        sampled("calm", 0, 5),
    ]);
    model
}

fn names(model: &Model) -> Vec<String> {
    model.rows().map(|row| row.sandbox.clone()).collect()
}

fn press(model: &mut Model, keys: &str) -> Option<Action> {
    keys.chars().map(Key::Char).filter_map(|key| model.press(key)).last()
}

#[test]
fn rows_are_sorted_filtered_and_stay_selected() {
    let mut model = model();
    assert_eq!(names(&model), ["busy", "fat", "calm"]);
    model.press(Key::Down);
    assert_eq!(model.selected(), Some(1));
    press(&mut model, "s");
    assert_eq!(names(&model), ["fat", "busy", "calm"]);
    assert_eq!(model.selected(), Some(0), "it follows what was selected");
    press(&mut model, "r/a");
    assert_eq!(names(&model), ["calm", "fat"]);
    press(&mut model, "lm");
    model.press(Key::Enter);
    assert_eq!((names(&model), model.selected()), (vec!["calm".to_owned()], Some(0)));
    model.press(Key::Escape);
    assert_eq!(model.rows().count(), 3);
}

#[test]
fn a_kill_is_asked_for_and_anything_but_yes_is_no() {
    let mut model = model();
    assert_eq!(press(&mut model, "k"), None);
    assert_eq!(model.last_line(), "kill sandbox busy? y or n");
    assert_eq!(press(&mut model, "q"), None, "this was the answer");
    let kill = Action::Kill { which: which("busy"), session: None };
    assert_eq!(press(&mut model, "ky"), Some(kill));
}

#[test]
fn inside_of_a_sandbox_a_session_is_killed_and_followed() {
    let mut model = model();
    model.press(Key::Enter);
    assert_eq!(model.entered(), Some(&which("busy")));
    assert_eq!(press(&mut model, "ky"), None, "nothing is known of it yet");
    let part = |cpu_us| Part {
        name: "build".to_owned(),
        id: Some("build".parse().expect("an id")),
        cpu_us: Some(cpu_us),
        ..Part::default()
    };
    for (cpu_us, at_ms) in [(1_000, 1_000), (501_000, 2_000)] {
        let inside = News::Inside { which: which("busy"), parts: vec![part(cpu_us)], at_ms };
        model.take_all(iter::once(inside));
    }
    let share = model.inside().and_then(|inside| inside.parts[0].cpu_percent);
    assert_eq!(share, Some(50.0));
    let words = |action| match action {
        Some(Action::Verb(words)) => words.join(" "),
        other => panic!("{other:?}"),
    };
    assert_eq!(words(press(&mut model, "l")), "logs -f --session build busy");
    assert_eq!(words(press(&mut model, "a")), "attach --session build busy");
    let session = Some("build".parse().expect("an id"));
    assert_eq!(press(&mut model, "ky"), Some(Action::Kill { which: which("busy"), session }));
    // The sandbox goes, and the list is back.
    model.take_all([News::Listed(vec![record("calm", 1)].into())]);
    assert_eq!((model.entered(), names(&model)), (None, vec!["calm".to_owned()]));
    assert_eq!(model.selected(), Some(0));
}

#[test]
fn another_sandbox_of_the_same_name_has_no_history() {
    let mut model = model();
    let line = |model: &Model| model.rows().next().map(|row| row.sparkline(3));
    assert_eq!(line(&model).as_deref(), Some("  █"));
    model.take_all([News::Listed(vec![record("busy", 99)].into())]);
    assert_eq!(line(&model).as_deref(), Some("   "));
}

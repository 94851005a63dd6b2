//! Notebooks over HTTP: variables that outlive their interpreter, their sandbox and the server.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::http::{Answer, Client};
use tests::server::Server;
use tests::{eventually, have_or_skip};

const ONE: &str = "/v1/notebooks/default/a";

/// A server without sandboxes.
struct NotebookServer {
    server: Server,
}

impl NotebookServer {
    fn new() -> Self {
        Self { server: Server::dev() }
    }

    fn client(&self) -> Client {
        Client::new(self.server.url())
    }

    fn post(&self, path: &str, value: &Value) -> Answer {
        self.client().post(&format!("{ONE}{path}"), value)
    }

    /// A run in the notebook, which must go well.
    fn run(&self, code: &str) -> Value {
        let ran = self.try_run(code);
        assert_eq!(ran["status"], "ok", "{code}: {ran}");
        ran
    }

    fn try_run(&self, code: &str) -> Value {
        self.post("/run", &json!({ "code": code })).expect(200).json()
    }

    fn output_of(&self, code: &str) -> String {
        self.run(code)["stdout"].as_str().expect("text").to_owned()
    }

    fn get(&self) -> Value {
        self.client().get(ONE).expect(200).json()
    }

    /// Saves, and returns what is kept.
    fn save(&self) -> Value {
        self.post("/save", &json!({})).expect(200).json()["saved"].clone()
    }

    fn await_saved(&self) {
        eventually("all runs are saved", || self.get()["unsaved_runs"] == 0);
    }

    fn remove_sandbox(&self) {
        self.client().delete("/v1/sandboxes/default/notebook-a?force=true").expect(200);
    }

    fn vault(&self) -> PathBuf {
        self.server.state().join("notebooks/default/a")
    }
}

fn place_or_skip() -> Option<NotebookServer> {
    have_or_skip("python3").then(NotebookServer::new)
}

fn names(list: &Value) -> Vec<&str> {
    let mut names: Vec<_> = list
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["name"].as_str().expect("a name"))
        .collect();
    names.sort_unstable();
    names
}

fn strings(list: &Value) -> Vec<&str> {
    let mut all: Vec<_> =
        list.as_array().expect("a list").iter().map(|one| one.as_str().expect("text")).collect();
    all.sort_unstable();
    all
}

const DEFINE: &str = "\
import math, json as j
class Shape:
    sides = 0
    def __init__(self, size): self.size = size
    def area(self): return self.size ** self.sides
class Square(Shape):
    sides = 2
def outer(n):
    def inner(): return n * factor
    return inner
factor = 2
triple = outer(3)
square = Square(4)
twice = lambda value: value * factor
table = {'square': square, 'list': [1, 2, square]}";

const CHECK: &str = "\
assert square.area() == 16 and type(square) is Square and isinstance(square, Shape)
assert table['square'] is square and table['list'][2] is square
factor = 5
assert triple() == 15 and twice(2) == 10
factor = 2
assert math.pi > 3 and j.dumps([1]) == '[1]'
print('whole')";

#[test]
fn variables_survive_the_interpreter_the_sandbox_and_the_bridge() {
    let Some(mut place) = place_or_skip() else { return };
    place.run(DEFINE);
    place.await_saved();
    assert_eq!(place.output_of(CHECK), "whole\n");

    place.await_saved();
    let died = place.try_run("import os; os.kill(os.getpid(), 9)");
    assert_eq!(died["status"], "died", "{died}");
    let ran = place.run(CHECK);
    assert_eq!(ran["notebook"]["reopened"]["as_of_run"], 2, "{ran}");
    assert_eq!(ran["notebook"]["reopened"]["unsaved_runs"], 1, "{ran}");

    place.await_saved();
    place.remove_sandbox();
    let ran = place.run(CHECK);
    assert_eq!(ran["notebook"]["reopened"]["unsaved_runs"], 0, "{ran}");
    assert!(strings(&ran["notebook"]["reopened"]["restored"]).contains(&"square"), "{ran}");

    place.await_saved();
    place.server.kill_and_serve_again();
    let ran = place.run(CHECK);
    assert_eq!(ran["notebook"].get("reopened"), None, "its interpreter lived on: {ran}");

    place.await_saved();
    place.remove_sandbox();
    place.server.kill_and_serve_again();
    assert_eq!(place.output_of(CHECK), "whole\n");
}

#[test]
fn a_removal_or_stop_of_its_sandbox_saves_a_notebook_first() {
    let Some(place) = place_or_skip() else { return };
    place.run("x = 1");
    place.remove_sandbox();
    let ran = place.run("print(x); x = 2");
    assert_eq!(ran["stdout"], "1\n", "{ran}");
    assert_eq!(ran["notebook"]["reopened"]["unsaved_runs"], 0, "{ran}");
    place.client().post("/v1/sandboxes/default/notebook-a/stop", &json!({})).expect(200);
    let ran = place.run("print(x)");
    assert_eq!(
        (&ran["stdout"], &ran["notebook"]["reopened"]["unsaved_runs"]),
        (&json!("2\n"), &json!(0))
    );
}

#[test]
fn the_end_of_a_time_to_live_saves_a_notebook_first() {
    let Some(place) = place_or_skip() else { return };
    let sandbox = "/v1/sandboxes/default/notebook-a";
    for (number, lives) in [json!({ "ttl_ms": 1 }), json!({ "idle_ttl_ms": 1 })].iter().enumerate()
    {
        place.run(&format!("x = {number}"));
        place.client().send_json("PATCH", sandbox, lives).expect(200);
        eventually("it has expired", || {
            place.client().get(sandbox).expect(200).json()["state"] == "stopped"
        });
        let ran = place.run("print(x)");
        assert_eq!(
            (&ran["stdout"], &ran["notebook"]["reopened"]["unsaved_runs"]),
            (&json!(format!("{number}\n")), &json!(0)),
            "{lives}: {ran}"
        );
    }
}

#[test]
fn a_removal_is_refused_while_a_notebook_has_unsaved_runs_and_a_kill_drops_them() {
    let Some(place) = place_or_skip() else { return };
    place.run("x = 1");
    place.await_saved();
    thread::scope(|scope| {
        let long = scope.spawn(|| {
            place.post("/run", &json!({ "code": "x = 2; import time; time.sleep(300)" }))
        });
        eventually("it runs", || place.get()["unsaved_runs"] == 1);
        let sandbox = "/v1/sandboxes/default/notebook-a";
        let refused = place.client().delete(&format!("{sandbox}?force=true")).expect(409).json();
        assert_eq!(refused["details"]["reason"], "unsaved_notebooks", "{refused}");
        let message = refused["message"].as_str().expect("text");
        assert!(message.contains("a, 1 run (it was busy"), "{message}");
        let result = place.server.run(&["rm", "--force", "notebook-a"]);
        let stderr = String::from_utf8_lossy(&result.stderr);
        assert!(stderr.contains("`host-bridge kill notebook-a` drops them"), "{stderr}");
        place.client().post(&format!("{sandbox}/kill"), &json!({})).expect(200);
        place.remove_sandbox();
        let _ = long.join().expect("an answer");
    });
    let ran = place.run("print(x)");
    assert_eq!(
        (&ran["stdout"], &ran["notebook"]["reopened"]["unsaved_runs"]),
        (&json!("1\n"), &json!(1))
    );
}

#[test]
fn a_run_that_died_is_unsaved_until_a_reopening_has_reported_it() {
    let Some(place) = place_or_skip() else { return };
    place.run("x = 1");
    place.save();
    let die = "import os; os.kill(os.getpid(), 9)";
    assert_eq!(place.try_run(die)["notebook"]["reopened"], Value::Null);
    assert_eq!(place.get()["unsaved_runs"], 1);
    let refused = place.post("/save", &json!({}));
    assert!(
        refused.status >= 400 && refused.text().contains("interpreter that held them has ended")
    );

    // The second one reports the first one's end, and then its own.
    let died = place.try_run(die);
    let reopened = &died["notebook"]["reopened"];
    assert_eq!(
        (&reopened["as_of_run"], &reopened["unsaved_runs"]),
        (&json!(1), &json!(1)),
        "{died}"
    );
    assert_eq!(place.get()["unsaved_runs"], 1);
    let listed = place.client().get("/v1/notebooks").expect(200).json();
    assert_eq!(listed["notebooks"][0]["unsaved_runs"], 1, "{listed}");
    let ran = place.run("print(x)");
    let reopened = &ran["notebook"]["reopened"];
    assert_eq!(
        (&reopened["as_of_run"], &reopened["unsaved_runs"]),
        (&json!(1), &json!(2)),
        "{ran}"
    );
    assert_eq!(ran["stdout"], "1\n");
    place.await_saved();
}

#[test]
fn a_run_that_was_cancelled_before_it_began_has_left_nothing_unsaved() {
    let Some(place) = place_or_skip() else { return };
    place.run("x = 1");
    place.save();
    // Somebody else keeps the interpreter busy, twice: before the notebook checks its token, and
    // after that.
    let context = "/v1/sandboxes/default/notebook-a/contexts/notebook-a";
    let wait = |file: &str| json!({ "code": format!("import os, time\nwhile not os.path.exists('{file}'): time.sleep(0.01)") });
    let info = || place.client().get(context).expect(200).json();
    thread::scope(|scope| {
        let other = |file: &'static str| {
            let (client, body) = (place.client(), wait(file));
            scope.spawn(move || client.post(&format!("{context}/run"), &body).status)
        };
        let first = other("/tmp/go");
        eventually("the first is on", || info()["running"].is_u64());
        let number = info()["running"].clone();
        let cancelled = scope.spawn(|| place.try_run("x = 2"));
        eventually("the notebook asks", || info()["queued"] == 1);
        let second = other("/tmp/never");
        eventually("the second waits", || info()["queued"] == 2);
        let content = "/v1/sandboxes/default/notebook-a/files/content?path=/tmp/go";
        assert!(place.client().send("PUT", content, &[], b"").status < 300);
        first.join().expect("no panic");
        eventually("the run waits behind the second", || {
            let info = info();
            info["running"].is_u64() && info["running"] != number && info["queued"] == 1
        });
        place.client().delete(context);
        assert_eq!(cancelled.join().expect("no panic")["status"], "cancelled");
        second.join().expect("no panic");
    });
    assert_eq!(place.get()["unsaved_runs"], 0);
    assert_eq!(place.save()["run"], 1, "there is nothing to save");
    let ran = place.run("print(x)");
    assert_eq!(ran["stdout"], "1\n");
    let reopened = &ran["notebook"]["reopened"];
    assert_eq!(
        (&reopened["as_of_run"], &reopened["unsaved_runs"]),
        (&json!(1), &json!(0)),
        "{ran}"
    );
}

#[test]
fn a_bridge_that_ends_in_order_saves_what_is_not_saved() {
    let Some(mut place) = place_or_skip() else { return };
    place.run("x = 1");
    place.run("x = 2");
    place.server.end_and_serve_again();
    assert_eq!(place.get()["unsaved_runs"], 0);
    place.remove_sandbox();
    assert_eq!(place.output_of("print(x)"), "2\n");
}

#[test]
fn unsavable_variables_and_their_dependents_are_listed_with_reasons() {
    let Some(place) = place_or_skip() else { return };
    place.run(
        "import threading\nfile = open('/etc/hostname')\nlock = threading.Lock()\n\
         deep = {'a': [1, lock]}\nsteps = (n for n in [1])\nkept = 1\n\
         def read(): return file.read()\n_private = 3",
    );
    let saved = place.save();
    let (stored, lost) = (names(&saved["kept"]), names(&saved["lost"]));
    assert_eq!(lost, ["deep", "file", "lock", "steps"], "{saved}");
    assert_eq!(stored, ["_private", "kept", "read", "threading"], "{saved}");
    let reason = |name: &str| {
        let all = saved["lost"].as_array().expect("a list");
        let one = all.iter().find(|one| one["name"] == name).expect("the name");
        one["reason"].as_str().expect("a reason").to_owned()
    };
    assert!(reason("file").contains("open file"), "{saved}");
    assert!(reason("steps").contains("generator"), "{saved}");
    assert!(reason("deep").contains("lock"), "{saved}");
    assert_eq!(saved["depends"], json!([{ "name": "read", "uses": ["file"] }]));

    place.remove_sandbox();
    let ran = place.run("print(sorted(n for n in globals() if not n.startswith('__')))");
    assert_eq!(ran["stdout"], "['_private', 'kept', 'read', 'threading']\n", "{ran}");
    let reopened = &ran["notebook"]["reopened"];
    assert_eq!(names(&reopened["lost"]), lost);
    assert_eq!(reopened["depends"], saved["depends"]);
    assert_eq!(strings(&reopened["restored"]), stored);
}

#[test]
fn the_report_is_exact_wherever_it_is_killed() {
    let Some(mut place) = place_or_skip() else { return };
    // Each step adds a name, and says which names there must be.
    let steps = [
        "a = [1]",
        "def b(): return a",
        "class C: pass",
        "d = C(); d.a = a",
        "e = open('/etc/hostname')",
        "f = (lambda n: lambda: n)(7)",
        "import collections; g = collections.OrderedDict(a=a, d=d)",
        "h = range(3)",
    ];
    let seed = std::env::var("BURROW_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut random: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("BURROW_SEED={random}");
    let mut expected: Vec<&str> = Vec::new();
    let listed = "print(' '.join(n for n in 'abCdefgh' if n in globals()))";
    for (at, step) in steps.iter().enumerate() {
        place.run(step);
        expected.push(["a", "b", "C", "d", "e", "f", "g", "h"][at]);
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Death comes at a random moment of the save.
        thread::sleep(Duration::from_millis((random >> 33) % 120));
        match (random >> 60) % 4 {
            0 => drop(place.try_run("import os; os.kill(os.getpid(), 9)")),
            1 => place.remove_sandbox(),
            2 => place.server.kill_and_serve_again(),
            _ => {
                place.server.kill_and_serve_again();
                place.remove_sandbox();
            }
        }
        let ran = place.run(listed);
        let reopened = &ran["notebook"]["reopened"];
        let there: Vec<_> = ran["stdout"].as_str().expect("text").split_whitespace().collect();
        if reopened.is_null() {
            assert_eq!(there, expected, "{ran}");
            continue;
        }
        // The directory contains exactly what the report lists as saved.
        let as_of = reopened["as_of_run"].as_u64().expect("a run");
        let number = ran["notebook"]["number"].as_u64().expect("a run");
        assert_eq!(reopened["unsaved_runs"].as_u64(), Some(number - 1 - as_of), "{ran}");
        let restored: Vec<_> = strings(&reopened["restored"]);
        let answer: Vec<_> = there.iter().filter(|name| !restored.contains(*name)).collect();
        assert!(answer.is_empty(), "{answer:?} is there and was not told: {ran}");
        let history = place.client().get(&format!("{ONE}/history?limit=100")).expect(200).json();
        let runs = history["runs"].as_array().expect("runs");
        let lost = names(&reopened["lost"]);
        for name in &expected {
            let step = steps[["a", "b", "C", "d", "e", "f", "g", "h"]
                .iter()
                .position(|n| n == name)
                .expect("it")];
            let newest =
                runs.iter().filter(|run| run["code"] == step).map(|run| run["number"].as_u64());
            let was_saved = newest.max().flatten().is_some_and(|number| number <= as_of);
            let is_there = there.contains(name);
            assert_eq!(is_there, was_saved && !lost.contains(name), "{name}: {ran}");
        }
        // Lost variables are defined again for the next steps.
        for name in expected.clone() {
            if !there.contains(&name) {
                let at = ["a", "b", "C", "d", "e", "f", "g", "h"]
                    .iter()
                    .position(|n| *n == name)
                    .expect("it");
                place.run(steps[at]);
            }
        }
    }
}

#[test]
fn code_is_compiled_once_and_an_old_key_never_runs_old_code() {
    let Some(place) = place_or_skip() else { return };
    let run = |code: &str, key: &str| {
        let body = json!({ "code": code, "cache_key": key });
        place.post("/run", &body).expect(200).json()
    };
    let code = "def f(): return 1\nprint(f())";
    assert_eq!(run(code, "k")["cached"], false);
    assert_eq!(run(code, "k")["cached"], true);
    assert_eq!(run(code, "another")["cached"], true, "the code decides");
    let changed = run("def f(): return 2\nprint(f())", "k");
    assert_eq!((&changed["cached"], &changed["stdout"]), (&json!(false), &json!("2\n")));
    let failing = "def g():\n    raise ValueError('v')\ng()";
    let first = run(failing, "e");
    let again = run(failing, "e");
    assert_eq!(again["cached"], true);
    assert_ne!(first["error"]["traceback"], again["error"]["traceback"], "each names its own run");
    assert!(again["error"]["traceback"].as_str().expect("text").contains("raise ValueError('v')"));
    let stats = place.client().get(&format!("{ONE}/stats")).expect(200).json();
    assert_eq!(stats["session_id"], "a");
    assert_eq!(stats["total_executions"], 6);
    assert_eq!((&stats["cache_hits"], &stats["cache_misses"]), (&json!(3), &json!(3)));
    assert_eq!(stats["cache_hit_ratio"], 0.5);
    assert_eq!(stats["cached_compilations"], 3, "{stats}");
    assert!(stats["average_execution_time"].as_f64().expect("seconds") > 0.0);
    place.client().delete(&format!("{ONE}/cache")).expect(204);
    assert_eq!(run(code, "k")["cached"], false);
}

#[test]
fn history_says_what_ran_the_newest_first_and_survives_the_bridge() {
    let Some(mut place) = place_or_skip() else { return };
    place.run("print('one')");
    place.try_run("1/0");
    place.post("/run", &json!({ "code": "while True: pass", "timeout_ms": 200 })).expect(200);
    place.server.kill_and_serve_again();
    let history = place.client().get(&format!("{ONE}/history")).expect(200).json();
    let runs = history["runs"].as_array().expect("runs");
    let answer: Vec<_> =
        runs.iter().map(|run| (run["number"].as_u64(), run["status"].as_str())).collect();
    assert_eq!(
        answer,
        [(Some(3), Some("timeout")), (Some(2), Some("error")), (Some(1), Some("ok"))]
    );
    assert_eq!(runs[1]["error_type"], "ZeroDivisionError");
    assert_eq!(runs[2]["stdout"], "one\n");
    let failed = place.client().get("/v1/history?failed=true&limit=1").expect(200).json();
    assert_eq!(failed["runs"][0]["number"], 3);
    let answer = place.server.ok(&["history", "a"]);
    assert!(answer.contains("ZeroDivisionError") && answer.contains("print('one')"), "{answer}");
    let lines = place.server.ok(&["history", "--json", "--failed"]);
    let first: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["number"], 3);
}

#[test]
fn unloadable_variables_stay_saved_until_they_are_forgotten() {
    const MADE_OF_A_FILE: &str = "\
import os, sys
os.makedirs('/tmp/own')
open('/tmp/own/odd.py', 'w').write('class Thing: pass')
sys.path.insert(0, '/tmp/own')
import odd
value = odd.Thing()
plain = 1";
    let Some(place) = place_or_skip() else { return };
    place.run(MADE_OF_A_FILE);
    for _ in 0..2 {
        place.save();
        place.remove_sandbox();
        let reopened = &place.run("print(plain)")["notebook"]["reopened"];
        assert_eq!(names(&reopened["unavailable"]), ["odd", "value"], "{reopened}");
    }
    place.save();
    place.remove_sandbox();
    // Nobody has opened it since: this opens it, and the next run is informed.
    place.post("/forget", &json!({ "names": ["odd", "value"] })).expect(204);
    let reopened = &place.run("plain = 2")["notebook"]["reopened"];
    assert_eq!(names(&reopened["unavailable"]), ["odd", "value"], "{reopened}");
    place.save();
    place.remove_sandbox();
    let reopened = &place.run("print(plain)")["notebook"]["reopened"];
    assert_eq!(reopened["unavailable"], json!([]), "{reopened}");
}

#[test]
fn changes_on_disk_are_detected() {
    let Some(place) = place_or_skip() else { return };
    place.run("big = 'x' * 100000\nsmall = [1]\nother = {'k': 2}");
    place.save();
    let blobs: Vec<_> = fs::read_dir(place.vault())
        .expect("a vault")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.len() == 40))
        .collect();
    assert!(blobs.len() >= 3, "{blobs:?}");
    for path in &blobs {
        let sealed = fs::read(path).expect("a blob");
        assert!(!sealed.windows(20).any(|window| window == [b'x'; 20]), "it is sealed");
    }
    // One variable's file is changed: the others come back, and it is named.
    let largest = blobs.iter().max_by_key(|path| fs::metadata(path).expect("a file").len());
    let path = largest.expect("a blob");
    let mut sealed = fs::read(path).expect("a blob");
    sealed[60_000] ^= 1;
    fs::write(path, sealed).expect("written");
    place.remove_sandbox();
    let ran = place.run("print(small, other, 'big' in globals())");
    assert_eq!(ran["stdout"], "[1] {'k': 2} False\n", "{ran}");
    let away = &ran["notebook"]["reopened"]["unavailable"][0];
    assert_eq!(away["name"], "big", "{ran}");
    assert!(away["reason"].as_str().expect("text").contains("changed on the host's disk"), "{ran}");

    // An older state in the place of a newer one does not count.
    place.await_saved();
    let old = fs::read(place.vault().join("manifest")).expect("a manifest");
    place.run("small.append(2)");
    place.await_saved();
    fs::write(place.vault().join("manifest"), old).expect("written");
    place.remove_sandbox();
    let refused = place.post("/run", &json!({ "code": "1" })).expect(410).json();
    assert_eq!(refused["details"]["reason"], "state_damaged", "{refused}");
    place.post("/reset", &json!({})).expect(204);
    assert_eq!(place.output_of("print('small' in globals())"), "False\n");
}

#[test]
fn arrays_and_data_frames_come_back() {
    if !have_or_skip("python3") {
        return;
    }
    let Some(home) = tests::libraries::python_with("displays", &tests::libraries::SCIENCE) else {
        return;
    };
    let mut place = NotebookServer::new();
    place.run(&format!(
        "import sys, glob\nsys.path[:0] = glob.glob({:?} + '/lib/python3*/site-packages')",
        home.to_string_lossy()
    ));
    place.run(
        "import numpy as np, pandas as pd\narray = np.arange(6.0).reshape(2, 3)\nrow = array[0]\n\
         frame = pd.DataFrame({'a': [1, 2], 'b': ['x', None]}, index=['i', 'j'])\n\
         total = lambda: float(array.sum() + frame.a.sum())",
    );
    let saved = place.save();
    assert_eq!(names(&saved["lost"]), Vec::<&str>::new(), "{saved}");
    place.server.kill_and_serve_again();
    place.remove_sandbox();
    let ran = place.run(
        "print(total(), array.shape, array.dtype, row.tolist(), list(frame.index), frame.b.isna().sum(), \
         type(frame) is pd.DataFrame)",
    );
    assert_eq!(ran["stdout"], "18.0 (2, 3) float64 [0.0, 1.0, 2.0] ['i', 'j'] 1 True\n", "{ran}");
}

#[test]
fn only_what_has_changed_is_written_again() {
    let Some(place) = place_or_skip() else { return };
    place.run("big = list(range(200000))\nn = 0");
    place.save();
    let stamp = |path: &PathBuf| fs::metadata(path).expect("a file").modified().expect("a time");
    let largest = |place: &NotebookServer| {
        let files = fs::read_dir(place.vault()).expect("a vault").flatten();
        files.map(|entry| entry.path()).max_by_key(|path| fs::metadata(path).expect("a file").len())
    };
    let big = largest(&place).expect("a file");
    let written = stamp(&big);
    for _ in 0..3 {
        place.run("n += 1");
        place.save();
    }
    assert_eq!((largest(&place), stamp(&big)), (Some(big.clone()), written));
    place.run("big.append(1)");
    place.save();
    assert_ne!(largest(&place), Some(big.clone()));
    assert!(!big.exists(), "nobody refers to it any more");
}

#[test]
fn runs_that_follow_each_other_do_not_wait_for_saves() {
    let Some(place) = place_or_skip() else { return };
    place.run("data = {n: str(n) * 20 for n in range(100000)}");
    place.await_saved();
    let began = Instant::now();
    for n in 0..50 {
        place.run(&format!("data[{n}] = 'changed'"));
    }
    let burst = began.elapsed();
    place.await_saved();
    place.remove_sandbox();
    assert_eq!(place.output_of("print(sum(v == 'changed' for v in data.values()))"), "50\n");
    // One save of this takes longer than what is allowed here for each run.
    assert!(burst < Duration::from_secs(10), "{burst:?}");
}

#[test]
fn two_clients_take_turns_and_an_interrupt_ends_the_run_that_is_on() {
    let Some(place) = place_or_skip() else { return };
    place.run("seen = []");
    thread::scope(|scope| {
        for name in ["one", "two"] {
            let place = &place;
            scope.spawn(move || {
                for n in 0..5 {
                    place.run(&format!("seen.append('{name}')  # {n}"));
                }
            });
        }
    });
    assert_eq!(place.output_of("print(len(seen))"), "10\n");
    thread::scope(|scope| {
        let running = scope.spawn(|| place.try_run("kept = 1\nimport time\ntime.sleep(60)"));
        eventually("it is interrupted", || {
            place.post("/interrupt", &json!({})).expect(200).json()["run"].is_u64()
        });
        assert_eq!(running.join().expect("no panic")["status"], "interrupted");
    });
    assert_eq!(place.output_of("print(kept)"), "1\n");
}

#[test]
fn a_notebook_moves_from_one_sandbox_to_another_with_its_variables() {
    let Some(place) = place_or_skip() else { return };
    let client = place.client();
    for name in ["first", "second"] {
        client.post("/v1/sandboxes", &json!({ "name": name })).expect(201);
    }
    let open = |sandbox: &str| {
        client.post("/v1/notebooks", &json!({ "name": "a", "sandbox": sandbox })).expect(200).json()
    };
    assert_eq!(open("first")["own_sandbox"], false);
    place.run("x = 5\nimport socket\nhost = socket.gethostname()");
    let opened = open("second");
    assert_eq!((&opened["sandbox"], &opened["unsaved_runs"]), (&json!("second"), &json!(0)));
    assert_eq!(place.output_of("print(x, host, socket.gethostname())"), "5 first second\n");
    client.delete("/v1/sandboxes/default/second?force=true").expect(200);
    let refused = place.post("/run", &json!({ "code": "1" })).expect(409).json();
    assert_eq!(refused["details"]["reason"], "sandbox_gone");
    open("first");
    assert_eq!(place.output_of("print(x)"), "5\n");
    place.client().delete(ONE).expect(204);
    assert_eq!(client.get("/v1/sandboxes/default/first").expect(200).json()["state"], "running");
}

#[test]
fn a_stream_of_events_says_what_was_brought_back() {
    let Some(place) = place_or_skip() else { return };
    place.run("x = 1");
    place.await_saved();
    place.remove_sandbox();
    let client = place.client();
    let lines = client.lines(&format!("{ONE}/run"), Some(&json!({ "code": "print(x)" })));
    let events: Vec<Value> = lines.collect();
    let events_of_kind =
        events.iter().find(|event| event["type"] == "notebook").expect("the event");
    assert_eq!(
        events_of_kind["notebook"]["reopened"]["restored"],
        json!(["x"]),
        "{events_of_kind}"
    );
    assert_eq!(events.last().expect("an end")["type"], "finished");
    // A client that disconnects leaves an ended run, and a notebook that continues.
    let mut lines =
        client.lines(&format!("{ONE}/run"), Some(&json!({ "code": "while True: pass" })));
    assert!(lines.any(|event| event["type"] == "started"));
    drop(lines);
    assert_eq!(place.output_of("print(x)"), "1\n");
    let history = client.get(&format!("{ONE}/history")).expect(200).json();
    assert_eq!(history["runs"][1]["status"], "abandoned", "{history}");
}

#[test]
fn node_keeps_its_variables_too_and_says_what_it_does_not() {
    if !have_or_skip("node") {
        return;
    }
    let mut place = NotebookServer::new();
    place.client().post("/v1/notebooks", &json!({ "name": "a", "language": "node" })).expect(200);
    place.run(
        "const path = require('path');\nlet n = 41;\nclass A { constructor() { this.v = n } \
         twice() { return this.v * 2 } }\nconst a = new A();\nvar map = new Map([['a', a], ['b', [1]]]);\n\
         function f(x) { return x + n }\nconst closed = (() => { let c = 1; return () => c })();\n\
         const waiting = new Promise(() => {});",
    );
    let saved = place.save();
    assert_eq!(names(&saved["lost"]), ["closed", "waiting"], "{saved}");
    place.server.kill_and_serve_again();
    place.remove_sandbox();
    let ran = place.run(
        "console.log(f(1), a.twice(), map.get('a') === a, a instanceof A, path.join('x', 'y'))",
    );
    assert_eq!(ran["stdout"], "42 82 true true x/y\n", "{ran}");
    assert_eq!(names(&ran["notebook"]["reopened"]["lost"]), ["closed", "waiting"], "{ran}");
    assert_eq!(ran.get("cached"), None, "{ran}");
    let died = place.try_run("process.kill(process.pid, 'SIGKILL')");
    assert_eq!(died["status"], "died", "{died}");
    assert_eq!(place.output_of("console.log(++n)"), "42\n");
}

#[test]
fn invalid_notebooks_are_refused_with_a_reason() {
    let place = NotebookServer::new();
    let client = place.client();
    let refused = |body: Value| {
        let answer = client.post("/v1/notebooks", &body);
        (answer.status, answer.json()["message"].as_str().expect("words").to_owned())
    };
    assert!(refused(json!({ "name": "a", "language": "bash" })).1.contains("python and node"));
    assert_eq!(refused(json!({ "name": "../x" })).0, 400);
    assert_eq!(refused(json!({ "name": "x".repeat(55) })).0, 400);
    assert_eq!(refused(json!({ "name": "a", "spec": { "env": { "A": "b" } } })).0, 400);
    assert_eq!(refused(json!({ "name": "a", "sandbox": "x", "spec": {} })).0, 409);
    assert_eq!(client.get("/v1/notebooks/default/..%2f..%2fetc").status, 400);
    assert_eq!(client.get("/v1/notebooks/default/none").status, 404);
    assert_eq!(client.post("/v1/notebooks/default/none/save", &json!({})).status, 404);
    client.post("/v1/notebooks", &json!({ "name": "a" })).expect(200);
    assert_eq!(refused(json!({ "name": "a", "language": "node" })).0, 409);
    let listed = client.get("/v1/notebooks").expect(200).json();
    assert_eq!(names(&listed["notebooks"]), ["a"]);
    let key = client
        .post("/v1/notebooks/default/a/run", &json!({ "code": "1", "cache_key": "k".repeat(300) }));
    assert_eq!(key.status, 400);
}

#[test]
fn artifacts_are_kept_with_their_run() {
    let Some(place) = place_or_skip() else { return };
    let code = "import os; os.makedirs('/artifacts', exist_ok=True)";
    place.run(code);
    let ran = place.run("open('/artifacts/table.csv', 'w').write('a,b\\n1,2\\n'); 0");
    let captured = &ran["captured"]["artifacts"];
    assert_eq!(names(captured), ["table.csv"], "{ran}");
    assert_eq!((&captured[0]["notebook"], &captured[0]["run"]), (&json!("a"), &json!(2)), "{ran}");
    place.remove_sandbox();
    let id = captured[0]["id"].as_str().expect("an id");
    let content = place.client().get(&format!("/v1/artifacts/{id}/content")).expect(200);
    assert_eq!(content.text(), "a,b\n1,2\n");
    let stats = place.client().get(&format!("{ONE}/stats")).expect(200).json();
    assert_eq!(stats["artifacts_count"], 1);
    let history = place.client().get(&format!("{ONE}/history?limit=1")).expect(200).json();
    assert_eq!(history["runs"][0]["artifacts"], 1, "{history}");
}

#[test]
fn a_removed_notebook_leaves_nothing() {
    let Some(place) = place_or_skip() else { return };
    place.run("x = 1");
    place.save();
    place.client().delete(ONE).expect(204);
    assert!(!place.vault().exists());
    let all = place.client().get("/v1/sandboxes").expect(200).json();
    assert_eq!(all["sandboxes"], json!([]));
    assert_eq!(place.client().get(ONE).status, 404);
    assert_eq!(place.output_of("print('x' in globals())"), "False\n");
}

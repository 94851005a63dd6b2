//! What `dist/` has for Prometheus and Grafana: each figure in it is one that a bridge has, and the rules do what
//! they say.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tests::http::Client;
use tests::server::Server;
use tests::{eventually, have_or_skip};

const RULES: &str = "dist/prometheus/burrow.rules.yml";
const RULES_TEST: &str = "dist/prometheus/burrow.rules.test.yml";
const DASHBOARD: &str = "dist/grafana/burrow.json";

/// The root of the repository.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(workspace().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The figures that a text names: series of a bridge, without what a histogram appends.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c| !is_part(c));
    let series = words.filter(|word| word.starts_with("burrow_") || word.starts_with("process_"));
    series
        .map(|word| {
            let of_histogram = word.contains("_duration_seconds");
            let plain = word.strip_suffix("_bucket").filter(|_| of_histogram);
            plain.unwrap_or(word).to_owned()
        })
        .collect()
}

/// The expressions of a dashboard.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str().filter(|_| ["expr", "definition"].contains(&name.as_str())) {
                    Some(expression) => found.push(expression.to_owned()),
                    None => expressions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

fn dashboard() -> Vec<String> {
    let parsed: Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
    let mut found = Vec::new();
    expressions(&parsed, &mut found);
    found
}

/// The families that a bridge has, by the lines that give their types.
fn families(client: &Client) -> BTreeSet<String> {
    let text = client.get("/metrics").expect(200).text();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|rest| Some(rest.split_once(' ')?.0.to_owned())).collect()
}

/// Those that only a node of a fleet has, at which a test of `fleet` looks.
fn is_of_fleet(name: &str) -> bool {
    name.starts_with("burrow_fleet_")
}

#[test]
fn each_figure_of_the_rules_and_the_dashboard_is_one_that_a_bridge_has() {
    let pool = ["--dev", "--set", "pool.entries=/=1"];
    let server = Server::start(&pool);
    let client = Client::new(server.url());
    client.post("/v1/sandboxes", &json!({ "name": "web" })).expect(201);
    let expressions = dashboard().join("\n");
    let used: BTreeSet<String> = [read(RULES), read(RULES_TEST), expressions]
        .iter()
        .flat_map(|text| named(text))
        .filter(|name| !is_of_fleet(name))
        .collect();
    assert!(used.len() > 20, "{used:?}");
    let mut missing = Vec::new();
    eventually("a sample of the sandbox", || {
        let there = families(&client);
        missing = used.difference(&there).cloned().collect();
        missing.is_empty() || there.contains("burrow_sandbox_processes")
    });
    assert!(missing.is_empty(), "no bridge has {missing:?}");
}

/// What Grafana of schema 38 needs of each panel, and what it would show as an error or leave out.
#[test]
fn the_dashboard_has_the_structure_that_grafana_reads() {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
    assert_eq!(dashboard["schemaVersion"], 38);
    assert!(dashboard["uid"].as_str().is_some_and(|uid| !uid.is_empty() && uid.len() <= 40));
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let mut known = BTreeSet::from(["__rate_interval".to_owned(), "__interval".to_owned()]);
    for variable in variables {
        let kind = variable["type"].as_str().expect("a kind");
        assert!(["datasource", "query"].contains(&kind), "{variable}");
        if kind == "query" {
            assert_eq!(variable["datasource"]["uid"], "${datasource}", "{variable}");
            assert_eq!(variable["query"]["query"], variable["definition"], "{variable}");
        }
        known.insert(variable["name"].as_str().expect("a name").to_owned());
    }
    let panels = dashboard["panels"].as_array().expect("panels");
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = panel["title"].as_str().filter(|title| !title.is_empty()).expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: its id is another's");
        let [x, y, width, height] = ["x", "y", "w", "h"].map(|side| {
            panel["gridPos"][side].as_u64().unwrap_or_else(|| panic!("{title}: {side}"))
        });
        assert!(width > 0 && height > 0 && x + width <= 24, "{title} is beside the grid");
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{title} is over another panel at {cell:?}");
        }
        let kind = panel["type"].as_str().expect("a kind");
        if kind == "row" {
            assert_eq!(panel["panels"], json!([]), "{title}");
            continue;
        }
        assert!(["stat", "timeseries"].contains(&kind), "{title} is a {kind}");
        let source = json!({ "type": "prometheus", "uid": "${datasource}" });
        assert_eq!(panel["datasource"], source, "{title}");
        assert!(panel["fieldConfig"]["defaults"].is_object(), "{title}");
        assert!(panel["fieldConfig"]["overrides"].is_array(), "{title}");
        assert!(panel["options"].is_object(), "{title}");
        let targets = panel["targets"].as_array().filter(|all| !all.is_empty()).expect("queries");
        let mut letters = BTreeSet::new();
        for target in targets {
            assert_eq!(target["datasource"], source, "{title}");
            assert!(letters.insert(target["refId"].as_str().expect("a letter")), "{title}");
            let expression = target["expr"].as_str().expect("an expression");
            assert!(!named(expression).is_empty() || expression.contains("burrow:"), "{title}");
            assert_balanced(expression);
            for variable in variables_of(expression) {
                assert!(known.contains(&variable), "{title}: there is no variable ${variable}");
            }
        }
    }
    assert!(panels.len() > 20, "{}", panels.len());
}

/// The names behind the dollars of an expression.
fn variables_of(expression: &str) -> Vec<String> {
    let behind = expression.split('$').skip(1).map(|rest| rest.trim_start_matches('{'));
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    behind.map(|rest| rest.chars().take_while(|c| is_part(*c)).collect()).collect()
}

#[track_caller]
fn assert_balanced(expression: &str) {
    let mut open = Vec::new();
    for c in expression.chars() {
        match c {
            '(' => open.push(')'),
            '{' => open.push('}'),
            '[' => open.push(']'),
            ')' | '}' | ']' => assert_eq!(open.pop(), Some(c), "{expression}"),
            _ => {}
        }
    }
    assert!(open.is_empty(), "{expression}");
}

#[test]
fn sums_that_the_dashboard_uses_are_recorded_by_the_rules() {
    let rules = read(RULES);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let expressions = dashboard().join("\n");
    let sums = expressions.split(|c| !is_part(c)).filter(|word| word.starts_with("burrow:"));
    let sums: BTreeSet<&str> = sums.collect();
    assert!(!sums.is_empty());
    for sum in sums {
        assert!(rules.contains(&format!("record: {sum}\n")), "{sum} is not recorded");
    }
}

#[test]
fn promtool_takes_the_rules_and_each_alert_has_a_test() {
    let rules = read(RULES);
    let tests = read(RULES_TEST);
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in alerts {
        let expected = format!("alertname: {alert}\n        exp_alerts:\n          - exp_labels");
        assert!(tests.contains(&expected), "no test lets {alert} fire");
    }
    if !have_or_skip("promtool") {
        return;
    }
    for arguments in [["check", "rules", RULES], ["test", "rules", RULES_TEST]] {
        let Output { status, stdout, stderr } = promtool(&arguments, None);
        let said = [stdout, stderr].concat();
        assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
    }
}

fn promtool(arguments: &[&str], input: Option<&Path>) -> Output {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(workspace());
    if let Some(input) = input {
        command.stdin(fs::File::open(input).expect("the file"));
    }
    command.output().expect("promtool runs")
}

#[test]
fn promtool_takes_what_a_bridge_answers() {
    if !have_or_skip("promtool") {
        return;
    }
    let server = Server::start(&["--dev", "--set", "pool.entries=/=1"]);
    let client = Client::new(server.url());
    client.post("/v1/sandboxes", &json!({ "name": "web" })).expect(201);
    eventually("a sample of the sandbox", || {
        client.get("/metrics").expect(200).text().contains("burrow_sandbox_processes{")
    });
    let text = client.get("/metrics").expect(200).text();
    let scrape = server.state().join("scrape");
    fs::write(&scrape, &text).expect("written");
    let answered = promtool(&["check", "metrics"], Some(&scrape));
    let said = String::from_utf8_lossy(&answered.stderr).into_owned();
    // 3 is advice about names, which are what they are.
    assert!(matches!(answered.status.code(), Some(0 | 3)), "{:?}: {said}", answered.status);
    assert!(!said.contains("no help text"), "{said}");
}

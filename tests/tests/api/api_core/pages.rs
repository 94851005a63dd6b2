//! What a server says of itself: its health, its document, its metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use tests::eventually;
use tests::http::Client;
use tests::server::Server;

use super::{create, path_of};

#[test]
fn a_server_says_that_it_lives_and_is_ready() {
    let server = Server::dev();
    let client = Client::new(server.url());
    for path in ["/livez", "/readyz", "/api/v1/health"] {
        let health = client.get(path).expect(200).json();
        assert_eq!(health["status"], "ok", "{path}");
        assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    }
}

/// A client that reads a stream of values may ask for a WebSocket instead.
#[test]
fn every_stream_that_is_read_is_documented_as_a_websocket_too_and_no_other() {
    let (_server, client) = tests::door::open();
    let document = client.get("/openapi.json").expect(200).json();
    let mut streams = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let responses = &operation["responses"];
            if responses["200"]["content"].get("application/x-ndjson").is_none() {
                continue;
            }
            assert_eq!(responses.get("101").is_some(), method == "get", "{method} {path}");
            streams.insert(operation["operationId"].as_str().unwrap().to_owned());
        }
    }
    for id in ["list_events", "read_log", "read_session", "run"] {
        assert!(streams.contains(id), "{id} is not in {streams:?}");
    }
    // As it says: the pages of events and of a log are such streams.
    for path in ["/v1/events?since_ms=0", "/v1/sandboxes/default/box/logs"] {
        client.websocket(path, &[]);
    }
}

#[test]
fn the_document_is_whole_and_says_what_is_served() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let answered = client.get("/openapi.json").expect(200);
    assert_eq!(answered.header("content-type"), Some("application/json"));
    let document = answered.json();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["info"]["version"].is_string() && document["info"]["title"].is_string());
    let mut ids = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let what = format!("{method} {path}");
            let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{what}: no id"));
            assert!(ids.insert(id.to_owned()), "{id} twice");
            assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{what}");
            let responses = operation["responses"].as_object().unwrap();
            let is_good = |status: &String| status.starts_with('2') || status == "101";
            assert!(responses.keys().any(is_good), "{what}: nothing goes well");
            assert!(responses.values().all(|one| one["description"].is_string()), "{what}");
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let named: BTreeSet<&str> = parameters
                .iter()
                .filter(|one| one["in"] == "path")
                .map(|one| one["name"].as_str().unwrap())
                .collect();
            let expected: BTreeSet<&str> = path
                .split('/')
                .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
                .collect();
            assert_eq!(named, expected, "{what}");
        }
    }
    assert!(ids.contains("create_sandbox") && ids.contains("livez"));
    let mut references = Vec::new();
    find_references(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer =
            reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} leads away"));
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    let page = client.get("/docs").expect(200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let page = page.text();
    for path in document["paths"].as_object().unwrap().keys() {
        assert!(page.contains(path.as_str()), "{path} is not on the page");
    }
    // It is read where there is no way out too.
    for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!page.contains(outside), "the page loads {outside}");
    }
}

#[test]
fn the_servers_address_leads_to_its_page() {
    let server = Server::dev();
    let answered = Client::new(server.url()).get("/");
    assert_eq!((answered.status, answered.header("location")), (303, Some("/docs")));
}

#[test]
fn the_document_begins_with_sandboxes_and_says_what_generators_need() {
    let server = Server::dev();
    let answered = Client::new(server.url()).get("/openapi.json").expect(200);
    let begins = "\"paths\":{\"/v1/sandboxes\":";
    assert!(answered.text().contains(begins), "the order of the paths");
    let document = answered.json();
    assert_eq!(document["servers"][0]["url"], "/");
    assert_eq!(document["tags"][0]["name"], "sandboxes");
    let paths = document["paths"].as_object().expect("paths");
    let tags = document["tags"].as_array().expect("tags").iter();
    let tags: BTreeSet<_> = tags.map(|tag| tag["name"].to_string()).collect();
    for operation in paths.values().filter_map(Value::as_object).flat_map(|one| one.values()) {
        assert!(tags.contains(&operation["tags"][0].to_string()), "{}", operation["tags"]);
    }
    // Generators take a field with a default for one that is always there.
    let mut defaults = Vec::new();
    find_defaults(&document["components"]["schemas"], &mut defaults);
    assert!(defaults.is_empty(), "{defaults:?}");
}

#[test]
fn every_union_of_the_document_is_distinguished_by_a_field() {
    let server = Server::dev();
    let document = Client::new(server.url()).get("/openapi.json").expect(200).json();
    let mut unions = Vec::new();
    find_unions(&document, "", &mut unions);
    assert!(unions.len() > 20, "only {} were found", unions.len());
    for (place, union) in unions {
        let members = union["oneOf"].as_array().expect("members");
        let field = union["discriminator"]["propertyName"].as_str();
        let is_told = match field {
            Some(field) => members.iter().all(|one| one["properties"][field]["const"].is_string()),
            None => are_words(members) || each_needs_a_field_of_its_own(members),
        };
        assert!(is_told, "{place}: {union}");
    }
}

fn are_words(members: &[Value]) -> bool {
    members.iter().all(|one| one["const"].is_string() || one["enum"].is_array())
}

fn each_needs_a_field_of_its_own(members: &[Value]) -> bool {
    let needed: Vec<BTreeSet<_>> = members
        .iter()
        .map(|one| one["required"].as_array().into_iter().flatten().map(Value::to_string).collect())
        .collect();
    needed.iter().enumerate().all(|(at, own)| {
        let others = needed.iter().enumerate().filter(|(other, _)| *other != at);
        others.into_iter().all(|(_, other)| own.difference(other).next().is_some())
    })
}

/// Schemas that are one of several, with where they are.
fn find_unions<'a>(value: &'a Value, place: &str, found: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(fields) => {
            if fields.get("oneOf").is_some_and(Value::is_array) {
                found.push((place.to_owned(), value));
            }
            for (name, value) in fields {
                find_unions(value, &format!("{place}/{name}"), found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| find_unions(item, place, found)),
        _ => {}
    }
}

/// Schemas that have a default.
fn find_defaults(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("default") && fields.contains_key("type") {
                found.push(value.to_string());
            }
            fields.values().for_each(|value| find_defaults(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| find_defaults(value, found)),
        _ => {}
    }
}

#[test]
fn the_examples_of_the_document_are_taken_as_they_stand() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let document = client.get("/openapi.json").expect(200).json();
    let example = |path: &str| {
        let body = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"];
        body["example"].clone()
    };
    let named = "/v1/sandboxes/{namespace}/{name}";
    let created = client.post("/v1/sandboxes", &example("/v1/sandboxes")).expect(201).json();
    let sandbox = path_of(created["name"].as_str().expect("a name"));
    for (more, status) in [
        ("/exec", 200),
        ("/shell", 200),
        ("/contexts", 201),
        ("/contexts/{context}/run", 200),
        ("/contexts/{context}/check", 200),
        ("/contexts/{context}/complete", 200),
        ("/sessions", 201),
        ("/ports", 201),
    ] {
        let body = example(&format!("{named}{more}"));
        assert!(body.is_object(), "{more} has no example");
        let path = format!("{sandbox}{}", more.replace("{context}", "python"));
        client.post(&path, &body).expect(status);
    }
}

#[test]
fn every_body_has_an_example_that_is_understood() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let document = client.get("/openapi.json").expect(200).json();
    client.post("/v1/sandboxes", &json!({ "name": "work" })).expect(201);
    client
        .post(
            "/v1/sandboxes/default/work/contexts",
            &json!({ "context": "python", "language": "python" }),
        )
        .expect(201);
    let paths = document["paths"].as_object().expect("paths");
    let methods = paths.iter().flat_map(|(path, item)| {
        let item = item.as_object().expect("methods");
        item.iter().map(move |(method, operation)| (path, method, operation))
    });
    let mut sent = 0;
    for (path, method, operation) in methods {
        let body = &operation["requestBody"]["content"]["application/json"];
        if !body.is_object() {
            continue;
        }
        let example = &body["example"];
        assert!(example.is_object(), "{method} {path} has no example");
        // The others need the sandbox.
        if path.ends_with("/stop") {
            continue;
        }
        let place = path
            .replace("{namespace}", "default")
            .replace("{name}", "work")
            .replace("{context}", "python")
            .replace("{session}", "build")
            .replace("{notebook}", "study")
            .replace("{node}", "one")
            .replace("{sandbox}", "agent");
        assert!(!place.contains('{'), "{path} has a parameter that this test does not know");
        let json = [("content-type", "application/json")];
        let answer =
            client.send(&method.to_uppercase(), &place, &json, example.to_string().as_bytes());
        let problem = serde_json::from_str::<Value>(&answer.text()).unwrap_or_default();
        assert_ne!(problem["code"], "invalid", "{method} {path} {example}: {}", answer.text());
        sent += 1;
    }
    assert!(sent > 30, "{sent} examples");
}

fn find_references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                found.push(reference.clone());
            }
            fields.values().for_each(|value| find_references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| find_references(value, found)),
        _ => {}
    }
}

type Labels = BTreeMap<String, String>;

/// A family of metrics, strictly read.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    samples: Vec<(String, Labels, f64)>,
}

/// Reads the text form of Prometheus, and panics where it is not to the letter.
fn parse(text: &str) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n'), "the last line has no end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut helped = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(helped.insert(name.to_owned()), "{name} is explained twice");
            assert!(!help.is_empty());
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(helped.contains(name), "{name} is not explained");
            let family = Family { kind: kind.to_owned(), samples: Vec::new() };
            assert!(families.insert(name.to_owned(), family).is_none(), "{name} comes twice");
            name.clone_into(&mut current);
            continue;
        }
        let (name, labels, value) = parse_sample(line);
        let family = families.get_mut(&current).unwrap_or_else(|| panic!("{line} has no type"));
        let suffixes: &[&str] =
            if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        let is_of = suffixes.iter().any(|suffix| name == format!("{current}{suffix}"));
        assert!(is_of, "{name} stands among {current}");
        let is_new = family.samples.iter().all(|(n, l, _)| *n != name || *l != labels);
        assert!(is_new, "{line} comes twice");
        assert!(family.kind == "gauge" || value >= 0.0, "{line} counts backwards");
        assert!(family.kind != "counter" || name.ends_with("_total"), "{name} is a counter");
        family.samples.push((name, labels, value));
    }
    families
}

fn parse_sample(line: &str) -> (String, Labels, f64) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let end = line.find(|c| !is_name(c)).unwrap();
    let (name, mut rest) = line.split_at(end);
    assert!(!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()), "{line}");
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{line}");
            let mut value = String::new();
            let mut characters = after.char_indices();
            let at = loop {
                match characters.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => match characters.next().unwrap().1 {
                        'n' => value.push('\n'),
                        c @ ('\\' | '"') => value.push(c),
                        c => panic!("\\{c} in {line}"),
                    },
                    (_, c) => value.push(c),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = &after[at + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    (name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("{line}")))
}

#[test]
fn metrics_are_read_by_prometheus_and_say_what_happens() {
    let server = Server::dev();
    let client = Client::new(server.url());
    create(&client, "web");
    client.get("/v1/sandboxes/a/b").expect(404);
    let mut families = BTreeMap::new();
    eventually("a sample of the sandbox", || {
        let answered = client.get("/metrics").expect(200);
        let kind = answered.header("content-type").unwrap();
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        families = parse(&answered.text());
        let memory = families.get("burrow_sandbox_memory_bytes");
        memory.is_some_and(|family| !family.samples.is_empty())
    });
    let running =
        families["burrow_sandboxes"].samples.iter().find(|(_, l, _)| l["state"] == "running");
    assert!(running.is_some_and(|(_, _, count)| (count - 1.0).abs() < 0.01));
    for family in families.values().filter(|family| family.kind == "histogram") {
        check_histogram(family);
    }
    assert!(families.values().any(|family| family.kind == "histogram"));
    let counters = families.iter().filter(|(name, _)| name.contains("request"));
    let all: f64 = counters
        .filter(|(_, family)| family.kind == "counter")
        .flat_map(|(_, family)| family.samples.iter().map(|(_, _, value)| value))
        .sum();
    assert!(all >= 2.0, "{all} requests were counted");
    client.delete(&format!("{}?force=true", path_of("web"))).expect(200);
    let families = parse(&client.get("/metrics").expect(200).text());
    let memory = families.get("burrow_sandbox_memory_bytes");
    assert!(memory.is_none_or(|family| family.samples.is_empty()), "a sandbox that is gone");
}

#[test]
fn a_scrape_has_what_was_sampled_before_it_and_waits_for_no_sandbox() {
    let server = Server::dev();
    let client = Client::new(server.url());
    create(&client, "web");
    let memory = || {
        let families = parse(&client.get("/metrics").expect(200).text());
        families.get("burrow_sandbox_memory_bytes").is_some_and(|it| !it.samples.is_empty())
    };
    eventually("a sample of the sandbox", memory);
    let below = tests::children(server.daemon_pid());
    let agents: Vec<_> = below.iter().flat_map(|pid| tests::children(*pid)).collect();
    assert!(!agents.is_empty(), "no agent is to be seen below {below:?}");
    let all = |signal| {
        for pid in below.iter().chain(&agents) {
            kill(*pid, signal).unwrap();
        }
    };
    all(Signal::SIGSTOP);
    let (begun, has_it) = (Instant::now(), memory());
    let took = begun.elapsed();
    all(Signal::SIGCONT);
    assert!(has_it, "what was known of it is gone");
    assert!(took < Duration::from_millis(900), "the scrape took {took:?}");
}

#[test]
fn figures_say_what_notebooks_artifacts_and_apps_come_to() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let figure = |name: &str, label: Option<(&str, &str)>| {
        let families = parse(&client.get("/metrics").expect(200).text());
        let samples = &families.get(name).unwrap_or_else(|| panic!("no {name}")).samples;
        let is_it = |labels: &Labels| {
            label.is_none_or(|(label, value)| labels.get(label).is_some_and(|own| own == value))
        };
        let mut found = samples.iter().filter(|(_, labels, _)| is_it(labels));
        let value = found.next().unwrap_or_else(|| panic!("{name} has no {label:?}")).2;
        assert!(found.next().is_none(), "{name} has several {label:?}");
        value as u64
    };
    let (ok, failed) = (Some(("outcome", "ok")), Some(("outcome", "failed")));
    assert_eq!((figure("burrow_notebooks_open", None), figure("burrow_artifacts", None)), (0, 0));
    if !tests::have("python3") {
        return tests::skip("there is no python3 here");
    }
    let notebook = "/v1/notebooks/default/a";
    let code = "import os; os.makedirs('/artifacts', exist_ok=True); x = 1\n\
                for n in '12': open('/artifacts/' + n, 'w').write('same')\n\
                os.mkfifo('/artifacts/pipe')";
    client.post(&format!("{notebook}/run"), &json!({ "code": code })).expect(200);
    client.post(&format!("{notebook}/save"), &json!({})).expect(200);
    assert_eq!(figure("burrow_notebooks_open", None), 1);
    assert!(figure("burrow_notebook_saves_total", ok) >= 1);
    assert_eq!(figure("burrow_notebook_saves_total", failed), 0);
    assert!(figure("burrow_notebook_saved_bytes_total", None) > 0);
    let saved = client.get(notebook).expect(200).json()["saved"]["bytes"].as_u64();
    assert_eq!(Some(figure("burrow_notebook_kept_bytes", None)), saved);
    // Two of them have the same bytes.
    assert_eq!((figure("burrow_artifacts", None), figure("burrow_artifact_bytes", None)), (2, 4));
    assert_eq!(figure("burrow_artifacts_captured_total", None), 2);
    let die = json!({ "code": "os.kill(os.getpid(), 9)" });
    client.post(&format!("{notebook}/run"), &die).expect(200);
    client.post(&format!("{notebook}/run"), &json!({ "code": "x" })).expect(200);
    let answer = (
        figure("burrow_notebook_reopenings_total", None),
        figure("burrow_notebook_lost_runs_total", None),
    );
    assert_eq!(answer, (1, 1));

    let apps = "/v1/sandboxes/default/notebook-a/apps";
    let serve = "exec python3 -m http.server $PORT --bind 127.0.0.1";
    let app = |line: &str| json!({ "type": "command", "command": line });
    client.post(apps, &app(serve)).expect(201);
    assert!(client.post(apps, &app("exit 3")).status >= 400);
    assert_eq!(figure("burrow_apps", Some(("state", "running"))), 1);
    assert_eq!(figure("burrow_app_starts_total", ok), 1);
    assert_eq!(figure("burrow_app_starts_total", failed), 1);
    assert_eq!(figure("burrow_egress_untold_total", None), 0);
    assert_eq!(figure("burrow_workspace_exchanges_total", None), 0);
}

#[test]
fn figures_have_the_labels_that_are_named_and_so_many_values() {
    let options =
        ["--dev", "--set", "metrics.labels=team,a.b/c", "--set", "metrics.label_values_max=2"];
    let server = Server::start(&options);
    let client = Client::new(server.url());
    let strange = "a\"b\\c{d}=,é";
    for (name, team) in [("a", strange), ("b", "x"), ("c", "y"), ("d", "x")] {
        let labels = json!({ "team": team, "a.b/c": "1", "job": "hidden-value" });
        client.post("/v1/sandboxes", &json!({ "name": name, "labels": labels })).expect(201);
        // In the order in which they are made: the first values stay.
        client.get("/metrics").expect(200);
    }
    let mut text = String::new();
    eventually("a sample of each sandbox", || {
        text = client.get("/metrics").expect(200).text();
        parse(&text).get("burrow_sandbox_processes").is_some_and(|found| found.samples.len() == 4)
    });
    let families = parse(&text);
    let team = |name: &str| {
        let samples = &families["burrow_sandbox_processes"].samples;
        let (_, labels, _) = samples.iter().find(|(_, labels, _)| labels["name"] == name).unwrap();
        assert_eq!(labels["label_a_b_c"], "1");
        labels["label_team"].clone()
    };
    assert_eq!(["a", "b", "c", "d"].map(team), [strange, "x", "other", "x"]);
    let counted = &families["burrow_sandboxes_by_label"].samples;
    let of_x = counted.iter().find(|(_, labels, _)| {
        labels.get("label_team").is_some_and(|team| team == "x") && labels["state"] == "running"
    });
    assert!((of_x.unwrap().2 - 2.0).abs() < 0.01, "{counted:?}");
    assert!(!text.contains("hidden-value") && !text.contains("job"), "{text}");
}

/// Buckets grow, end in `+Inf`, and agree with the count.
fn check_histogram(family: &Family) {
    let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for (name, labels, value) in &family.samples {
        if name.ends_with("_bucket") {
            let mut of = labels.clone();
            let bound = of.remove("le").unwrap().replace("+Inf", "inf").parse().unwrap();
            series.entry(of).or_default().push((bound, *value));
        }
    }
    for (labels, buckets) in series {
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{labels:?} {buckets:?}");
        let (bound, last) = *buckets.last().unwrap();
        assert!(bound.is_infinite());
        let of = |suffix: &str| {
            family.samples.iter().find(|(n, l, _)| n.ends_with(suffix) && *l == labels).unwrap().2
        };
        assert!((of("_count") - last).abs() < 0.01 && of("_sum") >= 0.0, "{labels:?}");
    }
}

//! Lists over all nodes, at any of them.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::eventually;
use tests::fleet::{self, Member, Nats, open};
use tests::http::Client;

/// The names of a page, with their nodes.
fn shown(page: &Value) -> Vec<(String, String)> {
    let text = |one: &Value, field: &str| one[field].as_str().expect("a text").to_owned();
    let sandboxes = page["sandboxes"].as_array().expect("a list").iter();
    sandboxes.map(|one| (text(one, "name"), text(one, "node"))).collect()
}

fn pair(name: &str, node: &str) -> (String, String) {
    (name.to_owned(), node.to_owned())
}

#[test]
fn every_node_lists_what_all_have_page_by_page() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    for (name, at) in [("d", 0), ("a", 1), ("c", 1), ("b", 0)] {
        members[at].start(&["--name", name, "--label", "kind=x"]);
    }
    let all = [pair("a", "n2"), pair("b", "n1"), pair("c", "n2"), pair("d", "n1")];
    for member in &members {
        let page = member.client.get("/v1/sandboxes?all_nodes=true").expect(200).json();
        assert_eq!(shown(&page), all);
        assert!(page.get("next").is_none() && page.get("unanswered").is_none(), "{page}");
        let first =
            member.client.get("/v1/sandboxes?all_nodes=true&limit=3&label=kind%3Dx").expect(200);
        let first = first.json();
        assert_eq!(shown(&first), all[..3]);
        assert_eq!(first["next"], "default/c");
        let rest = "/v1/sandboxes?limit=3&after=default%2Fc&all_nodes=true";
        let rest = member.client.get(rest).expect(200).json();
        assert_eq!((shown(&rest), rest.get("next")), (all[3..].to_vec(), None));
    }
    let none = members[0].client.get("/v1/sandboxes?all_nodes=true&label=kind%3Dy").expect(200);
    assert_eq!(none.json(), json!({ "sandboxes": [] }));
    // Without it, what the asked node has.
    let own = members[0].client.get("/v1/sandboxes").expect(200).json();
    let names: Vec<_> =
        own["sandboxes"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["b", "d"]);
}

#[test]
fn a_list_shows_a_key_its_own_namespace_of_every_node() {
    let Some(nats) = Nats::start() else { return };
    let first = Member::join(&nats, "n1", &[]);
    let second = Member::join(&nats, "n2", &[]);
    first.knows(2);
    second.knows(2);
    second.start(&["--name", "team/theirs"]);
    second.start(&["--name", "other/hidden"]);
    let key = first.server.ok(&["keygen", "--namespace", "team", "--scope", "read"]);
    let team = Client::new(first.server.url()).key(key.trim());
    let page = team.get("/v1/sandboxes?all_nodes=true").expect(200).json();
    assert_eq!(shown(&page), [pair("theirs", "n2")]);
    team.get("/v1/sandboxes?all_nodes=true&namespace=other").expect(403);
}

#[test]
fn a_list_names_a_node_that_does_not_answer() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    members[0].start(&["--name", "here"]);
    members[1].start(&["--name", "there"]);
    members[1].signal(Signal::SIGKILL);
    let page = members[0].client.get("/v1/sandboxes?all_nodes=true").expect(200).json();
    assert_eq!(shown(&page), [pair("here", "n1")]);
    assert_eq!(page["unanswered"][0]["node"], "n2", "{page}");
    // Once it is buried, it is no longer a node.
    eventually("its sandboxes are lost", || {
        let page = members[0].client.get("/v1/sandboxes?all_nodes=true").expect(200).json();
        page.get("unanswered").is_none()
    });
}

#[test]
fn a_bridge_of_its_own_has_no_list_of_all_nodes() {
    let alone = tests::server::Server::dev();
    let client = Client::new(alone.url());
    let refused = client.get("/v1/sandboxes?all_nodes=true").expect(422).json();
    assert_eq!(refused["code"], "unsupported");
    client.get("/v1/sandboxes?all_nodes=false").expect(200);
}

/// Ids of E2B's list, one page of one entry after the other.
fn walked(client: &Client, query: &str) -> Vec<String> {
    let (mut ids, mut token) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v2/sandboxes?limit=1{query}{token}")).expect(200);
        ids.extend(ids_of(&page.json()));
        match page.header("x-next-token") {
            Some(next) => token = format!("&nextToken={next}"),
            None => return ids,
        }
    }
}

fn ids_of(list: &Value) -> Vec<String> {
    let list = list.as_array().expect("a list").iter();
    list.map(|one| one["sandboxID"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn e2b_lists_the_sandboxes_of_all_nodes_at_any_node() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    let mut made = Vec::new();
    for at in [0, 1, 1, 0] {
        let asked = json!({ "templateID": "base", "metadata": { "at": at.to_string() } });
        let make = |member: &Member| member.client.post("/v2/sandboxes", &asked).expect(201).json();
        let answer = fleet::at(&members, at, make);
        made.push(answer["sandboxID"].as_str().expect("an id").to_owned());
    }
    let newest_first: Vec<_> = made.iter().rev().cloned().collect();
    for member in &members {
        let client = &member.client;
        for place in ["/v2/sandboxes", "/sandboxes"] {
            let all = client.get(place).expect(200);
            assert_eq!(ids_of(&all.json()), newest_first);
            assert!(all.header("burrow-unanswered-nodes").is_none());
        }
        assert_eq!(walked(client, ""), newest_first);
        assert_eq!(walked(client, "&order=asc"), made);
        assert_eq!(walked(client, "&order=asc&metadata=at%3D1&state=running"), made[1..3]);
        assert_eq!(walked(client, "&state=paused"), Vec::<String>::new());
        client.get("/v2/sandboxes?limit=0").expect(400);
    }
    // One that ends between two pages leaves no other one out.
    let first = members[0].client.get("/v2/sandboxes?limit=2").expect(200);
    let token = first.header("x-next-token").expect("more").to_owned();
    members[1].client.delete(&format!("/sandboxes/{}", newest_first[1])).expect(204);
    let rest = members[1].client.get(&format!("/v2/sandboxes?nextToken={token}")).expect(200);
    assert_eq!(ids_of(&rest.json()), newest_first[2..]);
    members[1].signal(Signal::SIGKILL);
    let left = members[0].client.get("/v2/sandboxes").expect(200);
    assert_eq!(left.header("burrow-unanswered-nodes"), Some("n2"));
    assert_eq!(ids_of(&left.json()), [made[3].clone(), made[0].clone()]);
}

#[test]
fn lists_of_doors_show_a_key_its_own_namespace_of_every_node() {
    let Some(nats) = Nats::start() else { return };
    let (first, second) = (Member::join(&nats, "n1", &[]), Member::join(&nats, "n2", &[]));
    first.knows(2);
    second.knows(2);
    second.start(&["--name", "team/theirs"]);
    second.start(&["--name", "other/hidden"]);
    let key = first.server.ok(&["keygen", "--namespace", "team", "--scope", "run"]);
    let team = Client::new(first.server.url()).key(key.trim());
    let listed = team.get("/v2/sandboxes").expect(200).json();
    assert_eq!(listed[0]["alias"], "theirs", "{listed}");
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(team.get("/a2a/v1/sandboxes").expect(200).json(), json!(["theirs"]));
    // The key of Jupyter's clients may be in the query, and stays at the gateway.
    let kernels = Client::new(first.server.url());
    let place = format!("/api/kernels?token={}", key.trim());
    assert_eq!(kernels.get(&place).expect(200).json(), json!([]));
    Client::new(first.server.url()).get("/v2/sandboxes").expect(401);
}

#[test]
fn jupyter_lists_the_kernels_of_all_nodes_at_any_node() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    let asked = json!({ "name": "python3" });
    let make = |member: &Member| member.client.post("/api/kernels", &asked).expect(201).json();
    let made = [0, 1].map(|at| fleet::at(&members, at, make));
    let made = made.iter().map(|kernel| kernel["id"].as_str().expect("an id").to_owned());
    let mut made: Vec<_> = made.collect();
    made.sort();
    for member in &members {
        let listed = member.client.get("/api/kernels").expect(200).json();
        let listed = listed.as_array().expect("a list").iter();
        let ids: Vec<_> = listed.map(|one| one["id"].as_str().expect("an id")).collect();
        assert_eq!(ids, made);
    }
    members[1].signal(Signal::SIGKILL);
    let left = members[0].client.get("/api/kernels").expect(200);
    assert_eq!(left.header("burrow-unanswered-nodes"), Some("n2"));
    assert_eq!(left.json().as_array().map(Vec::len), Some(1));
}

#[test]
fn a2a_reaches_and_lists_sandboxes_of_another_node() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    members[1].start(&["--name", "there"]);
    members[0].start(&["--name", "here"]);
    let client = &members[0].client;
    assert_eq!(client.get("/a2a/v1/sandboxes").expect(200).json(), json!(["here", "there"]));
    let run = json!({ "script": "echo from there; exit 3" });
    let ran = client.post("/a2a/v1/sandboxes/there/exec", &run).expect(200).json();
    assert_eq!((&ran["stdout"], &ran["exit_code"]), (&json!("from there\n"), &json!(3)), "{ran}");
    client.delete("/a2a/v1/sandboxes/there").expect(204);
    members[1].client.get("/v1/sandboxes/default/there").expect(404);
    client.delete("/a2a/v1/sandboxes/there").expect(204);
    client.post("/a2a/v1/sandboxes/there/exec", &run).expect(404);
}

#[test]
fn apps_and_use_of_all_nodes_are_shown_at_any_node() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    for (name, at) in [("a", 0), ("b", 1)] {
        members[at].start(&["--name", name]);
        let app = json!({ "type": "command", "command": "exec python3 -m http.server $PORT" });
        let place = format!("/v1/sandboxes/default/{name}/apps");
        members[at].client.post(&place, &app).expect(201);
    }
    let seconds = |member: &Member, query: &str| {
        let report = member.client.get(&format!("/v1/usage{query}")).expect(200).json();
        assert!(report.get("unanswered").is_none(), "{report}");
        report["namespaces"][0]["usage"]["seconds"].as_f64().unwrap_or_default()
    };
    for member in &members {
        let listed = member.client.get("/v1/apps?all_nodes=true").expect(200).json();
        let pair = |at: usize| (&listed["apps"][at]["sandbox"], &listed["apps"][at]["node"]);
        assert_eq!([pair(0), pair(1)], [(&json!("a"), &json!("n1")), (&json!("b"), &json!("n2"))]);
        let own = member.client.get("/v1/apps").expect(200).json();
        assert_eq!(own["apps"].as_array().map(Vec::len), Some(1), "{own}");
        eventually("the sum is that of both nodes", || {
            let own: Vec<_> = members.iter().map(|member| seconds(member, "")).collect();
            let all = seconds(member, "?all_nodes=true");
            own.iter().all(|own| *own > 0.0) && all >= own.iter().sum()
        });
    }
    let used: Value =
        serde_json::from_str(&members[0].server.ok(&["usage", "--all-nodes", "--json"])).unwrap();
    let run_ms = used[0]["run_ms"].as_u64().expect("a time") as f64;
    assert!(run_ms >= 1e3 * (seconds(&members[0], "") + seconds(&members[1], "") - 30.0), "{used}");
    let rows: Value =
        serde_json::from_str(&members[0].server.ok(&["top", "--once", "--json", "--all-nodes"]))
            .unwrap();
    let mut shown: Vec<_> = rows.as_array().expect("rows").iter().collect();
    shown.sort_by_key(|row| row["sandbox"].to_string());
    let pair = |row: &Value| (row["sandbox"].clone(), row["node"].clone());
    assert_eq!(pair(shown[0]), (json!("a"), json!("n1")));
    assert_eq!(pair(shown[1]), (json!("b"), json!("n2")));
    // What the other one uses is read through this node.
    eventually("its samples come", || {
        let text = members[0].server.ok(&["top", "--once", "--json", "--all-nodes"]);
        let rows: Value = serde_json::from_str(&text).unwrap();
        let rows = rows.as_array().expect("rows");
        rows.iter().all(|row| row["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 0))
    });
    let table = members[1].server.ok(&["top", "--once", "--all-nodes"]);
    assert!(table.starts_with("NODE"), "{table}");
    members[1].signal(Signal::SIGKILL);
    let listed = members[0].client.get("/v1/apps?all_nodes=true").expect(200).json();
    assert_eq!(listed["unanswered"][0]["node"], "n2", "{listed}");
    let report = members[0].client.get("/v1/usage?all_nodes=true").expect(200).json();
    assert_eq!(report["unanswered"][0]["node"], "n2", "{report}");
    for verb in [&["top", "--once", "--all-nodes"][..], &["usage", "--all-nodes"]] {
        let output = members[0].server.run(verb);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains("n2"), "{verb:?}: {stderr}");
    }
}

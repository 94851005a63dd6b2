//! Lists over all nodes, at any of them.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::eventually;
use tests::fleet::{Member, Nats, open};
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
        members[at].server.ok(&["start", "--name", name, "--label", "kind=x"]);
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
    second.server.ok(&["start", "--name", "team/theirs"]);
    second.server.ok(&["start", "--name", "other/hidden"]);
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
    members[0].server.ok(&["start", "--name", "here"]);
    members[1].server.ok(&["start", "--name", "there"]);
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

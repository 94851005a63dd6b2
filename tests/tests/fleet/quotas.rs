//! Quotas of namespaces over all nodes.

use std::thread;

use serde_json::{Value, json};
use tests::eventually;
use tests::fleet::{Member, Nats};

const QUOTA: [&str; 3] = ["--dev", "--set", "fleet.quotas=team=3,*=1"];

fn with_quota(nats: &Nats) -> Vec<Member> {
    let members: Vec<_> =
        ["n1", "n2"].into_iter().map(|name| Member::join(nats, name, &QUOTA)).collect();
    for member in &members {
        member.knows(2);
    }
    members
}

/// How many a namespace has, over all nodes.
fn count(member: &Member, namespace: &str) -> usize {
    let path = format!("/v1/sandboxes?all_nodes=true&namespace={namespace}");
    member.client.get(&path).expect(200).json()["sandboxes"].as_array().expect("a list").len()
}

#[test]
fn racing_creates_at_two_nodes_never_exceed_the_quota_of_their_namespace() {
    let Some(nats) = Nats::start() else { return };
    let members = with_quota(&nats);
    let create = |number: usize| {
        let name = format!("s{number}");
        let body = json!({ "namespace": "team", "name": name });
        let answer = members[number % 2].client.post("/v1/sandboxes", &body);
        (name, answer.status, answer.json())
    };
    let create = &create;
    let answers: Vec<(String, u16, Value)> = thread::scope(|scope| {
        let racing: Vec<_> = (0..8).map(|number| scope.spawn(move || create(number))).collect();
        racing.into_iter().map(|one| one.join().expect("it answers")).collect()
    });
    let made: Vec<_> = answers.iter().filter(|(_, status, _)| *status == 201).collect();
    assert!(made.len() <= 3, "{answers:?}");
    for (_, status, body) in answers.iter().filter(|(_, status, _)| *status != 201) {
        assert_eq!((*status, &body["code"]), (429, &json!("limit_reached")), "{body}");
        assert!(body["message"].as_str().is_some_and(|why| why.contains("limit in the fleet")));
    }
    // What a race has left counted is found by the next who would be refused.
    for number in 100..103 {
        create(number);
    }
    assert_eq!(count(&members[0], "team"), 3);
    let refused = create(200);
    assert_eq!(refused.1, 429, "{}", refused.2);
    // The verb is one of the doors too.
    let output = members[1].server.run(&["start", "--name", "team/more"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("limit in the fleet"), "{stderr}");
    let figures = members[0].client.get("/metrics").expect(200).text();
    for line in [
        "burrow_fleet_quota_sandboxes_max{namespace=\"team\"} 3",
        "burrow_fleet_quota_sandboxes{namespace=\"team\"} 3",
        "burrow_fleet_nodes{readiness=\"ready\"} 2",
        "burrow_fleet_lease_held 1",
    ] {
        assert!(figures.contains(line), "{line} is not in {figures}");
    }
    // One that goes makes room for one, and no more.
    let gone = made.first().map_or("s100", |(name, _, _)| name);
    members[0].client.delete(&format!("/v1/sandboxes/team/{gone}?force=true")).expect(200);
    eventually("there is room again", || create(300).1 == 201);
    assert_eq!(create(301).1, 429);
}

#[test]
fn a_quota_that_is_new_counts_what_is_there() {
    let Some(nats) = Nats::start() else { return };
    let before = Member::open(&nats, "n1");
    for name in ["other/one", "other/two"] {
        before.start(&["--name", name]);
    }
    let after = Member::join(&nats, "n2", &QUOTA);
    after.knows(2);
    let body = json!({ "namespace": "other", "name": "three" });
    let refused = after.client.post("/v1/sandboxes", &body).expect(429).json();
    assert!(refused["message"].as_str().is_some_and(|why| why.contains("limit in the fleet")));
    assert_eq!(count(&after, "other"), 2);
}

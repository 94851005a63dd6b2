//! The store's operations, on a real server.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fleet::event::{Outcome, Scope};
use fleet::ids::{Incarnation, Name, NodeId, Revision};
use fleet::nats::Link;
use fleet::records::{Key, Lease, NameRecord, NameState, Room, Value};

use crate::server::Server;

const NAMES: usize = 3_000;
const WRITERS: usize = 8;

fn node(id: &str) -> NodeId {
    NodeId::parse(id).expect("a name")
}

fn name(number: usize) -> Name {
    Name::parse("team", &format!("s{number}")).expect("a name")
}

fn record(node: &NodeId, incarnation: u128) -> Value {
    Value::Name(NameRecord {
        incarnation: Incarnation(incarnation),
        node: node.clone(),
        session: Revision(1),
        request: "r".into(),
        needs: Room::default(),
        counted: false,
        returns: false,
        state: NameState::Owned,
    })
}

fn lease() -> Value {
    let installation = "one".into();
    Value::Lease(Lease::Alive { session: None, installation, used: Room::default() })
}

/// Claims every name as this writer, and says which it has won.
async fn claim_all(link: Link, writer: usize) -> Vec<usize> {
    let mut won = Vec::new();
    let node = node(&format!("n{writer}"));
    for batch in 0..NAMES / 100 {
        let claims = (batch * 100..(batch + 1) * 100).map(|number| {
            let (link, node) = (link.clone(), node.clone());
            tokio::spawn(async move {
                let value = record(&node, writer as u128);
                let key = Key::Name(name(number));
                (number, link.write(&key, Revision(0), Some(&value), None).await)
            })
        });
        for claim in claims.collect::<Vec<_>>() {
            match claim.await.expect("a claim") {
                (number, Outcome::Stored(_)) => won.push(number),
                (_, Outcome::Conflict) => {}
                (number, Outcome::Unavailable) => panic!("no answer for {number}"),
            }
        }
    }
    won
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_writers_of_three_thousand_names_one_wins_each() {
    let Some(server) = Server::start() else { return };
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let link = Link::connect(&server.place(), "writer").await.expect("a link");
        writers.push(tokio::spawn(claim_all(link, writer)));
    }
    let mut winners = vec![None; NAMES];
    for (writer, claims) in writers.into_iter().enumerate() {
        for number in claims.await.expect("a writer") {
            assert_eq!(winners[number].replace(writer), None, "s{number} has two winners");
        }
    }
    assert!(winners.iter().all(Option::is_some), "a name has no winner");
    // The store agrees with what the writers were answered.
    let link = Link::connect(&server.place(), "reader").await.expect("a link");
    for (writer, own) in (0..WRITERS).map(|writer| (writer, node(&format!("n{writer}")))) {
        let records = link.scan(&Scope::Node(own), &node("reader")).await.expect("a scan");
        let stored: BTreeSet<_> = records.iter().map(|(name, ..)| name.to_string()).collect();
        let won = (0..NAMES).filter(|number| winners[*number] == Some(writer));
        assert_eq!(stored, won.map(|number| name(number).to_string()).collect());
    }
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_runs_out_and_cannot_be_renewed_after_its_burial() {
    let Some(server) = Server::start() else { return };
    let link = Link::connect(&server.place(), "n1").await.expect("a link");
    let key = Key::Lease(node("n1"));
    let Outcome::Stored(mut revision) =
        link.write(&key, Revision(0), Some(&lease()), Some(2)).await
    else {
        panic!("the first write is not stored")
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        let renewed = link.write(&key, revision, Some(&lease()), Some(2)).await;
        let Outcome::Stored(next) = renewed else { panic!("a renewal: {renewed:?}") };
        revision = next;
        assert!(link.read(&key).await.expect("an entry").value.is_some(), "it has run out");
        // Time must pass: a lease of two seconds is renewed for five.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    let expired = loop {
        let entry = link.read(&key).await.expect("an entry");
        if entry.value.is_none() {
            break entry;
        }
        assert!(Instant::now() < deadline, "it does not run out");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(expired.revision > revision, "what has run out has left a marker");
    assert_eq!(link.write(&key, revision, Some(&lease()), Some(2)).await, Outcome::Conflict);
    let burial = Value::Lease(Lease::Buried { swept: false });
    let buried = link.write(&key, expired.revision, Some(&burial), None).await;
    let Outcome::Stored(buried) = buried else { panic!("the burial: {buried:?}") };
    assert_eq!(
        link.write(&key, expired.revision, Some(&lease()), Some(2)).await,
        Outcome::Conflict
    );
    let again = link.write(&key, buried, Some(&lease()), Some(2)).await;
    assert!(matches!(again, Outcome::Stored(_)), "it may join again over its burial: {again:?}");
}

#[tokio::test]
async fn a_scan_shows_all_that_was_stored_before_it_and_nothing_that_was_removed() {
    let Some(server) = Server::start() else { return };
    let link = Link::connect(&server.place(), "n1").await.expect("a link");
    let (one, two) = (node("one"), node("two"));
    for number in 0..200 {
        let owner = if number % 2 == 0 { &one } else { &two };
        let value = record(owner, number as u128);
        let key = Key::Name(name(number));
        let stored = link.write(&key, Revision(0), Some(&value), None).await;
        let Outcome::Stored(revision) = stored else { panic!("{stored:?}") };
        if number % 10 == 0 {
            let removed = link.write(&key, revision, None, None).await;
            assert!(matches!(removed, Outcome::Stored(_)), "{removed:?}");
            assert_eq!(link.read(&key).await.expect("an entry").value, None);
        }
    }
    let of_one = link.scan(&Scope::Node(one), &node("n1")).await.expect("a scan");
    assert_eq!(of_one.len(), 80);
    let all = link.scan(&Scope::Namespace("team".into()), &node("n1")).await.expect("a scan");
    assert_eq!(all.len(), 180);
    let none = link.scan(&Scope::Namespace("other".into()), &node("n1")).await.expect("a scan");
    assert!(none.is_empty());
}

/// What a NATS server keeps and reads for a large fleet: `BURROW_NATS_NAMES` names of a thousand nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes"]
async fn a_million_names_of_a_thousand_nodes() {
    let Some(server) = Server::start() else { return };
    let names = std::env::var("BURROW_NATS_NAMES").ok().and_then(|text| text.parse().ok());
    let names: usize = names.unwrap_or(1_000_000);
    let link = Link::connect(&server.place(), "writer").await.expect("a link");
    let began = Instant::now();
    // So many writes are under way at once.
    let writers = (0..256).map(|writer| {
        let link = link.clone();
        tokio::spawn(async move {
            for number in (writer..names).step_by(256) {
                let value = record(&node(&format!("n{}", number % 1_000)), number as u128);
                let stored =
                    link.write(&Key::Name(name(number)), Revision(0), Some(&value), None).await;
                assert!(matches!(stored, Outcome::Stored(_)), "{number}: {stored:?}");
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("a writer");
    }
    let written = began.elapsed();
    let began = Instant::now();
    let scope = Scope::Node(node("n7"));
    let found = link.scan(&scope, &node("reader")).await.expect("a scan");
    let scanned = began.elapsed();
    assert_eq!(found.len(), names.div_ceil(1_000));
    let (resident, stored) = server.weighs();
    println!("{names} names were written in {written:.0?}, and read by one scan in {scanned:.1?}");
    println!("nats-server keeps {} MB on disk and {} MB in memory", stored >> 20, resident >> 20);
}

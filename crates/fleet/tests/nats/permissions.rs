//! What a node may do in NATS, with the configuration that we give to operators.

use fleet::event::{Answer, Call, Outcome};
use fleet::ids::{NodeId, Revision};
use fleet::nats::Link;
use fleet::records::{Key, Lease, NodeRecord, Room, Value};

use crate::members::{Bridge, GRACE_MS, create, eventually, join_at, named, until};
use crate::server::Server;

fn node(id: &str) -> NodeId {
    NodeId::parse(id).expect("a name")
}

fn lease() -> Value {
    let installation = "forged".into();
    Value::Lease(Lease::Alive { session: None, installation, used: Room::default() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_cannot_write_what_another_one_says_of_itself() {
    let Some(server) = Server::start_guarded() else { return };
    let link = Link::connect(&server.place_of("host2"), "host2").await.expect("a link");
    let about = Value::Node(NodeRecord::default().into());
    let write =
        async |key: Key, value: &Value| link.write(&key, Revision(0), Some(value), None).await;
    for id in ["host1", "host3"] {
        for (key, value) in [(Key::Lease(node(id)), lease()), (Key::Node(node(id)), about.clone())]
        {
            assert_eq!(write(key.clone(), &value).await, Outcome::Unavailable, "{key:?}");
            assert_eq!(link.read(&key).await.expect("a read").value, None, "{key:?}");
        }
    }
    let own = write(Key::Lease(node("host2")), &lease()).await;
    assert!(matches!(own, Outcome::Stored(_)), "{own:?}");
    let own = write(Key::Node(node("host2")), &about).await;
    assert!(matches!(own, Outcome::Stored(_)), "{own:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_cannot_take_what_others_are_asked() {
    let Some(server) = Server::start_guarded() else { return };
    let join = async |id: &str| join_at(&server.place_of(id), id, GRACE_MS).await;
    let (thief, owner) = (join("host2").await, join("host3").await);
    let mut taken = thief.handle.link.listen(&node("host3")).await.expect("it is only refused");
    let asked = thief.handle.link.ask(&node("host3"), &offer()).await;
    assert!(asked.is_some(), "the owner does not answer");
    // It was delivered to its owner alone: whatever the thief was sent came before that answer.
    let nothing = tokio::time::timeout(std::time::Duration::from_millis(200), taken.next()).await;
    assert!(nothing.is_err(), "a request for another node was delivered");
    drop(owner);
}

fn offer() -> fleet::event::Request {
    fleet::event::Request::Offer { wish: fleet::placement::Wish::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_node_with_that_right_buries_another_one() {
    let Some(server) = Server::start_guarded() else { return };
    let join = async |id: &str| join_at(&server.place_of(id), id, GRACE_MS).await;
    let (other, doomed) = (join("host2").await, join("host3").await);
    for bridge in [&other, &doomed] {
        until(&bridge.handle, |status| status.nodes == 2).await;
    }
    let mut lost = None;
    for number in 0.. {
        let name = format!("s{number}");
        let call = create(&name, &name, None);
        let is_created = |answer: &Answer| matches!(answer, Answer::Created { .. });
        let made = eventually(&other.handle, call, is_created).await;
        if matches!(made, Answer::Created { node, .. } if node.as_str() == "host3") {
            lost = Some(name);
            break;
        }
    }
    let name = lost.expect("the loop ends with one");
    drop(doomed);
    // The lease runs out, and the one that looks may not write that.
    let key = Key::Lease(node("host3"));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(40);
    while other.handle.link.read(&key).await.expect("a read").value.is_some() {
        assert!(std::time::Instant::now() < deadline, "the lease does not run out");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let buried = Value::Lease(Lease::Buried { swept: false });
    let tried = other.handle.link.write(&key, Revision(0), Some(&buried), None).await;
    assert_eq!(tried, Outcome::Unavailable);
    let keeper: Bridge = join("host1").await;
    let find = Call::Find { name: named(&name) };
    let answer = eventually(&other.handle, find, |a| matches!(a, Answer::Lost { .. })).await;
    assert!(matches!(answer, Answer::Lost { node, .. } if node.as_str() == "host3"));
    drop(keeper);
}

//! Documents that all nodes have, on a real server that asks who a node is.

use std::time::Duration;

use fleet::event::Outcome;
use fleet::ids::{NodeId, Revision};
use fleet::nats::{Change, Documents, Link, Shelf};

use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(20);

async fn next(watch: &mut Documents) -> Change {
    let told = tokio::time::timeout(PATIENCE, watch.next()).await;
    told.expect("the watch says nothing").expect("the watch has ended")
}

fn change(key: &str, bytes: Option<&str>) -> Change {
    Change::Document { key: key.to_owned(), bytes: bytes.map(|text| text.as_bytes().to_vec()) }
}

async fn link(server: &Server, node: &str) -> (Link, NodeId) {
    let link = Link::connect(&server.place_of(node), node).await.expect("a link");
    (link, NodeId::parse(node).expect("a name"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_is_written_over_its_last_revision_alone_and_reaches_every_node() {
    let Some(server) = Server::start_guarded() else { return };
    let (one, name) = link(&server, "host2").await;
    let (other, other_name) = link(&server, "host3").await;
    assert_eq!(one.documents_id(), other.documents_id());
    // Of nothing a watch says that it is all.
    let mut empty = one.watch_documents(&name).await.expect("a watch");
    assert_eq!(next(&mut empty).await, Change::AllTold);
    let none = one.read_document(Shelf::Templates, "ci.app").await.expect("a read");
    assert_eq!((none.revision, none.bytes), (Revision(0), None));
    let Outcome::Stored(first) =
        one.write_document(Shelf::Templates, "ci.app", Revision(0), Some(b"1")).await
    else {
        panic!("it is not stored");
    };
    // Who has not read the first does not write over it.
    let late = other.write_document(Shelf::Templates, "ci.app", Revision(0), Some(b"2")).await;
    assert_eq!(late, Outcome::Conflict);
    let read = other.read_document(Shelf::Templates, "ci.app").await.expect("a read");
    assert_eq!((read.revision, read.bytes.as_deref()), (first, Some(&b"1"[..])));
    let Outcome::Stored(_) =
        other.write_document(Shelf::Templates, "ci.app.v1=0", Revision(0), Some(b"t")).await
    else {
        panic!("it is not stored");
    };
    let mut watch = other.watch_documents(&other_name).await.expect("a watch");
    assert_eq!(next(&mut watch).await, change("ci.app", Some("1")));
    assert_eq!(next(&mut watch).await, change("ci.app.v1=0", Some("t")));
    assert_eq!(next(&mut watch).await, Change::AllTold);
    let Outcome::Stored(second) =
        other.write_document(Shelf::Templates, "ci.app", first, Some(b"2")).await
    else {
        panic!("it is not stored");
    };
    assert_eq!(
        one.write_document(Shelf::Templates, "ci.app", first, None).await,
        Outcome::Conflict
    );
    assert!(matches!(
        one.write_document(Shelf::Templates, "ci.app", second, None).await,
        Outcome::Stored(_)
    ));
    for watch in [&mut watch, &mut empty] {
        let mut last = next(watch).await;
        while last != change("ci.app", None) {
            assert_ne!(last, Change::AllTold, "it is told twice");
            last = next(watch).await;
        }
    }
    assert_eq!(one.read_document(Shelf::Templates, "ci.app").await.expect("a read").bytes, None);
}

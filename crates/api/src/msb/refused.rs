//! What microsandbox has and this server does not, each refused with what it lacks.

use hyper::Method;

use super::answer::{API, lacking};
use crate::call::Call;
use crate::route::{Operation, operation};
use crate::shape::{Nothing, Raw};
use sandbox::refusal::Refusal;

const SNAPSHOTS: &str =
    "snapshots over this API; use the server's own, and name one as the image of a sandbox";
const VOLUMES: &str = "volumes; use a workspace of the server's own API";

pub fn operations() -> Vec<Operation> {
    let (get, post, put, delete) = (Method::GET, Method::POST, Method::PUT, Method::DELETE);
    [
        (get.clone(), "/msb/v1/snapshots", SNAPSHOTS),
        (post.clone(), "/msb/v1/snapshots", SNAPSHOTS),
        (get.clone(), "/msb/v1/snapshots/{snapshot}", SNAPSHOTS),
        (delete.clone(), "/msb/v1/snapshots/{snapshot}", SNAPSHOTS),
        (get.clone(), "/msb/v1/snapshots/by-name/{snapshot}", SNAPSHOTS),
        (get.clone(), "/msb/v1/snapshot-operations/{operation}", SNAPSHOTS),
        (get.clone(), "/msb/v1/volumes", VOLUMES),
        (post.clone(), "/msb/v1/volumes", VOLUMES),
        (get.clone(), "/msb/v1/volumes/{volume}", VOLUMES),
        (delete.clone(), "/msb/v1/volumes/{volume}", VOLUMES),
        (get, "/msb/v1/volumes/{volume}/files", VOLUMES),
        (put, "/msb/v1/volumes/{volume}/files", VOLUMES),
        (post, "/msb/v1/volumes/{volume}/files", VOLUMES),
        (delete, "/msb/v1/volumes/{volume}/files", VOLUMES),
    ]
    .map(|(method, path, what)| {
        let refuse = move |_: Call, _: Nothing, _: Nothing| async move {
            Err::<Raw, Refusal>(lacking(what))
        };
        operation(method, path, "msb_refused", "What this server does not do.", refuse)
            .refusing(API)
    })
    .to_vec()
}

//! What E2B has and no operation here does: each call is refused, with the reason and what to do instead,
//! so that no client waits for something that never comes.

use hyper::Method;

use super::answer::CONTROL;
use super::forms::lacking;
use crate::call::Call;
use crate::route::{Operation, operation};
use crate::shape::{Nothing, Raw};
use sandbox::refusal::Refusal;

const SECRETS: &str = "secrets from a client; they are in the server's configuration";

pub fn operations() -> Vec<Operation> {
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    let refused: Vec<(Method, &'static str, &'static str)> = vec![
        (post.clone(), "/secrets", SECRETS),
        (get.clone(), "/secrets", SECRETS),
        (get.clone(), "/secrets/{secret}", SECRETS),
        (post, "/secrets/{secret}", SECRETS),
        (delete, "/secrets/{secret}", SECRETS),
    ];
    let refused = refused.into_iter().map(|(method, path, what)| {
        let refuse = move |_: Call, _: Nothing, _: Nothing| async move {
            Err::<Raw, Refusal>(lacking(what))
        };
        operation(method, path, "e2b_refused", "What this server does not do.", refuse)
    });
    refused.map(|operation| operation.refusing(CONTROL)).collect()
}

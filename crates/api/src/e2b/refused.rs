//! What E2B has and no operation here does: each call is refused, with the reason and what to do instead,
//! so that no client waits for something that never comes. Templates are images, which the operator
//! brings; they can be asked for by their names.

use hyper::{Method, StatusCode};
use serde_json::json;

use super::answer::CONTROL;
use super::control::draw;
use super::forms::lacking;
use super::replies::is_usual;
use crate::body::json_response;
use crate::call::Call;
use crate::route::{Operation, operation};
use crate::shape::{Nothing, Raw};
use sandbox::SandboxRef;
use sandbox::refusal::Refusal;

const TEMPLATES: &str = "templates from a client; build an image with `host-bridge image build` and \
name it as the template";
const VOLUMES: &str = "volumes; keep files in a workspace of the configuration";
const SECRETS: &str = "secrets from a client; they are in the server's configuration";

pub fn operations() -> Vec<Operation> {
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    let refused: Vec<(Method, &'static str, &'static str)> = vec![
        (post.clone(), "/v3/templates", TEMPLATES),
        (post.clone(), "/v2/templates/{template}/builds/{build}", TEMPLATES),
        (get.clone(), "/templates/{template}/builds/{build}/status", TEMPLATES),
        (get.clone(), "/templates/{template}/files/{hash}", TEMPLATES),
        (post.clone(), "/templates/tags", TEMPLATES),
        (delete.clone(), "/templates/tags", TEMPLATES),
        (get.clone(), "/templates/{template}/tags", TEMPLATES),
        (post.clone(), "/volumes", VOLUMES),
        (get.clone(), "/volumes", VOLUMES),
        (get.clone(), "/volumes/{volume}", VOLUMES),
        (delete.clone(), "/volumes/{volume}", VOLUMES),
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
    let known =
        operation(get, "/templates/aliases/{alias}", "e2b_alias", "Look up a template.", alias);
    refused.chain([known]).map(|operation| operation.refusing(CONTROL)).collect()
}

async fn alias(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let alias: String = call.parameter("alias")?;
    let namespace = draw(&call)?.namespace;
    let snapshot = alias.parse().ok().map(|name| SandboxRef { namespace, name });
    let registry = call.api.registry();
    let is_known = is_usual(&alias)
        || call.api.images().contains_key(&alias)
        || registry.images().is_some_and(|images| images.find(&alias).is_ok())
        || snapshot.is_some_and(|which| registry.get_snapshot(&which).is_ok());
    if !is_known {
        return Err(Refusal::not_found(format!("there is no template {alias:?}")));
    }
    Ok(Raw(json_response(StatusCode::OK, &json!({ "templateID": alias, "public": false }))))
}

//! Volumes over E2B's REST calls: made, listed, looked at, removed. What is in them has calls of its own.

use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::CONTROL;
use super::connect::Message;
use crate::body::json_response;
use crate::call::Call;
use crate::creation::namespace_of;
use crate::route::{Operation, operation};
use crate::shape::{Done, Nothing, Raw};
use sandbox::refusal::Refusal;
use workspace::volume::Volume;

/// A volume to make.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct New {
    name: String,
}

pub fn operations() -> Vec<Operation> {
    let (all, one) = ("/volumes", "/volumes/{volume}");
    [
        operation(Method::POST, all, "e2b_create_volume", "Make a volume.", create).run(),
        operation(Method::GET, all, "e2b_list_volumes", "List volumes.", list),
        // The answer has the token of its content.
        operation(Method::GET, one, "e2b_get_volume", "One volume.", get_one).run(),
        operation(Method::DELETE, one, "e2b_remove_volume", "Remove a volume.", remove).run(),
    ]
    .map(|operation| operation.refusing(CONTROL))
    .to_vec()
}

async fn create(call: Call, _: Nothing, Message(ask): Message<New>) -> Result<Raw, Refusal> {
    let namespace = namespace_of(&call.caller, None);
    call.trail.fact("volume", ask.name.clone());
    let registry = call.api.registry();
    let volume = registry.create_volume(&namespace, &ask.name, call.caller.key()).await?;
    Ok(Raw(json_response(StatusCode::CREATED, &with_token(&volume))))
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let namespace = namespace_of(&call.caller, None);
    let volumes = call.api.registry().volumes().list(Some(namespace.as_str()));
    let listed: Vec<Value> = volumes
        .iter()
        .map(|volume| json!({ "volumeID": volume.id, "name": volume.name }))
        .collect();
    Ok(Raw(json_response(StatusCode::OK, &listed)))
}

async fn get_one(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    Ok(Raw(json_response(StatusCode::OK, &with_token(&*call.volume()?))))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let volume = call.volume()?;
    call.api.registry().remove_volume(volume).await?;
    Ok(Done)
}

fn with_token(volume: &Volume) -> Value {
    json!({ "volumeID": volume.id, "name": volume.name, "token": volume.token })
}

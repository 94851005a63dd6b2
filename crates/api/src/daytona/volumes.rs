//! Volumes over Daytona's calls: made, listed, looked at, removed; and those that a new sandbox is to have.

use hyper::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{API, lacking};
use crate::body::json_response;
use crate::call::Call;
use crate::creation::namespace_of;
use crate::route::{Operation, operation};
use crate::shape::{Json, Nothing, Raw};
use host::instant::format;
use sandbox::SandboxError;
use sandbox::refusal::Refusal;
use workspace::volume::{Volume, VolumeMount};

/// A volume to make.
#[derive(Debug, Deserialize, JsonSchema)]
struct New {
    name: String,
}

/// A volume of a new sandbox, by its id or its name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mount {
    volume_id: String,
    #[serde(rename = "mountPath")]
    path: String,
    subpath: Option<String>,
}

pub fn operations() -> Vec<Operation> {
    let (all, one) = ("/daytona/volumes", "/daytona/volumes/{volume}");
    let by_name = "/daytona/volumes/by-name/{name}";
    let get = || Method::GET;
    [
        operation(Method::POST, all, "daytona_create_volume", "Make a volume.", create).run(),
        operation(get(), all, "daytona_list_volumes", "List volumes.", list),
        operation(get(), by_name, "daytona_name_volume", "A volume by its name.", get_by_name),
        operation(get(), one, "daytona_get_volume", "One volume.", get_one),
        operation(Method::DELETE, one, "daytona_remove_volume", "Remove a volume.", remove).run(),
    ]
    .map(|operation| operation.refusing(API))
    .to_vec()
}

impl Mount {
    /// The volumes that a sandbox of the caller is to have.
    pub fn resolve(all: Vec<Self>, call: &Call) -> Result<Vec<VolumeMount>, Refusal> {
        all.into_iter().map(|mount| mount.resolved(call)).collect()
    }

    fn resolved(self, call: &Call) -> Result<VolumeMount, Refusal> {
        if self.subpath.is_some_and(|path| !path.is_empty()) {
            return Err(lacking("a part of a volume; mount the whole one"));
        }
        let namespace = namespace_of(&call.caller, None);
        let volumes = call.api.registry().volumes();
        let by_id = volumes.get(&self.volume_id).ok();
        let by_id = by_id.filter(|volume| volume.namespace == namespace.as_str());
        let name = by_id.map_or(self.volume_id, |volume| volume.name.clone());
        let mount = VolumeMount { name, path: self.path };
        if mount.is_of_host() {
            return Err(Refusal::not_found(format!("there is no volume {:?}", mount.name)));
        }
        Ok(mount)
    }
}

async fn create(call: Call, _: Nothing, Json(ask): Json<New>) -> Result<Raw, Refusal> {
    let namespace = namespace_of(&call.caller, None);
    call.trail.fact("volume", ask.name.clone());
    let registry = call.api.registry();
    let volume = registry.create_volume(&namespace, &ask.name, call.caller.key()).await?;
    Ok(Raw(json_response(StatusCode::OK, &shown(&volume))))
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let namespace = namespace_of(&call.caller, None);
    let volumes = call.api.registry().volumes().list(Some(namespace.as_str()));
    let listed: Vec<Value> = volumes.iter().map(|volume| shown(volume)).collect();
    Ok(Raw(json_response(StatusCode::OK, &listed)))
}

async fn get_by_name(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let namespace = namespace_of(&call.caller, None);
    let name: String = call.parameter("name")?;
    let found = call.api.registry().volumes().find(namespace.as_str(), &name);
    let volume = found.map_err(SandboxError::from)?;
    Ok(Raw(json_response(StatusCode::OK, &shown(&volume))))
}

async fn get_one(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    Ok(Raw(json_response(StatusCode::OK, &shown(&*call.volume()?))))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let volume = call.volume()?;
    call.api.registry().remove_volume(volume).await?;
    Ok(Raw(json_response(StatusCode::OK, &json!({}))))
}

fn shown(volume: &Volume) -> Value {
    let created = format(volume.created_at_ms);
    json!({
        "id": volume.id,
        "name": volume.name,
        "organizationId": volume.namespace,
        "state": "ready",
        "createdAt": created,
        "updatedAt": created,
        "lastUsedAt": null,
        "errorReason": null,
    })
}

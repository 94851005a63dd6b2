//! Volumes: made, listed, shown, removed. `POST /v1/sandboxes` with `volumes` mounts them.

use std::sync::Arc;

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Created, Done, Json, Nothing, Query, Reply};
use crate::creation::namespace_of;
use crate::forms::sandboxes::NAME;
use sandbox::refusal::{Code, Refusal};
use sandbox::{Name, SandboxError};
use workspace::volume;

/// What a volume may be called.
pub const VOLUME: &str = "^[A-Za-z0-9_-]{1,63}$";

pub fn operations() -> Vec<Operation> {
    let (all, one) = ("/v1/volumes", "/v1/volumes/{namespace}/{name}");
    [
        operation(Method::POST, all, "create_volume", "Make a volume.", create)
            .run()
            .about(
                "A directory that the server keeps for a namespace. It outlives sandboxes, and all that mount it see \
                 each other's files.",
            )
            .problems(&[Code::Conflict, Code::LimitReached]),
        operation(Method::GET, all, "list_volumes", "List the volumes.", list)
            .about("Ordered by namespace and name, without the tokens of their content."),
        operation(Method::GET, one, "get_volume", "One volume, with the token of its content.", get)
            .run(),
        operation(Method::DELETE, one, "remove_volume", "Remove a volume and its files.", remove)
            .run()
            .about("Refused while a sandbox has it.")
            .problems(&[Code::Conflict]),
    ]
    .map(|operation| operation.tag("volumes"))
    .to_vec()
}

/// A volume to make.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    #[schemars(regex(pattern = VOLUME))]
    pub name: String,
    /// The namespace; by default the key's, or `default`.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
}

/// A directory that the server keeps.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    pub id: String,
    pub namespace: String,
    pub name: String,
    pub created_at_ms: u64,
    /// Lets in to its content, and to nothing else. Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub token: Option<String>,
}

/// All volumes that a key reaches.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeList {
    pub volumes: Vec<Volume>,
}

/// Which volumes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumesQuery {
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
}

impl From<&volume::Volume> for Volume {
    fn from(volume: &volume::Volume) -> Self {
        Self {
            id: volume.id.clone(),
            namespace: volume.namespace.clone(),
            name: volume.name.clone(),
            created_at_ms: volume.created_at_ms,
            token: None,
        }
    }
}

fn with_token(volume: &volume::Volume) -> Volume {
    Volume { token: Some(volume.token.clone()), ..Volume::from(volume) }
}

async fn create(
    call: Call,
    _: Nothing,
    Json(ask): Json<CreateVolume>,
) -> Result<Created<Volume>, Refusal> {
    let namespace = namespace_of(&call.caller, ask.namespace);
    call.reaches(&namespace)?;
    call.trail.fact("volume", ask.name.clone());
    let registry = call.api.registry();
    let volume = registry.create_volume(&namespace, &ask.name, call.caller.key()).await?;
    Ok(Created(with_token(&volume)))
}

async fn list(
    call: Call,
    Query(query): Query<VolumesQuery>,
    _: Nothing,
) -> Result<Reply<VolumeList>, Refusal> {
    let namespace = call.one_namespace(query.namespace)?;
    let volumes = call.api.registry().volumes().list(namespace.as_ref().map(Name::as_str));
    let volumes = volumes.iter().map(|volume| Volume::from(&**volume)).collect();
    Ok(Reply(VolumeList { volumes }))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Volume>, Refusal> {
    Ok(Reply(with_token(&*found(&call)?)))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let volume = found(&call)?;
    call.api.registry().remove_volume(volume).await?;
    Ok(Done)
}

fn found(call: &Call) -> Result<Arc<volume::Volume>, Refusal> {
    let namespace: Name = call.parameter("namespace")?;
    let name: String = call.parameter("name")?;
    call.reaches(&namespace)?;
    call.trail.fact("volume", name.clone());
    let found = call.api.registry().volumes().find(namespace.as_str(), &name);
    Ok(found.map_err(SandboxError::from)?)
}

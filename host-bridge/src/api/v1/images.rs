//! Images of the host's store: listed, looked at, removed. Which of them a sandbox has is said where
//! sandboxes are made.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::problem::{Code, Problem};
use super::super::refusal::code_of_image;
use super::super::route::{Operation, operation};
use super::super::shape::{Nothing, Reply};
use crate::image::digest::Digest;
use crate::image::store::Listed;
use crate::image::{ImageError, Images};
use crate::keys::Access;

pub fn operations() -> Vec<Operation> {
    let one = "/v1/images/{digest}";
    [
        operation(Method::GET, "/v1/images", "list_images", "The images that are here.", list)
            .about("The newest first. The server's configuration may name others."),
        operation(Method::GET, one, "get_image", "One image, by its digest.", get),
        operation(
            Method::DELETE,
            one,
            "remove_image",
            "Remove an image with all its names.",
            remove,
        )
        .access(Some(Access::Admin))
        .about("Refused while a sandbox or a snapshot has it as its root.")
        .problems(&[Code::Conflict]),
    ]
    .map(|operation| operation.tag("images"))
    .to_vec()
}

/// An image.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Image {
    pub digest: String,
    /// Whole names, with their registries.
    pub names: Vec<String>,
    /// What its layers take as they are kept.
    pub size_bytes: u64,
    pub layers: u64,
    pub added_at_ms: u64,
    /// Where programs begin that name no directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub workdir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub user: Option<String>,
    /// What it runs when nobody says what.
    pub command: Vec<String>,
}

/// All images.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageList {
    pub images: Vec<Image>,
}

impl From<Listed> for Image {
    fn from(Listed { image, names }: Listed) -> Self {
        Self {
            digest: image.digest.to_string(),
            names: names.into_iter().map(|named| named.name).collect(),
            size_bytes: image.size_bytes,
            layers: image.layers.len() as u64,
            added_at_ms: image.added_at_ms,
            command: image.process.command(),
            workdir: image.process.workdir,
            user: image.process.user,
        }
    }
}

impl From<ImageError> for Problem {
    fn from(error: ImageError) -> Self {
        // What is wrong with the store itself is nobody's who asks.
        let code = match code_of_image(&error) {
            Code::StartFailed => Code::Internal,
            code => code,
        };
        Self::new(code, error.to_string())
    }
}

/// Asks the store where it may wait for disks and locks.
async fn ask<T: Send + 'static>(
    call: &Call,
    ask: impl FnOnce(&Images) -> Result<T, ImageError> + Send + 'static,
) -> Result<T, Problem> {
    let images = call.api.registry().images().cloned();
    let images = images.ok_or_else(|| Problem::new(Code::NotFound, "this bridge has no images"))?;
    let asked = tokio::task::spawn_blocking(move || ask(&images));
    Ok(asked.await.unwrap_or(Err(ImageError::Busy))?)
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Reply<ImageList>, Problem> {
    let images = ask(&call, Images::list).await?;
    Ok(Reply(ImageList { images: images.into_iter().map(Image::from).collect() }))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Image>, Problem> {
    let digest: Digest = call.parameter("digest")?;
    Ok(Reply(ask(&call, move |images| images.inspect(&digest.to_string())).await?.into()))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Image>, Problem> {
    let digest: Digest = call.parameter("digest")?;
    let registry = call.api.registry().clone();
    let removed = ask(&call, move |images| {
        let text = digest.to_string();
        let image = images.inspect(&text)?;
        images.remove(&text, || registry.image_users())?;
        Ok(image)
    });
    Ok(Reply(removed.await?.into()))
}

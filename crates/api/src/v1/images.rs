//! Images of the host's store: listed, shown, removed. A sandbox's record says which image it has.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Created, Json, Nothing, Reply};
use access::keys::Access;
use image::digest::Digest;
use image::puller::PullProgress;
use image::reference::Reference;
use image::store::ListedImage;
use image::{ImageError, Images};
use sandbox::Name;
use sandbox::refusal::{Code, Refusal};

pub fn operations() -> Vec<Operation> {
    let one = "/v1/images/{digest}";
    [
        operation(Method::GET, "/v1/images", "list_images", "List the images of this host.", list)
            .about(
                "Newest first: those that this key's namespace has pulled or made, and those that \
                the operator has brought in for all. Keys with the scope `admin` and keys for all \
                namespaces see every image. The server's configuration may name more.",
            ),
        operation(
            Method::POST,
            "/v1/images/pull",
            "pull_image",
            "Pull an image from its registry and wait for it.",
            pull,
        )
        .access(Some(Access::Admin))
        .about(
            "Content that this host already has is not downloaded again. A cancelled call cancels \
            the pull, unless others wait for it; the next pull continues where it stopped.",
        )
        .problems(&[Code::PullFailed, Code::LimitReached, Code::Unsupported]),
        operation(
            Method::GET,
            "/v1/images/pulls",
            "list_pulls",
            "List the pulls in progress.",
            pulls,
        ),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/commit",
            "commit_sandbox",
            "Make an image of a running sandbox.",
            commit,
        )
        .access(Some(Access::Admin))
        .about(
            "The new image has the layers of the sandbox's image and one more, and the same \
            configuration for programs. Programs are paused meanwhile. Mounts, `/tmp` and `/run` \
            are not in it, nor are the sandbox's secrets and environment.",
        )
        .problems(&[Code::Conflict, Code::Unsupported, Code::TooLarge, Code::LimitReached]),
        operation(Method::GET, one, "get_image", "Show one image by its digest.", get),
        operation(
            Method::DELETE,
            one,
            "remove_image",
            "Remove an image with all its names.",
            remove,
        )
        .access(Some(Access::Admin))
        .about("Refused while a sandbox or a snapshot uses it as its root.")
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
    /// Full names, with their registries.
    pub names: Vec<String>,
    /// The size of its layers in the store.
    pub size_bytes: u64,
    pub layers: u64,
    pub added_at_ms: u64,
    /// The default working directory of programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub workdir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub user: Option<String>,
    /// The default command.
    pub command: Vec<String>,
}

/// All images.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageList {
    pub images: Vec<Image>,
}

/// An image to pull.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PullImage {
    /// The image's name with a tag or a digest, such as `registry.example/team/app:2`.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
}

/// An image to make from a sandbox.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitSandbox {
    /// The image's name, such as `team/app:2`.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
}

/// A pull in progress.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PullUnderWay {
    pub image: String,
    /// Bytes of its layers on this host.
    pub bytes: u64,
    /// Bytes of all its layers; 0 until that is known.
    pub size_bytes: u64,
}

/// All pulls.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PullList {
    pub pulls: Vec<PullUnderWay>,
}

impl From<ListedImage> for Image {
    fn from(ListedImage { image, names }: ListedImage) -> Self {
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

/// Asks the store where it may wait for disks and locks.
async fn ask<T: Send + 'static>(
    call: &Call,
    ask: impl FnOnce(&Images) -> Result<T, ImageError> + Send + 'static,
) -> Result<T, Refusal> {
    let images = call.api.registry().images().cloned();
    let images = images.ok_or_else(|| Refusal::new(Code::NotFound, "this bridge has no images"))?;
    let answer = tokio::task::spawn_blocking(move || ask(&images));
    Ok(answer.await.unwrap_or(Err(ImageError::Busy))?)
}

/// The only namespace whose images a caller sees; `None` for callers who may do everything.
fn seen_by(call: &Call) -> Option<&str> {
    let own = call.caller.only_namespace().filter(|_| !call.caller.may(Access::Admin));
    own.map(Name::as_str)
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Reply<ImageList>, Refusal> {
    let images = ask(&call, Images::list).await?.into_iter();
    let seen = images.filter_map(|image| match seen_by(&call) {
        Some(namespace) => image.seen_by(namespace),
        None => Some(image),
    });
    Ok(Reply(ImageList { images: seen.map(Image::from).collect() }))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Image>, Refusal> {
    let digest: Digest = call.parameter("digest")?;
    let image = ask(&call, move |images| images.inspect(&digest.to_string())).await?;
    let seen = match seen_by(&call) {
        Some(namespace) => image.seen_by(namespace),
        None => Some(image),
    };
    // The same as for one that is not there.
    let hidden = || ImageError::NotFound { image: digest.to_string() };
    Ok(Reply(seen.ok_or_else(hidden)?.into()))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Image>, Refusal> {
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

async fn pull(
    call: Call,
    _: Nothing,
    Json(request): Json<PullImage>,
) -> Result<Reply<Image>, Refusal> {
    call.trail.image(Some(request.image.clone()), None);
    let name: Reference = request.image.parse().map_err(ImageError::Name)?;
    let puller = call.api.registry().puller().cloned();
    let puller = puller
        .ok_or_else(|| Refusal::new(Code::Unsupported, "this bridge does not pull images"))?;
    // An operator's is for all, unless the key is of one namespace.
    let namespace = call.caller.only_namespace().map(Name::as_str);
    let digest = puller.pull(&name, namespace).await?.digest;
    call.trail.image(None, Some(digest.to_string()));
    Ok(Reply(ask(&call, move |images| images.inspect(&digest.to_string())).await?.into()))
}

async fn commit(
    call: Call,
    _: Nothing,
    Json(request): Json<CommitSandbox>,
) -> Result<Created<Image>, Refusal> {
    let name: Reference = request.image.parse().map_err(ImageError::Name)?;
    let which = call.which()?;
    let digest = call.api.registry().commit(&which, name).await?.digest;
    call.trail.fact("committed", digest.to_string());
    Ok(Created(ask(&call, move |images| images.inspect(&digest.to_string())).await?.into()))
}

async fn pulls(call: Call, _: Nothing, _: Nothing) -> Result<Reply<PullList>, Refusal> {
    let puller = call.api.registry().puller();
    let under_way = puller.map(|puller| puller.under_way(seen_by(&call))).unwrap_or_default();
    let shown = |one: PullProgress| {
        let PullProgress { image, bytes, size } = one;
        PullUnderWay { image, bytes, size_bytes: size }
    };
    Ok(Reply(PullList { pulls: under_way.into_iter().map(shown).collect() }))
}

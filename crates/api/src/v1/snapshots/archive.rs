//! Snapshots on their way to another host: as an archive in the body of a request or an answer, or as an object
//! of a bucket.
//!
//! Who imports one has a monitor of this host load its memory, and monitors trust what they load. So an import
//! needs the scope `admin`, and an export only `run`, as a snapshot does.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::super::call::Call;
use super::super::super::outflow::{Source, outflow};
use super::super::super::route::{Operation, operation};
use super::super::super::shape::{Created, Json, Nothing, Reply};
use super::super::archives::{Archive, ArchiveResponse};
use super::Snapshot;
use access::keys::Access;
use sandbox::refusal::{Code, Refusal};
use workspace::s3::ObjectUrl;

/// What may be wrong with an import.
const REFUSED: &[Code] = &[
    Code::Conflict,
    Code::Unsupported,
    Code::TooLarge,
    Code::LimitReached,
    Code::CapExceeded,
    Code::Io,
];

pub(super) fn operations() -> [Operation; 4] {
    let archive = "/v1/snapshots/{namespace}/{name}/archive";
    [
        operation(Method::GET, archive, "export_snapshot", "Download a snapshot.", export)
            .run()
            .about(
                "A tar archive with everything that another host with the same kit needs to start from it: \
                the memory of its programs, with any secrets in it, too. If it cannot be sent to its end, \
                the connection is closed.",
            ),
        operation(Method::PUT, archive, "import_snapshot", "Upload a snapshot.", import)
            .access(Some(Access::Admin))
            .about(
                "The archive is compared with this host (kernel, initramfs, image, monitor, processor) \
                before its content is read, and with its digests before the snapshot exists. One that is \
                refused or cut off leaves nothing. A machine that is started from it trusts what is in it: \
                import only what comes from a host that you trust.",
            )
            .problems(REFUSED),
        operation(
            Method::POST,
            "/v1/snapshots/{namespace}/{name}/export",
            "export_snapshot_to_bucket",
            "Write a snapshot to a bucket.",
            export_to_bucket,
        )
        .run()
        .about(
            "The bucket must be one of a workspace in the server's configuration that the namespace may write. \
            An object that is there is not replaced.",
        )
        .problems(&[Code::Conflict, Code::UnknownWorkspace, Code::WorkspaceFailed]),
        operation(
            Method::POST,
            "/v1/snapshots/{namespace}/{name}/import",
            "import_snapshot_from_bucket",
            "Read a snapshot from a bucket.",
            import_from_bucket,
        )
        .access(Some(Access::Admin))
        .about("Like an upload, from a bucket of a workspace that the namespace may read.")
        .problems(&[
            Code::Conflict,
            Code::Unsupported,
            Code::TooLarge,
            Code::LimitReached,
            Code::CapExceeded,
            Code::Io,
            Code::UnknownWorkspace,
            Code::WorkspaceFailed,
        ]),
    ]
}

/// The form of an object's name. Which parts a key may have, a pattern cannot say.
const OBJECT: &str = "^s3://[^/]+/.+$";

/// An object to write.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportToBucket {
    /// `s3://BUCKET/KEY`.
    #[schemars(regex(pattern = OBJECT), length(max = 1200))]
    pub to: String,
}

/// An object to read.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportFromBucket {
    /// `s3://BUCKET/KEY`.
    #[schemars(regex(pattern = OBJECT), length(max = 1200))]
    pub from: String,
}

/// An object that was written.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exported {
    pub to: String,
    /// Its size.
    pub bytes: u64,
}

fn object(text: &str, field: &str) -> Result<ObjectUrl, Refusal> {
    text.parse().map_err(|error| Refusal::invalid(format!("{field}: {error}")))
}

async fn export(call: Call, _: Nothing, _: Nothing) -> Result<ArchiveResponse, Refusal> {
    let export = call.api.registry().export_snapshot(&call.which()?).await?;
    let bytes = export.bytes();
    let body = outflow(&call, Source::Pieces(export.pieces()), Some(bytes))?;
    Ok(ArchiveResponse::new(body))
}

async fn import(mut call: Call, _: Nothing, _: Archive) -> Result<Created<Snapshot>, Refusal> {
    let import = call.api.registry().import_snapshot(Some(call.which()?), call.caller.key());
    while let Some(piece) = call.body.chunk().await? {
        if !import.push(piece).await {
            break;
        }
    }
    Ok(Created(import.finish().await?.into()))
}

async fn export_to_bucket(
    call: Call,
    _: Nothing,
    Json(request): Json<ExportToBucket>,
) -> Result<Reply<Exported>, Refusal> {
    let to = object(&request.to, "to")?;
    let bytes = call.api.registry().export_to_bucket(&call.which()?, &to).await?;
    Ok(Reply(Exported { to: to.to_string(), bytes }))
}

async fn import_from_bucket(
    call: Call,
    _: Nothing,
    Json(request): Json<ImportFromBucket>,
) -> Result<Created<Snapshot>, Refusal> {
    let from = object(&request.from, "from")?;
    let (which, key) = (call.which()?, call.caller.key());
    let namespace = which.namespace.clone();
    let registry = call.api.registry();
    let imported = registry.import_from_bucket(Some(which), &namespace, key, &from).await?;
    Ok(Created(imported.into()))
}

//! A bucket as a workspace.
//!
//! ```text
//!  bucket ── list, plan, get ──▶ files of the sandbox ◀──▶ Mirror ◀──▶ /workspace
//!     ▲                              │     [`staging`]
//!     └── put, delete ◀── push ◀─────┴── ledger: what the bucket had last
//! ```
//!
//! The mirror treats the files like any directory of the host; this module fills them before an exchange and
//! pushes changes to the bucket after it. Others use the bucket, too: an object that is not as we left it is
//! never overwritten. Its keys leave this process only as signatures.

mod bucket;
mod changes;
mod client;
mod directory;
mod error;
mod ledger;
pub(super) mod limits;
mod mode;
mod multipart;
mod objects;
mod pending;
mod plan;
mod push;
mod refusal;
mod sign;
mod staging;
mod wire;
mod xml;

pub use bucket::{Bucket, KeyNames, REGION_USUAL, is_bucket, is_region, parse_endpoint};
pub use error::S3Error;
pub use objects::{InvalidObjectUrl, ObjectUrl, Objects, begun_uploads};
pub use staging::Staging;

use client::Client;
use host::secret::Secrets;

/// A bucket, and where its keys are.
#[derive(Clone, Debug)]
pub struct BucketAccess {
    pub bucket: Bucket,
    pub secrets: Secrets,
}

impl BucketAccess {
    async fn client(&self) -> Result<Client, S3Error> {
        let keys = match &self.bucket.keys {
            Some(names) => Some(names.read(&self.secrets).await?),
            None => None,
        };
        Ok(Client::new(self.bucket.clone(), keys))
    }
}

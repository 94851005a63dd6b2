//! What a sandbox was given, for the audit log and the receipts that are made from it: path, length and SHA-256 of
//! what a client has sent. Nothing is digested where nothing is recorded.

use protocol::Text;
use ring::digest::{Context, SHA256};

use super::super::super::trail::Trail;
use host::hex;

pub struct Received(Option<Upload>);

struct Upload {
    path: String,
    bytes: u64,
    digest: Context,
}

impl Received {
    /// Before the first byte.
    pub fn begin(trail: &Trail, path: &Text) -> Self {
        let upload = || Upload { path: path.to_string(), bytes: 0, digest: Context::new(&SHA256) };
        Self(trail.is_kept().then(upload))
    }

    pub fn update(&mut self, bytes: &[u8]) {
        if let Some(upload) = &mut self.0 {
            upload.bytes = upload.bytes.saturating_add(bytes.len() as u64);
            upload.digest.update(bytes);
        }
    }

    /// All of it is in the sandbox.
    pub fn end(self, trail: &Trail, place: Option<String>) {
        let Some(Upload { path, bytes, digest }) = self.0 else { return };
        trail.fact("path", path);
        trail.fact("bytes", bytes);
        trail.fact("sha256", hex::digits(digest.finish().as_ref()));
        if let Some(place) = place {
            trail.fact("place", place);
        }
    }
}

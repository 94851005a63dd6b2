//! Large objects are uploaded in parts. Nobody sees them until they are completed, and abandoned uploads are
//! removed: the id is recorded before the first part, so that another bridge can do that, too.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use hyper::Method;
use ring::digest::{Context, SHA256};

use super::client::{Client, Condition, etag_of};
use super::error::S3Error;
use super::limits::{DOCUMENT_BYTES_MAX, PART_BYTES, PARTS_MAX, PIECE_BYTES, UPLOADS_MAX};
use super::mode;
use super::refusal::{Refusal, refusal};
use super::wire::{Content, Part, S3Request};
use super::xml::{self, XmlEvent, escape};
use crate::tree::digest_of;
use host::paths::write_durably;

const FILE: &str = "workspace.uploads";
const WHAT: &str = "writing an object in parts";

/// Uploads that have begun and are neither whole nor given up.
#[derive(Debug, Default)]
pub struct Uploads {
    directory: Option<PathBuf>,
    open: Mutex<Vec<(String, String)>>,
}

impl Uploads {
    /// Reads the uploads that an earlier bridge left.
    pub fn read(directory: Option<PathBuf>) -> Self {
        let read = directory.as_ref().and_then(|directory| fs::read(directory.join(FILE)).ok());
        // A torn record was about to be written; no upload depends on it.
        let open = read.and_then(|bytes| rmp_serde::from_slice(&bytes).ok()).unwrap_or_default();
        Self { directory, open: Mutex::new(open) }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<(String, String)>)) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut open);
        let Some(directory) = &self.directory else { return Ok(()) };
        let bytes = rmp_serde::to_vec(&*open).map_err(io::Error::other)?;
        write_durably(directory, FILE, &bytes)
    }

    /// Aborts uploads that nobody continues.
    pub async fn give_up(&self, client: &Client) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (key, id) in open {
            if client.abort(&key, &id).await {
                // If this cannot be recorded, they are aborted again the next time.
                let _ = self.change(|open| open.retain(|(_, known)| *known != id));
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl Client {
    /// Like [`Client::put`], for a large file.
    pub async fn put_parts(
        &self,
        key: &str,
        part: Part,
        mode: u32,
        condition: &Condition,
        uploads: &Uploads,
    ) -> Result<String, S3Error> {
        let ask = S3Request::new(WHAT, Method::POST, key)
            .query("uploads", "")
            .header("content-type", "application/octet-stream")
            .header(mode::HEADER, mode::write(mode));
        let body = self.post(WHAT, ask, String::new()).await?;
        let mut id = None;
        let read = xml::read(&body, |element| {
            if let XmlEvent::Leaf("InitiateMultipartUploadResult/UploadId", text) = element {
                id = Some(text);
            }
        });
        read.map_err(|why| S3Error::Malformed { what: WHAT, why })?;
        let id = id.ok_or(S3Error::Lacks { what: WHAT, lacks: "the id of the upload" })?;
        uploads.change(|open| {
            open.push((key.to_owned(), id.clone()));
            // The bucket has to clean up uploads that cannot be aborted.
            open.drain(..open.len().saturating_sub(UPLOADS_MAX));
        })?;
        let put = self.put_all(key, &id, part, condition).await;
        if put.is_ok() || self.abort(key, &id).await {
            uploads.change(|open| open.retain(|(_, known)| *known != id))?;
        }
        put
    }

    async fn put_all(
        &self,
        key: &str,
        id: &str,
        whole: Part,
        condition: &Condition,
    ) -> Result<String, S3Error> {
        let part_bytes = part_bytes(whole.bytes);
        let (mut offset, mut number) = (0, 0_u64);
        let mut list = String::from("<CompleteMultipartUpload>");
        while offset < whole.bytes {
            number += 1;
            let bytes = part_bytes.min(whole.bytes - offset);
            let part = read_part(whole.path.clone(), offset, bytes).await?;
            let mut ask = S3Request::new(WHAT, Method::PUT, key);
            ask = ask.query("partNumber", number.to_string()).query("uploadId", id);
            ask.content = Content::Part(part);
            let answer = self.wire.send(&ask).await?;
            let etag = escape(&etag_of(&answer, WHAT)?);
            self.wire.whole(WHAT, answer, DOCUMENT_BYTES_MAX).await?;
            let _ =
                write!(list, "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
            offset += bytes;
        }
        list += "</CompleteMultipartUpload>";
        let mut ask = S3Request::new(WHAT, Method::POST, key).query("uploadId", id);
        ask.content = Content::Whole(list.into());
        let answer = self.send_if(ask, condition).await?;
        let body = self.wire.whole(WHAT, answer, DOCUMENT_BYTES_MAX).await?;
        let (mut etag, mut is_error) = (None, false);
        let read = xml::read(&body, |element| match element {
            XmlEvent::Leaf("CompleteMultipartUploadResult/ETag", text) => etag = Some(text),
            XmlEvent::Leaf("Error/Code", _) => is_error = true,
            _ => {}
        });
        read.map_err(|why| S3Error::Malformed { what: WHAT, why })?;
        if is_error {
            // A server that has begun to answer well can only say so in the body.
            let element = Refusal { what: WHAT, status: 200, ..Refusal::default() };
            return Err(refusal(element, &body));
        }
        // Not the current object's tag: somebody else may have written that.
        let etag = etag.ok_or(S3Error::Lacks { what: WHAT, lacks: "the ETag of the object" })?;
        let etag = etag.trim();
        Ok(if etag.starts_with('"') { etag.to_owned() } else { format!("\"{etag}\"") })
    }

    /// Whether there is nothing left of an upload.
    async fn abort(&self, key: &str, id: &str) -> bool {
        let ask = S3Request::new("aborting an upload", Method::DELETE, key).query("uploadId", id);
        match self.wire.send(&ask).await {
            Ok(_) | Err(S3Error::Refused { status: 404, .. } | S3Error::NoBucket) => true,
            Err(_) => false,
        }
    }
}

/// The smallest size that S3's limit on parts allows.
fn part_bytes(bytes: u64) -> u64 {
    PART_BYTES.max(bytes.div_ceil(PARTS_MAX))
}

/// A part with its digest, which is signed before a byte is sent.
pub(super) async fn read_part(path: PathBuf, offset: u64, bytes: u64) -> io::Result<Part> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut file = fs::File::open(&path)?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(offset))?;
        let (mut rest, mut piece) = (file.take(bytes), vec![0; PIECE_BYTES]);
        let mut context = Context::new(&SHA256);
        loop {
            match rest.read(&mut piece)? {
                0 => return Ok(Part { path, offset, bytes, digest: digest_of(context) }),
                count => context.update(&piece[..count]),
            }
        }
    });
    reading.await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_parts_than_are_taken() {
        assert_eq!(part_bytes(20 << 20), PART_BYTES);
        let huge: u64 = 1 << 40;
        assert!(huge.div_ceil(part_bytes(huge)) <= PARTS_MAX);
    }
}

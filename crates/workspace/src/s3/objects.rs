//! Single objects that the bridge itself writes and reads, in the buckets that the configuration gives to
//! namespaces as workspaces: a workspace says which bucket, below which prefix, for whom, and with which keys.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::client::{Client, Condition};
use super::error::S3Error;
use super::limits::{KEY_BYTES_MAX, MULTIPART_ABOVE};
use super::multipart::{Uploads, read_part};
use super::wire::Part;
use super::{BucketAccess, is_bucket, mode};
use crate::{Workspace, WorkspaceError, Workspaces};
use host::id::RandomId;
use host::paths::make_private_directory;

const SCHEME: &str = "s3://";

/// An object as people write it: `s3://BUCKET/KEY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectUrl {
    pub bucket: String,
    pub key: String,
}

/// Why a text is not an [`ObjectUrl`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an object of a bucket: write s3://BUCKET/KEY, without empty parts, \".\" and \"..\""
)]
pub struct InvalidObjectUrl(pub String);

impl FromStr for ObjectUrl {
    type Err = InvalidObjectUrl;

    fn from_str(text: &str) -> Result<Self, InvalidObjectUrl> {
        let parts = text.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/'));
        let good = |part: &str| !matches!(part, "" | "." | "..");
        let is_key = |key: &str| {
            key.len() <= KEY_BYTES_MAX
                && key.split('/').all(good)
                && !key.contains(char::is_control)
        };
        let found = parts.filter(|(bucket, key)| is_bucket(bucket) && is_key(key));
        let (bucket, key) = found.ok_or_else(|| InvalidObjectUrl(shortened(text)))?;
        Ok(Self { bucket: bucket.to_owned(), key: key.to_owned() })
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(CHARS_SHOWN).collect()
}

/// How much of a text a refusal repeats.
const CHARS_SHOWN: usize = 200;

impl fmt::Display for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.bucket, self.key)
    }
}

impl ObjectUrl {
    /// Whether a text is meant as one, and not as the path of a file.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }
}

/// A bucket that a namespace may use, by the workspace of this name.
#[derive(Debug)]
pub struct Objects {
    workspace: String,
    access: BucketAccess,
}

impl Workspaces {
    /// The bucket of an object that a namespace may read.
    pub fn bucket_to_read(
        &self,
        namespace: &str,
        object: &ObjectUrl,
    ) -> Result<Objects, WorkspaceError> {
        self.bucket_of(namespace, object, |_| true)
    }

    /// The bucket of an object that a namespace may write.
    pub fn bucket_to_write(
        &self,
        namespace: &str,
        object: &ObjectUrl,
    ) -> Result<Objects, WorkspaceError> {
        self.bucket_of(namespace, object, |Workspace { bucket, policy, .. }| {
            let prefix = bucket.as_ref().map_or("", |access| access.bucket.prefix.as_str());
            let path = object.key.strip_prefix(prefix).unwrap_or(&object.key);
            policy.refusal(path.as_bytes()).is_none()
        })
    }

    fn bucket_of(
        &self,
        namespace: &str,
        object: &ObjectUrl,
        allows: impl Fn(&Workspace) -> bool,
    ) -> Result<Objects, WorkspaceError> {
        let mut found = self.names().filter_map(|name| {
            let workspace = self.find(namespace, name).ok()?;
            let bucket = &workspace.bucket.as_ref()?.bucket;
            let is_it = bucket.name == object.bucket && object.key.starts_with(&bucket.prefix);
            (is_it && allows(&workspace)).then_some((name, workspace))
        });
        let unknown = || WorkspaceError::NoBucket {
            object: object.to_string(),
            namespace: namespace.to_owned(),
        };
        let (name, workspace) = found.next().ok_or_else(unknown)?;
        let access = workspace.bucket.ok_or_else(unknown)?;
        Ok(Objects { workspace: name.to_owned(), access })
    }

    /// Gives up uploads that an earlier bridge has begun and not ended. What cannot be given up now, the next
    /// bridge tries again.
    pub async fn give_up_uploads(&self, begun: Vec<PathBuf>) {
        for record in begun {
            let name = record.file_name().map(|name| name.to_string_lossy().into_owned());
            let name = name.unwrap_or_default();
            let workspace = name.rsplit_once(BEFORE_ID).map_or("", |(workspace, _)| workspace);
            let uploads = Uploads::read(Some(record.clone()));
            if let (Some(access), false) = (self.access(workspace), uploads.is_empty())
                && let Ok(client) = access.client().await
            {
                uploads.give_up(&client).await;
            }
            forget(&record, &uploads);
        }
    }
}

/// Comes between the name of a workspace and the id of an upload.
const BEFORE_ID: char = '.';

/// The records of uploads that have begun, in the directory for them.
pub fn begun_uploads(records: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(records).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Removes the record of an upload of which nothing is left in the bucket.
fn forget(record: &Path, uploads: &Uploads) {
    if uploads.is_empty() {
        let _ = fs::remove_dir_all(record);
    }
}

impl Objects {
    /// Writes a file as an object that is not there yet. `records` is where begun uploads are noted.
    pub async fn upload(
        &self,
        key: &str,
        path: &Path,
        bytes: u64,
        records: &Path,
    ) -> Result<(), WorkspaceError> {
        let client = self.client().await?;
        let taken = || WorkspaceError::ObjectTaken { key: key.to_owned() };
        if client.head(key).await.map_err(boxed)?.is_some() {
            return Err(taken());
        }
        let mode = mode::USUAL;
        let put = if bytes > MULTIPART_ABOVE {
            let id = RandomId::draw().map_err(file)?;
            let record = records.join(format!("{}{BEFORE_ID}{id}", self.workspace));
            make_private_directory(&record).map_err(file)?;
            let uploads = Uploads::read(Some(record.clone()));
            let whole = Part { path: path.to_owned(), offset: 0, bytes, digest: [0; 32] };
            let put = client.put_parts(key, whole, mode, &Condition::New, &uploads).await;
            forget(&record, &uploads);
            put
        } else {
            let read = read_part(path.to_owned(), 0, bytes).await;
            let part = read.map_err(file)?;
            client.put(key, part, mode, &Condition::New).await
        };
        match put {
            Ok(_) => Ok(()),
            Err(S3Error::Refused { status: 412, .. }) => Err(taken()),
            Err(error) => Err(boxed(error)),
        }
    }

    /// The size of an object.
    pub async fn size(&self, key: &str) -> Result<u64, WorkspaceError> {
        let head = self.client().await?.head(key).await.map_err(boxed)?;
        head.map(|head| head.bytes).ok_or_else(|| WorkspaceError::NoObject { key: key.to_owned() })
    }

    /// Reads an object into an empty file.
    pub async fn download(
        &self,
        key: &str,
        into: &mut tokio::fs::File,
        bytes_max: u64,
    ) -> Result<(), WorkspaceError> {
        let fetched = self.client().await?.get(key, Some(into), bytes_max).await.map_err(boxed)?;
        fetched.map(drop).ok_or_else(|| WorkspaceError::NoObject { key: key.to_owned() })
    }

    async fn client(&self) -> Result<Client, WorkspaceError> {
        self.access.client().await.map_err(boxed)
    }
}

fn file(source: io::Error) -> WorkspaceError {
    boxed(S3Error::File(source))
}

fn boxed(error: S3Error) -> WorkspaceError {
    WorkspaceError::Bucket(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_a_bucket_and_a_plain_key() {
        let url: ObjectUrl = "s3://data/snapshots/a b.snapshot".parse().unwrap();
        assert_eq!((url.bucket.as_str(), url.key.as_str()), ("data", "snapshots/a b.snapshot"));
        assert_eq!(url.to_string(), "s3://data/snapshots/a b.snapshot");
        let wrong = [
            "s3://data",
            "s3://data/",
            "s3:///key",
            "s3://D/key",
            "http://data/key",
            "data/key",
            "s3://data/a//b",
            "s3://data/a/../b",
            "s3://data/./b",
            "s3://data/a\n",
            "s3://data//a",
        ];
        for text in wrong {
            assert!(text.parse::<ObjectUrl>().is_err(), "{text}");
        }
        let long = format!("s3://data/{}", "k".repeat(KEY_BYTES_MAX + 1));
        assert!(long.parse::<ObjectUrl>().is_err());
    }
}

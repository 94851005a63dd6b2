//! Files as clients see them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::Text;
use protocol::message::{FileInfo, FileKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an absolute path looks like.
pub const PATH: &str = r"^/[^\u0000]*$";

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// The last component of its path; invalid UTF-8 is shown as U+FFFD.
    pub name: String,
    /// The exact bytes of the name, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub name_base64: Option<String>,
    pub kind: Kind,
    pub bytes: u64,
    /// Octal, with setuid, setgid and sticky.
    #[schemars(regex(pattern = "^[0-7]{4}$"))]
    pub permissions: String,
    pub uid: u32,
    pub gid: u32,
    /// When its content was last changed, in milliseconds since 1970.
    pub modified_ms: i64,
    /// The target of a symlink; invalid UTF-8 is shown as U+FFFD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub target: Option<String>,
    /// The exact bytes of the target, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub target_base64: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    BlockDevice,
    CharDevice,
}

/// A page of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilePage {
    pub entries: Vec<FileEntry>,
    /// The value for `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next: Option<String>,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileWritten {
    /// Bytes of this body.
    pub bytes: u64,
}

/// The result of unpacking an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArchiveUnpacked {
    /// Bytes of the files in it.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
}

/// Bytes as text for people, and exactly where that is not the same.
pub fn shown(text: &Text) -> (String, Option<String>) {
    let bytes = text.as_bytes();
    let exact = std::str::from_utf8(bytes).is_err().then(|| STANDARD.encode(bytes));
    (text.to_string_lossy().into_owned(), exact)
}

impl From<FileInfo> for FileEntry {
    fn from(info: FileInfo) -> Self {
        let (name, name_base64) = shown(&info.name);
        let (target, target_base64) = info.target.as_ref().map(shown).unzip();
        Self {
            name,
            name_base64,
            kind: info.kind.into(),
            bytes: info.bytes,
            permissions: format!("{:04o}", info.permissions & 0o7777),
            uid: info.uid,
            gid: info.gid,
            modified_ms: info.modified_ms,
            target,
            target_base64: target_base64.flatten(),
        }
    }
}

impl From<FileKind> for Kind {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::File => Self::File,
            FileKind::Directory => Self::Directory,
            FileKind::Symlink => Self::Symlink,
            FileKind::Fifo => Self::Fifo,
            FileKind::Socket => Self::Socket,
            FileKind::BlockDevice => Self::BlockDevice,
            FileKind::CharDevice => Self::CharDevice,
        }
    }
}

//! A file as E2B's clients read it.

use protocol::message::{FileInfo, FileKind};
use serde_json::{Value, json};

use crate::e2b::limits::VALUE_BYTES;
use crate::entries::{Passwd, permissions};
use crate::refusal::of_file as refused;
use agent_client::guest::Guest;
use sandbox::refusal::Refusal;

/// What is at a path; a link is itself.
pub async fn entry_at(guest: &Guest, passwd: &Passwd, path: &str) -> Result<Value, Refusal> {
    let info = guest.stat(path, false).await.map_err(refused)?;
    Ok(shown(guest, passwd, path, info).await)
}

/// The same of what has been looked at. Of a link, kind and mode are those of its target.
pub async fn shown(guest: &Guest, passwd: &Passwd, path: &str, info: FileInfo) -> Value {
    let target = info.target.as_ref().map(|target| beside(path, &target.to_string()));
    let of_target = match &target {
        Some(_) => guest.stat(path, true).await.ok(),
        None => None,
    };
    let name = path.rsplit('/').next().unwrap_or_default();
    let seen = of_target.as_ref().or((info.kind != FileKind::Symlink).then_some(&info));
    let mode = seen.map_or(info.permissions, |seen| seen.permissions);
    let mut entry = json!({
        "name": name,
        "type": kind(seen.map(|seen| seen.kind)),
        "path": path,
        "size": info.bytes.to_string(),
        "mode": mode,
        "permissions": permissions(info.kind, mode),
        "owner": passwd.name_of(info.uid),
        "group": passwd.name_of(info.gid),
        "modifiedTime": host::instant::format(u64::try_from(info.modified_ms).unwrap_or(0)),
    });
    if let Some(target) = target {
        entry["symlinkTarget"] = target.into();
        entry["isSymlink"] = true.into();
    }
    entry
}

/// What a value takes in memory and in its answer, about.
pub fn memory_bytes(value: &Value) -> usize {
    let below: usize = match value {
        Value::String(text) => 2 * text.len(),
        Value::Array(values) => values.iter().map(memory_bytes).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| 2 * name.len() + memory_bytes(value)).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    VALUE_BYTES + below
}

/// Where a link leads that is at `path`.
fn beside(path: &str, target: &str) -> String {
    if target.starts_with('/') {
        return target.to_owned();
    }
    let above = path.rsplit_once('/').map_or("", |(above, _)| above);
    let mut parts: Vec<&str> = above.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn kind(kind: Option<FileKind>) -> &'static str {
    match kind {
        Some(FileKind::File) => "FILE_TYPE_FILE",
        Some(FileKind::Directory) => "FILE_TYPE_DIRECTORY",
        _ => "FILE_TYPE_UNSPECIFIED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_beside_itself_or_from_the_root() {
        assert_eq!(beside("/a/b/link", "c"), "/a/b/c");
        assert_eq!(beside("/a/b/link", "../c"), "/a/c");
        assert_eq!(beside("/a/b/link", "/c"), "/c");
        assert_eq!(beside("/link", "../../c"), "/c");
    }
}

//! Reads the guest's tree. Everything in it comes from a hostile guest.

use std::collections::BTreeMap;

use protocol::message::{FileInfo, FileKind};
use protocol::{FaultCode, Text};

use super::WORKSPACE;
use super::error::{WorkspaceError, shown};
use super::limits::{DEPTH_MAX, LINK_BYTES_MAX, NAME_BYTES_MAX};
use super::manifest::{GuestStamp, Kind};
use super::policy::Count;
use agent_client::guest::{Guest, GuestError};
use host::byte_path::join;

/// An entry of the guest's tree.
#[derive(Clone, Debug)]
pub struct GuestEntry {
    /// `None` for devices, pipes and sockets.
    pub kind: Option<Kind>,
    pub stamp: GuestStamp,
}

/// All paths of a tree.
pub type GuestEntries = BTreeMap<Vec<u8>, GuestEntry>;

/// A path of the guest's.
pub fn inside(path: &[u8]) -> Text {
    Text::from([WORKSPACE.as_bytes(), b"/", path].concat())
}

/// Looks through the whole workspace. What vanishes meanwhile is not there.
pub async fn walk(guest: &Guest, entries_max: u64) -> Result<GuestEntries, WorkspaceError> {
    check_root(guest).await?;
    let (mut seens, mut count) = (GuestEntries::new(), Count::new(entries_max));
    let mut waiting = vec![(Vec::new(), 0_usize)];
    while let Some((directory, depth)) = waiting.pop() {
        let place = if directory.is_empty() { Text::from(WORKSPACE) } else { inside(&directory) };
        let mut after: Option<Text> = None;
        loop {
            let page = match guest.list_page(&place, after.as_ref()).await {
                // The workspace itself existed a moment ago, so its absence is not a deletion.
                Err(error) if is_gone(&error) && !directory.is_empty() => break,
                page => page?,
            };
            after = page.entries.last().map(|info| info.name.clone());
            for info in page.entries {
                let path = join(&directory, check_name(&info)?);
                let seen = seen(info)?;
                if seen.kind == Some(Kind::Directory) {
                    if depth + 1 >= DEPTH_MAX {
                        let path = shown(&path);
                        return Err(WorkspaceError::TooDeep { path, depth_max: DEPTH_MAX });
                    }
                    waiting.push((path.clone(), depth + 1));
                }
                count.add(&path, &seen.stamp.target)?;
                seens.insert(path, seen);
            }
            if !page.more {
                break;
            }
        }
    }
    // One that was moved away meanwhile has lost nothing.
    check_root(guest).await?;
    Ok(seens)
}

async fn check_root(guest: &Guest) -> Result<(), WorkspaceError> {
    match guest.stat(WORKSPACE, false).await {
        Ok(info) if info.kind == FileKind::Directory => Ok(()),
        Err(error) if !is_gone(&error) => Err(error.into()),
        _ => Err(WorkspaceError::NoRoot),
    }
}

pub fn is_gone(error: &GuestError) -> bool {
    error.fault_code() == Some(FaultCode::NotFound)
}

fn check_name(info: &FileInfo) -> Result<&[u8], WorkspaceError> {
    let name = info.name.as_bytes();
    let is_good = !matches!(name, b"" | b"." | b"..")
        && name.len() <= NAME_BYTES_MAX
        && !name.iter().any(|byte| matches!(byte, b'/' | 0));
    if is_good { Ok(name) } else { Err(WorkspaceError::Malformed { what: "an invalid file name" }) }
}

fn seen(info: FileInfo) -> Result<GuestEntry, WorkspaceError> {
    let kind = match info.kind {
        FileKind::File => Some(Kind::File),
        FileKind::Directory => Some(Kind::Directory),
        FileKind::Symlink => Some(Kind::Link),
        FileKind::Fifo | FileKind::Socket | FileKind::BlockDevice | FileKind::CharDevice => None,
    };
    let target = info.target.map(Text::into_bytes).unwrap_or_default();
    let is_link = kind == Some(Kind::Link);
    if is_link && (target.is_empty() || target.len() > LINK_BYTES_MAX || target.contains(&0)) {
        return Err(WorkspaceError::Malformed { what: "a link without a target" });
    }
    // A directory's size, mode and time only reflect its entries.
    let is_file = kind == Some(Kind::File);
    let stamp = GuestStamp {
        bytes: if is_file { info.bytes } else { 0 },
        mode: if is_file { info.permissions & super::tree::MODE_KEPT } else { 0 },
        modified_ms: if is_file { info.modified_ms } else { 0 },
        target: if is_link { target } else { Vec::new() },
    };
    Ok(GuestEntry { kind, stamp })
}

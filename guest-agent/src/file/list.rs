//! The names in a directory, page by page.
//!
//! A directory may have millions of names, in no order. Each page reads all of them and keeps the
//! smallest that are greater than the end of the last page: each page takes that time again, but
//! the memory never grows.

use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::path::Path;

use protocol::Fault;
use protocol::limits::ENTRIES_PAGE_MAX;
use protocol::message::{Entries, FileInfo, Reply};
use protocol::requests::List;

use super::limits::{ENTRY_BYTES, PAGE_BYTES_MAX};
use super::names::Names;
use super::refusal::refused;
use super::{info, path};
use crate::task::blocking;

/// Answers one page of a directory.
pub async fn list(ask: List) -> Result<Reply, Fault> {
    blocking(move || {
        let path = path::absolute(ask.path)?;
        let directory = info::open_directory(&path)?;
        let mut after = ask.after.map(protocol::Text::into_bytes).unwrap_or_default();
        loop {
            let (names, more) = smallest(&directory, &path, &after)?;
            let last = names.last().cloned();
            let page = describe(&directory, names, more);
            match last {
                // All entries of the page have been removed meanwhile. An empty page with more
                // after it would leave the client without a name to continue from.
                Some(last) if page.entries.is_empty() && page.more => after = last,
                _ => return Ok(Reply::Entries(page)),
            }
        }
    })
    .await
}

/// The smallest names greater than `after`, a page of them at most, in order; and whether there
/// are more.
fn smallest(directory: &OwnedFd, path: &Path, after: &[u8]) -> Result<(Vec<Vec<u8>>, bool), Fault> {
    let refuse = |errno| refused("list", path, errno);
    let mut names = Names::default();
    // The descriptor was read before if this is not the first attempt.
    names.rewind(directory).map_err(refuse)?;
    let mut heap = BinaryHeap::new();
    let mut more = false;
    while let Some(name) = names.next(directory).map_err(refuse)? {
        if name.bytes.as_slice() <= after {
            continue;
        }
        heap.push(name.bytes);
        if heap.len() > ENTRIES_PAGE_MAX {
            heap.pop();
            more = true;
        }
    }
    Ok((heap.into_sorted_vec(), more))
}

/// The entries for these names, as many as fit one answer.
fn describe(directory: &OwnedFd, names: Vec<Vec<u8>>, more: bool) -> Entries {
    let mut page = Entries { entries: Vec::with_capacity(names.len()), more };
    let mut bytes = 0;
    for name in names {
        // Gone since it was read.
        let Ok(status) = info::status(directory, name.as_slice(), false) else { continue };
        let entry = info::describe(directory, name.as_slice(), name.clone(), &status);
        bytes += entry_bytes(&entry);
        if bytes > PAGE_BYTES_MAX {
            page.more = true;
            break;
        }
        page.entries.push(entry);
    }
    page
}

fn entry_bytes(entry: &FileInfo) -> usize {
    let target = entry.target.as_ref().map_or(0, |target| target.as_bytes().len());
    ENTRY_BYTES + entry.name.as_bytes().len() + target
}

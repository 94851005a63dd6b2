//! Writes the guest's changes to the host, unless the host changed the same path. It never overwrites or
//! removes a file that did not come from this sandbox.

use std::io;

use rustix::io::Errno;

use super::explain::{explain, may_pass};
use super::guest::GuestEntry;
use super::limits::CONFLICTS_PER_FILE_MAX;
use super::manifest::{Digest, HostStamp, Kind, KnownPath};
use super::take::{TakeBack, beside};
use super::tree::{Temporary, TreeEntry};
use super::usage::Usage;
use host::byte_path::split;

/// What to do with a temporary file.
enum Verdict {
    /// The name is free.
    New,
    /// The existing file is what this sandbox was given or has written.
    Replace,
    /// The host has the same by itself.
    Same(HostStamp),
    Conflict,
}

impl TakeBack {
    /// Gives a complete file its name.
    pub(super) fn put(
        &mut self,
        path: &[u8],
        seen: &GuestEntry,
        kind: Kind,
        known: Option<&KnownPath>,
        mut temporary: Temporary,
        digest: Digest,
    ) {
        // It is complete, but the exchange was cancelled.
        if self.end.is_cancelled() {
            return;
        }
        let settled = self.is_settled(seen);
        let put = self.judge(path, known, &digest).and_then(|verdict| match verdict {
            Verdict::Same(stamp) => Ok(Some((stamp, digest))),
            Verdict::New | Verdict::Replace => {
                self.manifest.intend(path, digest)?;
                let is_new = matches!(verdict, Verdict::New);
                match temporary.place(split(path).1, is_new) {
                    // Somebody made it in this moment.
                    Err(Errno::EXIST) => {
                        self.keep_beside(path, &mut temporary, &digest)?;
                        Ok(known.and_then(|known| known.host))
                    }
                    placed => {
                        placed?;
                        self.report.write(path);
                        Ok(self.tree.look(path)?.map(|found| (found.stamp, digest)))
                    }
                }
            }
            Verdict::Conflict => {
                self.keep_beside(path, &mut temporary, &digest)?;
                Ok(known.and_then(|known| known.host))
            }
        });
        match put {
            Ok(host) => self.know(path, kind, seen, host, settled),
            Err(error) => {
                self.report.refuse(path, explain(&error));
                // The guest's file is as it was seen; the host's is as it was.
                let host = known.and_then(|known| known.host);
                self.know(path, kind, seen, host, !may_pass(&error));
            }
        }
    }

    fn judge(
        &self,
        path: &[u8],
        known: Option<&KnownPath>,
        digest: &Digest,
    ) -> io::Result<Verdict> {
        let Some(found) = self.tree.look(path)? else { return Ok(Verdict::New) };
        if known.and_then(|known| known.host).is_some_and(|(stamp, _)| stamp == found.stamp) {
            return Ok(Verdict::Replace);
        }
        Ok(match self.tree.digest(path, found.kind)? {
            Some(theirs) if theirs == *digest => Verdict::Same(found.stamp),
            Some(theirs) if self.manifest.is_ours(path, &theirs) => Verdict::Replace,
            _ => Verdict::Conflict,
        })
    }

    fn keep_beside(
        &mut self,
        path: &[u8],
        temporary: &mut Temporary,
        digest: &Digest,
    ) -> io::Result<()> {
        let bytes = temporary.bytes()?;
        let mut why = format!("there are already {CONFLICTS_PER_FILE_MAX} copies of it");
        for number in 1..=CONFLICTS_PER_FILE_MAX {
            let copy = beside(path, &self.owner, number);
            if let Some(found) = self.tree.look(&copy)? {
                // An exchange that was cut off has kept it already.
                let theirs = self.tree.digest(&copy, found.kind)?;
                if theirs.as_ref() == Some(digest) {
                    self.count_copy(path, copy, bytes);
                    return Ok(());
                }
                continue;
            }
            if let Some(full) = self.held.refusal(Usage::copy(bytes), &self.policy) {
                why = full;
                break;
            }
            match temporary.place(split(&copy).1, true) {
                // Somebody made it in this moment.
                Err(Errno::EXIST) => {}
                placed => {
                    placed?;
                    self.count_copy(path, copy, bytes);
                    return Ok(());
                }
            }
        }
        let what = "it was changed on the host too, and the sandbox's version could not be kept";
        self.report.refuse(path, format!("{what}: {why}"));
        Ok(())
    }

    fn count_copy(&mut self, path: &[u8], copy: Vec<u8>, bytes: u64) {
        self.report.conflict(path, Some(&copy));
        if self.manifest.copies.insert(copy, bytes).is_none() {
            self.held.add(Usage::copy(bytes));
        }
    }

    /// Counts the copies of earlier exchanges that still exist. Copies that somebody removed no longer count.
    pub(super) fn count_copies(&mut self) {
        let (tree, held) = (&self.tree, &mut self.held);
        self.manifest.copies.retain(|copy, bytes| {
            let found = tree.look(copy);
            if let Ok(Some(found)) = &found {
                *bytes = found.stamp.bytes;
            }
            let is_there = !matches!(found, Ok(None));
            if is_there {
                held.add(Usage::copy(*bytes));
            }
            is_there
        });
    }

    /// Deletes a file, if the host has what this sandbox was given or has written.
    pub(super) fn delete(&mut self, path: &[u8], known: &KnownPath) {
        self.delete_there(path, known);
        self.forget(path);
    }

    fn delete_there(&mut self, path: &[u8], known: &KnownPath) {
        let Ok(Some(found)) = self.tree.look(path) else { return };
        // The host's own file never belonged to this sandbox.
        let Some((stamp, _)) = known.host else { return };
        if let Some(why) = self.policy.refusal(path) {
            self.report.refuse(path, format!("its deletion: {why}"));
            return;
        }
        let is_directory = known.kind == Kind::Directory && found.kind == Some(Kind::Directory);
        if !is_directory && found.stamp != stamp && !self.holds_ours(path, &found) {
            self.report.conflict(path, None);
            return;
        }
        match self.tree.remove(path, known.kind) {
            Ok(()) => self.report.delete(path),
            // The host has put something into it, or has removed it in this moment.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => {}
            Err(errno) => self.report.refuse(path, explain(&errno.into())),
        }
    }

    /// Deletes a file that an earlier bridge wrote in its last moment and that the sandbox has removed since.
    pub(super) fn delete_unfinished(&mut self, path: &[u8]) {
        let Ok(Some(found)) = self.tree.look(path) else { return };
        if let Some(kind) = found.kind
            && self.holds_ours(path, &found)
            && self.tree.remove(path, kind).is_ok()
        {
            self.report.delete(path);
        }
    }

    fn holds_ours(&self, path: &[u8], found: &TreeEntry) -> bool {
        let theirs = self.tree.digest(path, found.kind).ok().flatten();
        theirs.is_some_and(|theirs| self.manifest.is_ours(path, &theirs))
    }

    fn forget(&mut self, path: &[u8]) {
        if let Some(known) = self.manifest.known.remove(path) {
            self.held.take(Usage::of(&known));
        }
    }
}

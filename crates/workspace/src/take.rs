//! Copies back what the guest has changed since the last exchange, file by file. It runs on a blocking
//! thread, which also waits for the guest's answers.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use ring::digest::{Context, SHA256};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::cancellation::Cancellation;
use super::guest::{GuestEntries, GuestEntry, inside, is_gone};
use super::limits::{SETTLED_AFTER_MS, SYNC_DEADLINE};
use super::manifest::{Digest, Kind, KnownPath, Manifest};
use super::report::Report;
use super::tree::{Tree, digest_of, digest_of_link, is_temporary, settle};
use super::usage::Usage;
use super::{Policy, TransferCounter, WorkspaceError};
use agent_client::guest::{Guest, GuestError, Piece};
use host::byte_path::split;

/// One exchange.
pub struct TakeBack {
    pub guest: Guest,
    pub tree: Arc<Tree>,
    pub policy: Policy,
    pub manifest: Manifest,
    pub report: Report,
    pub carried: TransferCounter,
    /// The number of the next temporary file.
    pub number: u64,
    /// The owner of conflict copies.
    pub owner: String,
    /// What the host has of this workspace, conflict copies included.
    pub held: Usage,
    /// Cancelled when nothing more may come back.
    pub end: Cancellation,
    pub runtime: Handle,
    pub deadline: Instant,
    /// Milliseconds since 1970 at which the guest was looked at.
    pub looked_ms: u64,
}

impl TakeBack {
    /// Carries all changes, as far as possible; what was done is recorded in any case.
    pub fn carry(&mut self, seens: &GuestEntries) -> Result<(), WorkspaceError> {
        self.held = self.manifest.known.values().map(Usage::of).collect();
        self.count_copies();
        let carried = self.carry_all(seens);
        let saved = self.manifest.save().map_err(WorkspaceError::Manifest);
        carried.and(saved)
    }

    fn carry_all(&mut self, seens: &GuestEntries) -> Result<(), WorkspaceError> {
        // The innermost first, so that directories are empty when it is their turn.
        let known = self.manifest.known.iter().rev();
        let (replaced, gone): (Vec<_>, Vec<_>) = known
            .filter(|(path, known)| {
                let seen = seens.get(*path).and_then(|seen| seen.kind);
                let is_directory = |kind| kind == Kind::Directory;
                seen.is_none_or(|kind| is_directory(kind) != is_directory(known.kind))
            })
            .map(|(path, known)| (path.clone(), known.clone()))
            .partition(|(path, _)| is_replaced(path, seens));
        for (path, known) in replaced {
            self.end.check()?;
            self.delete(&path, &known);
        }
        // Deletions make room for new files.
        self.held.take(gone.iter().map(|(_, known)| Usage::of(known)).collect());
        for path in self.manifest.unfinished() {
            self.end.check()?;
            if !seens.contains_key(&path) {
                self.delete_unfinished(&path);
            }
        }
        for (path, seen) in seens {
            self.end.check()?;
            if Instant::now() >= self.deadline {
                return Err(WorkspaceError::Overran { seconds: SYNC_DEADLINE.as_secs() });
            }
            self.look_at(path, seen)?;
        }
        self.manifest.left_out.retain(|path| seens.contains_key(path));
        // Deletions come after all writes: a moved file must exist at its new path first. And what
        // was only missing for a moment, while its directory was listed, stays.
        for (path, known) in gone {
            self.end.check()?;
            if Instant::now() >= self.deadline {
                return Err(WorkspaceError::Overran { seconds: SYNC_DEADLINE.as_secs() });
            }
            self.held.add(Usage::of(&known));
            if self.is_gone_for_good(&path)? {
                self.delete(&path, &known);
            }
        }
        Ok(())
    }

    fn is_gone_for_good(&self, path: &[u8]) -> Result<bool, WorkspaceError> {
        match self.runtime.block_on(self.guest.stat(inside(path), false)) {
            Err(error) if is_gone(&error) => Ok(true),
            // It exists again, or may exist; the next request reports it.
            Ok(_) | Err(GuestError::Fault(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn look_at(&mut self, path: &[u8], seen: &GuestEntry) -> Result<(), WorkspaceError> {
        let Some(kind) = seen.kind else {
            self.leave_out(path, "devices, pipes and sockets are not copied");
            return Ok(());
        };
        if path.split(|byte| *byte == b'/').any(is_temporary) {
            self.leave_out(path, "its name is reserved for files that are being written");
            return Ok(());
        }
        let known = self.manifest.known.get(path).cloned();
        let is_same = |known: &KnownPath| known.kind == kind && known.guest == seen.stamp;
        if known.as_ref().is_some_and(|known| is_same(known) && known.settled) {
            return Ok(());
        }
        if let Some(why) = self.policy.refusal(path) {
            // If the file is unchanged, its other attributes do not matter here.
            if !known.as_ref().is_some_and(is_same) {
                self.report.refuse(path, why);
            }
            self.know(path, kind, seen, known.and_then(|known| known.host), true);
            return Ok(());
        }
        let has = known.as_ref().map(Usage::of).unwrap_or_default();
        let one = Usage { bytes: 0, entries: 1 - has.entries };
        if let Some(why) = self.held.refusal(one, &self.policy).filter(|_| one.entries > 0) {
            self.report.refuse(path, why);
            self.know(path, kind, seen, None, true);
            return Ok(());
        }
        match kind {
            Kind::Directory => self.make_directory(path, seen),
            Kind::Link => self.take_link(path, seen, known.as_ref()),
            Kind::File => self.take_file(path, seen, known.as_ref())?,
        }
        Ok(())
    }

    fn leave_out(&mut self, path: &[u8], why: &str) {
        if self.manifest.left_out.insert(path.to_vec()) {
            self.report.refuse(path, why);
        }
    }

    fn make_directory(&mut self, path: &[u8], seen: &GuestEntry) {
        let stands = |tree: &Tree| tree.look(path).ok().flatten();
        let before = stands(&self.tree);
        match self.tree.make_directory(path) {
            Ok(()) => {
                if before.is_none() {
                    self.report.write(path);
                }
                let host = stands(&self.tree).map(|found| (found.stamp, Digest::default()));
                self.know(path, Kind::Directory, seen, host, true);
            }
            Err(errno) => self.give_up(path, Kind::Directory, seen, &errno.into()),
        }
    }

    fn take_link(&mut self, path: &[u8], seen: &GuestEntry, known: Option<&KnownPath>) {
        self.number += 1;
        let target = &seen.stamp.target;
        match self.tree.temporary_link(path, self.number, target) {
            Ok(temporary) => {
                let kind = Kind::Link;
                self.put(path, seen, kind, known, temporary, digest_of_link(target));
            }
            Err(errno) => self.give_up(path, Kind::Link, seen, &errno.into()),
        }
    }

    fn take_file(
        &mut self,
        path: &[u8],
        seen: &GuestEntry,
        known: Option<&KnownPath>,
    ) -> Result<(), WorkspaceError> {
        let host = known.and_then(|known| known.host);
        let before = known.map(Usage::of).unwrap_or_default();
        let Policy { file_bytes_max, total_bytes_max, .. } = self.policy;
        let room = total_bytes_max.saturating_sub(self.held.bytes.saturating_sub(before.bytes));
        let bytes_max = file_bytes_max.min(room);
        let too_large = || {
            if bytes_max == file_bytes_max {
                format!("it is larger than {file_bytes_max} bytes, the limit for a file")
            } else {
                format!("the workspace would have more than {total_bytes_max} bytes, its limit")
            }
        };
        if seen.stamp.bytes > bytes_max {
            self.report.refuse(path, too_large());
            self.know(path, Kind::File, seen, host, true);
            return Ok(());
        }
        self.number += 1;
        let (temporary, mut file) = match self.tree.temporary(path, self.number) {
            Ok(made) => made,
            Err(errno) => {
                self.give_up(path, Kind::File, seen, &errno.into());
                return Ok(());
            }
        };
        let fetching = fetch(&self.guest, path, &mut file, bytes_max, &self.carried);
        let fetched = self.runtime.block_on(async {
            tokio::select! {
                fetched = timeout_at(self.deadline, fetching) => Ok(fetched),
                () = self.end.cancelled() => Err(WorkspaceError::Ended),
            }
        })?;
        let overran = |_| WorkspaceError::Overran { seconds: SYNC_DEADLINE.as_secs() };
        let digest = match fetched.map_err(overran)? {
            Ok(digest) => digest,
            // It is gone since; the next exchange sees it so.
            Err(Fetch::Guest(error)) if is_gone(&error) => return Ok(()),
            // One file that cannot be read is no reason to lose the others.
            Err(Fetch::Guest(error @ GuestError::Fault(_))) => {
                self.report.refuse(path, format!("cannot read it from the sandbox: {error}"));
                return Ok(());
            }
            Err(Fetch::Guest(error)) => return Err(error.into()),
            Err(Fetch::TooLarge) => {
                self.report.refuse(path, too_large());
                self.know(path, Kind::File, seen, host, true);
                return Ok(());
            }
            Err(Fetch::Host(error)) => {
                self.give_up(path, Kind::File, seen, &error);
                return Ok(());
            }
        };
        let same_mode = known.is_some_and(|known| known.guest.mode == seen.stamp.mode);
        if same_mode && host.is_some_and(|(_, ours)| ours == digest) {
            self.know(path, Kind::File, seen, host, self.is_settled(seen));
            return Ok(());
        }
        if let Err(error) = settle(&file, seen.stamp.mode, seen.stamp.modified_ms) {
            self.give_up(path, Kind::File, seen, &error);
            return Ok(());
        }
        drop(file);
        self.put(path, seen, Kind::File, known, temporary, digest);
        Ok(())
    }

    /// Records what was reported of a path that the host did not take. It is retried when the guest changes
    /// it.
    fn give_up(&mut self, path: &[u8], kind: Kind, seen: &GuestEntry, error: &std::io::Error) {
        let what = super::explain::explain(error);
        self.report.refuse(path, what);
        let host = self.manifest.known.get(path).and_then(|known| known.host);
        self.know(path, kind, seen, host, !super::explain::may_pass(error));
    }

    pub(super) fn know(
        &mut self,
        path: &[u8],
        kind: Kind,
        seen: &GuestEntry,
        host: Option<(super::manifest::HostStamp, Digest)>,
        settled: bool,
    ) {
        let known = KnownPath { kind, guest: seen.stamp.clone(), settled, host };
        self.held.add(Usage::of(&known));
        if let Some(before) = self.manifest.known.insert(path.to_vec(), known) {
            self.held.take(Usage::of(&before));
        }
    }

    /// Whether a change during the guest's listing would show in its time.
    pub(super) fn is_settled(&self, seen: &GuestEntry) -> bool {
        let modified = u64::try_from(seen.stamp.modified_ms).unwrap_or(0);
        seen.kind != Some(Kind::File) || self.looked_ms.abs_diff(modified) > SETTLED_AFTER_MS
    }
}

/// Why a file was not fetched.
enum Fetch {
    Guest(GuestError),
    Host(std::io::Error),
    TooLarge,
}

/// Reads a file of the guest's into one of the host's.
async fn fetch(
    guest: &Guest,
    path: &[u8],
    file: &mut File,
    bytes_max: u64,
    carried: &TransferCounter,
) -> Result<Digest, Fetch> {
    let (mut output, ..) = guest.read_file(inside(path), 0, None).await.map_err(Fetch::Guest)?;
    let (mut context, mut count) = (Context::new(&SHA256), 0_u64);
    loop {
        match output.next().await {
            Piece::Bytes { bytes, .. } => {
                count = count.saturating_add(bytes.len() as u64);
                carried.take(bytes.len() as u64);
                if count > bytes_max {
                    return Err(Fetch::TooLarge);
                }
                context.update(&bytes);
                file.write_all(&bytes).map_err(Fetch::Host)?;
            }
            Piece::Gap { .. } => {
                let what = "a file with missing bytes";
                return Err(Fetch::Guest(GuestError::Malformed { what }));
            }
            Piece::End => return Ok(digest_of(context)),
            Piece::Failed(error) => return Err(Fetch::Guest(error)),
        }
    }
}

/// Whether something else is where it was, or where a directory was that it was in.
fn is_replaced(path: &[u8], seens: &GuestEntries) -> bool {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    seens.contains_key(path)
        || ends
            .filter_map(|end| seens.get(&path[..end]))
            .any(|above| above.kind != Some(Kind::Directory))
}

/// The name of a conflict's copy.
pub(super) fn beside(path: &[u8], owner: &str, number: u32) -> Vec<u8> {
    let end = format!(".conflict-{owner}-{number}");
    let (_, name) = split(path);
    let room = super::limits::NAME_BYTES_MAX - end.len();
    let mut cut = name.len().min(room);
    // A name that was text stays text.
    while cut < name.len() && cut > 0 && name[cut] & 0xc0 == 0x80 {
        cut -= 1;
    }
    [&path[..path.len() - name.len() + cut], end.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_of_a_conflict_is_beside_it_and_its_name_fits() {
        assert_eq!(beside(b"a/b.csv", "0123", 2), b"a/b.csv.conflict-0123-2");
        let long = "é".repeat(127);
        let copy = String::from_utf8(beside(long.as_bytes(), "0123456789ab", 10)).unwrap();
        assert!(copy.len() <= 255 && copy.ends_with("é.conflict-0123456789ab-10"), "{copy}");
    }
}

//! Pushes changed files to the bucket. It finds them by comparing the files with the ledger, so a change
//! that failed is found again the next time. It never overwrites or removes what another client wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use tokio::time::{Instant, timeout_at};

use super::changes::{Change, Changes, changes};
use super::client::{Client, Condition, Head};
use super::error::S3Error;
use super::ledger::Object;
use super::limits::{
    AT_ONCE, FAILURES_IN_ROW_MAX, KEY_BYTES_MAX, MULTIPART_ABOVE, ROUNDS_MAX,
    UPLOAD_BYTES_PER_SECOND_MIN,
};
use super::staging::Staging;
use super::wire::Part;
use crate::cancellation::Cancellation;
use crate::limits::{CONFLICTS_PER_FILE_MAX, SYNC_DEADLINE};
use crate::manifest::Digest;
use crate::take::beside;
use crate::{Report, WorkspaceError};

/// Why paths were not pushed, by path.
type Failures = BTreeMap<String, String>;

/// The result of pushing a file.
enum PushOutcome {
    Written(String),
    /// The bucket has it already.
    Same(String),
    Conflict(String),
}

impl Staging {
    /// Pushes changed files to the bucket until cancelled, and reports the result. What the bucket does not
    /// take is reported on request, and otherwise only if it is new.
    pub(crate) async fn push_until(
        &mut self,
        end: &Cancellation,
        is_asked: bool,
    ) -> (Report, Result<(), WorkspaceError>) {
        let (mut report, mut failures) = (Report::default(), BTreeMap::new());
        let pushed = self.try_push(end, &mut report, &mut failures).await;
        if let Some(root) = self.home.unrecorded() {
            for (path, why) in &mut failures {
                let _ = write!(why, "; its content is saved as {}", root.join(path).display());
            }
        }
        self.behind.settle(failures, pushed.is_err(), is_asked, &mut report);
        self.home.set_behind(self.behind.is_so());
        (report, pushed)
    }

    async fn try_push(
        &mut self,
        end: &Cancellation,
        report: &mut Report,
        failures: &mut Failures,
    ) -> Result<(), WorkspaceError> {
        end.check()?;
        let (tree, ledger) = (Arc::clone(&self.tree), Arc::clone(&self.ledger));
        let room = KEY_BYTES_MAX.saturating_sub(self.holder.bucket.prefix.len());
        let comparing = tokio::task::spawn_blocking(move || changes(&tree, &ledger, room)).await;
        let compared = comparing.unwrap_or_else(|error| Err(error.into()));
        let changes = compared.map_err(WorkspaceError::Manifest)?;
        for (path, why) in &changes.left_out {
            if self.left_out.insert(path.clone()) {
                report.refuse(path, *why);
            }
        }
        let ledger = Arc::make_mut(&mut self.ledger);
        for (path, stamp) in changes.touched {
            if let Some(object) = ledger.known.get_mut(&path) {
                object.stamp = stamp;
            }
        }
        failures.extend(
            changes
                .unread
                .iter()
                .map(|(path, why)| (path.clone(), format!("this host cannot read it: {why}"))),
        );
        let Changes { mut files, gone, .. } = changes;
        if files.is_empty() && gone.is_empty() && self.uploads.is_empty() {
            return Ok(());
        }
        for change in &files {
            ledger.intend(&change.path, change.digest, change.stamp.bytes);
        }
        // Set before a byte is uploaded, so that a successor knows whose files they are.
        self.home.set_behind(true);
        self.save().await?;
        let client = match self.holder.client().await {
            Ok(client) => client,
            Err(error) => {
                let paths = files.into_iter().map(|change| change.path).chain(gone);
                failures.extend(paths.map(|path| (path, untaken(&error))));
                return Ok(());
            }
        };
        // Files that failed the last time come last, so that they delay no others.
        files.sort_by_key(|change| self.behind.has(&change.path));
        // The bound that each upload has, of all of them together.
        let bytes: u64 = files.iter().map(|change| change.stamp.bytes).sum();
        let patience = SYNC_DEADLINE + Duration::from_secs(bytes / UPLOAD_BYTES_PER_SECOND_MIN);
        let deadline = Instant::now() + patience;
        let (first, gone) = in_the_way(&files, gone);
        let (mut done, waiting) = (Vec::new(), files.clone());
        let carried = async {
            until(end, deadline, self.remove_all(&client, first, report, failures)).await?;
            let carrying = self.carry_all(&client, files, &mut done, failures);
            until(end, deadline, carrying).await
        };
        let carried = carried.await;
        // Also what a cancelled exchange had pushed by then.
        for (change, outcome) in done {
            self.put_down(change, outcome, report);
        }
        let removed = match carried {
            Ok(()) => {
                let gone = self.hold_back(gone, &waiting, failures);
                let removing = self.remove_all(&client, gone, report, failures);
                until(end, deadline, removing).await
            }
            Err(error) => Err(error),
        };
        if removed.is_ok() {
            // After everything that is more useful.
            until(end, deadline, self.uploads.give_up(&client)).await?;
        }
        self.save().await?;
        removed
    }

    async fn save(&self) -> Result<(), WorkspaceError> {
        let ledger = Arc::clone(&self.ledger);
        let saving = tokio::task::spawn_blocking(move || ledger.save()).await;
        saving.unwrap_or_else(|error| Err(error.into())).map_err(WorkspaceError::Manifest)
    }

    /// Keeps removals back whose content could not be uploaded elsewhere: a moved file must exist at its new
    /// path before the old one is removed.
    fn hold_back(
        &self,
        gone: Vec<String>,
        files: &[Change],
        failures: &mut Failures,
    ) -> Vec<String> {
        let failed = files.iter().filter(|change| failures.contains_key(&change.path));
        let waiting: BTreeSet<Digest> = failed.map(|change| change.digest).collect();
        let known = &self.ledger.known;
        let waits = |path: &String| known.get(path).is_some_and(|of| waiting.contains(&of.digest));
        let (held, gone): (Vec<_>, Vec<_>) = gone.into_iter().partition(waits);
        let why = "it will be deleted once the bucket has its content under another key";
        failures.extend(held.into_iter().map(|path| (path, why.to_owned())));
        gone
    }

    async fn carry_all(
        &self,
        client: &Client,
        files: Vec<Change>,
        done: &mut Vec<(Change, PushOutcome)>,
        failures: &mut Failures,
    ) {
        let mut rest = files.into_iter();
        let carry = |change: Change| async move {
            let carried = self.carry(client, &change).await;
            (change, carried)
        };
        let mut carrying = stream::FuturesUnordered::new();
        carrying.extend(rest.by_ref().take(AT_ONCE).map(carry));
        let (mut away, mut in_row) = (None::<String>, 0);
        while let Some((change, carried)) = carrying.next().await {
            match carried {
                Ok(outcome) => {
                    in_row = 0;
                    done.push((change, outcome));
                }
                Err(error) => {
                    in_row += 1;
                    let why = untaken(&error);
                    if error.is_general() || in_row >= FAILURES_IN_ROW_MAX {
                        away = Some(why.clone());
                    }
                    failures.insert(change.path, why);
                }
            }
            // A server that is away is not asked for each file.
            match &away {
                None => carrying.extend(rest.next().map(carry)),
                Some(why) => {
                    failures.extend(rest.by_ref().map(|left| (left.path, why.clone())));
                }
            }
        }
    }

    async fn remove_all(
        &mut self,
        client: &Client,
        gone: Vec<String>,
        report: &mut Report,
        failures: &mut Failures,
    ) {
        let mut rest = gone.into_iter();
        // A missing object proves nothing until the bucket itself is known to exist.
        let mut is_there = rest.len() == 0;
        while let Some(path) = rest.next() {
            let known = if is_there { Ok(()) } else { client.probe().await };
            let removed = match known {
                Ok(()) => self.remove(client, &path, report).await,
                Err(error) => Err(error),
            };
            match removed {
                Ok(()) => is_there = true,
                Err(error) => {
                    let why = format!("its deletion: {}", untaken(&error));
                    failures.insert(path, why.clone());
                    if error.is_general() {
                        failures.extend(rest.by_ref().map(|path| (path, why.clone())));
                    }
                }
            }
        }
    }

    fn put_down(&mut self, change: Change, outcome: PushOutcome, report: &mut Report) {
        let Change { path, stamp, mode, digest } = change;
        let etag = match outcome {
            PushOutcome::Written(etag) => {
                report.write(path.as_bytes());
                Some(etag)
            }
            PushOutcome::Same(etag) => Some(etag),
            PushOutcome::Conflict(copy) => {
                report.conflict(path.as_bytes(), Some(copy.as_bytes()));
                self.ledger.known.get(&path).and_then(|object| object.etag.clone())
            }
        };
        Arc::make_mut(&mut self.ledger).settle(&path, Object { etag, stamp, mode, digest });
    }

    async fn carry(&self, client: &Client, change: &Change) -> Result<PushOutcome, S3Error> {
        let key = self.key(&change.path);
        for _ in 0..ROUNDS_MAX {
            let condition = match client.head(&key).await? {
                None => Condition::New,
                Some(head) if self.is_known(&change.path, &head) => Condition::Match(head.etag),
                Some(head) => match self.digest(client, &key, &head, change.stamp.bytes).await? {
                    Some((etag, theirs)) if theirs == change.digest => {
                        return Ok(PushOutcome::Same(etag));
                    }
                    Some((etag, theirs)) if self.ledger.is_ours(&change.path, &theirs) => {
                        Condition::Match(etag)
                    }
                    _ => return self.keep_beside(client, change).await,
                },
            };
            match self.write(client, &key, change, &condition).await {
                // Somebody changed it in this moment, or we did and the answer was lost.
                Err(error) if is_overtaken(&error) => {}
                written => return written.map(PushOutcome::Written),
            }
        }
        Err(S3Error::Contended)
    }

    async fn keep_beside(&self, client: &Client, change: &Change) -> Result<PushOutcome, S3Error> {
        for number in 1..=CONFLICTS_PER_FILE_MAX {
            let copy = beside(change.path.as_bytes(), &self.owner, number);
            let copy = String::from_utf8_lossy(&copy).into_owned();
            let key = self.key(&copy);
            if let Some(head) = client.head(&key).await? {
                // An exchange that was cut off has kept it already.
                match self.digest(client, &key, &head, change.stamp.bytes).await? {
                    Some((_, theirs)) if theirs == change.digest => {
                        return Ok(PushOutcome::Conflict(copy));
                    }
                    _ => continue,
                }
            }
            match self.write(client, &key, change, &Condition::New).await {
                Err(error) if is_overtaken(&error) => {}
                written => return written.map(|_| PushOutcome::Conflict(copy)),
            }
        }
        Err(S3Error::Contended)
    }

    async fn write(
        &self,
        client: &Client,
        key: &str,
        change: &Change,
        condition: &Condition,
    ) -> Result<String, S3Error> {
        let path = self.home.root.join(&change.path);
        let bytes = change.stamp.bytes;
        let part = Part { path, offset: 0, bytes, digest: change.digest };
        if bytes > MULTIPART_ABOVE {
            return client.put_parts(key, part, change.mode, condition, &self.uploads).await;
        }
        client.put(key, part, change.mode, condition).await
    }

    /// Removes an object whose file is gone, if it is the one that we had or have written.
    async fn remove(
        &mut self,
        client: &Client,
        path: &str,
        report: &mut Report,
    ) -> Result<(), S3Error> {
        let key = self.key(path);
        let was_ours = self.ledger.known.get(path).is_none_or(|object| object.etag.is_some());
        if let Some(head) = client.head(&key).await?.filter(|_| was_ours) {
            let is_ours = self.is_known(path, &head) || {
                let bytes = self.ledger.known.get(path).map_or(0, |object| object.stamp.bytes);
                let theirs = self.digest(client, &key, &head, bytes).await?;
                theirs.is_some_and(|(_, theirs)| self.ledger.is_ours(path, &theirs))
            };
            let removed = if is_ours { client.delete(&key, &head.etag).await } else { Ok(()) };
            match removed {
                Ok(()) if is_ours => report.delete(path.as_bytes()),
                Err(error) if !is_overtaken(&error) => return Err(error),
                _ => report.conflict(path.as_bytes(), None),
            }
        }
        Arc::make_mut(&mut self.ledger).forget(path);
        Ok(())
    }

    fn is_known(&self, path: &str, head: &Head) -> bool {
        let known = self.ledger.known.get(path).and_then(|object| object.etag.as_ref());
        known == Some(&head.etag)
    }

    /// The tag and digest of an object, if it may be ours: by its size, or because something was about to be
    /// written without an answer.
    async fn digest(
        &self,
        client: &Client,
        key: &str,
        head: &Head,
        bytes: u64,
    ) -> Result<Option<(String, Digest)>, S3Error> {
        let path = key.strip_prefix(&self.holder.bucket.prefix).unwrap_or(key);
        let may_be = head.bytes == bytes || self.ledger.may_be_ours(path, head.bytes);
        if !may_be {
            return Ok(None);
        }
        let got = client.get(key, None, head.bytes).await?;
        Ok(got.map(|got| (got.etag, got.digest)))
    }

    fn key(&self, path: &str) -> String {
        format!("{}{path}", self.holder.bucket.prefix)
    }
}

/// Splits removals into those that must precede the files, and the others. In a bucket that is stored as a
/// directory of files, no key may lie below an object's, and no object may have a directory's name.
fn in_the_way(files: &[Change], gone: Vec<String>) -> (Vec<String>, Vec<String>) {
    let coming: BTreeSet<&str> = files.iter().map(|change| change.path.as_str()).collect();
    let is_in_the_way = |path: &String| {
        let below = format!("{path}/");
        let has_below = coming.range(below.as_str()..).next();
        has_below.is_some_and(|coming| coming.starts_with(&below))
            || path.match_indices('/').any(|(at, _)| coming.contains(&path[..at]))
    };
    gone.into_iter().partition(is_in_the_way)
}

/// Waits for the work until its deadline or cancellation.
async fn until(
    end: &Cancellation,
    deadline: Instant,
    work: impl Future<Output = ()>,
) -> Result<(), WorkspaceError> {
    let overran = |_| WorkspaceError::Overran { seconds: SYNC_DEADLINE.as_secs() };
    tokio::select! {
        done = timeout_at(deadline, work) => done.map_err(overran),
        () = end.cancelled() => Err(WorkspaceError::Ended),
    }
}

/// Whether a condition did not hold.
fn is_overtaken(error: &S3Error) -> bool {
    matches!(error, S3Error::Refused { status: 404 | 409 | 412, .. })
}

fn untaken(error: &S3Error) -> String {
    format!("the bucket did not accept it: {error}")
}

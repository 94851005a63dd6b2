//! The task that exchanges changes: after an activity ends, on request, and before a stop. One exchange runs
//! at a time, and each begins after the request for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::cancellation::Cancellation;
use super::delivery::DeliveryTask;
use super::guest::walk;
use super::limits::{ASKS_WAITING_MAX, EXCHANGE_END_MAX, QUIET, SAID_WAITING_MAX, SYNC_DEADLINE};
use super::manifest::Manifest;
use super::outcome::{Answer, ExchangeOutcome, due};
use super::s3::Staging;
use super::take::TakeBack;
use super::tree::Tree;
use super::usage::Usage;
use super::{Report, TransferCounter, Workspace, WorkspaceError, send};
use agent_client::guest::Guest;
use host::instant;

/// The workspace of one living sandbox. Dropping it ends the exchanges before the next file, and one that
/// is under way then gets no name; [`Mirror::end`] also waits for that.
#[derive(Debug)]
pub struct Mirror {
    asks: mpsc::Sender<Answer>,
    outcomes: mpsc::Receiver<ExchangeOutcome>,
    end: Cancellation,
    task: JoinHandle<()>,
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// The guest and the workspace that a mirror connects.
pub struct MirrorSettings {
    pub guest: Guest,
    pub workspace: Workspace,
    /// The sandbox's id: a part of the names of temporary files and of copies.
    pub owner: String,
    /// Notified when something at work in the sandbox has ended.
    pub ended: Arc<Notify>,
    /// Counts transfers.
    pub carried: TransferCounter,
}

impl Mirror {
    /// Whether the host has the directory.
    pub fn check(name: &str, workspace: &Workspace) -> Result<(), WorkspaceError> {
        // The content of a bucket is only known after fetching it.
        if workspace.bucket.is_some() {
            return Ok(());
        }
        let shown = || name.to_owned();
        let unusable = |errno: Errno| match errno {
            Errno::LOOP => WorkspaceError::Link { name: shown() },
            errno => WorkspaceError::Unusable { name: shown(), source: errno.into() },
        };
        let opened = Tree::open(&workspace.path, "").map_err(unusable)?;
        let is_kernels =
            opened.is_kernels().map_err(unusable)? || workspace.path.starts_with("/dev");
        if is_kernels { Err(WorkspaceError::Kernels { name: shown() }) } else { Ok(()) }
    }

    /// Fills the workspace of a sandbox that runs nothing yet. The common state is kept in `kept`, or in
    /// memory only. The report lists what could not be copied.
    pub async fn open(
        mut ends: MirrorSettings,
        state: Option<&Path>,
    ) -> Result<(Self, Report), WorkspaceError> {
        let (staging, left_out) = Staging::open(&mut ends, state).await?;
        let tree = tree_of(&ends.workspace.path, &ends.owner, staging.is_some());
        let tree = Arc::new(tree.map_err(|errno| WorkspaceError::file(b".", errno))?);
        let mut manifest = Manifest::new(state.map(Path::to_owned));
        let deadline = Instant::now() + SYNC_DEADLINE;
        let (policy, carried) = (&ends.workspace.policy, &ends.carried);
        let sending = send::send(&ends.guest, &tree, policy, &mut manifest, carried);
        let mut report = timeout_at(deadline, sending).await.map_err(overran)??;
        report.extend(left_out);
        let manifest = blocking(move || manifest.save().map(|()| manifest)).await?;
        Ok((Self::run(ends, tree, manifest, staging), report))
    }

    /// Continues for an earlier bridge, beginning with what has changed meanwhile.
    pub async fn adopt(mut ends: MirrorSettings, state: &Path) -> Result<Self, WorkspaceError> {
        let staging = Staging::adopt(&mut ends, state).await?;
        let (path, owner) = (ends.workspace.path.clone(), ends.owner.clone());
        let (state, is_own) = (state.to_owned(), staging.is_some());
        let (tree, manifest) = blocking(move || {
            let tree = tree_of(&path, &owner, is_own)?;
            tree.sweep_all();
            Ok((tree, Manifest::read(&state)?))
        })
        .await?;
        ends.ended.notify_one();
        Ok(Self::run(ends, Arc::new(tree), manifest, staging))
    }

    fn run(
        ends: MirrorSettings,
        tree: Arc<Tree>,
        manifest: Manifest,
        staging: Option<Staging>,
    ) -> Self {
        let (asks, requests) = mpsc::channel(ASKS_WAITING_MAX);
        let (say, outcomes) = mpsc::channel(SAID_WAITING_MAX);
        let end = Cancellation::new();
        let (manifest, cancelled) = (Some(manifest), end.clone());
        let mirroring = MirrorTask {
            ends,
            tree,
            staging,
            again: None,
            manifest,
            number: 0,
            requests,
            say,
            end: cancelled,
        };
        Self { asks, outcomes, end, task: tokio::spawn(mirroring.run()) }
    }

    /// Pushes the remaining changes of a sandbox without a machine to its bucket. Other workspaces need
    /// nothing.
    pub fn deliver(workspace: Workspace, owner: String, state: PathBuf) -> Self {
        let (asks, requests) = mpsc::channel(ASKS_WAITING_MAX);
        let (say, outcomes) = mpsc::channel(SAID_WAITING_MAX);
        let end = Cancellation::new();
        let cancelled = end.clone();
        let delivering = DeliveryTask { workspace, owner, state, end: cancelled, requests, say };
        Self { asks, outcomes, end, task: tokio::spawn(delivering.run()) }
    }

    /// Whether it takes questions.
    pub fn takes(&self) -> bool {
        !self.asks.is_closed()
    }

    /// Asks for an exchange of all that has changed until now.
    pub fn ask(&self) -> oneshot::Receiver<Result<Report, WorkspaceError>> {
        let (answer, answered) = oneshot::channel();
        // If the queue is full, the answer is dropped, which its receiver sees.
        let _ = self.asks.try_send(answer);
        answered
    }

    /// Requests an exchange and waits for its own outcome only.
    pub async fn sync(&mut self) -> Result<Report, WorkspaceError> {
        let mut answered = self.ask();
        loop {
            tokio::select! {
                answer = &mut answered => return answer.unwrap_or(Err(WorkspaceError::Ended)),
                outcome = self.next_outcome() => outcome.answer(),
            }
        }
    }

    /// Ends the exchanges: no further file is begun. Waiting callers get an error.
    pub fn break_off(&self) {
        self.end.cancel();
    }

    /// Ends the exchanges and waits until nothing more can come back. Returns the outcomes that nobody has
    /// received yet.
    pub async fn end(mut self) -> Vec<ExchangeOutcome> {
        self.end.cancel();
        let mut rest = Vec::new();
        let ended = async {
            // The task drops its end when it has ended.
            while let Some(outcome) = self.outcomes.recv().await {
                rest.push(outcome);
            }
        };
        if timeout(EXCHANGE_END_MAX, ended).await.is_err() {
            self.task.abort();
        }
        rest
    }

    /// The next outcome; pending forever if the task is gone.
    pub async fn next_outcome(&mut self) -> ExchangeOutcome {
        match self.outcomes.recv().await {
            Some(outcome) => outcome,
            None => std::future::pending().await,
        }
    }
}

/// The directory that a mirror works on, which of a bucket is the bridge's own.
fn tree_of(path: &Path, owner: &str, is_own: bool) -> Result<Tree, Errno> {
    if is_own { Tree::open_own(path, owner) } else { Tree::open(path, owner) }
}

struct MirrorTask {
    ends: MirrorSettings,
    tree: Arc<Tree>,
    /// Pushes files from the tree to a bucket.
    staging: Option<Staging>,
    /// When to retry what the bucket did not take.
    again: Option<Instant>,
    /// Absent while an exchange has it, and forever if that failed to give it back.
    manifest: Option<Manifest>,
    number: u64,
    end: Cancellation,
    requests: mpsc::Receiver<Answer>,
    say: mpsc::Sender<ExchangeOutcome>,
}

impl MirrorTask {
    async fn run(mut self) {
        let end = self.end.clone();
        loop {
            let ask = tokio::select! {
                () = end.cancelled() => return,
                ask = self.requests.recv() => ask,
                () = due(self.again) => {
                    self.push_again().await;
                    continue;
                }
                () = self.ends.ended.notified() => {
                    tokio::select! {
                        () = end.cancelled() => return,
                        ask = self.requests.recv() => ask,
                        () = sleep(QUIET) => {
                            self.exchange(None).await;
                            continue;
                        }
                    }
                }
            };
            let Some(answer) = ask else { return };
            self.exchange(Some(answer)).await;
        }
    }

    async fn exchange(&mut self, answer: Option<Answer>) {
        let (mut report, mut done) = self.try_exchange().await;
        if self.staging.is_some() {
            report = report.without_changes();
            // Also pushes what a failed exchange copied before it failed.
            let (pushed, brought) = self.push(answer.is_some()).await;
            report.extend(pushed);
            done = done.and(brought);
        }
        ExchangeOutcome::report(&self.say, report, done, answer).await;
    }

    /// Retries what the bucket did not take.
    async fn push_again(&mut self) {
        let (report, done) = self.push(false).await;
        ExchangeOutcome::report(&self.say, report, done, None).await;
    }

    async fn push(&mut self, is_asked: bool) -> (Report, Result<(), WorkspaceError>) {
        let Some(staging) = &mut self.staging else { return (Report::default(), Ok(())) };
        let pushed = staging.push_until(&self.end, is_asked).await;
        self.again = staging.again().map(|pause| Instant::now() + pause);
        pushed
    }

    async fn try_exchange(&mut self) -> (Report, Result<(), WorkspaceError>) {
        let deadline = Instant::now() + SYNC_DEADLINE;
        let Some(manifest) = self.manifest.take() else {
            return (Report::default(), Err(WorkspaceError::Ended));
        };
        let policy = &self.ends.workspace.policy;
        let walking = timeout_at(deadline, walk(&self.ends.guest, policy.entries_max));
        let walked = tokio::select! {
            walked = walking => walked.map_err(overran).and_then(|walked| walked),
            () = self.end.cancelled() => Err(WorkspaceError::Ended),
        };
        let seens = match walked {
            Ok(seens) => seens,
            Err(error) => {
                self.manifest = Some(manifest);
                return (Report::default(), Err(error));
            }
        };
        let mut taking = TakeBack {
            guest: self.ends.guest.clone(),
            tree: Arc::clone(&self.tree),
            policy: policy.clone(),
            manifest,
            report: Report::default(),
            carried: self.ends.carried.clone(),
            number: self.number,
            owner: self.ends.owner.clone(),
            held: Usage::default(),
            end: self.end.clone(),
            runtime: Handle::current(),
            deadline,
            looked_ms: instant::now_ms(),
        };
        let carrying = tokio::task::spawn_blocking(move || {
            let carried = taking.carry(&seens);
            (taking, carried)
        });
        match carrying.await {
            Ok((taking, carried)) => {
                self.manifest = Some(taking.manifest);
                self.number = taking.number;
                (taking.report, carried)
            }
            Err(error) => (Report::default(), Err(WorkspaceError::Manifest(error.into()))),
        }
    }
}

fn overran(_: tokio::time::error::Elapsed) -> WorkspaceError {
    WorkspaceError::Overran { seconds: SYNC_DEADLINE.as_secs() }
}

/// Runs something that may block, on a thread for that.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, WorkspaceError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(error.into())).map_err(WorkspaceError::Manifest)
}

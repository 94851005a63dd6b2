//! The client side of the control socket.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::apps::{AppOrder, AppRow};
use super::line::{LineError, read_line, write_line};
use super::message::{Answer, CapUsage, Dialled, List, Purpose, Refusal, Reply, Request, Version};
use crate::limits::{CONTROL_REPLY_BYTES_MAX, CONTROL_REPLY_DEADLINE};
use host::paths::Paths;
use image::digest::Digest;
use image::reference::Reference;
use machine::limits::{SNAPSHOT_WRITE_DEADLINE, VIRTUAL_RESTORE_DEADLINE};
use sandbox::Preset;
use sandbox::limits::STOP_GRACE_DEFAULT;
use sandbox::pool::ShelfStatus;
use sandbox::{Name, Record, SandboxRef, Snapshot, Spec};
use services::app::limits::READY_TIMEOUT_MAX;
use services::store::artifacts::ArtifactRow;
use workspace::Report;
use workspace::limits::{LAST_SYNC_DEADLINE, SYNC_DEADLINE};

/// A connection to the bridge that serves.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no bridge serves {socket:?}; start one with `host-bridge serve`")]
    NotRunning { socket: PathBuf },
    #[error("cannot connect to {socket:?}: {source}")]
    Connect { socket: PathBuf, source: io::Error },
    #[error("{socket:?} is served by user {owner}, not by you")]
    NotYours { socket: PathBuf, owner: u32 },
    #[error(transparent)]
    Refused(Refusal),
    #[error("the bridge did not answer within {} s", waited.as_secs())]
    Silent { waited: Duration },
    #[error("the bridge ended the connection without an answer")]
    Ended,
    #[error("cannot read the bridge's answer ({reason}); it may be of another release")]
    Answer { reason: String },
    #[error("the connection to the bridge broke: {0}")]
    Io(#[from] io::Error),
}

impl Client {
    /// Connects to the daemon of `paths`.
    pub async fn connect(paths: &Paths) -> Result<Self, ClientError> {
        let socket = paths.control_socket();
        let stream = match UnixStream::connect(&socket).await {
            Ok(stream) => stream,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                return Err(ClientError::NotRunning { socket });
            }
            Err(source) => return Err(ClientError::Connect { socket, source }),
        };
        // Somebody else's bridge would be told of our environments.
        let owner = stream.peer_cred()?.uid();
        if owner != nix::unistd::geteuid().as_raw() && owner != 0 {
            return Err(ClientError::NotYours { socket, owner });
        }
        let (reader, writer) = stream.into_split();
        Ok(Self { reader: BufReader::new(reader), writer })
    }

    pub async fn version(&mut self) -> Result<Version, ClientError> {
        match self.ask(&Request::Version {}).await? {
            Reply::Version(version) => Ok(version),
            other => Err(unexpected(&other)),
        }
    }

    pub async fn start(&mut self, spec: Spec) -> Result<Record, ClientError> {
        self.ask_sandbox(&Request::Start(Box::new(spec))).await
    }

    pub async fn list(&mut self, list: List) -> Result<Vec<Record>, ClientError> {
        match self.ask(&Request::List(list)).await? {
            Reply::Sandboxes(records) => Ok(records),
            other => Err(unexpected(&other)),
        }
    }

    pub async fn inspect(&mut self, which: &SandboxRef) -> Result<Record, ClientError> {
        self.ask_sandbox(&Request::Inspect { sandbox: which.clone() }).await
    }

    /// Asks for the address of an agent, and says what it is for.
    pub async fn dial(
        &mut self,
        which: &SandboxRef,
        purpose: Purpose,
    ) -> Result<Dialled, ClientError> {
        let request = Request::Dial { sandbox: which.clone(), purpose: Some(purpose) };
        match self.ask(&request).await? {
            Reply::Dialled(dialled) => Ok(dialled),
            other => Err(unexpected(&other)),
        }
    }

    /// Says that somebody is at work in a sandbox: it is not idle until this client is dropped.
    pub async fn work(&mut self, which: &SandboxRef) -> Result<Record, ClientError> {
        self.ask_sandbox(&Request::Work { sandbox: which.clone() }).await
    }

    /// Stops a sandbox and waits until it is gone.
    pub async fn stop(
        &mut self,
        which: &SandboxRef,
        grace: Option<Duration>,
    ) -> Result<Record, ClientError> {
        let grace_ms = grace.map(|grace| grace.as_millis() as u64);
        self.ask_sandbox(&Request::Stop { sandbox: which.clone(), grace_ms }).await
    }

    pub async fn kill(&mut self, which: &SandboxRef) -> Result<Record, ClientError> {
        self.ask_sandbox(&Request::Kill { sandbox: which.clone() }).await
    }

    /// Removes what is kept of a sandbox; returns the record that it had.
    pub async fn remove(&mut self, which: &SandboxRef, force: bool) -> Result<Record, ClientError> {
        self.ask_sandbox(&Request::Remove { sandbox: which.clone(), force }).await
    }

    /// Pauses a sandbox and all its processes.
    pub async fn pause(&mut self, which: &SandboxRef) -> Result<Record, ClientError> {
        self.ask_sandbox(&Request::Pause { sandbox: which.clone() }).await
    }

    pub async fn resume(&mut self, which: &SandboxRef) -> Result<Record, ClientError> {
        self.ask_sandbox(&Request::Resume { sandbox: which.clone() }).await
    }

    /// Copies workspace changes of a sandbox back to the host.
    pub async fn sync(&mut self, which: &SandboxRef) -> Result<Report, ClientError> {
        match self.ask(&Request::Sync { sandbox: which.clone() }).await? {
            Reply::Synced(report) => Ok(*report),
            other => Err(unexpected(&other)),
        }
    }

    /// Creates an image from a running sandbox.
    pub async fn commit(
        &mut self,
        which: &SandboxRef,
        name: &Reference,
    ) -> Result<Digest, ClientError> {
        let request = Request::Commit { sandbox: which.clone(), image: name.to_string() };
        match self.ask(&request).await? {
            Reply::Committed { digest } => Ok(digest),
            other => Err(unexpected(&other)),
        }
    }

    /// Saves a running sandbox as a snapshot in its namespace.
    pub async fn snapshot(
        &mut self,
        which: &SandboxRef,
        name: Name,
    ) -> Result<Snapshot, ClientError> {
        self.ask_snapshot(&Request::Snapshot { sandbox: which.clone(), name }).await
    }

    pub async fn remove_snapshot(&mut self, which: &SandboxRef) -> Result<Snapshot, ClientError> {
        self.ask_snapshot(&Request::RemoveSnapshot { snapshot: which.clone() }).await
    }

    /// All snapshots, sorted by name.
    pub async fn snapshots(&mut self) -> Result<Vec<Snapshot>, ClientError> {
        match self.ask(&Request::Snapshots {}).await? {
            Reply::Snapshots(snapshots) => Ok(snapshots),
            other => Err(unexpected(&other)),
        }
    }

    /// Removes an artifact and returns its record.
    pub async fn remove_artifact(&mut self, id: &str) -> Result<ArtifactRow, ClientError> {
        match self.ask(&Request::RemoveArtifact { id: id.to_owned() }).await? {
            Reply::Artifact(row) => Ok(*row),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a request about one app, and returns its state.
    pub async fn app(&mut self, order: AppOrder) -> Result<AppRow, ClientError> {
        match self.ask(&Request::App(order)).await? {
            Reply::App(row) => Ok(*row),
            other => Err(unexpected(&other)),
        }
    }

    /// The apps of one sandbox, or of all.
    pub async fn apps(&mut self, sandbox: Option<SandboxRef>) -> Result<Vec<AppRow>, ClientError> {
        match self.ask(&Request::App(AppOrder::List { sandbox })).await? {
            Reply::Apps(rows) => Ok(rows),
            other => Err(unexpected(&other)),
        }
    }

    /// The newest of what an app has said.
    pub async fn app_log(
        &mut self,
        sandbox: &SandboxRef,
        app: &str,
        bytes_max: u64,
    ) -> Result<String, ClientError> {
        let (sandbox, app) = (sandbox.clone(), app.to_owned());
        match self.ask(&Request::App(AppOrder::Log { sandbox, app, bytes_max })).await? {
            Reply::AppLog { log } => Ok(log),
            other => Err(unexpected(&other)),
        }
    }

    async fn ask_snapshot(&mut self, request: &Request) -> Result<Snapshot, ClientError> {
        match self.ask(request).await? {
            Reply::Snapshot(snapshot) => Ok(*snapshot),
            other => Err(unexpected(&other)),
        }
    }

    /// The state of the pool.
    pub async fn pool(&mut self) -> Result<Vec<ShelfStatus>, ClientError> {
        match self.ask(&Request::Pool {}).await? {
            Reply::Pool(shelves) => Ok(shelves),
            other => Err(unexpected(&other)),
        }
    }

    /// The usage and the caps of a namespace and a key.
    pub async fn caps(
        &mut self,
        namespace: Name,
        key: Option<String>,
    ) -> Result<Vec<CapUsage>, ClientError> {
        match self.ask(&Request::Caps { namespace, key }).await? {
            Reply::Caps(scopes) => Ok(scopes),
            other => Err(unexpected(&other)),
        }
    }

    /// Turns this connection into an MCP session, and returns its two ends.
    pub async fn mcp(
        mut self,
        preset: Preset,
    ) -> Result<(impl AsyncRead + Unpin + use<>, impl AsyncWrite + Unpin + use<>), ClientError>
    {
        match self.ask(&Request::Mcp(preset)).await? {
            Reply::Mcp {} => Ok((self.reader, self.writer)),
            other => Err(unexpected(&other)),
        }
    }

    async fn ask_sandbox(&mut self, request: &Request) -> Result<Record, ClientError> {
        match self.ask(request).await? {
            Reply::Sandbox(record) => Ok(*record),
            other => Err(unexpected(&other)),
        }
    }

    async fn ask(&mut self, request: &Request) -> Result<Reply, ClientError> {
        let grace = match request {
            Request::Stop { grace_ms, .. } => {
                // Its workspace may come back before.
                LAST_SYNC_DEADLINE + grace_ms.map_or(STOP_GRACE_DEFAULT, Duration::from_millis)
            }
            Request::Snapshot { .. } => SNAPSHOT_WRITE_DEADLINE,
            Request::Sync { .. } => SYNC_DEADLINE,
            // It may take so long to answer.
            Request::App(AppOrder::Start(_)) => READY_TIMEOUT_MAX,
            Request::Start(spec) if spec.snapshot.is_some() => VIRTUAL_RESTORE_DEADLINE,
            _ => Duration::ZERO,
        };
        let waited = CONTROL_REPLY_DEADLINE.saturating_add(grace);
        match timeout(waited, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::Silent { waited }),
        }
    }

    async fn exchange(&mut self, request: &Request) -> Result<Reply, ClientError> {
        // A bridge that turns a connection away answers before it is asked, and closes.
        let written = write_line(&mut self.writer, request).await;
        let answer = read_line(&mut self.reader, CONTROL_REPLY_BYTES_MAX).await;
        match answer {
            Ok(Some(Answer::Ok(reply))) => Ok(reply),
            Ok(Some(Answer::Error(refusal))) => Err(ClientError::Refused(refusal)),
            Ok(None) | Err(LineError::Cut) => {
                written?;
                Err(ClientError::Ended)
            }
            Err(LineError::Io(error)) => Err(error.into()),
            Err(error @ (LineError::Json(_) | LineError::TooLong { .. })) => {
                Err(ClientError::Answer { reason: error.to_string() })
            }
        }
    }
}

fn unexpected(reply: &Reply) -> ClientError {
    ClientError::Answer { reason: format!("it says {:?}", reply.name()) }
}

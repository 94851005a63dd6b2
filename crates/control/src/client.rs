//! The client side of the control socket.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::line::{LineError, read_line, write_line};
use super::message::{
    Answer, Dialled, ErrorReply, List, NodeReplies, NodeReply, Purpose, Reply, Request,
    UnansweredNode, Version,
};
use crate::limits::{CONTROL_REPLY_BYTES_MAX, CONTROL_REPLY_DEADLINE};
use host::paths::Paths;
use machine::limits::SNAPSHOT_WRITE_DEADLINE;
use sandbox::{Preset, Record, SandboxRef, Snapshot, Spec};

/// A connection to the bridge that serves.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

/// An archive on its way to the bridge.
#[derive(Debug)]
pub struct Upload {
    client: Client,
}

impl Upload {
    /// Sends the next bytes; `false` if the bridge takes no more. [`Upload::finish`] says why.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        tokio::select! {
            // It answers before the end only to refuse.
            biased;
            _ = self.client.reader.fill_buf() => false,
            written = self.client.writer.write_all(bytes) => written.is_ok(),
        }
    }

    /// Ends the archive, and returns the snapshot.
    pub async fn finish(mut self) -> Result<Snapshot, ClientError> {
        // One that has refused may be gone already, and its answer is there.
        let _ = self.client.writer.shutdown().await;
        let waited = CONTROL_REPLY_DEADLINE + SNAPSHOT_WRITE_DEADLINE;
        let answer = timeout(waited, self.client.answer()).await;
        let reply = answer.map_err(|_| ClientError::Silent { waited })??;
        Snapshot::try_from(reply)
            .map_err(|other| ClientError::Answer { reason: format!("it says {:?}", other.name()) })
    }
}

/// What all nodes of a fleet have answered to one request.
#[derive(Debug)]
pub struct AllNodes<T> {
    /// By name.
    pub nodes: Vec<NodeAnswer<T>>,
    /// Nodes whose answers are missing.
    pub unanswered: Vec<UnansweredNode>,
}

#[derive(Debug)]
pub struct NodeAnswer<T> {
    pub node: String,
    /// Where its bridge is reached.
    pub address: String,
    pub answer: T,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no bridge serves {socket:?}")]
    NotRunning { socket: PathBuf },
    #[error("cannot connect to {socket:?}: {source}")]
    Connect { socket: PathBuf, source: io::Error },
    #[error("{socket:?} is served by user {owner}, not by you")]
    NotYours { socket: PathBuf, owner: u32 },
    #[error(transparent)]
    Refused(ErrorReply),
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
        // Our environments would go to somebody else's bridge.
        let owner = stream.peer_cred()?.uid();
        if owner != nix::unistd::geteuid().as_raw() && owner != 0 {
            return Err(ClientError::NotYours { socket, owner });
        }
        let (reader, writer) = stream.into_split();
        Ok(Self { reader: BufReader::new(reader), writer })
    }

    /// Sends a request and returns what its reply holds.
    pub async fn ask<T>(&mut self, request: &Request) -> Result<T, ClientError>
    where
        T: TryFrom<Reply, Error = Reply>,
    {
        let waited = request.deadline();
        let reply = match timeout(waited, self.exchange(request)).await {
            Ok(answer) => answer?,
            Err(_) => return Err(ClientError::Silent { waited }),
        };
        T::try_from(reply)
            .map_err(|other| ClientError::Answer { reason: format!("it says {:?}", other.name()) })
    }

    pub async fn version(&mut self) -> Result<Version, ClientError> {
        self.ask(&Request::Version {}).await
    }

    /// Ends the daemon. It does so after this has returned.
    pub async fn end(&mut self, stop_sandboxes: bool) -> Result<(), ClientError> {
        self.ask(&Request::End { stop_sandboxes }).await
    }

    pub async fn start(&mut self, spec: Spec) -> Result<Record, ClientError> {
        self.ask(&Request::Start(Box::new(spec))).await
    }

    pub async fn list(&mut self, list: List) -> Result<Vec<Record>, ClientError> {
        self.ask(&Request::List(list)).await
    }

    /// Asks all nodes of the fleet the same.
    pub async fn ask_all<T>(&mut self, request: Request) -> Result<AllNodes<T>, ClientError>
    where
        T: TryFrom<Reply, Error = Reply>,
    {
        let NodeReplies { nodes, mut unanswered } =
            self.ask(&Request::AllNodes(Box::new(request))).await?;
        let mut answers = Vec::new();
        for NodeReply { node, address, reply } in nodes {
            match T::try_from(reply) {
                Ok(answer) => answers.push(NodeAnswer { node, address, answer }),
                Err(other) => {
                    let why = format!("it says {:?}", other.name());
                    unanswered.push(UnansweredNode { node, why });
                }
            }
        }
        Ok(AllNodes { nodes: answers, unanswered })
    }

    pub async fn inspect(&mut self, which: &SandboxRef) -> Result<Record, ClientError> {
        self.ask(&Request::Inspect { sandbox: which.clone() }).await
    }

    /// Asks for the address of an agent, and says what it is for.
    pub async fn dial(
        &mut self,
        which: &SandboxRef,
        purpose: Purpose,
    ) -> Result<Dialled, ClientError> {
        self.ask(&Request::Dial { sandbox: which.clone(), purpose: Some(purpose) }).await
    }

    /// Reports that a client is at work in a sandbox: it is not idle until this client is dropped.
    pub async fn work(&mut self, which: &SandboxRef) -> Result<Record, ClientError> {
        self.ask(&Request::Work { sandbox: which.clone() }).await
    }

    /// Turns this connection into an MCP session, and returns its two ends.
    pub async fn mcp(
        mut self,
        preset: Preset,
    ) -> Result<(impl AsyncRead + Unpin + use<>, impl AsyncWrite + Unpin + use<>), ClientError>
    {
        self.ask::<()>(&Request::Mcp(preset)).await?;
        Ok((self.reader, self.writer))
    }

    /// Asks for a snapshot as an archive: its length, and the end that it comes from.
    pub async fn export_snapshot(
        mut self,
        snapshot: &SandboxRef,
    ) -> Result<(u64, impl AsyncRead + Unpin + use<>), ClientError> {
        let request = Request::ExportSnapshot { snapshot: snapshot.clone(), to: None };
        let bytes = self.ask(&request).await?;
        Ok((bytes, self.reader))
    }

    /// Begins to import a snapshot from an archive.
    pub async fn import_snapshot(
        mut self,
        snapshot: Option<SandboxRef>,
    ) -> Result<Upload, ClientError> {
        self.ask::<()>(&Request::ImportSnapshot { snapshot, from: None }).await?;
        Ok(Upload { client: self })
    }

    async fn exchange(&mut self, request: &Request) -> Result<Reply, ClientError> {
        // A bridge that turns a connection away answers before it is asked, and closes.
        let written = write_line(&mut self.writer, request).await;
        match self.answer().await {
            Err(ClientError::Ended) => {
                written?;
                Err(ClientError::Ended)
            }
            answer => answer,
        }
    }

    async fn answer(&mut self) -> Result<Reply, ClientError> {
        match read_line(&mut self.reader, CONTROL_REPLY_BYTES_MAX).await {
            Ok(Some(Answer::Ok(reply))) => Ok(reply),
            Ok(Some(Answer::Error(refusal))) => Err(ClientError::Refused(refusal)),
            Ok(None) | Err(LineError::Cut) => Err(ClientError::Ended),
            Err(LineError::Io(error)) => Err(error.into()),
            Err(error @ (LineError::Json(_) | LineError::TooLong { .. })) => {
                Err(ClientError::Answer { reason: error.to_string() })
            }
        }
    }
}

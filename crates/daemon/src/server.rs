//! The server side of the control socket.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::hello::VERSION_MAX;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::audit as audit_log;
use super::{remote, snapshots};
use access::audit::{Audit, AuditUnwritable, Entry, Who};
use api::{Api, mcp};
use control::limits::{
    CONTROL_CONNECTIONS_MAX, CONTROL_IDLE_MAX, CONTROL_LINE_BYTES_MAX, CONTROL_WRITE_DEADLINE,
};
use control::line::{LineError, read_line, write_line};
use control::message::{Answer, ErrorCode, ErrorReply, Reply, Request, Version};
use host::instant;
use host::paths::PRIVATE_FILE;
use sandbox::{Activity, Record, Registry};
use services::app::AppError;

/// The pause after the kernel refused a connection, usually because descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often an idle daemon looks whether it still is, within the time after which it ends.
const IDLE_LOOKS: u32 = 10;

/// How long an idle daemon lives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Life {
    /// Whether a verb started it by itself.
    pub is_unattended: bool,
    /// The time after which it ends when nothing needs it; never if absent.
    pub idle_end: Option<Duration>,
}

/// Why a daemon ends that no signal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Idle,
    Ordered { stop_sandboxes: bool },
}

/// What each connection needs.
struct Attendance {
    api: Api,
    is_unattended: bool,
    /// Where the sockets of relays are.
    runtime: PathBuf,
    /// Takes the order to end; says whether sandboxes are stopped.
    orders: mpsc::Sender<bool>,
}

/// A bound control socket. Dropping it removes the socket.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    socket: PathBuf,
}

impl Server {
    /// Binds the socket. The caller holds the lock, so an existing socket has no owner.
    pub fn bind(socket: &Path) -> io::Result<Self> {
        match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(socket)?;
        fs::set_permissions(socket, fs::Permissions::from_mode(PRIVATE_FILE))?;
        Ok(Self { listener, socket: socket.to_owned() })
    }

    /// Answers from the registry that the door has, until a client ends the daemon or it has been idle
    /// for too long. Dropping the future drops the connections; what was ordered goes on.
    pub async fn run(&self, api: Api, life: Life) -> Ended {
        let places = Arc::new(Semaphore::new(CONTROL_CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        let (orders, mut ordered) = mpsc::channel(1);
        let runtime = self.socket.parent().map(Path::to_path_buf).unwrap_or_default();
        remote::clean(&runtime);
        api.operate_with(remote::operate);
        let is_unattended = life.is_unattended;
        let door = Arc::new(Attendance { api, is_unattended, runtime, orders });
        let mut busy_at = Instant::now();
        let idle_max = life.idle_end.unwrap_or(Duration::MAX);
        loop {
            tokio::select! {
                accepted = self.listener.accept() => {
                    if let Ok((stream, _)) = accepted {
                        busy_at = Instant::now();
                        let place = Arc::clone(&places).try_acquire_owned().ok();
                        let door = Arc::clone(&door);
                        connections.spawn(async move {
                            match place {
                                Some(_place) => Box::pin(attend(stream, &door)).await,
                                None => turn_away(stream).await,
                            }
                        });
                    } else {
                        // Those of the other door are as many as the host has descriptors for.
                        door.api.places().give_way();
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => busy_at = Instant::now(),
                Some(stop_sandboxes) = ordered.recv() => return Ended::Ordered { stop_sandboxes },
                () = tokio::time::sleep(idle_max / IDLE_LOOKS), if life.idle_end.is_some() => {
                    if !connections.is_empty() || holds_something(door.api.registry()) {
                        busy_at = Instant::now();
                    } else if busy_at.elapsed() >= idle_max {
                        return Ended::Idle;
                    }
                }
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
    }
}

async fn turn_away(mut stream: UnixStream) {
    let message =
        format!("{CONTROL_CONNECTIONS_MAX} connections are open already, which is the limit");
    let refusal = ErrorReply::new(ErrorCode::Busy, message, Some("try again"));
    let _ = timeout(CONTROL_WRITE_DEADLINE, write_line(&mut stream, &Answer::Error(refusal))).await;
}

/// Answers one connection until its end. An error ends only this connection.
async fn attend(stream: UnixStream, door: &Attendance) {
    let api = &door.api;
    let (registry, audit) = (api.registry(), api.audit());
    // The directory and the socket keep others out already; this holds when their modes do not.
    let Some(uid) = ours(&stream) else { return };
    let who = control::audit::user(uid);
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut at_work: Option<Activity> = None;
    let mut ending = None;
    loop {
        let reading = read_line(&mut reader, CONTROL_LINE_BYTES_MAX);
        let line = if at_work.is_some() {
            // A client at work has nothing more to send here until the work is done.
            reading.await
        } else {
            let Ok(line) = timeout(CONTROL_IDLE_MAX, reading).await else { return };
            line
        };
        let (began_ms, entry) = (instant::now_ms(), entry_of(&line, &who, registry, audit));
        // One that cannot record anything can still be ended, as by a signal.
        let is_end = matches!(line, Ok(Some(Request::End { .. })));
        if entry.is_some() && !is_end && audit.admit().is_err() {
            let refusal = ErrorReply::new(
                ErrorCode::Io,
                AuditUnwritable.to_string(),
                Some("`host-bridge doctor` says why"),
            );
            let answer = Answer::Error(refusal);
            let written = timeout(CONTROL_WRITE_DEADLINE, write_line(&mut writer, &answer)).await;
            if matches!(written, Ok(Ok(()))) {
                continue;
            }
            return;
        }
        let (answer, go_on) = match line {
            Ok(Some(Request::Mcp(preset))) => {
                let answer = Answer::Ok(Reply::Mcp {});
                let written = timeout(CONTROL_WRITE_DEADLINE, write_line(&mut writer, &answer));
                if matches!(written.await, Ok(Ok(()))) {
                    // Boxed: few connections become one, and each has room for one.
                    Box::pin(mcp::serve(api, preset, reader, writer)).await;
                }
                if let Some(entry) = entry {
                    audit.record(audit_log::ended(entry, Ok(&Reply::Mcp {}), began_ms));
                }
                return;
            }
            Ok(Some(Request::ExportSnapshot { snapshot, to: None })) => {
                let exported = snapshots::export(registry, &snapshot, &mut writer).await;
                return record(audit, entry, &exported, began_ms);
            }
            Ok(Some(Request::ImportSnapshot { snapshot, from: None })) => {
                let importing = snapshots::import(registry, snapshot, &mut reader, &mut writer);
                let imported = Box::pin(importing).await;
                return record(audit, entry, &imported, began_ms);
            }
            Ok(Some(Request::Version {})) => {
                (Answer::Ok(Reply::Version(version(door.is_unattended))), true)
            }
            Ok(Some(Request::End { stop_sandboxes })) => {
                ending = Some(stop_sandboxes);
                (Answer::Ok(Reply::Ending {}), false)
            }
            Ok(Some(mut request)) => {
                request.resolve(registry);
                if let Request::Work { sandbox } = &request {
                    // What is wrong with it, the answer says.
                    at_work = registry.keep_awake(sandbox).await.ok().flatten();
                }
                (carry_out(request, api, &door.runtime, &mut reader).await.into(), true)
            }
            Ok(None) | Err(LineError::Io(_) | LineError::Cut) => return,
            Err(error @ LineError::Json(_)) => (invalid(&error), true),
            Err(error @ LineError::TooLong { .. }) => (invalid(&error), false),
        };
        if let Some(entry) = entry {
            let reply = match &answer {
                Answer::Ok(reply) => Ok(reply),
                Answer::Error(refusal) => Err(refusal),
            };
            audit.record(audit_log::ended(entry, reply, began_ms));
        }
        let written = timeout(CONTROL_WRITE_DEADLINE, write_line(&mut writer, &answer)).await;
        if let Some(stop_sandboxes) = ending {
            // Somebody else's order counts as well.
            let _ = door.orders.try_send(stop_sandboxes);
        }
        if !go_on || !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
}

/// Records how a request has ended, if it is recorded.
fn record(audit: &Audit, entry: Option<Entry>, ended: &Result<Reply, ErrorReply>, began_ms: u64) {
    if let Some(entry) = entry {
        audit.record(audit_log::ended(entry, ended.as_ref(), began_ms));
    }
}

/// Carries out a request. One that needs its client is given up when the client is gone, with ctrl-c as
/// a rule, and nothing of it is left.
async fn carry_out(
    request: Request,
    api: &Api,
    runtime: &Path,
    reader: &mut BufReader<OwnedReadHalf>,
) -> Result<Reply, ErrorReply> {
    let needs_client = request.needs_client();
    let others = remote::OtherNodes { api, runtime };
    let gone = async {
        // What is sent meanwhile waits, and a client that sends something is there.
        if !needs_client || !matches!(reader.fill_buf().await, Ok([]) | Err(_)) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        answer = request.carry_out(remote::parts(api), Some(&others)) => answer,
        () = gone => Err(AppError::Abandoned.into()),
    }
}

fn invalid(error: &LineError) -> Answer {
    Answer::Error(ErrorReply::new(ErrorCode::Invalid, error.to_string(), None))
}

/// The audit entry of a request, if it is recorded.
fn entry_of(
    line: &Result<Option<Request>, LineError>,
    who: &Who,
    registry: &Registry,
    audit: &Audit,
) -> Option<Entry> {
    audit.directory()?;
    let Ok(Some(request)) = line else { return None };
    audit_log::of_request(request, who, registry, audit)
}

/// The user at the other end, if it is the same as ours, or root, who may do anything anyway.
fn ours(stream: &UnixStream) -> Option<u32> {
    let me = nix::unistd::geteuid().as_raw();
    let peer = stream.peer_cred().ok()?.uid();
    (peer == me || peer == 0).then_some(peer)
}

/// Whether anything needs this daemon.
fn holds_something(registry: &Registry) -> bool {
    let runs = |record: &Record| !record.state.is_over();
    registry.list(None).iter().any(runs) || !registry.pool().is_empty()
}

fn version(unattended: bool) -> Version {
    Version {
        unattended,
        release: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: VERSION_MAX,
        pid: std::process::id(),
    }
}

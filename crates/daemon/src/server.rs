//! The server side of the control socket.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use protocol::hello::VERSION_MAX;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::apps;
use super::audit as audit_log;
use super::shown;
use access::audit::{Audit, AuditUnwritable, Entry, Who};
use api::{Api, mcp};
use control::AppOrder;
use control::limits::{
    CONTROL_CONNECTIONS_MAX, CONTROL_IDLE_MAX, CONTROL_LINE_BYTES_MAX, CONTROL_WRITE_DEADLINE,
};
use control::line::{LineError, read_line, write_line};
use control::message::{Answer, Code, Dialled, List, Refusal, Reply, Request, Version};
use host::instant;
use host::paths::PRIVATE_FILE;
use image::ImageError;
use machine::limits::STOP_GRACE_MAX;
use sandbox::limits::STOP_GRACE_DEFAULT;
use sandbox::{Activity, Record, Registry, SandboxError, SandboxRef};
use services::app::AppError;
use services::artifact::{ArtifactId, Artifacts, InvalidArtifactId};
use services::store::artifacts::ArtifactFilter;

/// The pause after the kernel refused a connection, usually because descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound control socket. Dropping it removes the socket.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    socket: PathBuf,
}

impl Server {
    /// Binds the socket. The caller holds the lock, so one that is there belongs to nobody.
    pub fn bind(socket: &Path) -> io::Result<Self> {
        match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(socket)?;
        fs::set_permissions(socket, fs::Permissions::from_mode(PRIVATE_FILE))?;
        Ok(Self { listener, socket: socket.to_owned() })
    }

    /// Answers for ever, from the registry that the door has. Dropping the future drops the
    /// connections; what was ordered goes on.
    pub async fn run(&self, api: Api) {
        let places = Arc::new(Semaphore::new(CONTROL_CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let place = Arc::clone(&places).try_acquire_owned().ok();
                        let api = api.clone();
                        connections.spawn(async move {
                            match place {
                                Some(_place) => attend(stream, &api).await,
                                None => turn_away(stream).await,
                            }
                        });
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
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
    let refusal = Refusal::new(Code::Busy, message, Some("try again"));
    let _ = timeout(CONTROL_WRITE_DEADLINE, write_line(&mut stream, &Answer::Error(refusal))).await;
}

/// Answers one connection until its end. An error ends only this connection.
async fn attend(stream: UnixStream, api: &Api) {
    let (registry, audit) = (api.registry(), api.audit());
    // The directory and the socket keep others out already; this holds when their modes do not.
    let Some(uid) = ours(&stream) else { return };
    let who = control::audit::user(uid);
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut at_work: Option<Activity> = None;
    loop {
        let reading = read_line(&mut reader, CONTROL_LINE_BYTES_MAX);
        let line = if at_work.is_some() {
            // Whoever is at work has nothing more to say here until the work is done.
            reading.await
        } else {
            let Ok(line) = timeout(CONTROL_IDLE_MAX, reading).await else { return };
            line
        };
        let (began_ms, entry) = (instant::now_ms(), entry_of(&line, &who, registry, audit));
        if entry.is_some() && audit.admit().is_err() {
            let refusal =
                Refusal::new(Code::Io, AuditUnwritable.to_string(), Some("free some space for it"));
            let answer = Answer::Error(refusal);
            let written = timeout(CONTROL_WRITE_DEADLINE, write_line(&mut writer, &answer)).await;
            if matches!(written, Ok(Ok(()))) {
                continue;
            }
            return;
        }
        let (answer, go_on) = match line {
            Ok(Some(Request::Work { sandbox })) => {
                at_work = registry.activity(&sandbox);
                (look(&sandbox, registry).into(), true)
            }
            Ok(Some(Request::Mcp(preset))) => {
                let answer = Answer::Ok(Reply::Mcp {});
                let written = timeout(CONTROL_WRITE_DEADLINE, write_line(&mut writer, &answer));
                if matches!(written.await, Ok(Ok(()))) {
                    mcp::serve(api, preset, reader, writer).await;
                }
                if let Some(entry) = entry {
                    audit.record(audit_log::ended(entry, Ok(&Reply::Mcp {}), began_ms));
                }
                return;
            }
            Ok(Some(Request::RemoveArtifact { id })) => {
                (remove_artifact(&id, api.kept()).await.into(), true)
            }
            Ok(Some(Request::App(order))) => {
                let carried = match order {
                    AppOrder::Start(_) => start_wanted(order, api, &mut reader).await,
                    _ => apps::carry_out(order, api).await,
                };
                (carried.into(), true)
            }
            Ok(Some(request)) => (carry_out(request, registry).await.into(), true),
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
        if !go_on || !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
}

/// Starts an app for as long as somebody waits for it: whoever goes away before it answers, with ctrl-c
/// as a rule, wants it no more, and nothing of it is left.
async fn start_wanted(
    order: AppOrder,
    api: &Api,
    reader: &mut BufReader<OwnedReadHalf>,
) -> Result<Reply, Refusal> {
    let gone = async {
        // What is said meanwhile waits, and whoever says something is there.
        if !matches!(reader.fill_buf().await, Ok([]) | Err(_)) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        carried = apps::carry_out(order, api) => carried,
        () = gone => Err(AppError::Abandoned.into()),
    }
}

fn invalid(error: &LineError) -> Answer {
    Answer::Error(Refusal::new(Code::Invalid, error.to_string(), None))
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

async fn carry_out(request: Request, registry: &Registry) -> Result<Reply, Refusal> {
    let sandbox = |result: Result<Record, SandboxError>| {
        result.map(|record| Reply::Sandbox(Box::new(record))).map_err(Refusal::from)
    };
    match request {
        Request::Version {} => Ok(Reply::Version(version())),
        Request::Start(spec) => sandbox(registry.create(*spec).await),
        Request::List(list) => Ok(Reply::Sandboxes(listed(&list, registry))),
        // That somebody is at work is the connection's to remember.
        Request::Inspect { sandbox: which } | Request::Work { sandbox: which } => {
            look(&which, registry)
        }
        Request::Dial { sandbox: which, .. } => {
            let (address, record) = registry.dial(&which)?;
            let Record { user, workdir, state, .. } = record;
            Ok(Reply::Dialled(Dialled { address, user, workdir, state }))
        }
        Request::Stop { sandbox: which, grace_ms } => {
            let grace = grace_ms.map_or(STOP_GRACE_DEFAULT, Duration::from_millis);
            sandbox(registry.stop(&which, grace.min(STOP_GRACE_MAX)).await)
        }
        Request::Pause { sandbox: which } => sandbox(registry.pause(&which).await),
        Request::Resume { sandbox: which } => sandbox(registry.resume(&which).await),
        Request::Snapshot { sandbox: which, name } => {
            Ok(Reply::Snapshot(Box::new(registry.snapshot(&which, name).await?)))
        }
        Request::Commit { sandbox: which, image } => {
            let name = image.parse().map_err(ImageError::Name);
            let name = name.map_err(SandboxError::Image)?;
            Ok(Reply::Committed { digest: registry.commit(&which, name).await?.digest })
        }
        Request::Snapshots {} => Ok(Reply::Snapshots(registry.snapshots(None))),
        Request::Sync { sandbox: which } => {
            Ok(Reply::Synced(Box::new(registry.sync(&which).await?)))
        }
        Request::RemoveSnapshot { snapshot } => {
            Ok(Reply::Snapshot(Box::new(registry.remove_snapshot(&snapshot).await?)))
        }
        Request::Pool {} => Ok(Reply::Pool(registry.pool())),
        Request::Caps { namespace, key } => {
            Ok(Reply::Caps(shown::caps(registry, &namespace, key.as_deref())?))
        }
        // The door has them, and not the registry.
        Request::RemoveArtifact { .. } => Err(no_artifacts()),
        Request::App(_) => Err(Refusal::new(Code::Unsupported, "this bridge has no apps", None)),
        // That this connection is no longer ours is the connection's to remember.
        Request::Mcp(_) => Ok(Reply::Mcp {}),
        Request::Kill { sandbox: which } => sandbox(registry.kill(&which).await),
        Request::Remove { sandbox: which, force } => sandbox(registry.remove(&which, force).await),
    }
}

async fn remove_artifact(id: &str, kept: Option<&Artifacts>) -> Result<Reply, Refusal> {
    let kept = kept.ok_or_else(no_artifacts)?;
    let id: ArtifactId = id
        .parse()
        .map_err(|error: InvalidArtifactId| Refusal::new(Code::Invalid, error.to_string(), None))?;
    let row = kept.get(&id).await?;
    kept.remove(ArtifactFilter { id: Some(row.id.clone()), ..ArtifactFilter::default() }).await?;
    Ok(Reply::Artifact(Box::new(row)))
}

fn no_artifacts() -> Refusal {
    Refusal::new(Code::Unsupported, "this bridge keeps no artifacts", None)
}

fn look(which: &SandboxRef, registry: &Registry) -> Result<Reply, Refusal> {
    let record = registry.get(which)?;
    Ok(Reply::Sandbox(Box::new(record)))
}

fn listed(list: &List, registry: &Registry) -> Vec<Record> {
    let mut records = registry.list(list.namespace.as_ref());
    records.retain(|record| {
        (list.all || !record.state.is_over())
            && list.labels.iter().all(|selector| selector.matches(&record.labels))
    });
    records
}

fn version() -> Version {
    Version {
        release: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: VERSION_MAX,
        pid: std::process::id(),
    }
}

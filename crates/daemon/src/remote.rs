//! Requests of the control socket about a sandbox of another node of the fleet: sent there and answered from there.
//!
//! ```text
//!  verb ─▶ control socket ─▶ this bridge ─HTTP─▶ the bridge that has the sandbox ─▶ its registry
//!  verb ─▶ relay, a socket of this host ─HTTP, upgraded─▶ the same bridge ─▶ the sandbox's agent
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::audit as audit_log;
use access::audit::{AuditUnwritable, Who};
use api::Api;
use control::message::{
    Answer, Dialled, ErrorCode, ErrorReply, FleetList, List, NodeSandboxes, Parts, Reply, Request,
    UnansweredNode,
};
use host::id::RandomId;
use host::instant;
use host::paths::PRIVATE_FILE;
use machine::BoxFuture;
use node::Placement;
use sandbox::refusal::{Code, Refusal};
use sandbox::{Record, SandboxRef};

/// How long a relay waits for its next connection: a client that has lost its own dials again.
const RELAY_IDLE_MAX: Duration = Duration::from_secs(60);
/// Connections over one relay at once: a client has one, and one more when it dials again.
const RELAY_CONNECTIONS_MAX: usize = 16;
/// How long one node is waited for in a list of all.
const LIST_MAX: Duration = Duration::from_secs(5);
/// What the sockets of relays are called.
const RELAY_PREFIX: &str = "relay-";

/// The node that has the sandbox of a request, if it is not here.
pub(super) async fn node_of(request: &Request, api: &Api) -> Option<(Placement, SandboxRef)> {
    let (node, which) = (api.node()?, request.subject()?);
    if api.registry().get(&which).is_ok() {
        return None;
    }
    Some((node.elsewhere(&which).await?, which))
}

/// Has that node carry the request out. A sandbox there is dialled through a relay here.
pub(super) async fn carry_out(
    request: &Request,
    api: &Api,
    (to, which): (Placement, SandboxRef),
    runtime: &Path,
) -> Result<Reply, ErrorReply> {
    let inspect = Request::Inspect { sandbox: which.clone() };
    // Who is at work there comes through a relay, which keeps the sandbox awake.
    let request = if matches!(request, Request::Work { .. }) { &inspect } else { request };
    let text = serde_json::to_vec(request).map_err(|error| malformed(&error))?;
    let answer = api.order(&to, text).await?;
    let answer = serde_json::from_slice(&answer).map_err(|error| malformed(&error))?;
    match answer {
        Answer::Ok(Reply::Dialled(dialled)) => {
            let path = relay(api, to, which, runtime).map_err(|error| unopened(&error))?;
            let address = format!("unix:{}", path.display()).parse();
            let address = address.map_err(|error| unopened(&io::Error::other(error)))?;
            Ok(Reply::Dialled(Dialled { address, ..dialled }))
        }
        Answer::Ok(reply) => Ok(reply),
        Answer::Error(refusal) => Err(refusal),
    }
}

/// The sandboxes of all nodes. One that does not answer is named, and its sandboxes are missing.
pub(super) async fn list(list: List, api: &Api) -> Result<Reply, ErrorReply> {
    let Some(node) = api.node() else {
        let hint = "leave --all-nodes out";
        let message = "this bridge is in no fleet";
        return Err(ErrorReply::new(ErrorCode::Unsupported, message, Some(hint)));
    };
    let others = node.others().await.map_err(|why| ErrorReply::new(ErrorCode::Busy, why, None))?;
    let request = Request::List(list);
    let text = serde_json::to_vec(&request).map_err(|error| malformed(&error))?;
    let mut asked = JoinSet::new();
    for to in others {
        let (api, text) = (api.clone(), text.clone());
        asked.spawn(async move {
            let answer = timeout(LIST_MAX, api.order(&to, text)).await;
            let sandboxes = match answer {
                Ok(Ok(answer)) => sandboxes_of(&answer),
                Ok(Err(refusal)) => Err(refusal.to_string()),
                Err(_) => Err("it does not answer".to_owned()),
            };
            (to, sandboxes)
        });
    }
    let mut all = FleetList::default();
    if let Reply::Sandboxes(sandboxes) = request.carry_out(parts(api)).await? {
        let address = api.previews().server().unwrap_or_default().to_owned();
        all.nodes.push(NodeSandboxes { node: node.id().to_string(), address, sandboxes });
    }
    while let Some(answered) = asked.join_next().await {
        match answered {
            Ok((Placement { node, address, .. }, Ok(sandboxes))) => {
                all.nodes.push(NodeSandboxes { node: node.to_string(), address, sandboxes });
            }
            Ok((to, Err(why))) => {
                all.unanswered.push(UnansweredNode { node: to.node.to_string(), why });
            }
            Err(_) => {}
        }
    }
    all.nodes.sort_by(|one, other| one.node.cmp(&other.node));
    Ok(Reply::Fleet(all))
}

fn sandboxes_of(answer: &[u8]) -> Result<Vec<Record>, String> {
    match serde_json::from_slice(answer) {
        Ok(Answer::Ok(Reply::Sandboxes(sandboxes))) => Ok(sandboxes),
        Ok(Answer::Ok(other)) => Err(format!("it says {:?}", other.name())),
        Ok(Answer::Error(refusal)) => Err(refusal.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

fn malformed(error: &serde_json::Error) -> ErrorReply {
    let message = format!("the other node's bridge speaks otherwise: {error}");
    ErrorReply::new(ErrorCode::Unsupported, message, Some("run one release on all nodes"))
}

fn unopened(error: &io::Error) -> ErrorReply {
    ErrorReply::new(ErrorCode::Io, format!("cannot open a relay to the other node: {error}"), None)
}

/// Opens a socket that leads to the agent of a sandbox of another node. It goes when nobody uses it.
fn relay(api: &Api, to: Placement, which: SandboxRef, runtime: &Path) -> io::Result<PathBuf> {
    let drawn = RandomId::draw().map_err(|error| io::Error::other(error.to_string()))?;
    let path = runtime.join(format!("{RELAY_PREFIX}{drawn}.sock"));
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(PRIVATE_FILE))?;
    let (api, end) = (Arc::new((api.clone(), to, which)), path.clone());
    tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = timeout(RELAY_IDLE_MAX, listener.accept()) => match accepted {
                    Ok(Ok((stream, _))) if connections.len() < RELAY_CONNECTIONS_MAX => {
                        connections.spawn(join(stream, Arc::clone(&api)));
                    }
                    Ok(Ok(_)) => {}
                    Ok(Err(_)) => break,
                    Err(_) if connections.is_empty() => break,
                    Err(_) => {}
                },
                Some(_) = connections.join_next() => {}
            }
        }
        let _ = fs::remove_file(end);
    });
    Ok(path)
}

async fn join(mut stream: UnixStream, place: Arc<(Api, Placement, SandboxRef)>) {
    let (api, to, which) = &*place;
    let Some(node) = api.node() else { return };
    match api.reach_agent(to, which).await {
        Ok(mut agent) => tokio::select! {
            // Either end closes both.
            _ = copy_bidirectional(&mut stream, &mut agent) => {}
            () = node.left(&to.node) => {}
        },
        // The client sees its connection closed, and asks what has become of the sandbox.
        Err(_) => {}
    }
}

/// Removes what relays of a bridge that was killed have left.
pub(super) fn clean(runtime: &Path) {
    let names = fs::read_dir(runtime).into_iter().flatten().flatten();
    for entry in names.filter(|entry| entry.file_name().to_string_lossy().starts_with(RELAY_PREFIX))
    {
        let _ = fs::remove_file(entry.path());
    }
}

/// Carries a request of another node's control socket out.
pub(super) fn operate(
    api: Api,
    request: Vec<u8>,
    gateway: String,
) -> BoxFuture<'static, Result<Vec<u8>, Refusal>> {
    Box::pin(async move {
        let request: Request = serde_json::from_slice(&request)
            .map_err(|error| Refusal::invalid(format!("a request of another node: {error}")))?;
        if request.subject().is_none() && !matches!(request, Request::List(_)) {
            return Err(Refusal::invalid("a request of another node is about no sandbox"));
        }
        let (began_ms, audit) = (instant::now_ms(), api.audit());
        let entry = audit
            .directory()
            .and_then(|_| audit_log::of_request(&request, &Who::Local, api.registry(), audit));
        if entry.is_some() && audit.admit().is_err() {
            return Err(Refusal::new(Code::Io, AuditUnwritable.to_string()));
        }
        let carried = request.carry_out(parts(&api)).await;
        if let Some(entry) = entry {
            let entry = entry.fact("gateway", gateway);
            audit.record(audit_log::ended(entry, carried.as_ref(), began_ms));
        }
        serde_json::to_vec(&Answer::from(carried))
            .map_err(|error| Refusal::of(Code::Internal, &error))
    })
}

/// What requests are carried out by.
pub(super) fn parts(api: &Api) -> Parts<'_> {
    Parts {
        registry: api.registry(),
        apps: api.apps(),
        artifacts: api.artifact_store(),
        node: api.node(),
        previews: api.previews(),
    }
}

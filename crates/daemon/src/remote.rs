//! How requests of the control socket about a sandbox of another node of the fleet get there, and how those of others are
//! carried out here.
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
use access::keys::Grant;
use api::{Api, SentFor};
use control::message::{Answer, Answered, Elsewhere, Parts, Request};
use host::id::RandomId;
use host::instant;
use host::paths::PRIVATE_FILE;
use machine::BoxFuture;
use node::Placement;
use sandbox::SandboxRef;
use sandbox::refusal::{Code, Refusal};

/// How long a relay waits for its next connection: a client that has lost its own dials again.
const RELAY_IDLE_MAX: Duration = Duration::from_secs(60);
/// Connections over one relay at once: a client has one, and one more when it dials again.
const RELAY_CONNECTIONS_MAX: usize = 16;
/// What the sockets of relays are called.
const RELAY_PREFIX: &str = "relay-";

/// The other nodes, as requests of the control socket reach them.
pub(super) struct OtherNodes<'a> {
    pub api: &'a Api,
    pub runtime: &'a Path,
}

impl Elsewhere for OtherNodes<'_> {
    fn order<'a>(
        &'a self,
        to: &'a Placement,
        request: Vec<u8>,
    ) -> BoxFuture<'a, Result<Vec<u8>, Refusal>> {
        Box::pin(async move { Ok(self.api.order(to, request.into()).await?.to_vec()) })
    }

    fn order_at<'a>(
        &'a self,
        which: &'a SandboxRef,
        request: Vec<u8>,
    ) -> BoxFuture<'a, Result<Option<Answered>, Refusal>> {
        Box::pin(async move {
            let answered = self.api.order_at(which, request.into()).await?;
            Ok(answered.map(|(to, answer)| (to, answer.to_vec())))
        })
    }

    fn give_up<'a>(&'a self, which: &'a SandboxRef, lost: Refusal) -> BoxFuture<'a, Refusal> {
        Box::pin(self.api.give_up(which, lost))
    }

    fn relay(&self, to: Placement, which: SandboxRef) -> io::Result<PathBuf> {
        relay(self.api, to, which, self.runtime)
    }

    fn address(&self) -> String {
        self.api.previews().server().unwrap_or_default().to_owned()
    }
}

/// The sandboxes of other nodes, as the door for SSH enters them.
pub(super) struct OtherSandboxes(pub Api);

impl ssh::Elsewhere for OtherSandboxes {
    fn visit<'a>(&'a self, which: &'a SandboxRef, grant: &'a Grant) -> ssh::Visiting<'a> {
        Box::pin(self.0.visit_elsewhere(which, grant))
    }
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
                    Ok(Err(_)) => break,
                    Err(_) if connections.is_empty() => break,
                    Ok(Ok(_)) | Err(_) => {}
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
    // Without an agent the client sees its connection closed, and asks what has become of the sandbox.
    let Ok(mut agent) = api.reach_agent(to, which, None).await else { return };
    tokio::select! {
        // Either end closes both.
        _ = copy_bidirectional(&mut stream, &mut agent) => {}
        () = node.left(&to.node) => {}
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
    sent_for: Option<SentFor>,
) -> BoxFuture<'static, Result<Vec<u8>, Refusal>> {
    Box::pin(async move {
        let mut request: Request = serde_json::from_slice(&request)
            .map_err(|error| Refusal::invalid(format!("a request of another node: {error}")))?;
        if !request.may_come_from_another() {
            return Err(Refusal::invalid("this request is for the bridge's own operator"));
        }
        request.resolve(api.registry());
        if let (Some(sent_for), Some(node), Some(which)) =
            (&sent_for, api.node(), request.subject())
        {
            sent_for.is_for(node, &which)?;
        }
        let (began_ms, audit) = (instant::now_ms(), api.audit());
        let entry = audit
            .directory()
            .and_then(|_| audit_log::of_request(&request, &Who::Local, api.registry(), audit));
        if entry.is_some() && audit.admit().is_err() {
            return Err(Refusal::new(Code::Io, AuditUnwritable.to_string()));
        }
        let (gateway, life) =
            sent_for.map(|sent_for| (sent_for.gateway, sent_for.incarnation)).unwrap_or_default();
        let parts = Parts { placed: life.as_deref(), ..parts(&api) };
        let carried = request.carry_out(parts, None).await;
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
        placed: None,
        previews: api.previews(),
        audit: api.audit(),
        events: api.event_stream(),
    }
}

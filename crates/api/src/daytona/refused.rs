//! What Daytona has and this server does not, each refused with what it lacks.

use hyper::Method;

use super::answer::{API, TOOLBOX, lacking};
use super::seat::find;
use crate::call::Call;
use crate::route::{Operation, Refusals, operation};
use crate::shape::{Nothing, Raw};
use sandbox::refusal::Refusal;

const SNAPSHOTS: &str = "snapshots of images; name an image or a template when you make a sandbox";
const SECRETS: &str = "secrets; the operator names them in the configuration";
const WARM: &str = "warm pools; the operator keeps sandboxes ready";
const DESKTOP: &str = "computer use";
const LANGUAGE_SERVERS: &str = "language servers";
const ENTRYPOINT: &str = "an entrypoint's session: a sandbox has none";
const SIGNING: &str = "signed URLs of files; use the calls about files";
const SSH: &str = "SSH access by tokens; the server has a door for SSH keys";

pub fn operations() -> Vec<Operation> {
    let (get, post, put, delete) = (Method::GET, Method::POST, Method::PUT, Method::DELETE);
    let of_server = [
        (get.clone(), "/daytona/snapshots", SNAPSHOTS),
        (post.clone(), "/daytona/snapshots", SNAPSHOTS),
        (get.clone(), "/daytona/snapshots/{snapshot}", SNAPSHOTS),
        (delete.clone(), "/daytona/snapshots/{snapshot}", SNAPSHOTS),
        (post.clone(), "/daytona/snapshots/{snapshot}/activate", SNAPSHOTS),
        (get.clone(), "/daytona/object-storage/push-access", SNAPSHOTS),
        (get.clone(), "/daytona/secret", SECRETS),
        (post.clone(), "/daytona/secret", SECRETS),
        (get.clone(), "/daytona/secret/{secret}", SECRETS),
        (Method::PATCH, "/daytona/secret/{secret}", SECRETS),
        (delete.clone(), "/daytona/secret/{secret}", SECRETS),
        (get.clone(), "/daytona/secret/paginated", SECRETS),
        (post.clone(), "/daytona/snapshots/{snapshot}/deactivate", SNAPSHOTS),
        (get.clone(), "/daytona/snapshots/{snapshot}/build-logs-url", SNAPSHOTS),
        (delete.clone(), "/daytona/warm-pools/{pool}", WARM),
        (Method::PATCH, "/daytona/warm-pools/{pool}", WARM),
        (get.clone(), "/daytona/warm-pools", WARM),
        (post.clone(), "/daytona/warm-pools", WARM),
        (get.clone(), "/daytona/sandbox/ssh-access/validate", SSH),
    ];
    let labels = "a change of labels; set them when you make the sandbox";
    let of_sandbox = [
        (put.clone(), "/daytona/sandbox/{sandbox}/labels", labels),
        (post.clone(), "/daytona/sandbox/{sandbox}/resize", "a change of a sandbox's size"),
        (post.clone(), "/daytona/sandbox/{sandbox}/archive", "archives of sandboxes"),
        (post.clone(), "/daytona/sandbox/{sandbox}/autoarchive/{minutes}", "archives of sandboxes"),
        (post.clone(), "/daytona/sandbox/{sandbox}/backup", "backups of sandboxes"),
        (post.clone(), "/daytona/sandbox/{sandbox}/recover", "recovery; make another sandbox"),
        (put, "/daytona/sandbox/{sandbox}/secrets", SECRETS),
        (post.clone(), "/daytona/sandbox/{sandbox}/ssh-access", SSH),
        (delete, "/daytona/sandbox/{sandbox}/ssh-access", SSH),
        (get.clone(), "/daytona/sandbox/{sandbox}/signing-key", SIGNING),
        (post.clone(), "/daytona/sandbox/{sandbox}/signing-key/rotate", SIGNING),
    ];
    let env = "a change of a sandbox's environment; set it when you make the sandbox";
    let of_toolbox = [
        (post.clone(), "/daytona/toolbox/{sandbox}/env", env),
        (get.clone(), "/daytona/toolbox/{sandbox}/process/session/entrypoint", ENTRYPOINT),
        (get.clone(), "/daytona/toolbox/{sandbox}/process/session/entrypoint/logs", ENTRYPOINT),
        (post.clone(), "/daytona/toolbox/{sandbox}/lsp/start", LANGUAGE_SERVERS),
        (post.clone(), "/daytona/toolbox/{sandbox}/lsp/stop", LANGUAGE_SERVERS),
        (post.clone(), "/daytona/toolbox/{sandbox}/lsp/did-open", LANGUAGE_SERVERS),
        (post.clone(), "/daytona/toolbox/{sandbox}/lsp/did-close", LANGUAGE_SERVERS),
        (post.clone(), "/daytona/toolbox/{sandbox}/lsp/completions", LANGUAGE_SERVERS),
        (get.clone(), "/daytona/toolbox/{sandbox}/lsp/document-symbols", LANGUAGE_SERVERS),
        (get.clone(), "/daytona/toolbox/{sandbox}/lsp/workspacesymbols", LANGUAGE_SERVERS),
        (post.clone(), "/daytona/toolbox/{sandbox}/computeruse/start", DESKTOP),
        (post.clone(), "/daytona/toolbox/{sandbox}/computeruse/stop", DESKTOP),
        (get.clone(), "/daytona/toolbox/{sandbox}/computeruse/status", DESKTOP),
        (get.clone(), "/daytona/toolbox/{sandbox}/computeruse/{what}", DESKTOP),
        (get.clone(), "/daytona/toolbox/{sandbox}/computeruse/{what}/{which}", DESKTOP),
        (post, "/daytona/toolbox/{sandbox}/computeruse/{what}/{which}", DESKTOP),
    ];
    let of_server = of_server.map(|(method, path, what)| refuse(method, path, what, false, API));
    let of_sandbox = of_sandbox.map(|(method, path, what)| refuse(method, path, what, true, API));
    let of_toolbox =
        of_toolbox.map(|(method, path, what)| refuse(method, path, what, true, TOOLBOX));
    // The clients ask for events there, once, and go on without them.
    let events =
        refuse(get, "/daytona/socket.io/", "events; the clients look by themselves", false, API);
    let all = of_server.into_iter().chain(of_sandbox).chain(of_toolbox);
    all.chain([events.access(None)]).collect()
}

/// Of a sandbox that the key does not reach, its client learns only that it is not there.
fn refuse(
    method: Method,
    path: &'static str,
    what: &'static str,
    has_sandbox: bool,
    refusals: Refusals,
) -> Operation {
    let refuse = move |call: Call, _: Nothing, _: Nothing| async move {
        if has_sandbox {
            find(&call)?;
        }
        Err::<Raw, Refusal>(lacking(what))
    };
    operation(method, path, "daytona_refused", "What this server does not do.", refuse)
        .refusing(refusals)
}

//! The calls of envd beside programs and files: whether the sandbox is there, and what listens on its other ports.

use hyper::Method;

use super::answer::{PLAIN, gone};
use super::place::{OTHER_PORT, Place};
use super::seat;
use crate::call::Call;
use crate::origin::host_of;
use crate::proxy::{self, Form};
use crate::route::{Operation, operation};
use crate::shape::{Done, Nothing, Raw};
use sandbox::State;
use sandbox::refusal::Refusal;

pub fn operations() -> Vec<Operation> {
    let health = [
        operation(Method::GET, "/.e2b/envd/health", "e2b_health", "Whether it runs.", health),
        operation(Method::GET, "/.e2b/code/health", "e2b_code_health", "Whether it runs.", health),
    ]
    .map(|operation| operation.access(None));
    let other = |method| operation(method, OTHER_PORT, "e2b_port", "A port of a sandbox.", port);
    let ports = proxy::METHODS.map(other);
    let ports = ports.map(|operation| operation.passage().known_by(seat::known_at_port));
    health.into_iter().chain(ports).map(|operation| operation.refusing(PLAIN)).collect()
}

/// It wants no token, as E2B's does not.
async fn health(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let (which, id) = seat::find(&call.api, &call.headers)?;
    let registry = call.api.registry();
    registry.guest(&which)?;
    match registry.get(&which)?.state {
        State::Running => Ok(Done),
        // One that ends is as good as gone.
        _ => Err(gone(id.as_str())),
    }
}

/// A host name has the pages of its port to itself; headers lead there on this server's own.
async fn port(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let (which, _) = seat::find(&call.api, &call.headers)?;
    let port = Place::of(&call.headers).map_or(0, |place| place.port);
    call.trail.sandbox(&which);
    let is_named = call.api.previews().named(host_of(&call.headers)).is_some();
    let form = if is_named { Form::Host } else { Form::Headers };
    Ok(Raw(proxy::pass(call, which, port, form).await?))
}

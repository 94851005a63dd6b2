//! What a client asks of a sandbox beside its programs and files: whether it is there.

use hyper::Method;

use super::answer::{PLAIN, gone};
use super::place::OTHER_PORT;
use super::seat;
use crate::call::Call;
use crate::route::{Operation, operation};
use crate::shape::{Done, Nothing};
use sandbox::State;
use sandbox::refusal::{Code, Refusal};

pub fn operations() -> Vec<Operation> {
    let health = [
        operation(Method::GET, "/.e2b/envd/health", "e2b_health", "Whether it runs.", health),
        operation(Method::GET, "/.e2b/code/health", "e2b_code_health", "Whether it runs.", health),
    ]
    .map(|operation| operation.access(None));
    let methods = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let other = |method| operation(method, OTHER_PORT, "e2b_port", "A port of a sandbox.", port);
    let ports = methods.map(other).map(|operation| operation.run().known_by(seat::known));
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

async fn port(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let which = seat::inside(&call).await?.which;
    let message = format!(
        "this server passes on no requests to ports of {which}; forward the port: \
         POST /v1/sandboxes/{}/{}/ports",
        which.namespace, which.name
    );
    Err(Refusal::new(Code::Unsupported, message))
}

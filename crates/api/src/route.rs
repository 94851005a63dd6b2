//! The table of all operations: from a method and a path to a handler, and from the handler's types
//! to its part of the OpenAPI document. What is served and what is documented cannot differ, because
//! both are read from here.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::str::Split;
use std::sync::Arc;

use hyper::Method;
use hyper::header::HeaderMap;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value};

use super::Api;
use super::body::Response;
use super::call::{Call, Peer};
use super::caller::{Caller, sends_key};
pub use super::parameters::Parameters;
use crate::forms::problem::Problem;
use crate::problem;
use access::keys::Access;
pub use host::percent::percent_decode;
use node::Through;
use sandbox::refusal::{Code, Refusal};

/// What a handler returns, boxed.
pub type Answering = Pin<Box<dyn Future<Output = Result<Response, Refusal>> + Send>>;

type Handler = Arc<dyn Fn(Call) -> Answering + Send + Sync>;
/// Finds out who sends a request that carries another credential than a key.
pub type Credential = fn(&Api, &Asked<'_>) -> Result<Caller, Refusal>;
type Describe = fn(&mut Document<'_>);

/// A request's head, as a [`Credential`] judges it.
pub struct Asked<'a> {
    pub headers: &'a HeaderMap,
    /// As the client has sent it.
    pub path: &'a str,
    pub query: &'a str,
    pub peer: Peer,
    /// Who sends it through another node, if that knows.
    pub through: Option<&'a Through>,
}

impl Asked<'_> {
    /// Who sends the request, by its key or by what another node says.
    pub fn admit(&self, api: &Api) -> Result<Caller, Refusal> {
        match self.through {
            None | Some(Through::Bearer) => api.door().admit(self.headers, self.peer),
            Some(through) => api.door().admit_through(through.clone()),
        }
    }

    /// Whether the sender has a key, here or at the node that has let it in.
    pub fn has_key(&self) -> bool {
        match self.through {
            None | Some(Through::Bearer) => sends_key(self.headers),
            Some(Through::Local | Through::Holder(_) | Through::Operator) => true,
        }
    }
}

/// One method of one path.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each says something of its own")]
pub struct Operation {
    pub method: Method,
    /// With `{names}` for the parts that vary.
    pub path: &'static str,
    /// The name under which clients generate a method for it.
    pub id: &'static str,
    pub tag: &'static str,
    pub summary: &'static str,
    pub description: &'static str,
    /// The scope that a key needs; `None` for calls without a key.
    pub access: Option<Access>,
    /// How the caller is known; by its key if absent.
    pub credential: Option<Credential>,
    /// Whether an `Idempotency-Key` is heeded.
    pub idempotent: bool,
    /// Whether it counts among the runs that a key may have at once.
    pub is_run: bool,
    /// Whether it is in the OpenAPI document: not where the path speaks a protocol of its own, which
    /// has a specification of its own.
    pub is_documented: bool,
    /// Whether what it carries is recorded instead of itself.
    pub is_carrier: bool,
    /// Whether it is passed on to a program in a sandbox.
    pub is_passage: bool,
    /// Whether it is carried out here for a sandbox that is gone with its node.
    pub outlives_node: bool,
    /// Whether a sandbox that is gone with its node is not made again after it.
    pub gives_up_lost: bool,
    /// Refusals beyond those that every operation has.
    pub problems: &'static [Code],
    /// The form of its refusals.
    pub refusals: Refusals,
    pub describe: Describe,
    pub handler: Handler,
}

/// The shape of an operation's refusals. It is the one of the native API unless the path speaks
/// another protocol.
#[derive(Clone, Copy)]
pub struct Refusals {
    pub respond: fn(&Refusal) -> Response,
    pub schema: fn(&mut SchemaGenerator) -> Schema,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { respond: problem::respond, schema: |schemas| schemas.subschema_for::<Problem>() }
    }
}

/// Where a handler's types write down what they are.
pub struct Document<'a> {
    pub method: &'a Method,
    pub schemas: &'a mut SchemaGenerator,
    pub operation: &'a mut Map<String, Value>,
    /// What a refusal is.
    pub refusal: Schema,
}

/// What a handler takes beside the call: nothing, a query, a body.
pub trait Input: Sized + Send {
    fn describe(document: &mut Document<'_>);
    fn read(call: &mut Call) -> impl Future<Output = Result<Self, Refusal>> + Send;
}

/// What a handler gives back.
pub trait Output: Send {
    fn describe(document: &mut Document<'_>);
    fn into_response(self) -> Response;
}

/// Makes an operation of a function of a call, a query and a body.
pub fn operation<Q, B, O, F, A>(
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    handler: F,
) -> Operation
where
    Q: Input + 'static,
    B: Input + 'static,
    O: Output + 'static,
    F: Fn(Call, Q, B) -> A + Send + Sync + 'static,
    A: Future<Output = Result<O, Refusal>> + Send + 'static,
{
    let handler = Arc::new(handler);
    let handler: Handler = Arc::new(move |mut call: Call| {
        let handler = Arc::clone(&handler);
        Box::pin(async move {
            let query = Q::read(&mut call).await?;
            let body = B::read(&mut call).await?;
            Ok(handler(call, query, body).await?.into_response())
        })
    });
    Operation {
        method,
        path,
        id,
        tag: "",
        summary,
        description: "",
        access: Some(Access::Read),
        credential: None,
        idempotent: false,
        is_run: false,
        is_documented: true,
        is_carrier: false,
        is_passage: false,
        outlives_node: false,
        gives_up_lost: false,
        problems: &[],
        refusals: Refusals::default(),
        describe: |document| {
            Q::describe(document);
            B::describe(document);
            O::describe(document);
        },
        handler,
    }
}

impl Operation {
    #[must_use]
    pub fn access(mut self, access: Option<Access>) -> Self {
        self.access = access;
        self
    }

    /// It reads what outlives a node.
    #[must_use]
    pub fn of_the_lost(mut self) -> Self {
        self.outlives_node = true;
        self
    }

    /// It removes: what is lost is not made again after it.
    #[must_use]
    pub fn giving_up_the_lost(mut self) -> Self {
        self.gives_up_lost = true;
        self
    }

    #[must_use]
    pub fn known_by(mut self, credential: Credential) -> Self {
        self.credential = Some(credential);
        self
    }

    #[must_use]
    pub fn run(mut self) -> Self {
        self.access = Some(Access::Run);
        self
    }

    /// It also counts among the runs at once.
    #[must_use]
    pub fn counted(mut self) -> Self {
        self.is_run = true;
        self.run()
    }

    #[must_use]
    pub fn undocumented(mut self) -> Self {
        self.is_documented = false;
        self
    }

    #[must_use]
    pub fn carrier(mut self) -> Self {
        self.is_carrier = true;
        self
    }

    #[must_use]
    pub fn passage(mut self) -> Self {
        self.is_passage = true;
        self.run()
    }

    #[must_use]
    pub fn tag(mut self, tag: &'static str) -> Self {
        self.tag = tag;
        self
    }

    #[must_use]
    pub fn about(mut self, description: &'static str) -> Self {
        self.description = description;
        self
    }

    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    #[must_use]
    pub fn refusing(mut self, refusals: Refusals) -> Self {
        self.refusals = refusals;
        self
    }

    #[must_use]
    pub fn problems(mut self, problems: &'static [Code]) -> Self {
        self.problems = problems;
        self
    }
}

/// All operations, found by the parts of their paths.
pub struct Routes {
    operations: Vec<Operation>,
    root: Branch,
}

#[derive(Default)]
struct Branch {
    words: HashMap<&'static str, Self>,
    /// Where this part of a path may be anything.
    any: Option<Box<Self>>,
    /// The places in the table of those whose path ends here.
    ends: Vec<usize>,
}

impl Branch {
    fn grow(&mut self, template: &'static str, place: usize) {
        let mut branch = self;
        for part in template.split('/') {
            branch = match parameter(part) {
                Some(_) => branch.any.get_or_insert_default(),
                None => branch.words.entry(part).or_default(),
            };
        }
        branch.ends.push(place);
    }

    fn find(&self, mut parts: Split<'_, char>, found: &mut Vec<usize>) {
        let Some(part) = parts.next() else { return found.extend(&self.ends) };
        if let Some(branch) = self.words.get(part) {
            branch.find(parts.clone(), found);
        }
        if let Some(branch) = &self.any {
            branch.find(parts, found);
        }
    }
}

impl Routes {
    pub fn new(operations: Vec<Operation>) -> Self {
        let mut root = Branch::default();
        for (place, operation) in operations.iter().enumerate() {
            root.grow(operation.path, place);
        }
        Self { operations, root }
    }

    pub fn all(&self) -> &[Operation] {
        &self.operations
    }

    /// The operation for a request. A `HEAD` is a `GET` whose body is left out, unless there is one
    /// of its own.
    pub fn find(&self, method: &Method, path: &str) -> Result<(&Operation, Parameters), NoRoute> {
        let mut allowed: Vec<&str> = Vec::new();
        let mut get = None;
        // A path that is written out is that, and not one with something in its place.
        let mut places = Vec::new();
        self.root.find(path.split('/'), &mut places);
        places.sort_unstable();
        let like_it = places.iter().map(|place| &self.operations[*place]);
        let is_written_out = like_it.clone().any(|operation| operation.path == path);
        for operation in like_it.filter(|one| !is_written_out || one.path == path) {
            let Some(parameters) = match_path(operation.path, path) else { continue };
            let parameters = parameters?;
            if operation.method == *method {
                return Ok((operation, parameters));
            }
            allowed.push(operation.method.as_str());
            if operation.method == Method::GET {
                allowed.push("HEAD");
                get = Some((operation, parameters));
            }
        }
        if let Some(found) = get.filter(|_| *method == Method::HEAD) {
            return Ok(found);
        }
        if allowed.is_empty() {
            let message = format!("there is nothing at {path}");
            return Err(Refusal::not_found(message)
                .hint("GET /openapi.json lists the paths")
                .into());
        }
        let allow = allowed.join(", ");
        let message = format!("{path} does not take the method {method}; it takes {allow}");
        let refusal = Refusal::new(Code::MethodNotAllowed, message);
        Err(NoRoute { refusal, allow: Some(allow) })
    }
}

/// Why a request is for no operation.
#[derive(Debug)]
pub struct NoRoute {
    pub refusal: Refusal,
    /// The methods that the path knows, for the header `Allow`.
    pub allow: Option<String>,
}

impl From<Refusal> for NoRoute {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, allow: None }
    }
}

/// The name of a part of a template that may be anything.
fn parameter(part: &'static str) -> Option<&'static str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

/// Holds a path against a template.
fn match_path(template: &'static str, path: &str) -> Option<Result<Parameters, Refusal>> {
    let mut parameters = Vec::new();
    let mut parts = path.split('/');
    for expected in template.split('/') {
        let part = parts.next()?;
        match parameter(expected) {
            Some(_) if part.is_empty() => return None,
            Some(name) => parameters.push((name, part)),
            None if part == expected => {}
            None => return None,
        }
    }
    if parts.next().is_some() {
        return None;
    }
    let decoded = parameters.into_iter().map(|(name, part)| match percent_decode(part) {
        Some(text) => Ok((name, text)),
        None => Err(Refusal::invalid(format!("{name} in the path is not percent-encoded UTF-8"))),
    });
    Some(decoded.collect::<Result<_, _>>().map(Parameters))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(template: &'static str, path: &str) -> Option<Vec<(&'static str, String)>> {
        match_path(template, path).map(|parameters| parameters.unwrap().0)
    }

    #[test]
    fn a_path_is_held_against_a_template_part_by_part() {
        assert_eq!(matched("/v1/a", "/v1/a"), Some(vec![]));
        assert_eq!(matched("/v1/a", "/v1/a/"), None);
        assert_eq!(matched("/v1/{x}", "/v1/"), None);
        assert_eq!(matched("/v1/{x}/y", "/v1/a%2Fb/y"), Some(vec![("x", "a/b".to_owned())]));
        assert_eq!(matched("/v1/{x}", "/v1/a/b"), None);
    }
}

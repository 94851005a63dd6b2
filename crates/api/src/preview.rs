//! Ports of sandboxes, for browsers and programs: `PORT-NAME.DOMAIN`, and `/p/NAMESPACE/NAME/PORT/` on the
//! server's own host name.
//!
//! A page of a sandbox on the server's own origin would have whatever a browser gives to that origin. So
//! the path is for programs: what it answers is a page without rights, and a browser that comes to it is
//! sent on to the port's own host name.

use std::fmt::Write as _;

use hyper::StatusCode;
use hyper::header::{
    CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    LOCATION,
};

use super::Api;
use super::body::{Outgoing, Response};
use super::call::Call;
use super::caller::Caller;
use super::forms::problem::cut;
use super::origin::host_of;
use super::problem;
use super::proxy::{self, Form, Visit};
use super::route::{Asked, Operation, Refusals, operation};
use super::shape::{Nothing, Raw};
use sandbox::SandboxRef;
use sandbox::refusal::{Code, Hint, Reason, Refusal};

/// What the paths of ports begin with.
const PATHS: &str = "/p/";
/// Where requests for ports are in the table of operations.
const PLACE: &str = "/.preview/{namespace}/{name}/{port}";
/// The same for a host name that means no sandbox.
const NOWHERE: &str = "/.preview";

const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

const REFUSALS: Refusals = Refusals {
    respond,
    schema: |schemas| schemas.subschema_for::<super::forms::problem::Problem>(),
};

pub fn operations() -> Vec<Operation> {
    let summary = "A port of a sandbox.";
    let at = |method, path| operation(method, path, "preview", summary, preview);
    let places = proxy::METHODS.map(|method| at(method, PLACE));
    let nowhere = proxy::METHODS.map(|method| at(method, NOWHERE));
    let all = places.into_iter().chain(nowhere);
    all.map(|operation| {
        operation.tag("ports").undocumented().passage().known_by(known).refusing(REFUSALS)
    })
    .collect()
}

/// A port that a request is for.
struct Place {
    /// `None` for what is no name of a sandbox.
    which: Option<SandboxRef>,
    port: u16,
    form: Form,
}

impl Place {
    fn of(api: &Api, headers: &HeaderMap, path: &str) -> Option<Self> {
        match api.previews().named(host_of(headers)) {
            Some(named) => Some(Self {
                which: named.which(api.registry()),
                port: named.port,
                form: Form::Host,
            }),
            None => Self::of_path(path),
        }
    }

    fn of_path(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix(PATHS)?.split('/');
        let (namespace, name, port) = (parts.next()?, parts.next()?, parts.next()?);
        let prefix = format!("{PATHS}{namespace}/{name}/{port}");
        let is_plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
        let port = port.parse().ok().filter(|_| is_plain)?;
        let which = SandboxRef { namespace: namespace.parse().ok()?, name: name.parse().ok()? };
        Some(Self { which: Some(which), port, form: Form::Path(prefix) })
    }

    /// Where it is in the table of operations.
    fn path(&self) -> String {
        match &self.which {
            Some(SandboxRef { namespace, name }) => {
                format!("/.preview/{namespace}/{name}/{}", self.port)
            }
            None => NOWHERE.to_owned(),
        }
    }
}

/// Where a request for a port's own host name is in the table of operations; `None` for other names. An id
/// in a name is E2B's way, and its door knows it.
pub fn place_by_name(api: &Api, headers: &HeaderMap) -> Option<String> {
    let named = api.previews().named(host_of(headers)).filter(|named| !named.is_id())?;
    let which = named.which(api.registry());
    Some(Place { which, port: named.port, form: Form::Host }.path())
}

/// The same for a path.
pub fn place_by_path(path: &str) -> Option<String> {
    Some(Place::of_path(path)?.path())
}

fn known(api: &Api, asked: &Asked<'_>) -> Result<Caller, Refusal> {
    let Some(place) = Place::of(api, asked.headers, asked.path) else {
        return Err(Refusal::not_found(format!(
            "there is nothing at {}",
            cut(asked.path.to_owned())
        )));
    };
    let which = place.which.filter(|which| api.registry().get(which).is_ok());
    let visit = Visit { which: which.as_ref(), port: place.port };
    proxy::admit(api, asked, &visit, gone)
}

/// The answer for a sandbox that is not there, or is another namespace's.
fn gone() -> Refusal {
    Refusal::not_found("there is no such sandbox").hint(Hint::ListSandboxes)
}

async fn preview(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let place = Place::of(&call.api, &call.headers, call.target.place.path());
    let Some(Place { which: Some(which), port, form }) = place else { return Err(gone()) };
    call.trail.sandbox(&which);
    if let (Form::Path(prefix), true) = (&form, is_navigation(&call.headers))
        && let Some(elsewhere) = own_name(&call, &which, port, prefix)
    {
        return Ok(Raw(elsewhere));
    }
    Ok(Raw(proxy::pass(call, which, port, form).await?))
}

/// Whether a browser wants to show it as a page.
fn is_navigation(headers: &HeaderMap) -> bool {
    headers.get(&FETCH_MODE).is_some_and(|mode| mode == "navigate")
}

/// Sends a browser on to the port's own host name, if ports have any.
fn own_name(call: &Call, which: &SandboxRef, port: u16, prefix: &str) -> Option<Response> {
    let record = call.api.registry().get(which).ok()?;
    let origin = call.api.previews().origin(&record, port)?;
    let rest = call
        .target
        .place
        .path()
        .strip_prefix(prefix)
        .filter(|rest| !rest.is_empty())
        .unwrap_or("/");
    let query = if call.query.is_empty() { String::new() } else { format!("?{}", call.query) };
    let mut response = hyper::Response::new(Outgoing::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let place = HeaderValue::try_from(format!("{origin}{rest}{query}")).ok()?;
    response.headers_mut().insert(LOCATION, place);
    Some(response)
}

/// As the native API refuses, but for a sandbox that does not run: for its clients this server is
/// a gateway with nothing behind it.
fn respond(refusal: &Refusal) -> Response {
    let mut response = problem::respond(refusal);
    let is_away = matches!(
        refusal.reason,
        Some(
            Reason::NotRunning
                | Reason::Paused
                | Reason::Lost
                | Reason::SandboxGone
                | Reason::Stopped
        )
    );
    if is_away {
        *response.status_mut() = StatusCode::BAD_GATEWAY;
    }
    response
}

/// A refusal as a page, for a browser.
pub fn page(response: Response, refusal: &Refusal) -> Response {
    let status = response.status();
    let advice = match refusal.code {
        Code::Unauthenticated => Some("Ask for a link to it, and open that.".to_owned()),
        _ => refusal.hint.as_deref().and_then(Hint::words),
    };
    let mut text = String::from("<!doctype html><meta charset=utf-8><title>");
    let reason = status.canonical_reason().unwrap_or("Error");
    // Writing to a String cannot fail.
    let _ = write!(text, "{} {reason}</title><h1>{reason}</h1><p>", status.as_u16());
    let message = match refusal.code {
        // It is about keys, which people in front of browsers have not.
        Code::Unauthenticated => "This page is not for everybody.".to_owned(),
        _ => cut(refusal.message.clone()),
    };
    escape(&message, &mut text);
    if let Some(advice) = advice {
        text.push_str("<p>");
        escape(&advice, &mut text);
    }
    let (mut head, _) = response.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    head.headers.insert(CONTENT_TYPE, html);
    let nothing = HeaderValue::from_static("default-src 'none'; sandbox; frame-ancestors 'self'");
    head.headers.insert(CONTENT_SECURITY_POLICY, nothing);
    Response::from_parts(head, Outgoing::whole(text))
}

fn escape(text: &str, into: &mut String) {
    for c in text.chars() {
        match c {
            '<' => into.push_str("&lt;"),
            '>' => into.push_str("&gt;"),
            '&' => into.push_str("&amp;"),
            '"' => into.push_str("&quot;"),
            '\'' => into.push_str("&#39;"),
            c => into.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn what_a_request_says_is_text_on_the_page_of_a_refusal() {
        let refusal = Refusal::not_found("<script>alert('1')</script>");
        let page = page(respond(&refusal), &refusal);
        assert_eq!(page.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        assert!(!page.headers().contains_key(CONTENT_LENGTH));
        let body = page.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains("&lt;script&gt;alert(&#39;1&#39;)") && !text.contains("<script"));
    }

    #[test]
    fn a_sandbox_that_does_not_run_is_a_gateway_without_anything_behind_it() {
        let refused =
            |reason| respond(&Refusal::new(Code::Conflict, "no").because(reason)).status();
        assert_eq!(refused(Reason::NotRunning), StatusCode::BAD_GATEWAY);
        assert_eq!(refused(Reason::Paused), StatusCode::BAD_GATEWAY);
        assert_eq!(refused(Reason::NameTaken), StatusCode::CONFLICT);
    }
}

//! Who may reach a port: the holder of a key, the holder of a link to it, or everybody where the operator
//! says so.
//!
//! A browser opens a link once. It gets the link's token as a cookie of the port's own host name, and goes
//! on without it in the address; a program may send the link as it is.

use hyper::header::{
    CACHE_CONTROL, COOKIE, HeaderMap, HeaderName, HeaderValue, LOCATION, REFERRER_POLICY,
    SET_COOKIE,
};
use hyper::{Method, StatusCode};

use super::Form;
use crate::Api;
use crate::body::{Outgoing, Response};
use crate::call::Call;
use crate::caller::Caller;
use crate::response::Foreign;
use crate::route::Asked;
use access::preview::LINK_FIELD;
use host::instant::now_ms;
use sandbox::SandboxRef;
use sandbox::refusal::Refusal;

/// The cookies with it. A browser takes the first from a server with TLS for its own host name alone, so
/// that no neighbour can put another in its place; it takes none of that kind without TLS.
const COOKIE_OF_TLS: &str = "__Host-burrow-link";
const COOKIE_WITHOUT: &str = "burrow-link";

/// Where Daytona's clients put it.
pub const DAYTONA_TOKEN: HeaderName = HeaderName::from_static("x-daytona-preview-token");

/// A port that somebody wants to reach.
pub struct Visit<'a> {
    /// `None` if there is no such sandbox.
    pub which: Option<&'a SandboxRef>,
    pub port: u16,
}

/// Who sends a request for a port. `gone` is the answer for a sandbox that is not there, which is also that
/// for one of another namespace.
pub fn admit(
    api: &Api,
    asked: &Asked<'_>,
    visit: &Visit<'_>,
    gone: impl FnOnce() -> Refusal,
) -> Result<Caller, Refusal> {
    if !asked.has_key()
        && let Some(which) = visit.which
    {
        let (previews, registry) = (api.previews(), api.registry());
        for token in tokens(asked.headers, asked.query) {
            if let Some(link) = previews.opened(registry, which, visit.port, token) {
                return match &link.grant {
                    Some(grant) => api.door().readmit(Some(grant), asked.peer),
                    None => Ok(Caller::Visitor(which.namespace.clone())),
                };
            }
        }
        if previews.is_public(&which.namespace) {
            return Ok(Caller::Visitor(which.namespace.clone()));
        }
    }
    let caller = asked.admit(api)?;
    match visit.which {
        Some(which) if caller.covers(&which.namespace) => Ok(caller),
        _ => Err(gone()),
    }
}

/// The answer to a browser that opens a link: the token as a cookie, and the address without it.
pub fn enter(call: &Call, which: &SandboxRef, port: u16, form: &Form) -> Option<Response> {
    let is_page =
        matches!(call.target.method, Method::GET | Method::HEAD) && call.prefers("text/html");
    if form.shares_origin() || !is_page || call.upgrade.is_some() {
        return None;
    }
    let token = in_query(&call.query)?;
    let link = call.api.previews().opened(call.api.registry(), which, port, token)?;
    let seconds = link.expires_at_ms.saturating_sub(now_ms()).div_ceil(1000);
    let is_tls = call.api.previews().base().is_some_and(|base| base.is_tls);
    let (name, secure) = if is_tls { (COOKIE_OF_TLS, "; Secure") } else { (COOKIE_WITHOUT, "") };
    let cookie =
        format!("{name}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    let query = without_link(&call.query);
    // A path that begins with two slashes would be another host.
    let path =
        if call.target.place.path().starts_with("//") { "/" } else { call.target.place.path() };
    let place = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let mut response = hyper::Response::new(Outgoing::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::try_from(place).ok()?);
    headers.insert(SET_COOKIE, HeaderValue::try_from(cookie).ok()?);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response.extensions_mut().insert(Foreign);
    Some(response)
}

/// A query without the token of a link.
pub fn without_link(query: &str) -> String {
    let fields = query.split('&').filter(|field| !is_link(field));
    fields.collect::<Vec<_>>().join("&")
}

/// Whether a cookie, as `name=value`, is of a link.
pub fn is_link_cookie(pair: &str) -> bool {
    let name = pair.split_once('=').map_or(pair, |(name, _)| name).trim();
    name == COOKIE_OF_TLS || name == COOKIE_WITHOUT
}

fn is_link(field: &str) -> bool {
    field.split_once('=').map_or(field, |(name, _)| name) == LINK_FIELD
}

fn in_query(query: &str) -> Option<&str> {
    query.split('&').find(|field| is_link(field))?.split_once('=').map(|(_, token)| token)
}

/// The tokens that a request shows. A neighbour may have set a cookie of the same name for all, so each is
/// tried.
fn tokens<'a>(headers: &'a HeaderMap, query: &'a str) -> impl Iterator<Item = &'a str> {
    /// A browser sends one, and a hostile page could make it send many.
    const TRIED_MAX: usize = 8;
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let cookies = lines.flat_map(|line| line.split(';')).map(str::trim);
    let cookies = cookies.filter(|pair| is_link_cookie(pair));
    let cookies = cookies.filter_map(|pair| Some(pair.split_once('=')?.1));
    let header = headers.get(&DAYTONA_TOKEN).and_then(|value| value.to_str().ok());
    in_query(query).into_iter().chain(header).chain(cookies).take(TRIED_MAX)
}

//! Who calls, by the ways in which Jupyter's clients send a token, and refusals in the form that they read.

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use schemars::Schema;
use serde_json::json;

use crate::Api;
use crate::body::{Response, json_response};
use crate::caller::Caller;
use crate::forms::problem::cut;
use crate::problem::status;
use crate::route::{Asked, Refusals, percent_decode};
use sandbox::refusal::{Hint, Refusal};

pub const REFUSALS: Refusals = Refusals { respond, schema: |_| Schema::default() };

/// Lets in by a key as `Authorization: token KEY`, as `?token=KEY`, or as at the other doors.
pub fn known(api: &Api, asked: &Asked<'_>) -> Result<Caller, Refusal> {
    match token(asked.headers, asked.query) {
        Some(mut bearer) => {
            bearer.set_sensitive(true);
            let headers = HeaderMap::from_iter([(AUTHORIZATION, bearer)]);
            api.door().admit(&headers, asked.peer)
        }
        None => asked.admit(api),
    }
}

/// The token, as the other doors take a key. A header goes before the query.
fn token(headers: &HeaderMap, query: &str) -> Option<HeaderValue> {
    let token = if let Some(value) = headers.get(AUTHORIZATION) {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("token").then(|| token.trim().to_owned())?
    } else {
        let mut fields = query.split('&').filter_map(|field| field.split_once('='));
        percent_decode(fields.find(|(name, _)| *name == "token")?.1)?
    };
    HeaderValue::try_from(format!("Bearer {token}")).ok()
}

/// One sentence, and what may help.
pub fn words(refusal: &Refusal) -> String {
    let message = cut(refusal.message.clone());
    match refusal.hint.as_ref().and_then(|hint| Hint::words(hint)) {
        Some(hint) => format!("{message}: {hint}"),
        None => message,
    }
}

fn respond(refusal: &Refusal) -> Response {
    let body = json!({ "message": words(refusal), "reason": refusal.code.name() });
    json_response(status(refusal.code), &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_the_header_or_the_query() {
        let sent = |header: Option<&'static str>, query| {
            let headers = header.map(|value| (AUTHORIZATION, HeaderValue::from_static(value)));
            token(&headers.into_iter().collect(), query)
        };
        for (header, query, key) in [
            (Some("token a"), "", Some("Bearer a")),
            (Some("Token a"), "token=b", Some("Bearer a")),
            (Some("Bearer a"), "token=b", None),
            (None, "session_id=x&token=a%2Bb", Some("Bearer a+b")),
            (None, "tokens=a", None),
        ] {
            let found = sent(header, query);
            assert_eq!(
                found.as_ref().and_then(|found| found.to_str().ok()),
                key,
                "{header:?} {query}"
            );
        }
    }
}

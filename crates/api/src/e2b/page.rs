//! Pages of E2B's lists: a part of what is in order, and the token of the next one, which is the place of its last entry.

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::forms::field;
use super::limits::PAGE_MAX;
use crate::body::{Response, json_response};
use crate::gather::{Order, Part};
use sandbox::refusal::Refusal;

const NEXT: HeaderName = HeaderName::from_static("x-next-token");
/// The longest token: a time and an id, or the name of a snapshot with its namespace.
const TOKEN_BYTES_MAX: usize = 256;

/// Which page a client asks for.
#[derive(Clone, Copy, Debug)]
pub struct PageQuery<'a> {
    pub limit: usize,
    pub order: Order,
    token: Option<&'a str>,
}

impl<'a> PageQuery<'a> {
    pub fn read(fields: &'a [(String, String)], order: Order) -> Result<Self, Refusal> {
        let limit = field(fields, "limit").map_or(Ok(PAGE_MAX), str::parse);
        let limit = limit
            .ok()
            .filter(|limit| (1..=PAGE_MAX).contains(limit))
            .ok_or_else(|| Refusal::invalid(format!("limit must be from 1 to {PAGE_MAX}")))?;
        let token = field(fields, "nextToken");
        if token.is_some_and(|token| !token.is_ascii() || token.len() > TOKEN_BYTES_MAX) {
            return Err(Refusal::invalid("nextToken is not one of this server's"));
        }
        Ok(Self { limit, order, token })
    }

    /// The page of what is in order already.
    pub fn part<T>(
        &self,
        all: &[T],
        place: impl Fn(&T) -> String,
        show: impl Fn(&T) -> Value,
    ) -> Part<Value> {
        let is_after = |place: &str| match (self.token, self.order) {
            (None, _) => true,
            (Some(token), Order::Ascending) => place > token,
            (Some(token), Order::Descending) => place < token,
        };
        let mut rest = all.iter().filter(|one| is_after(&place(one)));
        let entries = rest.by_ref().take(self.limit).map(|one| (place(one), show(one))).collect();
        Part { entries, is_cut: rest.next().is_some() }
    }
}

/// A page as clients read it.
pub fn answer(part: Part<Value>) -> Response {
    let next = part.entries.last().filter(|_| part.is_cut).map(|(place, _)| place.clone());
    let values: Vec<Value> = part.entries.into_iter().map(|(_, value)| value).collect();
    let mut response = json_response(StatusCode::OK, &values);
    if let Some(next) = next.and_then(|next| HeaderValue::try_from(next).ok()) {
        response.headers_mut().insert(NEXT, next);
    }
    response
}

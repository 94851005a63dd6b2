//! One question to all nodes of the fleet: each is asked at once, as the caller, and answers for itself alone.
//!
//! ```text
//!  client ─▶ gateway ─┬─▶ its own answer ──────────────┐
//!                     ├─▶ a node: the same question ───┼─▶ put together
//!                     └─▶ a node that is silent ───────┴─▶ named: what it has is missing
//! ```
//!
//! Lists of all doors go through this. What another node asks is never asked on.

use std::cmp::Ordering;

use futures_util::{StreamExt, stream};
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::body::{Response, json_response};
use super::call::Call;
use super::forward::{ask, without_key};
use crate::forms::sandboxes::UnansweredNode;
use crate::limits::{FORWARD_ASKED_AT_ONCE, UNANSWERED_NAMED_MAX};
use node::Node;
use sandbox::limits::BUSY_PAUSE;
use sandbox::refusal::{Code, Refusal};

/// Of a list whose form has no place for it: the nodes that did not answer.
pub const UNANSWERED: HeaderName = HeaderName::from_static("burrow-unanswered-nodes");

/// This bridge in its fleet, where a client asks about all of it.
pub fn wanted(call: &Call, all_nodes: bool) -> Result<Option<&Node>, Refusal> {
    if !all_nodes || call.sent_for.is_some() {
        return Ok(None);
    }
    let alone = || {
        Refusal::new(Code::Unsupported, "this bridge is in no fleet")
            .hint("leave out all_nodes, or start the bridge with --fleet")
    };
    call.api.node().map(Some).ok_or_else(alone)
}

/// The place of the call, as it is asked of another node.
pub fn same_question(call: &Call) -> PathAndQuery {
    without_key(&call.target.place)
}

/// Asks all other nodes, and hands each answer to `take` with the name of its node. Returns those that gave none.
pub async fn gather<T: DeserializeOwned>(
    call: &Call,
    node: &Node,
    question: impl Fn(&str) -> Result<PathAndQuery, Refusal>,
    mut take: impl FnMut(&str, T) -> Result<(), Refusal>,
) -> Result<Vec<UnansweredNode>, Refusal> {
    let others = node.others().await.map_err(|why| {
        let message = format!("the other nodes are not known: {why}");
        Refusal::new(Code::Unavailable, message).retry_after(BUSY_PAUSE)
    })?;
    let asked = others.into_iter().map(|to| {
        let place = question(to.node.as_str());
        async move {
            let answer = match place {
                Ok(place) => ask(call, node, &to, place).await,
                Err(refusal) => Err(refusal),
            };
            (to, answer)
        }
    });
    let mut asked = stream::iter(asked).buffer_unordered(FORWARD_ASKED_AT_ONCE);
    let mut unanswered = Vec::new();
    while let Some((to, answer)) = asked.next().await {
        let name = to.node.as_str();
        let why = match answer {
            Ok(bytes) => {
                // Here, and in the values that are made of it.
                let _held = call.memory.portion(2 * bytes.len())?;
                match serde_json::from_slice(&bytes) {
                    Ok(value) => {
                        take(name, value)?;
                        continue;
                    }
                    Err(error) => format!("its answer is of another form: {error}"),
                }
            }
            Err(refusal) => refusal.message,
        };
        unanswered.push(UnansweredNode { node: name.to_owned(), why });
    }
    unanswered.sort_by(|one, other| one.node.cmp(&other.node));
    Ok(unanswered)
}

/// What one node has of a list whose clients know of no nodes: its entries with their places in the order of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part<T> {
    pub entries: Vec<(String, T)>,
    /// It has more.
    pub is_cut: bool,
}

/// Answers such a list: to another node with what is here, and to a client with what all nodes have.
pub async fn listed<T: Serialize + DeserializeOwned>(
    call: &Call,
    here: Part<T>,
    order: Order,
    limit: usize,
    answer: impl FnOnce(Part<T>) -> Response,
) -> Result<Response, Refusal> {
    if call.sent_for.is_some() {
        return Ok(json_response(StatusCode::OK, &here));
    }
    let Some(node) = call.api.node() else { return Ok(answer(here)) };
    let mut merged = Merged::new(order, limit);
    merged.add(node.id().as_str(), here.entries, here.is_cut);
    let place = same_question(call);
    let question = |_: &str| Ok(place.clone());
    let take = |name: &str, part: Part<T>| {
        merged.add(name, part.entries, part.is_cut);
        Ok(())
    };
    let unanswered = gather(call, node, question, take).await?;
    let is_cut = merged.is_cut();
    let entries = merged.entries().map(|(place, _, entry)| (place, entry)).collect();
    let mut response = answer(Part { entries, is_cut });
    if let Some(names) = names(&unanswered) {
        response.headers_mut().insert(UNANSWERED, names);
    }
    Ok(response)
}

fn names(unanswered: &[UnansweredNode]) -> Option<HeaderValue> {
    let mut names: Vec<_> = unanswered.iter().map(|one| one.node.clone()).collect();
    let more = names.len().saturating_sub(UNANSWERED_NAMED_MAX);
    names.truncate(UNANSWERED_NAMED_MAX);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    HeaderValue::try_from(names.join(", ")).ok().filter(|_| !names.is_empty())
}

/// Whether a list begins with its least entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

impl Order {
    fn compare<K: Ord>(self, one: &K, other: &K) -> Ordering {
        match self {
            Self::Ascending => one.cmp(other),
            Self::Descending => other.cmp(one),
        }
    }
}

/// The first entries of the lists of several nodes.
pub struct Merged<K, T> {
    order: Order,
    limit: usize,
    /// With the node of each.
    entries: Vec<(K, String, T)>,
    is_cut: bool,
    /// Behind this one a node may have entries that it has not shown.
    horizon: Option<K>,
}

impl<K: Ord + Clone, T> Merged<K, T> {
    pub fn new(order: Order, limit: usize) -> Self {
        Self { order, limit, entries: Vec::new(), is_cut: false, horizon: None }
    }

    /// What a node has, in order; `is_cut` if it has more.
    pub fn add(&mut self, node: &str, entries: impl IntoIterator<Item = (K, T)>, is_cut: bool) {
        let order = self.order;
        let before = self.entries.len();
        self.entries.extend(entries.into_iter().map(|(key, entry)| (key, node.to_owned(), entry)));
        if let Some((last, ..)) = self.entries[before..].last().filter(|_| is_cut) {
            let is_nearer = |known: &K| order.compare(last, known).is_lt();
            if self.horizon.as_ref().is_none_or(is_nearer) {
                self.horizon = Some(last.clone());
            }
        }
        self.is_cut |= is_cut;
        self.entries.sort_by(|one, other| {
            order.compare(&one.0, &other.0).then_with(|| one.1.cmp(&other.1))
        });
        let Some(last) = self.limit.checked_sub(1).and_then(|at| self.entries.get(at)) else {
            return;
        };
        // Of one key there may be two for a moment. The next page begins after both.
        let same = self.entries[self.limit..].iter().take_while(|next| next.0 == last.0);
        let end = self.limit + same.count();
        self.is_cut |= self.entries.len() > end;
        self.entries.truncate(end);
    }

    /// Whether there are more than these.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Each with its key and its node.
    pub fn entries(self) -> impl Iterator<Item = (K, String, T)> {
        let Self { order, entries, horizon, .. } = self;
        let is_seen = move |key: &K| {
            horizon.as_ref().is_none_or(|horizon| order.compare(key, horizon).is_le())
        };
        entries.into_iter().take_while(move |(key, ..)| is_seen(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(order: Order, limit: usize, pages: &[(&str, &[&str], bool)]) -> (String, bool) {
        let mut merged = Merged::new(order, limit);
        for (node, names, is_cut) in pages {
            merged.add(node, names.iter().map(|name| ((*name).to_owned(), ())), *is_cut);
        }
        let is_cut = merged.is_cut();
        let shown: Vec<_> =
            merged.entries().map(|(key, node, ())| format!("{key}@{node}")).collect();
        (shown.join(" "), is_cut)
    }

    #[test]
    fn pages_of_nodes_are_one_page_in_order() {
        let pages = [("n1", &["b", "d"][..], false), ("n2", &["a", "c"], false)];
        let shown = merged(Order::Ascending, 3, &pages);
        assert_eq!(shown, ("a@n2 b@n1 c@n2".to_owned(), true));
        let pages = [("n1", &["d", "b"][..], false), ("n2", &["c", "a"], false)];
        let shown = merged(Order::Descending, 3, &pages);
        assert_eq!(shown, ("d@n1 c@n2 b@n1".to_owned(), true));
    }

    #[test]
    fn a_node_with_a_next_page_makes_one_of_the_whole() {
        let pages = [("n1", &["a", "b"][..], true), ("n2", &[], false)];
        assert_eq!(merged(Order::Ascending, 2, &pages), ("a@n1 b@n1".to_owned(), true));
    }

    #[test]
    fn two_of_one_name_are_in_one_page() {
        let pages = [("n1", &["a"][..], false), ("n2", &["a"], false)];
        assert_eq!(merged(Order::Ascending, 1, &pages), ("a@n1 a@n2".to_owned(), false));
    }

    #[test]
    fn nothing_is_shown_behind_what_a_node_has_not_shown() {
        // `n1` may have `b`: it must not be missing between two pages.
        let pages = [("n1", &["a"][..], true), ("n2", &["c", "d"], false)];
        assert_eq!(merged(Order::Ascending, 5, &pages), ("a@n1".to_owned(), true));
        let pages = [("n2", &["c", "d"][..], false), ("n1", &["e"], true)];
        assert_eq!(merged(Order::Descending, 5, &pages), ("e@n1".to_owned(), true));
    }

    #[test]
    fn silent_nodes_are_named_up_to_a_bound() {
        let silent = |count: usize| {
            let one = |number| UnansweredNode { node: format!("n{number}"), why: String::new() };
            let silent: Vec<_> = (0..count).map(one).collect();
            names(&silent).map(|names| names.to_str().unwrap().to_owned())
        };
        assert_eq!(silent(0), None);
        assert_eq!(silent(2).as_deref(), Some("n0, n1"));
        let many = silent(UNANSWERED_NAMED_MAX + 3).unwrap();
        assert!(many.ends_with(", and 3 more"), "{many}");
    }
}

//! One page of the sandboxes of all nodes: each node is asked for its page of the same question, and the pages are
//! put together.

use futures_util::{StreamExt, stream};
use hyper::http::uri::PathAndQuery;

use super::super::super::call::Call;
use super::super::super::forward::ask;
use crate::forms::sandboxes::{Sandbox, SandboxPage, UnansweredNode};
use crate::limits::FORWARD_ASKED_AT_ONCE;
use node::Placement;
use sandbox::limits::BUSY_PAUSE;
use sandbox::refusal::{Code, Refusal};

/// The page that begins with what is `here`.
pub async fn list(call: &Call, here: SandboxPage, limit: u16) -> Result<SandboxPage, Refusal> {
    let node = call.api.node().ok_or_else(|| {
        Refusal::new(Code::Unsupported, "this bridge is in no fleet")
            .hint("leave out all_nodes, or start the bridge with --fleet")
    })?;
    let others = node.others().await.map_err(|why| {
        let message = format!("the other nodes are not known: {why}");
        Refusal::new(Code::Unavailable, message).retry_after(BUSY_PAUSE)
    })?;
    let place = place(&call.query, limit)?;
    let asked = others.into_iter().map(|to| {
        let place = place.clone();
        async move {
            let answer = ask(call, node, &to, place).await;
            let page = answer.and_then(|bytes| {
                serde_json::from_slice(&bytes).map_err(|error| {
                    let message = format!("its answer is no page of sandboxes: {error}");
                    Refusal::new(Code::Unavailable, message)
                })
            });
            (to, page)
        }
    });
    let mut asked = stream::iter(asked).buffer_unordered(FORWARD_ASKED_AT_ONCE);
    let mut merged = Merged::new(usize::from(limit));
    merged.add(node.id().as_str(), here);
    while let Some((to, page)) = asked.next().await {
        match page {
            Ok(page) => merged.add(to.node.as_str(), page),
            Err(refusal) => merged.miss(&to, refusal.message),
        }
    }
    Ok(merged.page())
}

/// The same question to one node: its own sandboxes, and a page that is no shorter than ours.
fn place(query: &str, limit: u16) -> Result<PathAndQuery, Refusal> {
    let is_ours = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        !pair.is_empty() && name != "all_nodes" && name != "limit"
    };
    let kept: Vec<_> = query.split('&').filter(is_ours).collect();
    let limit = format!("limit={limit}");
    let query = [&kept[..], &[limit.as_str()]].concat().join("&");
    let place = format!("/v1/sandboxes?{query}");
    place.parse().map_err(|_| Refusal::invalid(format!("the query {query:?}")))
}

/// The first sandboxes of several pages.
struct Merged {
    limit: usize,
    sandboxes: Vec<Sandbox>,
    /// There are more than these.
    is_cut: bool,
    unanswered: Vec<UnansweredNode>,
}

fn key(sandbox: &Sandbox) -> (&str, &str) {
    (&sandbox.namespace, &sandbox.name)
}

impl Merged {
    fn new(limit: usize) -> Self {
        Self { limit, sandboxes: Vec::new(), is_cut: false, unanswered: Vec::new() }
    }

    fn add(&mut self, node: &str, page: SandboxPage) {
        self.is_cut |= page.next.is_some();
        self.sandboxes.extend(page.sandboxes.into_iter().map(|mut sandbox| {
            sandbox.node = Some(node.to_owned());
            sandbox
        }));
        self.sandboxes.sort_by(|one, other| (key(one), &one.node).cmp(&(key(other), &other.node)));
        let Some(last) = self.limit.checked_sub(1).and_then(|at| self.sandboxes.get(at)) else {
            return;
        };
        // Of one name there may be two for a moment. The next page begins after both.
        let same = self.sandboxes[self.limit..].iter().take_while(|next| key(next) == key(last));
        let end = self.limit + same.count();
        self.is_cut |= self.sandboxes.len() > end;
        self.sandboxes.truncate(end);
    }

    fn miss(&mut self, to: &Placement, why: String) {
        self.unanswered.push(UnansweredNode { node: to.node.to_string(), why });
    }

    fn page(mut self) -> SandboxPage {
        self.unanswered.sort_by(|one, other| one.node.cmp(&other.node));
        let last = self.sandboxes.last().filter(|_| self.is_cut);
        let next = last.map(|last| format!("{}/{}", last.namespace, last.name));
        SandboxPage { sandboxes: self.sandboxes, next, unanswered: self.unanswered }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(name: &str) -> Sandbox {
        serde_json::from_value(serde_json::json!({
            "id": "s", "namespace": "default", "name": name, "state": "running",
            "machine": "process", "hostname": "h", "created_at_ms": 0, "env_names": [],
            "scratch_bytes": 0, "labels": {}, "on_idle": "stop", "warnings": []
        }))
        .unwrap()
    }

    fn page(names: &[&str], next: Option<&str>) -> SandboxPage {
        let sandboxes = names.iter().map(|name| sandbox(name)).collect();
        SandboxPage { sandboxes, next: next.map(str::to_owned), unanswered: Vec::new() }
    }

    fn shown(page: &SandboxPage) -> Vec<String> {
        let one = |one: &Sandbox| format!("{}@{}", one.name, one.node.as_deref().unwrap());
        page.sandboxes.iter().map(one).collect()
    }

    #[test]
    fn pages_of_nodes_are_one_page_in_order() {
        let mut merged = Merged::new(3);
        merged.add("n1", page(&["b", "d"], None));
        merged.add("n2", page(&["a", "c"], None));
        let page = merged.page();
        assert_eq!(shown(&page), ["a@n2", "b@n1", "c@n2"]);
        assert_eq!(page.next.as_deref(), Some("default/c"));
    }

    #[test]
    fn a_node_with_a_next_page_makes_one_of_the_whole() {
        let mut merged = Merged::new(2);
        merged.add("n1", page(&["a", "b"], Some("default/b")));
        merged.add("n2", page(&[], None));
        assert_eq!(merged.page().next.as_deref(), Some("default/b"));
    }

    #[test]
    fn two_of_one_name_are_in_one_page() {
        let mut merged = Merged::new(1);
        merged.add("n1", page(&["a"], None));
        merged.add("n2", page(&["a"], None));
        let page = merged.page();
        assert_eq!((shown(&page).join(" "), page.next), ("a@n1 a@n2".to_owned(), None));
    }

    #[test]
    fn a_node_is_asked_the_same_about_itself() {
        let asked = place("all_nodes=true&label=a%3Db&limit=7&after=x", 7).unwrap();
        assert_eq!(asked.as_str(), "/v1/sandboxes?label=a%3Db&after=x&limit=7");
        assert_eq!(place("", 5).unwrap().as_str(), "/v1/sandboxes?limit=5");
    }
}

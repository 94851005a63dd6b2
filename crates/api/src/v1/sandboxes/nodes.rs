//! One page of the sandboxes of all nodes: each node is asked for its page of the same question, and the pages are
//! put together.

use super::super::super::call::Call;
use super::super::super::gather::{Merged, Order, gather, same_question};
use crate::forms::sandboxes::{Sandbox, SandboxPage};
use node::Node;
use sandbox::refusal::Refusal;

/// The page that begins with what is `here`.
pub async fn list(
    call: &Call,
    node: &Node,
    here: SandboxPage,
    limit: u16,
) -> Result<SandboxPage, Refusal> {
    let mut merged = Merged::new(Order::Ascending, usize::from(limit));
    let mut add = |name: &str, page: SandboxPage| -> Result<(), Refusal> {
        let is_cut = page.next.is_some();
        merged.add(name, page.sandboxes.into_iter().map(|one| (key(&one), one)), is_cut);
        Ok(())
    };
    add(node.id().as_str(), here)?;
    let place = same_question(call);
    let unanswered = gather(call, node, |_| Ok(place.clone()), add).await?;
    let is_cut = merged.is_cut();
    let sandboxes = merged.entries().map(|(_, node, one)| Sandbox { node: Some(node), ..one });
    let sandboxes: Vec<_> = sandboxes.collect();
    let last = sandboxes.last().filter(|_| is_cut);
    let next = last.map(|last| format!("{}/{}", last.namespace, last.name));
    Ok(SandboxPage { sandboxes, next, unanswered })
}

fn key(sandbox: &Sandbox) -> (String, String) {
    (sandbox.namespace.clone(), sandbox.name.clone())
}

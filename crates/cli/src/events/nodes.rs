//! The events of one namespace at all nodes of a fleet, by time and of each node in its own order.

use std::collections::{BTreeMap, VecDeque};

use anyhow::Result;

use crate::context::Context;
use control::{AllNodes, EventBatch, EventsQuery, NodeAnswer, Request, UnansweredNode};
use services::events::Entry;

/// See the module's description.
pub struct NodeEvents {
    query: EventsQuery,
    sources: BTreeMap<String, Source>,
    /// The nodes whose events are missing.
    pub unanswered: Vec<UnansweredNode>,
}

#[derive(Default)]
struct Source {
    waiting: VecDeque<Entry>,
    /// There was no more when it was asked.
    is_at_end: bool,
}

impl NodeEvents {
    pub fn new(query: EventsQuery) -> Self {
        Self { query, sources: BTreeMap::new(), unanswered: Vec::new() }
    }

    /// Asks for more where a node may have what comes before all that waits, or nothing waits.
    pub async fn fill(&mut self, context: &Context) -> Result<()> {
        let waits = self.sources.values().any(|source| !source.waiting.is_empty());
        let mut sources = self.sources.values();
        if waits && sources.all(|source| source.is_at_end || !source.waiting.is_empty()) {
            return Ok(());
        }
        let request = Request::Events(self.query.clone());
        let all: AllNodes<EventBatch> = context.daemon().await?.ask_all(request).await?;
        self.take_in(all);
        Ok(())
    }

    fn take_in(&mut self, all: AllNodes<EventBatch>) {
        for NodeAnswer { node, answer, .. } in all.nodes {
            if let Some(next) = answer.next {
                self.query.places.insert(node.clone(), next);
            }
            let source = self.sources.entry(node).or_default();
            source.waiting.extend(answer.entries);
            source.is_at_end = answer.is_at_end;
        }
        // What is known of one that is silent now comes first; the rest comes when it answers.
        for UnansweredNode { node, .. } in &all.unanswered {
            self.sources.entry(node.clone()).or_default().is_at_end = true;
        }
        self.unanswered = all.unanswered;
    }

    /// The oldest event that waits, with its node.
    pub fn take(&mut self) -> Option<(String, Entry)> {
        let heads = self.sources.iter_mut();
        let heads = heads.filter(|(_, source)| !source.waiting.is_empty());
        let oldest = heads.min_by_key(|(_, source)| source.waiting.front().map(|one| one.at_ms))?;
        Some((oldest.0.clone(), oldest.1.waiting.pop_front()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(node: &str, times: &[u64], is_at_end: bool) -> NodeAnswer<EventBatch> {
        let entry = |(offset, at_ms): (usize, &u64)| {
            let entry = serde_json::json!({ "offset": offset, "at_ms": at_ms, "kind": "created" });
            serde_json::from_value(entry).unwrap()
        };
        let entries = times.iter().enumerate().map(entry).collect();
        let answer = EventBatch { entries, next: Some(times.len() as u64), is_at_end };
        NodeAnswer { node: node.to_owned(), address: String::new(), answer }
    }

    #[test]
    fn events_of_nodes_come_by_time_and_each_node_goes_on_from_its_own_place() {
        let query = EventsQuery {
            namespace: "default".parse().unwrap(),
            places: BTreeMap::new(),
            since_ms: None,
            sandboxes: Vec::new(),
            kinds: Vec::new(),
        };
        let mut events = NodeEvents::new(query);
        let nodes = vec![answer("n1", &[10, 40], true), answer("n2", &[20, 5, 30], true)];
        let silent = UnansweredNode { node: "n3".to_owned(), why: "it is away".to_owned() };
        events.take_in(AllNodes { nodes, unanswered: vec![silent] });
        let taken: Vec<_> = std::iter::from_fn(|| events.take())
            .map(|(node, entry)| format!("{node}:{}", entry.offset))
            .collect();
        assert_eq!(taken, ["n1:0", "n2:0", "n2:1", "n2:2", "n1:1"]);
        let places: Vec<_> = events.query.places.into_iter().collect();
        assert_eq!(places, [("n1".to_owned(), 2), ("n2".to_owned(), 3)]);
    }
}

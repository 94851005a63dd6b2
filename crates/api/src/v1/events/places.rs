//! A client's place in the events of all nodes: for each node the offset with which it goes on. Each node counts its own.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;

use super::EventPage;
use crate::forms::events::EventInfo;
use crate::limits::RESUME_NODES_MAX;

/// As text `NODE:OFFSET` for each node that it knows, with commas between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places(BTreeMap<String, u64>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPlaces {
    #[error("{0:?} is not NODE:OFFSET, as in \"n1:120,n2:88\"")]
    Form(String),
    #[error("the node {0:?} is named twice")]
    Twice(String),
    #[error("it names more than {RESUME_NODES_MAX} nodes")]
    TooMany,
}

impl Places {
    pub fn of(&self, node: &str) -> Option<u64> {
        self.0.get(node).copied()
    }

    pub fn set(&mut self, node: &str, offset: u64) {
        self.0.insert(node.to_owned(), offset);
    }

    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The first events of several nodes, by time, and of each node in its own order. What is not taken comes again: the
    /// places go on with it.
    pub fn take_first(&mut self, pages: Vec<(String, EventPage)>, limit: usize) -> Vec<EventInfo> {
        let mut left: Vec<(String, VecDeque<EventInfo>, Option<u64>)> =
            pages.into_iter().map(|(node, page)| (node, page.events.into(), page.next)).collect();
        left.sort_by(|one, other| one.0.cmp(&other.0));
        let mut taken = Vec::new();
        while taken.len() < limit {
            let heads = left.iter().enumerate();
            let heads = heads.filter_map(|(at, (_, events, _))| Some((events.front()?.at_ms, at)));
            let Some((_, at)) = heads.min() else { break };
            let (node, events, _) = &mut left[at];
            let first = events.pop_front().expect("it has a head");
            taken.push(EventInfo { node: Some(node.clone()), ..first });
        }
        for (node, events, next) in left {
            // A gap is named by its end, and comes again from its beginning.
            let first = events.front().map(|event| event.from.unwrap_or(event.offset));
            if let Some(offset) = first.or(next) {
                self.set(&node, offset);
            }
        }
        taken
    }
}

impl FromStr for Places {
    type Err = InvalidPlaces;

    fn from_str(text: &str) -> Result<Self, InvalidPlaces> {
        let mut places = BTreeMap::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let form = || InvalidPlaces::Form(part.chars().take(128).collect());
            let (node, offset) = part.rsplit_once(':').ok_or_else(form)?;
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            if node.is_empty() || !node.bytes().all(is_name) {
                return Err(form());
            }
            if places.insert(node.to_owned(), offset.parse().map_err(|_| form())?).is_some() {
                return Err(InvalidPlaces::Twice(node.to_owned()));
            }
            if places.len() > RESUME_NODES_MAX {
                return Err(InvalidPlaces::TooMany);
            }
        }
        Ok(Self(places))
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (node, offset)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{node}:{offset}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(offset: u64, at_ms: u64, from: Option<u64>) -> EventInfo {
        let kind = if from.is_some() { "gap" } else { "created" };
        let event = serde_json::json!({
            "offset": offset, "at_ms": at_ms, "kind": kind, "namespace": "default", "from": from
        });
        serde_json::from_value(event).unwrap()
    }

    fn page(events: Vec<EventInfo>, next: Option<u64>) -> EventPage {
        EventPage { events, next, ..EventPage::default() }
    }

    fn shown(events: &[EventInfo]) -> Vec<String> {
        let one =
            |event: &EventInfo| format!("{}:{}", event.node.as_deref().unwrap(), event.offset);
        events.iter().map(one).collect()
    }

    #[test]
    fn events_are_in_the_order_of_time_and_of_each_node_in_its_own() {
        let mut places = Places::default();
        // The clock of `n2` went back: its events stay in their order.
        let pages = vec![
            ("n2".to_owned(), page(vec![event(7, 20, None), event(8, 5, None)], Some(9))),
            ("n1".to_owned(), page(vec![event(0, 10, None), event(1, 30, None)], Some(2))),
            ("n3".to_owned(), page(Vec::new(), None)),
        ];
        let taken = places.take_first(pages.clone(), 9);
        assert_eq!(shown(&taken), ["n1:0", "n2:7", "n2:8", "n1:1"]);
        assert_eq!(places.to_string(), "n1:2,n2:9");
        let mut places = Places::default();
        assert_eq!(shown(&places.take_first(pages, 2)), ["n1:0", "n2:7"]);
        assert_eq!(places.to_string(), "n1:1,n2:8");
    }

    #[test]
    fn a_gap_that_was_not_taken_comes_again_from_its_beginning() {
        let mut places: Places = "n1:3".parse().unwrap();
        let pages = vec![("n1".to_owned(), page(vec![event(9, 1, Some(3))], Some(10)))];
        assert!(places.take_first(pages, 0).is_empty());
        assert_eq!(places.to_string(), "n1:3");
    }

    #[test]
    fn places_are_read_from_their_own_text_and_from_no_other() {
        for text in ["", "n1:0", "a-b_C:7,n2:88"] {
            assert_eq!(text.parse::<Places>().unwrap().to_string(), text);
        }
        for text in ["n1", "n1:", ":1", "n1:x", "n1:-1", "n1:1,", "a b:1", "n1:1;n2:2"] {
            assert!(matches!(text.parse::<Places>(), Err(InvalidPlaces::Form(_))), "{text}");
        }
        assert_eq!("n1:1,n1:2".parse::<Places>(), Err(InvalidPlaces::Twice("n1".to_owned())));
        let many: Vec<_> = (0..=RESUME_NODES_MAX).map(|number| format!("n{number}:0")).collect();
        assert_eq!(many.join(",").parse::<Places>(), Err(InvalidPlaces::TooMany));
    }
}

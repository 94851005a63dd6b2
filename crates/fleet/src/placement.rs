//! Where a new sandbox goes: which nodes are asked for an offer, and which offer is best. Pure.
//!
//! Nodes are drawn at random from all that could do it, not the emptiest: every gateway has about the same
//! picture, and all would run to the same node. Of a few drawn at random the best is nearly the best of all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::random::Random;
use crate::records::{NodeRecord, Readiness, Room};

/// What a sandbox asks of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    pub needs: Room,
    /// Labels that the node must have.
    pub labels: BTreeMap<String, String>,
    /// The kind of machine; any if there is none.
    pub machine: Option<String>,
    /// The only node that may have it; any if there is none.
    #[serde(default)]
    pub node: Option<NodeId>,
    /// The image, which is better where it is already.
    pub image: Option<String>,
    /// The image must be there: nobody brings it.
    #[serde(default)]
    pub needs_image: bool,
}

/// What a node would give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// What is free, without what others have reserved.
    pub free: Room,
    pub total: Room,
    pub has_image: bool,
}

/// Whether the node could ever take it.
pub fn fits(node: &NodeRecord, wish: &Wish) -> bool {
    node.readiness == Readiness::Ready
        && node.room.holds(&wish.needs)
        && wish.labels.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && wish.machine.as_ref().is_none_or(|kind| node.machines.contains(kind))
        && (!wish.needs_image || has_image(node, wish))
}

fn has_image(node: &NodeRecord, wish: &Wish) -> bool {
    wish.image.as_ref().is_none_or(|image| node.images.contains(image))
}

/// Draws the nodes to ask, at most `count`: half of them from those that have the image.
pub fn draw(
    nodes: &[(NodeId, Arc<NodeRecord>)],
    wish: &Wish,
    count: usize,
    random: &mut Random,
) -> Vec<NodeId> {
    let mut drawn = BTreeSet::new();
    let may = |id: &NodeId, node: &NodeRecord| {
        wish.node.as_ref().is_none_or(|only| only == id) && fits(node, wish)
    };
    let tries = count * 8;
    for attempt in 0..tries {
        if drawn.len() == count || nodes.is_empty() {
            break;
        }
        let (id, node) = &nodes[random.below(nodes.len())];
        let wants_image = attempt < tries / 2 && drawn.len() < count / 2;
        if may(id, node) && (!wants_image || has_image(node, wish)) {
            drawn.insert(id.clone());
        }
    }
    if drawn.len() < count {
        // Few can do it, and chance has missed some of them.
        let start = random.below(nodes.len().max(1));
        let around = nodes[start..].iter().chain(&nodes[..start]);
        let fitting = around.filter(|(id, node)| may(id, node)).map(|(id, _)| id.clone());
        for id in fitting {
            drawn.insert(id);
            if drawn.len() == count {
                break;
            }
        }
    }
    drawn.into_iter().collect()
}

/// How good an offer is, in thousandths; higher is better. The scarcer of memory and processor decides, as it
/// would be after the create; an image that is there already is worth a fifth of a node.
pub fn score(offer: &Offer, needs: &Room) -> u64 {
    let left = offer.free.minus(needs);
    let share = |left: u64, total: u64| (left * 1_000).checked_div(total).unwrap_or(1_000);
    let free = share(left.memory_mib, offer.total.memory_mib)
        .min(share(left.cpu_millis, offer.total.cpu_millis));
    free + if offer.has_image { 200 } else { 0 }
}

pub fn offer(node: &NodeRecord, free: Room, wish: &Wish) -> Option<Offer> {
    let can = fits(node, wish) && free.holds(&wish.needs);
    can.then(|| Offer { free, total: node.room, has_image: has_image(node, wish) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(memory_mib: u64) -> Room {
        Room { sandboxes: 100, memory_mib, cpu_millis: memory_mib }
    }

    fn node(label: &str, image: &str) -> Arc<NodeRecord> {
        Arc::new(NodeRecord {
            room: room(1_000),
            labels: BTreeMap::from([("zone".into(), label.into())]),
            images: BTreeSet::from([image.into()]),
            ..NodeRecord::default()
        })
    }

    fn nodes(make: impl Fn(usize) -> Arc<NodeRecord>) -> Vec<(NodeId, Arc<NodeRecord>)> {
        (0..100).map(|at| (NodeId::parse(&format!("n{at}")).unwrap(), make(at))).collect()
    }

    #[test]
    fn only_nodes_that_have_the_labels_are_asked_however_few_they_are() {
        let nodes = nodes(|at| node(if at == 71 { "b" } else { "a" }, "x"));
        let wish =
            Wish { labels: BTreeMap::from([("zone".into(), "b".into())]), ..Wish::default() };
        for seed in 0..50 {
            let drawn = draw(&nodes, &wish, 6, &mut Random::new(seed));
            assert_eq!(drawn, [NodeId::parse("n71").unwrap()]);
        }
    }

    #[test]
    fn some_of_those_asked_have_the_image() {
        let nodes = nodes(|at| node("a", if at % 10 == 0 { "python" } else { "x" }));
        let wish = Wish { image: Some("python".into()), ..Wish::default() };
        let mut held = 0;
        for seed in 0..100 {
            let drawn = draw(&nodes, &wish, 6, &mut Random::new(seed));
            assert_eq!(drawn.len(), 6);
            held += usize::from(drawn.iter().any(|id| id.as_str().ends_with('0')));
        }
        assert!(held > 90, "only {held} of 100 draws have a node with the image");
    }

    #[test]
    fn a_node_that_drains_is_not_asked() {
        let draining = Arc::new(NodeRecord {
            readiness: Readiness::Draining,
            ..node("a", "x").as_ref().clone()
        });
        assert!(
            draw(&nodes(|_| draining.clone()), &Wish::default(), 6, &mut Random::new(1)).is_empty()
        );
    }

    #[test]
    fn the_scarcer_resource_decides_and_the_image_weighs_a_fifth() {
        let needs = Room { sandboxes: 1, memory_mib: 100, cpu_millis: 100 };
        let offer = |memory_mib, cpu_millis, has_image| Offer {
            free: Room { sandboxes: 9, memory_mib, cpu_millis },
            total: room(1_000),
            has_image,
        };
        assert_eq!(score(&offer(1_000, 500, false), &needs), 400);
        assert!(score(&offer(600, 600, true), &needs) > score(&offer(690, 690, false), &needs));
        assert!(score(&offer(300, 300, true), &needs) < score(&offer(900, 900, false), &needs));
    }
}

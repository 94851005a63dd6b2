//! Nodes that are gone. Once a second each member looks at the lease of one node, drawn at random.
//!
//! ```text
//! Look ── it ran out ──▶ Bury ──▶ Scan ──▶ Declare each name lost ──▶ mark as swept ──▶ remove the description
//!   │ alive               │ conflict: it was renewed after all
//!   └──▶ done ◀───────────┘
//! ```
//!
//! The burial is one compare-and-swap on the lease, which succeeds only when there is none: after it the node
//! can't renew, and has ended its machines before. Only then is a name taken from it. A sweep that stops in the
//! middle is begun again by the next member that looks.

use super::{Answered, Member, Pending};
use crate::event::{Action, Entry, Note, Outcome, Scope};
use crate::ids::{Incarnation, Millis, Name, NodeId, Revision, Session};
use crate::lease::Phase;
use crate::limits::{DECLARED_AT_ONCE, SWEEP_EVERY_MS, SWEEPS_MAX};
use crate::random::Random;
use crate::records::{Key, Lease, NameRecord, NameState, Readiness, Value};

#[derive(Default)]
pub(super) struct Sweep {
    burial: Revision,
    left: Vec<(Name, Revision, NameRecord)>,
    under_way: usize,
    /// Something got no answer.
    is_cut: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Step {
    Look,
    Bury,
    Scan,
    Declare,
    Mark,
    DescriptionRead,
    DescriptionRemoved,
}

/// Whether the lease of a node proves that nothing of a session of it is left. A newer session does not: its
/// bridge may have found the sandbox still there.
pub(super) fn is_over(entry: &Entry, session: Session) -> bool {
    let is_buried = matches!(&entry.value, Some(Value::Lease(Lease::Buried { .. })));
    is_buried && entry.revision > session
}

impl Member {
    pub(super) fn tick_sweeps(&mut self, now: Millis) {
        let is_due = now >= self.last_sweep + SWEEP_EVERY_MS && self.phase(now) == Phase::Held;
        if !is_due || self.sweeps.len() >= SWEEPS_MAX || self.roster.nodes.is_empty() {
            return;
        }
        self.last_sweep = now;
        let drawn = self.random.below(self.roster.nodes.len());
        let node = self.roster.nodes[drawn].0.clone();
        if node != self.me.id && !self.sweeps.contains_key(&node) {
            self.sweeps.insert(node.clone(), Sweep::default());
            self.read(Key::Lease(node.clone()), Pending::Sweeping(node, Step::Look));
        }
    }

    /// Writes that a name's sandbox is gone, if the record is still the one at `revision`.
    pub(super) fn declare_lost(
        &mut self,
        name: Name,
        revision: Revision,
        record: NameRecord,
        then: Pending,
    ) {
        let (incarnation, node) = (record.incarnation, record.node.clone());
        self.out.push(Action::Note(Note::Lost { name: name.clone(), incarnation, node }));
        if record.returns {
            // Before it is written that it is lost: who makes it again waits for that.
            self.out.push(Action::Note(Note::Waits { name: name.clone(), incarnation }));
        }
        let value = Some(Value::Name(NameRecord { state: NameState::Lost, ..record }));
        self.write(Key::Name(name), revision, value, then);
    }

    /// A lost sandbox that nobody has made again yet: who has declared it lost may be gone. All nodes see it, and one of
    /// them is drawn, the same by all. One that has just joined does not know all of them yet, nor do they know it: it tries
    /// in any case.
    pub(super) fn wait_for_return(
        &mut self,
        name: Name,
        incarnation: Incarnation,
        has_joined: bool,
    ) {
        let ready = self.roster.nodes.iter();
        let ready = ready.filter(|(_, node)| node.readiness == Readiness::Ready);
        let drawn = ready.map(|(node, _)| node).max_by_key(|node| weight(node, incarnation));
        if has_joined || drawn.is_none_or(|drawn| *drawn == self.me.id) {
            self.out.push(Action::Note(Note::Waits { name, incarnation }));
        }
    }

    pub(super) fn sweeping(&mut self, node: NodeId, step: Step, answer: Answered) {
        let again = |step| Pending::Sweeping(node.clone(), step);
        match (step, answer) {
            (Step::Look, Answered::Read(Some(entry))) => self.lease_seen(node, &entry),
            (Step::Bury, Answered::Wrote(Outcome::Stored(burial))) => {
                self.out.push(Action::Note(Note::Buried { node: node.clone() }));
                self.scan_node(node, burial);
            }
            (Step::Scan, Answered::Scanned(Some(records))) => {
                let Some(sweep) = self.sweeps.get_mut(&node) else { return };
                sweep.left = records;
                sweep.left.retain(|(_, _, record)| {
                    record.state == NameState::Owned
                        && record.node == node
                        && record.session < sweep.burial
                });
                self.declare_some(node);
            }
            (Step::Declare, Answered::Wrote(outcome)) => {
                let Some(sweep) = self.sweeps.get_mut(&node) else { return };
                sweep.under_way -= 1;
                // A conflict is somebody who has declared it before.
                sweep.is_cut |= outcome == Outcome::Unavailable;
                self.declare_some(node);
            }
            (Step::Mark, Answered::Wrote(Outcome::Stored(_))) => {
                self.read(Key::Node(node.clone()), again(Step::DescriptionRead));
            }
            (Step::DescriptionRead, Answered::Read(Some(entry))) if entry.value.is_some() => {
                let key = Key::Node(node.clone());
                self.write(key, entry.revision, None, again(Step::DescriptionRemoved));
            }
            _ => {
                self.sweeps.remove(&node);
            }
        }
    }

    fn lease_seen(&mut self, node: NodeId, entry: &Entry) {
        match &entry.value {
            None => {
                let value = Some(Value::Lease(Lease::Buried { swept: false }));
                let key = Key::Lease(node.clone());
                self.write(key, entry.revision, value, Pending::Sweeping(node, Step::Bury));
            }
            Some(Value::Lease(Lease::Buried { swept: false })) => {
                self.scan_node(node, entry.revision);
            }
            Some(Value::Lease(Lease::Buried { swept: true })) => {
                let key = Key::Node(node.clone());
                self.read(key, Pending::Sweeping(node, Step::DescriptionRead));
            }
            Some(_) => {
                self.sweeps.remove(&node);
            }
        }
    }

    fn scan_node(&mut self, node: NodeId, burial: Revision) {
        if let Some(sweep) = self.sweeps.get_mut(&node) {
            sweep.burial = burial;
            self.scan(Scope::Node(node.clone()), Pending::Sweeping(node, Step::Scan));
        }
    }

    fn declare_some(&mut self, node: NodeId) {
        loop {
            let Some(sweep) = self.sweeps.get_mut(&node) else { return };
            if sweep.under_way >= DECLARED_AT_ONCE || sweep.is_cut {
                break;
            }
            let Some((name, revision, record)) = sweep.left.pop() else { break };
            sweep.under_way += 1;
            let then = Pending::Sweeping(node.clone(), Step::Declare);
            self.declare_lost(name, revision, record, then);
        }
        let Some(sweep) = self.sweeps.get(&node) else { return };
        if sweep.under_way > 0 {
            return;
        }
        if sweep.is_cut {
            self.sweeps.remove(&node);
            return;
        }
        let burial = sweep.burial;
        let value = Some(Value::Lease(Lease::Buried { swept: true }));
        self.write(Key::Lease(node.clone()), burial, value, Pending::Sweeping(node, Step::Mark));
    }
}

/// How much a node is the one for a life: the same wherever it is computed.
fn weight(node: &NodeId, incarnation: Incarnation) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in node.as_str().bytes().chain(incarnation.0.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    Random::new(hash).draw()
}

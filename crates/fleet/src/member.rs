//! One bridge of a fleet, as a state machine: `handle` is given an event and the time, and answers with actions.
//!
//! Its parts, each with the transitions of one job: `joining` (the lease, from joining to over), `creating` (a
//! create, at the gateway), `counting` (counters by compare-and-swap), `calling` (finding and removing, at the
//! gateway), `owning` (what others ask of this node, and what it has), `sweeping` (nodes that are gone).

mod calling;
mod counting;
mod creating;
mod joining;
mod owning;
mod sweeping;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::{
    Action, Answer, Call, Entry, Event, Note, Outcome, Reply, Request, Scanned, Scope, Ticket,
};
use crate::ids::{Incarnation, Millis, NodeId, Revision, Session};
use crate::lease::{Leash, Phase};
use crate::random::Random;
use crate::records::{Key, NodeRecord, Readiness, Value};

/// What a member is from its start to its end.
#[derive(Clone, Debug)]
pub struct Me {
    pub id: NodeId,
    /// Random, made once for a state directory: no other installation has it.
    pub installation: Arc<str>,
    pub record: NodeRecord,
    pub grace_ms: u64,
    /// Of random choices, incarnations among them: two members must not have the same.
    pub seed: u64,
}

/// For people and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub session: Option<Session>,
    pub phase: Phase,
    pub holdings: usize,
    pub creates: usize,
    pub nodes: usize,
}

pub struct Member {
    me: Me,
    random: Random,
    standing: joining::Standing,
    upkeep: joining::Upkeep,
    roster: Roster,
    owned: owning::Owned,
    creates: BTreeMap<u64, creating::Create>,
    sweeps: BTreeMap<NodeId, sweeping::Sweep>,
    counting: counting::Memory,
    pending: BTreeMap<Ticket, Pending>,
    last_ticket: Ticket,
    last_sweep: Millis,
    out: Vec<Action>,
}

/// The nodes that have described themselves, by name and as a list to draw from.
#[derive(Default)]
struct Roster {
    nodes: Vec<(NodeId, Arc<NodeRecord>)>,
    places: BTreeMap<NodeId, usize>,
}

/// What goes on when a ticket is answered.
enum Pending {
    Joining(joining::Step),
    Creating(u64, creating::Step),
    Counting(counting::Count),
    Calling(calling::Step),
    Owning(owning::Step),
    Sweeping(NodeId, sweeping::Step),
}

/// The answer to a ticket, of whatever kind.
enum Answered {
    Wrote(Outcome),
    Read(Option<Entry>),
    Scanned(Option<Scanned>),
    Replied(Option<Reply>),
}

impl Member {
    pub fn new(me: Me) -> Self {
        Self {
            random: Random::new(me.seed),
            me,
            standing: joining::Standing::Away,
            upkeep: joining::Upkeep::default(),
            roster: Roster::default(),
            owned: owning::Owned::default(),
            creates: BTreeMap::new(),
            sweeps: BTreeMap::new(),
            counting: counting::Memory::default(),
            pending: BTreeMap::new(),
            last_ticket: 0,
            last_sweep: 0,
            out: Vec::new(),
        }
    }

    /// A sandbox that has survived the bridge: a member that joins takes its name over.
    pub fn adopt(
        &mut self,
        incarnation: Incarnation,
        name: crate::ids::Name,
        needs: crate::records::Room,
    ) {
        self.owned.adopt(incarnation, name, needs);
    }

    /// A sandbox that was removed while its record could not be: it goes once this member has joined.
    pub fn adopt_removed(&mut self, incarnation: Incarnation) {
        self.owned.adopt_removed(incarnation);
    }

    pub fn handle(&mut self, now: Millis, event: Event) -> Vec<Action> {
        self.end_when_over(now);
        match event {
            Event::Tick => self.tick(now),
            Event::Wrote { ticket, outcome } => self.resume(now, ticket, Answered::Wrote(outcome)),
            Event::Read { ticket, entry } => self.resume(now, ticket, Answered::Read(entry)),
            Event::Scanned { ticket, records } => {
                self.resume(now, ticket, Answered::Scanned(records));
            }
            Event::Answered { ticket, reply } => self.resume(now, ticket, Answered::Replied(reply)),
            Event::NodeSeen { id, record } => self.roster.see(id, record),
            Event::Asked { ticket, request } => self.asked(now, ticket, request),
            Event::Called { call, what } => self.called(now, call, what),
            Event::MachineStarted { incarnation, failure } => {
                self.machine_started(now, incarnation, failure);
            }
            Event::MachineEnded { incarnation } => self.machine_ended(now, incarnation),
            Event::MachineRemoved { incarnation } => self.machine_removed(incarnation),
        }
        std::mem::take(&mut self.out)
    }

    pub fn status(&self, now: Millis) -> Status {
        Status {
            session: self.session(),
            phase: self.phase(now),
            holdings: self.owned.len(),
            creates: self.creates.len(),
            nodes: self.roster.nodes.len(),
        }
    }

    pub fn id(&self) -> &NodeId {
        &self.me.id
    }

    fn tick(&mut self, now: Millis) {
        self.tick_lease(now);
        if self.owned.forget(now) {
            // It may have been claimed.
            self.upkeep.scan_again(now);
        }
        self.tick_sweeps(now);
    }

    fn called(&mut self, now: Millis, call: Ticket, what: Call) {
        match what {
            Call::Create(create) => self.begin_create(now, call, *create),
            Call::Find { name } => self.find(call, name),
            Call::Remove { name } => self.remove(call, name),
            Call::Release { incarnation } => self.release(call, incarnation),
            Call::Lose { incarnation } => {
                self.machine_ended(now, incarnation);
                self.answer(call, Answer::Removed);
            }
            Call::Describe { images } => {
                if self.me.record.images != images {
                    self.me.record.images = images;
                    self.upkeep.describe();
                }
                self.answer(call, Answer::Marked);
            }
            Call::Nodes => {
                let mut nodes = self.roster.nodes.clone();
                nodes.sort_by(|(one, _), (other, _)| one.cmp(other));
                self.answer(call, Answer::Nodes(nodes));
            }
            Call::Mark { node, readiness } => {
                let step = calling::Step::Mark { call };
                self.ask(node, Request::Mark { readiness }, Pending::Calling(step));
            }
        }
    }

    fn mark(&mut self, readiness: Readiness) {
        if self.me.record.readiness != readiness {
            self.me.record.readiness = readiness;
            self.upkeep.describe();
            self.out.push(Action::Note(Note::Marked { readiness }));
        }
    }

    /// A ticket that nobody waits for is late: what it belonged to has gone on without it.
    fn resume(&mut self, now: Millis, ticket: Ticket, answer: Answered) {
        let Some(pending) = self.pending.remove(&ticket) else { return };
        match pending {
            Pending::Joining(step) => self.joining(now, step, answer),
            Pending::Creating(id, step) => self.creating(now, id, step, answer),
            Pending::Counting(count) => self.counting(now, count, answer),
            Pending::Calling(step) => self.calling(step, answer),
            Pending::Owning(step) => self.owning(now, step, answer),
            Pending::Sweeping(node, step) => self.sweeping(node, step, answer),
        }
    }

    fn ticket(&mut self, pending: Pending) -> Ticket {
        self.last_ticket += 1;
        self.pending.insert(self.last_ticket, pending);
        self.last_ticket
    }

    fn read(&mut self, key: Key, then: Pending) {
        let ticket = self.ticket(then);
        self.out.push(Action::Read { ticket, key });
    }

    fn write(&mut self, key: Key, expected: Revision, value: Option<Value>, then: Pending) {
        let ticket = self.ticket(then);
        self.out.push(Action::Write { ticket, key, expected, value, ttl_s: None });
    }

    fn scan(&mut self, scope: Scope, then: Pending) {
        let ticket = self.ticket(then);
        self.out.push(Action::Scan { ticket, scope });
    }

    fn ask(&mut self, to: NodeId, request: Request, then: Pending) {
        let ticket = self.ticket(then);
        self.out.push(Action::Ask { ticket, to, request });
    }

    fn answer(&mut self, call: Ticket, answer: Answer) {
        self.out.push(Action::Answer { call, answer });
    }
}

impl Roster {
    fn see(&mut self, id: NodeId, record: Option<Arc<NodeRecord>>) {
        match (record, self.places.get(&id).copied()) {
            (Some(record), Some(place)) => self.nodes[place].1 = record,
            (Some(record), None) => {
                self.places.insert(id.clone(), self.nodes.len());
                self.nodes.push((id, record));
            }
            (None, Some(place)) => {
                self.nodes.swap_remove(place);
                self.places.remove(&id);
                if let Some((moved, _)) = self.nodes.get(place) {
                    self.places.insert(moved.clone(), place);
                }
            }
            (None, None) => {}
        }
    }
}

fn phase_of(leash: Option<&Leash>, now: Millis) -> Phase {
    leash.map_or(Phase::Over, |leash| leash.phase(now))
}

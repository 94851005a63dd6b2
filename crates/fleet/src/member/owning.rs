//! What this node has, and what other members ask of it.
//!
//! ```text
//! Reserved ── start ──▶ Verifying ── the name is ours ──▶ Starting ──▶ Running ── remove ──▶ Ending ──▶ Ended
//!    │ too old              │ it is not                      │ failed                                  │ the record
//!    └───────────────────▶ refused for good ◀────────────────┘                              removed ◀───┘ is removed
//! ```
//!
//! Once this node has refused an incarnation, it never starts it: others give its name away.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::counting::Purpose;
use super::{Answered, Member, Pending};
use crate::event::{
    Action, Answer, Entry, Note, Outcome, Refusal, Reply, Request, Scanned, Ticket,
};
use crate::ids::{Fence, Incarnation, Millis, Name, Revision, Session};
use crate::lease::Phase;
use crate::limits::{HOLDINGS_MAX, REFUSED_MS, RESERVE_MS};
use crate::placement::{Wish, offer};
use crate::records::{Key, NameRecord, NameState, Readiness, Room, Value};

#[derive(Default)]
pub(super) struct Owned {
    holdings: BTreeMap<Incarnation, Holding>,
    /// What will never be started here, and until when that is remembered.
    refused: BTreeMap<Incarnation, Millis>,
    used: Room,
}

struct Holding {
    /// Unknown while it is only reserved.
    name: Option<Name>,
    needs: Room,
    fence: Fence,
    counted: bool,
    spec: Arc<str>,
    stage: Stage,
    /// Who waits for the stage to end.
    waiting: Vec<Ticket>,
    /// Who of this host waits for its name to become free.
    releasing: Option<Ticket>,
    /// The next scan says whether the store still gives its name to this node: an earlier bridge has left it, or the
    /// removal of its record got no answer.
    is_unproven: bool,
    /// A write of its record with the present session has no outcome yet.
    is_restamped: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Reserved {
        until: Millis,
    },
    Verifying,
    Starting,
    Running,
    Ending,
    /// It does not run any more, and its record is still there.
    Ended,
}

pub(super) enum Step {
    /// The record of what is to start.
    Verify(Incarnation),
    /// The record has the present session.
    Restamp(Incarnation),
    /// The record of what is not here any more.
    Declare,
    /// The record of what was removed; with the generation of the counter before.
    Remove { incarnation: Incarnation, generation: Option<u64> },
}

impl Owned {
    pub(super) fn adopt(&mut self, incarnation: Incarnation, name: Name, needs: Room) {
        let mut holding = Holding::new(needs, Stage::Running);
        holding.name = Some(name);
        holding.is_unproven = true;
        self.insert(incarnation, holding);
    }

    /// One that was removed before, and whose record may still be there.
    pub(super) fn adopt_removed(&mut self, incarnation: Incarnation) {
        let mut holding = Holding::new(Room::default(), Stage::Ended);
        holding.is_unproven = true;
        self.insert(incarnation, holding);
    }

    pub(super) fn len(&self) -> usize {
        self.holdings.len()
    }

    /// Whether it was removed here, and its record may still be there.
    fn was_removed(&self, incarnation: Incarnation) -> bool {
        self.holdings.get(&incarnation).is_some_and(|holding| holding.stage == Stage::Ended)
    }

    pub(super) fn used(&self) -> Room {
        self.used
    }

    fn insert(&mut self, incarnation: Incarnation, holding: Holding) {
        self.used = self.used.plus(&holding.needs);
        self.holdings.insert(incarnation, holding);
    }

    fn remove(&mut self, incarnation: Incarnation) -> Option<Holding> {
        let holding = self.holdings.remove(&incarnation)?;
        self.used = self.used.minus(&holding.needs);
        Some(holding)
    }

    /// Everything has ended: who waits gets the answer that this node can't say. The records of what was removed before
    /// are removed in the next session.
    pub(super) fn clear(&mut self, out: &mut Vec<Action>) {
        self.used = Room::default();
        for (incarnation, holding) in std::mem::take(&mut self.holdings) {
            out.extend(released(holding.releasing, Refusal::Away));
            reply_all(out, holding.waiting, &Reply::Away);
            if holding.stage == Stage::Ended {
                self.adopt_removed(incarnation);
            }
        }
    }

    /// Reservations that nobody has used, and refusals that no message can meet any more.
    /// Says whether there were any of the first.
    pub(super) fn forget(&mut self, now: Millis) -> bool {
        self.refused.retain(|_, until| now < *until);
        let is_old = |stage| matches!(stage, Stage::Reserved { until } if now >= until);
        let old: Vec<_> =
            self.holdings.iter().filter(|(_, h)| is_old(h.stage)).map(|(id, _)| *id).collect();
        for incarnation in &old {
            self.remove(*incarnation);
            self.refused.insert(*incarnation, now + REFUSED_MS);
        }
        !old.is_empty()
    }

    /// A reservation that nobody uses. It runs out as all do: a write that claims it may still be under way.
    fn give_room(&mut self, incarnation: Incarnation) {
        let Some(holding) = self.holdings.get_mut(&incarnation) else { return };
        if matches!(holding.stage, Stage::Reserved { .. }) {
            self.used = self.used.minus(&std::mem::take(&mut holding.needs));
        }
    }
}

impl Holding {
    fn new(needs: Room, stage: Stage) -> Self {
        Self {
            name: None,
            needs,
            fence: Revision(0),
            counted: false,
            spec: "".into(),
            stage,
            waiting: Vec::new(),
            releasing: None,
            is_unproven: false,
            is_restamped: false,
        }
    }
}

/// The answer to who waits for a name to become free, when it does not yet.
fn released(call: Option<Ticket>, refusal: Refusal) -> Option<Action> {
    call.map(|call| Action::Answer { call, answer: Answer::Refused(refusal) })
}

fn reply_all(out: &mut Vec<Action>, waiting: Vec<Ticket>, reply: &Reply) {
    out.extend(waiting.into_iter().map(|ticket| Action::Reply { ticket, reply: reply.clone() }));
}

impl Member {
    pub(super) fn asked(&mut self, now: Millis, ticket: Ticket, request: Request) {
        let reply = match request {
            Request::Offer { wish } => self.make_offer(now, &wish),
            Request::Reserve { incarnation, session, needs } => {
                Some(self.keep_room(now, incarnation, session, needs))
            }
            Request::GiveRoom { incarnation } => {
                self.owned.give_room(incarnation);
                Some(Reply::Removed)
            }
            Request::Start { incarnation, session, fence, namespace, name, spec, own } => {
                let name = Name::parse(&namespace, &name).ok();
                let wanted = Wanted { incarnation, session, fence, name, spec, own };
                self.asked_to_start(now, ticket, wanted)
            }
            Request::Remove { incarnation, .. } => self.asked_to_remove(now, ticket, incarnation),
            Request::Mark { readiness } => {
                self.mark(readiness);
                Some(Reply::Marked)
            }
            Request::Look { thing } => {
                self.out.push(Action::Look { ticket, thing });
                None
            }
        };
        if let Some(reply) = reply {
            self.out.push(Action::Reply { ticket, reply });
        }
    }

    /// Whether this node may take something on in this session.
    fn may_take(&self, now: Millis, session: Session) -> bool {
        self.phase(now) == Phase::Held && self.session() == Some(session) && self.upkeep.has_scanned
    }

    fn free(&self) -> Room {
        self.me.record.room.minus(&self.owned.used)
    }

    fn make_offer(&self, now: Millis, wish: &Wish) -> Option<Reply> {
        let session = self.session()?;
        if !self.may_take(now, session) {
            return Some(Reply::Away);
        }
        let offer = offer(&self.me.record, self.free(), wish);
        Some(offer.map_or(Reply::Refused, |offer| Reply::Offered { session, offer }))
    }

    fn keep_room(
        &mut self,
        now: Millis,
        incarnation: Incarnation,
        session: Session,
        needs: Room,
    ) -> Reply {
        if !self.may_take(now, session) || self.owned.refused.contains_key(&incarnation) {
            return Reply::Refused;
        }
        if let Some(holding) = self.owned.holdings.get(&incarnation) {
            let is_reserved = matches!(holding.stage, Stage::Reserved { .. });
            return if is_reserved { Reply::Reserved } else { Reply::Refused };
        }
        let is_ready = self.me.record.readiness == Readiness::Ready;
        if !is_ready || !self.free().holds(&needs) || self.owned.len() >= HOLDINGS_MAX {
            return Reply::Refused;
        }
        let stage = Stage::Reserved { until: now + RESERVE_MS };
        self.owned.insert(incarnation, Holding::new(needs, stage));
        Reply::Reserved
    }

    fn asked_to_start(&mut self, now: Millis, ticket: Ticket, wanted: Wanted) -> Option<Reply> {
        let may_take = self.may_take(now, wanted.session);
        let is_settled = self.phase(now) == Phase::Held && self.upkeep.has_scanned;
        let Some(holding) = self.owned.holdings.get_mut(&wanted.incarnation) else {
            if !is_settled {
                return Some(Reply::Away);
            }
            self.refuse_start(now, wanted.incarnation, &Reply::Refused);
            return Some(Reply::Refused);
        };
        match (holding.stage, wanted.name) {
            (Stage::Running, _) if holding.fence != Revision(0) => {
                Some(Reply::Started { fence: holding.fence })
            }
            (Stage::Running, _) => Some(Reply::Away),
            (Stage::Reserved { .. }, Some(name)) if wanted.own && may_take => {
                holding.stage = Stage::Verifying;
                holding.name = Some(name.clone());
                holding.fence = wanted.fence;
                holding.spec = wanted.spec;
                holding.waiting.push(ticket);
                let step = Step::Verify(wanted.incarnation);
                self.read(Key::Name(name), Pending::Owning(step));
                None
            }
            (Stage::Verifying | Stage::Starting, _) if wanted.own => {
                holding.waiting.push(ticket);
                None
            }
            // It is on its way up or down, and may still run.
            _ => Some(Reply::Pending),
        }
    }

    fn asked_to_remove(
        &mut self,
        now: Millis,
        ticket: Ticket,
        incarnation: Incarnation,
    ) -> Option<Reply> {
        let is_settled = self.phase(now) == Phase::Held && self.upkeep.has_scanned;
        let Some(holding) = self.owned.holdings.get_mut(&incarnation) else {
            if !is_settled {
                return Some(Reply::Away);
            }
            self.owned.refused.insert(incarnation, now + REFUSED_MS);
            return Some(Reply::Refused);
        };
        match holding.stage {
            Stage::Reserved { .. } | Stage::Verifying | Stage::Starting => Some(Reply::Pending),
            Stage::Running if holding.fence == Revision(0) => Some(Reply::Away),
            Stage::Running => {
                holding.stage = Stage::Ending;
                holding.waiting.push(ticket);
                self.out.push(Action::End { incarnation });
                None
            }
            Stage::Ending => {
                holding.waiting.push(ticket);
                None
            }
            Stage::Ended => {
                holding.waiting.push(ticket);
                self.begin_removal(incarnation);
                None
            }
        }
    }

    pub(super) fn machine_started(
        &mut self,
        now: Millis,
        incarnation: Incarnation,
        failure: Option<String>,
    ) {
        let Some(holding) = self.owned.holdings.get_mut(&incarnation) else {
            // The lease was over in between.
            self.out.push(Action::End { incarnation });
            return;
        };
        if let Some(why) = failure {
            return self.refuse_start(now, incarnation, &Reply::Failed { why });
        }
        holding.stage = Stage::Running;
        let reply = Reply::Started { fence: holding.fence };
        let waiting = std::mem::take(&mut holding.waiting);
        reply_all(&mut self.out, waiting, &reply);
    }

    /// A sandbox that is gone from here, in order; its record goes before this is answered, or the answer is that it can't
    /// go yet.
    pub(super) fn release(&mut self, call: Ticket, incarnation: Incarnation) {
        match self.owned.holdings.get_mut(&incarnation) {
            Some(holding) if holding.stage == Stage::Running && holding.fence != Revision(0) => {
                holding.stage = Stage::Ended;
                holding.releasing = Some(call);
                self.begin_removal(incarnation);
            }
            // A scan finds the record, and removes it.
            Some(Holding { stage: Stage::Running | Stage::Ended, .. }) => {
                self.machine_removed(incarnation);
                self.answer(call, Answer::Refused(Refusal::Away));
            }
            // Nothing of it is here, or the one who has asked for its end removes the record.
            _ => self.answer(call, Answer::Removed),
        }
    }

    /// A sandbox that somebody has removed here, in order: its record goes as well.
    pub(super) fn machine_removed(&mut self, incarnation: Incarnation) {
        let Some(holding) = self.owned.holdings.get_mut(&incarnation) else { return };
        if holding.stage == Stage::Running {
            holding.stage = Stage::Ended;
            // Where the fence is not known yet, the record goes when a scan has found it.
            if holding.fence != Revision(0) {
                self.begin_removal(incarnation);
            }
        }
    }

    pub(super) fn machine_ended(&mut self, now: Millis, incarnation: Incarnation) {
        let Some(holding) = self.owned.holdings.get_mut(&incarnation) else { return };
        match holding.stage {
            Stage::Ending => {
                holding.stage = Stage::Ended;
                self.begin_removal(incarnation);
            }
            // Nobody has asked for it: a scan finds the name without a sandbox, and says so.
            Stage::Running | Stage::Starting => {
                self.refuse_for_good(incarnation, now + REFUSED_MS, &Reply::Refused);
                self.upkeep.scan_again(now);
            }
            Stage::Reserved { .. } | Stage::Verifying | Stage::Ended => {}
        }
    }

    /// Nothing of it is here any more; those who wait get this reply.
    fn refuse_for_good(&mut self, incarnation: Incarnation, until: Millis, reply: &Reply) {
        if let Some(holding) = self.owned.remove(incarnation) {
            self.out.extend(released(holding.releasing, Refusal::Away));
            reply_all(&mut self.out, holding.waiting, reply);
        }
        self.owned.refused.insert(incarnation, until);
    }

    /// Who has claimed its name gives it back. If that does not come to it, a scan finds a name of this node that has no
    /// sandbox, and says so.
    fn refuse_start(&mut self, now: Millis, incarnation: Incarnation, reply: &Reply) {
        self.refuse_for_good(incarnation, now + REFUSED_MS, reply);
        self.upkeep.scan_again(now);
    }

    fn begin_removal(&mut self, incarnation: Incarnation) {
        let Some(holding) = self.owned.holdings.get(&incarnation) else { return };
        let namespace = holding.name.as_ref().map(|name| name.namespace().clone());
        match namespace {
            Some(namespace) if holding.counted => {
                self.count(namespace, Purpose::BeforeRemoval { incarnation });
            }
            _ => self.remove_record(incarnation, None),
        }
    }

    pub(super) fn remove_record(&mut self, incarnation: Incarnation, generation: Option<u64>) {
        let Some(holding) = self.owned.holdings.get(&incarnation) else { return };
        let Some(name) = holding.name.clone() else { return };
        let step = Step::Remove { incarnation, generation };
        self.write(Key::Name(name), holding.fence, None, Pending::Owning(step));
    }

    /// The last of a removal: the counter is right, or the next repair makes it right.
    pub(super) fn subtracted(&mut self, then: Option<Incarnation>) {
        let Some(incarnation) = then else { return };
        if let Some(holding) = self.owned.remove(incarnation) {
            if let Some(call) = holding.releasing {
                self.answer(call, Answer::Removed);
            }
            reply_all(&mut self.out, holding.waiting, &Reply::Removed);
            self.out.push(Action::Note(Note::Freed { incarnation }));
        }
    }

    pub(super) fn owning(&mut self, now: Millis, step: Step, answer: Answered) {
        match (step, answer) {
            (Step::Verify(incarnation), Answered::Read(entry)) => {
                self.verified(now, incarnation, entry);
            }
            (Step::Restamp(incarnation), Answered::Wrote(outcome)) => {
                self.restamped(now, incarnation, outcome);
            }
            (Step::Declare, Answered::Wrote(Outcome::Stored(_) | Outcome::Conflict)) => {}
            (Step::Restamp(_) | Step::Declare, _) => self.upkeep.scan_again(now),
            (Step::Remove { incarnation, generation }, Answered::Wrote(outcome)) => {
                self.record_removed(now, incarnation, generation, outcome);
            }
            (Step::Verify(_) | Step::Remove { .. }, _) => {}
        }
    }

    fn restamped(&mut self, now: Millis, incarnation: Incarnation, outcome: Outcome) {
        let Some(holding) = self.owned.holdings.get_mut(&incarnation) else { return };
        holding.is_restamped = false;
        let Outcome::Stored(fence) = outcome else { return self.upkeep.scan_again(now) };
        holding.fence = fence;
        // Somebody has removed it here meanwhile.
        if holding.stage == Stage::Ended {
            self.begin_removal(incarnation);
        }
    }

    /// The machine starts only if the store says that the name is this incarnation's, at this fence.
    fn verified(&mut self, now: Millis, incarnation: Incarnation, entry: Option<Entry>) {
        let is_held = self.phase(now) == Phase::Held;
        let session = self.session();
        let Some(holding) = self.owned.holdings.get_mut(&incarnation) else { return };
        let record = entry.filter(|entry| entry.revision == holding.fence);
        let record = match record.and_then(|entry| entry.value) {
            Some(Value::Name(record)) if record.incarnation == incarnation => Some(record),
            _ => None,
        };
        let record = record.filter(|record| Some(record.session) == session && is_held);
        let (Some(record), Some(name)) = (record, holding.name.clone()) else {
            return self.refuse_start(now, incarnation, &Reply::Refused);
        };
        holding.stage = Stage::Starting;
        holding.counted = record.counted;
        let spec = holding.spec.clone();
        self.out.push(Action::Start { incarnation, name, spec });
    }

    fn record_removed(
        &mut self,
        now: Millis,
        incarnation: Incarnation,
        generation: Option<u64>,
        outcome: Outcome,
    ) {
        let Some(holding) = self.owned.holdings.get_mut(&incarnation) else { return };
        let namespace = holding.name.as_ref().map(|name| name.namespace().clone());
        match (outcome, generation, namespace) {
            (Outcome::Unavailable, ..) => {
                let waiting = std::mem::take(&mut holding.waiting);
                self.out.extend(released(holding.releasing.take(), Refusal::Away));
                reply_all(&mut self.out, waiting, &Reply::Away);
                // The next scan finds the record of what has ended, and removes it, or finds none.
                holding.is_unproven = true;
                self.upkeep.scan_again(now);
            }
            (Outcome::Stored(_), Some(generation), Some(namespace)) => {
                let then = Some(incarnation);
                self.count(namespace, Purpose::Subtract { generation, then });
            }
            // Somebody has changed it: whatever it says now, nothing of it is here.
            _ => self.subtracted(Some(incarnation)),
        }
    }

    /// All names that the store gives to this node.
    pub(super) fn scanned_own(&mut self, now: Millis, session: Session, records: Option<Scanned>) {
        if self.session() != Some(session) {
            return;
        }
        let is_first = !self.upkeep.has_scanned;
        self.upkeep.scanned(records.is_some());
        let Some(records) = records else { return self.upkeep.scan_again(now) };
        for (name, revision, record) in records {
            if record.state == NameState::Lost && self.owned.was_removed(record.incarnation) {
                self.remove_found(name, revision, record.incarnation);
            } else if record.waits() {
                self.wait_for_return(name, record.incarnation, is_first);
            } else if record.state == NameState::Owned && record.node == self.me.id {
                self.compare(now, session, name, revision, record);
            }
        }
        self.end_unproven(now);
    }

    /// The record of what was removed here.
    fn remove_found(&mut self, name: Name, revision: Revision, incarnation: Incarnation) {
        let Some(holding) = self.owned.holdings.get_mut(&incarnation) else { return };
        holding.is_unproven = false;
        holding.fence = revision;
        holding.name = Some(name);
        self.remove_record(incarnation, None);
    }

    /// What the store does not give to this node: the name may be another's. What has ended is done with.
    fn end_unproven(&mut self, now: Millis) {
        let found = self.owned.holdings.iter().filter(|(_, holding)| holding.is_unproven);
        let found: Vec<_> = found.map(|(incarnation, it)| (*incarnation, it.stage)).collect();
        for (incarnation, stage) in found {
            match stage {
                Stage::Running => {
                    self.out.push(Action::End { incarnation });
                    self.refuse_for_good(incarnation, now + REFUSED_MS, &Reply::Refused);
                }
                Stage::Ended => self.subtracted(Some(incarnation)),
                _ => {}
            }
        }
    }

    fn compare(
        &mut self,
        now: Millis,
        session: Session,
        name: Name,
        revision: Revision,
        record: NameRecord,
    ) {
        let incarnation = record.incarnation;
        let Some(holding) = self.owned.holdings.get_mut(&incarnation) else {
            // The scan may be older than a create that is coming to its end here: it is refused first.
            self.owned.refused.insert(incarnation, now + REFUSED_MS);
            return self.declare_lost(name, revision, record, Pending::Owning(Step::Declare));
        };
        holding.is_unproven = false;
        if holding.is_restamped {
            // Its revision is about to be another.
        } else if holding.stage == Stage::Ended {
            self.remove_found(name, revision, incarnation);
        } else if record.session != session {
            holding.counted = record.counted;
            holding.is_restamped = true;
            let value = Some(Value::Name(NameRecord { session, ..record }));
            let step = Pending::Owning(Step::Restamp(incarnation));
            self.write(Key::Name(name), revision, value, step);
        } else if holding.stage == Stage::Running {
            holding.fence = revision;
        }
    }
}

struct Wanted {
    incarnation: Incarnation,
    session: Session,
    fence: Fence,
    name: Option<Name>,
    spec: Arc<str>,
    own: bool,
}

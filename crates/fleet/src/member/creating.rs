//! A create, at the gateway that a client has called.
//!
//! ```text
//! Look ─▶ Admit ─▶ Offers ─▶ Reserve ─▶ Claim ─▶ Settle ─▶ Start ─▶ answered
//!   │    (quota)              │  ▲ next     │      (quota)     │
//!   │                         └──┘          │                  └─ refused ─▶ Undo
//!   └─ the name has the same request ◀──────┘ conflict: give the room back, and Look again
//!        └─▶ Ask its owner: started · pending · never (then from the beginning)
//! ```
//!
//! The claim is the write that creates the name: its revision is the fence. Whatever dies on the way leaves at
//! most a claim that was never started, which its owner, or a repeated create, declares lost.

use std::collections::BTreeSet;

use super::counting::Purpose;
use super::{Answered, Member, Pending};
use crate::event::{Answer, CreateCall, Entry, Outcome, Refusal, Reply, Request, Scope, Ticket};
use crate::ids::{Fence, Incarnation, Millis, NodeId, Revision, Session};
use crate::lease::Phase;
use crate::limits::{CREATE_ATTEMPTS, CREATES_MAX, OFFERS};
use crate::placement::{draw, score};
use crate::quota::QuotaError;
use crate::records::{Key, NameRecord, NameState, Value};

pub(super) struct Create {
    call: Ticket,
    pub(super) what: CreateCall,
    pub(super) incarnation: Incarnation,
    attempts: u32,
    /// The revision of the name as it was looked at.
    base: Revision,
    /// Offers, the best last.
    offers: Vec<(u64, NodeId, Session)>,
    unanswered: usize,
    chosen: Option<(NodeId, Session)>,
    fence: Fence,
    /// The generation of the counter in which this create is settled.
    settled: Option<u64>,
    has_repaired: bool,
}

pub(super) enum Step {
    Look,
    Offer(NodeId),
    Reserve,
    Claim,
    /// Somebody else has the name, and the room that was kept is free again.
    GiveRoom,
    Start,
    /// Another create with the same request has the name; its owner is asked.
    AskOwner(Revision, NameRecord),
    /// The owner did not answer: whether it is alive.
    OwnersLease(Revision, NameRecord),
    /// The record of what is gone is written as lost.
    Declare,
    /// The claim is removed, and then this is answered.
    Undo(Answer),
    /// The names of the namespace, for a repair of its counter.
    Count {
        counter: crate::quota::Counter,
        revision: Revision,
    },
    Repair,
}

impl Member {
    pub(super) fn begin_create(&mut self, now: Millis, call: Ticket, what: CreateCall) {
        let refusal = if self.phase(now) != Phase::Held {
            Some(Refusal::Away)
        } else if self.creates.len() >= CREATES_MAX {
            Some(Refusal::Busy)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return self.answer(call, Answer::Refused(refusal));
        }
        let create = Create {
            call,
            what,
            incarnation: Incarnation(0),
            attempts: 0,
            base: Revision(0),
            offers: Vec::new(),
            unanswered: 0,
            chosen: None,
            fence: Revision(0),
            settled: None,
            has_repaired: false,
        };
        self.creates.insert(call, create);
        self.look(call);
    }

    /// From the beginning, as a new incarnation.
    fn look(&mut self, id: u64) {
        let incarnation = Incarnation(self.random.wide());
        let Some(create) = self.creates.get_mut(&id) else { return };
        create.attempts += 1;
        if create.attempts > CREATE_ATTEMPTS {
            return self.refuse(id, Refusal::UnderWay);
        }
        create.incarnation = incarnation;
        create.offers.clear();
        create.chosen = None;
        create.settled = None;
        let key = Key::Name(create.what.name.clone());
        self.read(key, Pending::Creating(id, Step::Look));
    }

    fn finish(&mut self, id: u64, answer: Answer) {
        if let Some(create) = self.creates.remove(&id) {
            self.answer(create.call, answer);
        }
    }

    fn refuse(&mut self, id: u64, refusal: Refusal) {
        self.finish(id, Answer::Refused(refusal));
    }

    pub(super) fn creating(&mut self, now: Millis, id: u64, step: Step, answer: Answered) {
        match (step, answer) {
            (Step::Look, Answered::Read(entry)) => self.looked(id, entry),
            (Step::Offer(node), Answered::Replied(reply)) => self.offered(id, node, reply.as_ref()),
            (Step::Reserve, Answered::Replied(reply)) => self.reserved(id, reply.as_ref()),
            (Step::Claim, Answered::Wrote(outcome)) => self.claimed(id, outcome),
            (Step::GiveRoom, _) => {}
            (Step::Start, Answered::Replied(reply)) => self.start_replied(id, reply.as_ref()),
            (Step::AskOwner(revision, record), Answered::Replied(reply)) => {
                self.owner_replied(id, revision, record, reply.as_ref());
            }
            (Step::OwnersLease(revision, record), Answered::Read(entry)) => {
                self.owners_lease(id, revision, record, entry.as_ref());
            }
            (Step::Declare, Answered::Wrote(Outcome::Unavailable)) => {
                self.refuse(id, Refusal::Unknown);
            }
            (Step::Declare, Answered::Wrote(_)) => self.look(id),
            (Step::Undo(answer), Answered::Wrote(outcome)) => self.undone(id, answer, outcome),
            (Step::Count { counter, revision }, Answered::Scanned(records)) => {
                let names = records.map(|records| {
                    let owned = records
                        .into_iter()
                        .filter(|(_, _, record)| record.state == NameState::Owned);
                    owned.map(|(_, _, record)| record.incarnation).collect()
                });
                self.counted_again(now, id, &counter, revision, names);
            }
            (Step::Repair, Answered::Wrote(Outcome::Unavailable)) => {
                self.refuse(id, Refusal::Away);
            }
            (Step::Repair, Answered::Wrote(_)) => self.admit(id),
            // An answer of another kind than was asked for, which no transport gives.
            _ => self.refuse(id, Refusal::Unknown),
        }
    }

    fn looked(&mut self, id: u64, entry: Option<Entry>) {
        let Some(create) = self.creates.get_mut(&id) else { return };
        let Some(entry) = entry else { return self.refuse(id, Refusal::Away) };
        create.base = entry.revision;
        match entry.value {
            Some(Value::Name(record)) if record.state == NameState::Owned => {
                if record.request == create.what.request {
                    self.ask_owner(id, entry.revision, record);
                } else {
                    self.refuse(id, Refusal::Taken);
                }
            }
            found if !is_free_for(&create.what, found.as_ref()) => {
                self.refuse(id, Refusal::Taken);
            }
            _ if create.what.limit.is_some() => self.admit(id),
            _ => self.ask_for_offers(id),
        }
    }

    fn admit(&mut self, id: u64) {
        let Some(create) = self.creates.get(&id) else { return };
        let namespace = create.what.name.namespace().clone();
        let limit = create.what.limit.unwrap_or(u32::MAX);
        let incarnation = create.incarnation;
        self.count(namespace, Purpose::Admit { id, incarnation, limit });
    }

    /// The outcome of `admit`; `Err(None)` is a store that does not answer.
    pub(super) fn admitted(&mut self, id: u64, outcome: Result<(), Option<QuotaError>>) {
        match outcome {
            Ok(()) => self.ask_for_offers(id),
            Err(None) => self.refuse(id, Refusal::Away),
            Err(Some(error)) => {
                let Some(create) = self.creates.get_mut(&id) else { return };
                if create.has_repaired {
                    return self.refuse(id, Refusal::Quota(error));
                }
                create.has_repaired = true;
                let namespace = create.what.name.namespace().clone();
                self.count(namespace, Purpose::Look { id });
            }
        }
    }

    /// The counter before a repair: the names are scanned after it.
    pub(super) fn counter_read(
        &mut self,
        id: u64,
        read: Option<(crate::quota::Counter, Revision)>,
    ) {
        let Some(create) = self.creates.get(&id) else { return };
        let Some((counter, revision)) = read else { return self.refuse(id, Refusal::Away) };
        let scope = Scope::Namespace(create.what.name.namespace().clone());
        self.scan(scope, Pending::Creating(id, Step::Count { counter, revision }));
    }

    fn counted_again(
        &mut self,
        now: Millis,
        id: u64,
        counter: &crate::quota::Counter,
        revision: Revision,
        names: Option<BTreeSet<Incarnation>>,
    ) {
        let Some(names) = names else { return self.refuse(id, Refusal::Away) };
        let Some(create) = self.creates.get(&id) else { return };
        let namespace = create.what.name.namespace().clone();
        let dropped = self.counting.too_old(now, counter);
        let repaired = counter.repair(&names, &dropped);
        let value = Some(Value::Quota(repaired));
        self.write(Key::Quota(namespace), revision, value, Pending::Creating(id, Step::Repair));
    }

    fn ask_for_offers(&mut self, id: u64) {
        let Some(create) = self.creates.get_mut(&id) else { return };
        let asked = draw(&self.roster.nodes, &create.what.wish, OFFERS, &mut self.random);
        create.unanswered = asked.len();
        if asked.is_empty() {
            return self.give_up(id, Refusal::NoRoom);
        }
        let wish = create.what.wish.clone();
        for node in asked {
            let request = Request::Offer { wish: wish.clone() };
            self.ask(node.clone(), request, Pending::Creating(id, Step::Offer(node)));
        }
    }

    fn offered(&mut self, id: u64, node: NodeId, reply: Option<&Reply>) {
        let Some(create) = self.creates.get_mut(&id) else { return };
        create.unanswered -= 1;
        if let Some(Reply::Offered { session, offer }) = reply {
            create.offers.push((score(offer, &create.what.wish.needs), node, *session));
        }
        if create.unanswered == 0 {
            create.offers.sort();
            self.reserve(id);
        }
    }

    fn reserve(&mut self, id: u64) {
        let Some(create) = self.creates.get_mut(&id) else { return };
        let Some((_, node, session)) = create.offers.pop() else {
            return self.give_up(id, Refusal::NoRoom);
        };
        create.chosen = Some((node.clone(), session));
        let (incarnation, needs) = (create.incarnation, create.what.wish.needs);
        let request = Request::Reserve { incarnation, session, needs };
        self.ask(node, request, Pending::Creating(id, Step::Reserve));
    }

    fn reserved(&mut self, id: u64, reply: Option<&Reply>) {
        if reply != Some(&Reply::Reserved) {
            return self.reserve(id);
        }
        let Some(create) = self.creates.get(&id) else { return };
        let Some((node, session)) = create.chosen.clone() else { return };
        let record = NameRecord {
            incarnation: create.incarnation,
            node,
            session,
            request: create.what.request.clone(),
            needs: create.what.wish.needs,
            counted: create.what.limit.is_some(),
            returns: create.what.returns,
            state: NameState::Owned,
        };
        let (key, base) = (Key::Name(create.what.name.clone()), create.base);
        self.write(key, base, Some(Value::Name(record)), Pending::Creating(id, Step::Claim));
    }

    fn claimed(&mut self, id: u64, outcome: Outcome) {
        let Some(create) = self.creates.get_mut(&id) else { return };
        match outcome {
            Outcome::Stored(fence) => {
                create.fence = fence;
                if create.what.limit.is_some() {
                    let namespace = create.what.name.namespace().clone();
                    let incarnation = create.incarnation;
                    self.count(namespace, Purpose::Settle { id, incarnation });
                } else {
                    self.start(id);
                }
            }
            Outcome::Conflict => {
                let (incarnation, chosen) = (create.incarnation, create.chosen.take());
                if let Some((node, _)) = chosen {
                    let step = Pending::Creating(id, Step::GiveRoom);
                    self.ask(node, Request::GiveRoom { incarnation }, step);
                }
                self.abandon(id);
                self.look(id);
            }
            Outcome::Unavailable => self.refuse(id, Refusal::Unknown),
        }
    }

    /// The outcome of settling, with the counter's generation; `Err(None)` is a store that does not answer.
    pub(super) fn settled(&mut self, id: u64, outcome: Result<u64, Option<QuotaError>>) {
        let Some(create) = self.creates.get_mut(&id) else { return };
        match outcome {
            Ok(generation) => {
                create.settled = Some(generation);
                self.start(id);
            }
            Err(Some(error)) => self.undo(id, Answer::Refused(Refusal::Quota(error))),
            Err(None) => self.refuse(id, Refusal::Unknown),
        }
    }

    fn start(&mut self, id: u64) {
        let Some(create) = self.creates.get(&id) else { return };
        let Some((node, session)) = create.chosen.clone() else { return };
        let request = start_request(create, create.incarnation, session, create.fence, true);
        self.ask(node, request, Pending::Creating(id, Step::Start));
    }

    fn start_replied(&mut self, id: u64, reply: Option<&Reply>) {
        let Some(create) = self.creates.get(&id) else { return };
        match reply {
            Some(Reply::Started { fence }) => {
                let Some((node, _)) = create.chosen.clone() else { return };
                let (incarnation, fence) = (create.incarnation, *fence);
                self.finish(id, Answer::Created { incarnation, node, fence });
            }
            Some(Reply::Refused) => self.undo(id, Answer::Refused(Refusal::StartFailed)),
            Some(Reply::Failed { why }) => self.undo(id, Answer::Failed { why: why.clone() }),
            _ => self.refuse(id, Refusal::Unknown),
        }
    }

    fn ask_owner(&mut self, id: u64, revision: Revision, record: NameRecord) {
        let Some(create) = self.creates.get(&id) else { return };
        let request = start_request(create, record.incarnation, record.session, revision, false);
        let owner = record.node.clone();
        self.ask(owner, request, Pending::Creating(id, Step::AskOwner(revision, record)));
    }

    fn owner_replied(
        &mut self,
        id: u64,
        revision: Revision,
        record: NameRecord,
        reply: Option<&Reply>,
    ) {
        match reply {
            Some(Reply::Started { fence }) => {
                let (incarnation, node, fence) = (record.incarnation, record.node, *fence);
                self.finish(id, Answer::Created { incarnation, node, fence });
            }
            Some(Reply::Pending) => self.refuse(id, Refusal::UnderWay),
            // The owner will never start it: the name is free.
            Some(Reply::Refused) => {
                self.declare(id, revision, record);
            }
            _ => {
                let key = Key::Lease(record.node.clone());
                self.read(key, Pending::Creating(id, Step::OwnersLease(revision, record)));
            }
        }
    }

    fn owners_lease(
        &mut self,
        id: u64,
        revision: Revision,
        record: NameRecord,
        entry: Option<&Entry>,
    ) {
        if entry.is_some_and(|entry| super::sweeping::is_over(entry, record.session)) {
            self.declare(id, revision, record);
        } else {
            self.refuse(id, Refusal::Unknown);
        }
    }

    fn declare(&mut self, id: u64, revision: Revision, record: NameRecord) {
        let Some(create) = self.creates.get(&id) else { return };
        let name = create.what.name.clone();
        self.declare_lost(name, revision, record, Pending::Creating(id, Step::Declare));
    }

    /// Nothing was claimed: the counter forgets the create.
    fn give_up(&mut self, id: u64, refusal: Refusal) {
        self.abandon(id);
        self.refuse(id, refusal);
    }

    fn abandon(&mut self, id: u64) {
        let Some(create) = self.creates.get(&id) else { return };
        if create.what.limit.is_some() {
            let namespace = create.what.name.namespace().clone();
            let incarnation = create.incarnation;
            self.count(namespace, Purpose::Abandon { incarnation });
        }
    }

    fn undo(&mut self, id: u64, answer: Answer) {
        let Some(create) = self.creates.get(&id) else { return };
        let (key, fence) = (Key::Name(create.what.name.clone()), create.fence);
        self.write(key, fence, None, Pending::Creating(id, Step::Undo(answer)));
    }

    fn undone(&mut self, id: u64, answer: Answer, outcome: Outcome) {
        let Some(create) = self.creates.get(&id) else { return };
        if let (Outcome::Stored(_), Some(generation)) = (outcome, create.settled) {
            let namespace = create.what.name.namespace().clone();
            self.count(namespace, Purpose::Subtract { generation, then: None });
        }
        self.finish(id, answer);
    }
}

/// A sandbox that is made again takes only the name of the life that it follows: somebody may have removed that, or
/// have used the name for something else.
fn is_free_for(create: &CreateCall, found: Option<&Value>) -> bool {
    let Some(lost) = create.in_place_of else { return true };
    matches!(found, Some(Value::Name(record)) if record.waits() && record.incarnation == lost)
}

fn start_request(
    create: &Create,
    incarnation: Incarnation,
    session: Session,
    fence: Fence,
    own: bool,
) -> Request {
    let (namespace, name) = create.what.name.parts();
    let spec = create.what.spec.clone();
    Request::Start { incarnation, session, fence, namespace, name, spec, own }
}

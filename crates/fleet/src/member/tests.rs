use std::collections::HashMap;

use super::*;
use crate::event::Refusal;
use crate::ids::{Fence, Name};
use crate::limits::RENEW_EVERY_MS;
use crate::placement::Wish;
use crate::records::{NameRecord, NameState, Room};

const NOW: Millis = 50_000;
const INCARNATION: Incarnation = Incarnation(7);

/// A member with a store that answers at once. What it does beside is kept.
struct Joined {
    member: Member,
    entries: HashMap<Key, Entry>,
    last: u64,
    /// Writes get no answer.
    is_away: bool,
    reads_are_lost: bool,
    scans_are_lost: bool,
    /// Outcomes of writes of names that are on their way; `None`: they come at once.
    outcomes: Option<Vec<Event>>,
    done: Vec<Action>,
}

impl Joined {
    fn new() -> Self {
        Self::after(|_| {})
    }

    /// With a sandbox of an earlier bridge, whose name may have become another node's.
    fn adopting(incarnation: Incarnation, name: &Name, is_ours: bool) -> Self {
        Self::after(|before| {
            before.claim(incarnation, Revision(0));
            if !is_ours {
                let key = Key::Name(name.clone());
                let Some(Value::Name(mut record)) = before.entries[&key].value.clone() else {
                    unreachable!("it was claimed")
                };
                record.node = NodeId::parse("n2").unwrap();
                before.store(key, Some(Value::Name(record)));
            }
            before.member.adopt(incarnation, name.clone(), Room::default());
        })
    }

    /// With what there is before it joins.
    fn after(prepare: impl FnOnce(&mut Self)) -> Self {
        let room = Room { sandboxes: 2, memory_mib: 100, cpu_millis: 100 };
        let me = Me {
            id: NodeId::parse("n1").unwrap(),
            installation: "one".into(),
            record: NodeRecord { room, ..NodeRecord::default() },
            grace_ms: 20_000,
            seed: 1,
        };
        let member = Member::new(me);
        let mut joined = Self {
            member,
            entries: HashMap::new(),
            last: 0,
            is_away: false,
            reads_are_lost: false,
            scans_are_lost: false,
            outcomes: None,
            done: Vec::new(),
        };
        prepare(&mut joined);
        joined.see(NOW, Event::Tick);
        assert!(joined.member.session().is_some(), "it has not joined");
        joined
    }

    fn store(&mut self, key: Key, value: Option<Value>) -> Revision {
        self.last += 1;
        let revision = Revision(self.last);
        self.entries.insert(key, Entry { revision, value });
        revision
    }

    fn see(&mut self, now: Millis, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.member.handle(now, event) {
                match action {
                    Action::Write { ticket, key, expected, value, .. } => {
                        let is_name = matches!(key, Key::Name(_));
                        let found = self.entries.get(&key).map_or(Revision(0), |e| e.revision);
                        let outcome = if self.is_away {
                            Outcome::Unavailable
                        } else if found == expected {
                            Outcome::Stored(self.store(key, value))
                        } else {
                            Outcome::Conflict
                        };
                        let wrote = Event::Wrote { ticket, outcome };
                        match &mut self.outcomes {
                            Some(outcomes) if is_name => outcomes.push(wrote),
                            _ => events.push(wrote),
                        }
                    }
                    Action::Read { ticket, key } => {
                        let entry = self.entries.get(&key).cloned().unwrap_or_default();
                        let entry = Some(entry).filter(|_| !self.reads_are_lost);
                        events.push(Event::Read { ticket, entry });
                    }
                    Action::Scan { ticket, .. } => {
                        let records = self.entries.iter().filter_map(|(key, entry)| match key {
                            Key::Name(name) => match &entry.value {
                                Some(Value::Name(record)) => {
                                    Some((name.clone(), entry.revision, record.clone()))
                                }
                                _ => None,
                            },
                            _ => None,
                        });
                        let records = Some(records.collect()).filter(|_| !self.scans_are_lost);
                        events.push(Event::Scanned { ticket, records });
                    }
                    other => self.done.push(other),
                }
            }
        }
    }

    fn ask(&mut self, now: Millis, request: Request) -> Option<Reply> {
        self.see(now, Event::Asked { ticket: 1, request });
        self.done.iter().rev().find_map(|action| match action {
            Action::Reply { reply, .. } => Some(reply.clone()),
            _ => None,
        })
    }

    fn reserve(&mut self, now: Millis) -> Option<Reply> {
        let session = self.member.session().unwrap();
        let needs = Room { sandboxes: 1, memory_mib: 10, cpu_millis: 10 };
        self.ask(now, Request::Reserve { incarnation: INCARNATION, session, needs })
    }

    fn start(&mut self, now: Millis, session: Session, fence: Fence, own: bool) -> Option<Reply> {
        self.done.clear();
        self.ask(
            now,
            Request::Start {
                incarnation: INCARNATION,
                session,
                fence,
                namespace: "a".into(),
                name: "x".into(),
                spec: "".into(),
                own,
            },
        )
    }

    /// The name in the store, as a gateway has claimed it.
    fn claim(&mut self, incarnation: Incarnation, session: Session) -> Fence {
        let record = NameRecord {
            incarnation,
            node: self.member.id().clone(),
            session,
            request: "r".into(),
            needs: Room::default(),
            counted: false,
            returns: false,
            state: NameState::Owned,
        };
        self.store(Key::Name(Name::parse("a", "x").unwrap()), Some(Value::Name(record)))
    }

    /// A node with a sandbox whose name is claimed, and which the node was asked to start.
    fn asked_to_start() -> (Self, Session, Fence) {
        let mut node = Self::new();
        let session = node.member.session().unwrap();
        assert_eq!(node.reserve(NOW), Some(Reply::Reserved));
        let fence = node.claim(INCARNATION, session);
        assert_eq!(node.start(NOW, session, fence, true), None, "it waits for the machine");
        (node, session, fence)
    }

    fn name(&self) -> Option<&Value> {
        self.entries[&Key::Name(Name::parse("a", "x").unwrap())].value.as_ref()
    }

    fn has_freed(&self) -> bool {
        let freed = Note::Freed { incarnation: INCARNATION };
        self.done.iter().any(|action| matches!(action, Action::Note(note) if *note == freed))
    }

    fn is_reported_lost(&self) -> bool {
        matches!(self.name(), Some(Value::Name(record)) if record.state == NameState::Lost)
    }

    fn starts(&self) -> bool {
        self.done.iter().any(|action| matches!(action, Action::Start { .. }))
    }
}

#[test]
fn a_machine_starts_when_the_store_gives_its_node_the_name() {
    let (mut node, session, fence) = Joined::asked_to_start();
    assert!(node.starts());
    node.see(NOW, Event::MachineStarted { incarnation: INCARNATION, failure: None });
    assert_eq!(node.start(NOW, session, fence, false), Some(Reply::Started { fence }));
}

#[test]
fn a_machine_does_not_start_at_another_fence_for_another_incarnation_or_session() {
    type Claim = fn(&mut Joined, Session) -> Fence;
    let wrong: [(&str, Claim); 3] = [
        ("another fence", |node, session| {
            let fence = node.claim(INCARNATION, session);
            node.claim(INCARNATION, session);
            fence
        }),
        ("another incarnation", |node, session| node.claim(Incarnation(8), session)),
        ("another session", |node, _| node.claim(INCARNATION, Revision(0))),
    ];
    for (what, claim) in wrong {
        let mut node = Joined::new();
        let session = node.member.session().unwrap();
        assert_eq!(node.reserve(NOW), Some(Reply::Reserved));
        let fence = claim(&mut node, session);
        assert_eq!(node.start(NOW, session, fence, true), Some(Reply::Refused), "{what}");
        assert!(!node.starts(), "it starts at {what}");
    }
}

#[test]
fn what_a_node_has_once_refused_it_never_starts() {
    let mut node = Joined::new();
    let session = node.member.session().unwrap();
    let fence = node.claim(INCARNATION, session);
    // A repeated create asks what has become of the first one, whose reservation has not arrived.
    assert_eq!(node.start(NOW, session, fence, false), Some(Reply::Refused));
    assert_eq!(node.reserve(NOW + 1), Some(Reply::Refused));
    assert_eq!(node.start(NOW + 2, session, fence, true), Some(Reply::Refused));
    assert!(!node.starts());
}

#[test]
fn a_reservation_that_nobody_uses_is_given_up_for_good() {
    let mut node = Joined::new();
    assert_eq!(node.reserve(NOW), Some(Reply::Reserved));
    node.see(NOW + crate::limits::RESERVE_MS, Event::Tick);
    assert_eq!(node.member.status(NOW).holdings, 0);
    assert_eq!(node.reserve(NOW + crate::limits::RESERVE_MS), Some(Reply::Refused));
}

#[test]
fn what_a_host_has_is_looked_for_by_the_host() {
    let mut node = Joined::new();
    assert_eq!(node.ask(NOW, Request::Look { thing: "sandbox/0123".into() }), None);
    let looked = |action: &Action| matches!(action, Action::Look { ticket: 1, thing } if &**thing == "sandbox/0123");
    assert!(node.done.iter().any(looked));
}

#[test]
fn a_node_without_a_lease_offers_and_starts_nothing() {
    let mut node = Joined::new();
    let offer = Request::Offer { wish: Wish::default() };
    assert!(matches!(node.ask(NOW, offer.clone()), Some(Reply::Offered { .. })));
    // The renewals of this store have stopped: the next event comes after half of the grace.
    let late = NOW + 10_001;
    assert_eq!(node.ask(late, offer), Some(Reply::Away));
    assert_eq!(node.reserve(late), Some(Reply::Refused));
}

#[test]
fn a_record_that_could_not_be_removed_is_removed_soon_after() {
    let (mut node, ..) = Joined::asked_to_start();
    node.see(NOW, Event::MachineStarted { incarnation: INCARNATION, failure: None });
    node.is_away = true;
    let (namespace, name) = Name::parse("a", "x").unwrap().parts();
    let remove = Request::Remove { incarnation: INCARNATION, namespace, name };
    node.done.clear();
    assert_eq!(node.ask(NOW, remove), None, "it waits for the machine");
    node.see(NOW, Event::MachineEnded { incarnation: INCARNATION });
    assert!(node.done.iter().any(|a| matches!(a, Action::Reply { reply: Reply::Away, .. })));
    node.is_away = false;
    node.see(NOW + RENEW_EVERY_MS, Event::Tick);
    let name = Key::Name(Name::parse("a", "x").unwrap());
    assert_eq!(node.entries[&name].value, None, "the name is still taken");
    assert_eq!(node.member.status(NOW).holdings, 0);
}

#[test]
fn a_sandbox_that_is_removed_on_its_host_frees_its_name() {
    let (mut node, ..) = Joined::asked_to_start();
    node.see(NOW, Event::MachineStarted { incarnation: INCARNATION, failure: None });
    node.see(NOW, Event::MachineRemoved { incarnation: INCARNATION });
    let name = Key::Name(Name::parse("a", "x").unwrap());
    assert_eq!(node.entries[&name].value, None, "the name is still taken");
    assert_eq!(node.member.status(NOW).holdings, 0);
}

#[test]
fn a_start_that_fails_says_why() {
    let (mut node, session, fence) = Joined::asked_to_start();
    let failure = Some("no image".to_owned());
    node.see(NOW, Event::MachineStarted { incarnation: INCARNATION, failure });
    let failed = Reply::Failed { why: "no image".to_owned() };
    assert!(node.done.iter().any(|a| matches!(a, Action::Reply { reply, .. } if *reply == failed)));
    assert_eq!(node.start(NOW, session, fence, true), Some(Reply::Refused));
}

#[test]
fn room_that_a_create_gives_back_is_free_unless_it_has_begun() {
    let mut node = Joined::new();
    assert_eq!(node.reserve(NOW), Some(Reply::Reserved));
    assert_ne!(node.member.owned.used(), Room::default());
    node.ask(NOW, Request::GiveRoom { incarnation: INCARNATION });
    assert_eq!(node.member.owned.used(), Room::default());
    let (mut node, ..) = Joined::asked_to_start();
    node.ask(NOW, Request::GiveRoom { incarnation: INCARNATION });
    assert_ne!(node.member.owned.used(), Room::default());
}

#[test]
fn a_claim_that_the_store_did_not_confirm_is_looked_for_soon_after() {
    let mut node = Joined::new();
    let session = node.member.session().unwrap();
    assert_eq!(node.reserve(NOW), Some(Reply::Reserved));
    let fence = node.claim(INCARNATION, session);
    node.reads_are_lost = true;
    assert_eq!(node.start(NOW, session, fence, true), Some(Reply::Refused));
    node.reads_are_lost = false;
    // The scan gets no answer, either.
    node.scans_are_lost = true;
    node.see(NOW + RENEW_EVERY_MS, Event::Tick);
    node.scans_are_lost = false;
    node.see(NOW + 2 * RENEW_EVERY_MS, Event::Tick);
    assert!(node.is_reported_lost(), "the name has no sandbox, and is taken");
}

#[test]
fn a_claim_that_nobody_takes_back_after_its_start_was_refused_is_reported_lost() {
    let (mut node, ..) = Joined::asked_to_start();
    let failure = Some("no image".to_owned());
    node.see(NOW, Event::MachineStarted { incarnation: INCARNATION, failure });
    node.see(NOW + RENEW_EVERY_MS, Event::Tick);
    assert!(node.is_reported_lost(), "it has failed");
    let mut node = Joined::new();
    let session = node.member.session().unwrap();
    let fence = node.claim(INCARNATION, session);
    assert_eq!(node.start(NOW, session, fence, true), Some(Reply::Refused));
    node.see(NOW + RENEW_EVERY_MS, Event::Tick);
    assert!(node.is_reported_lost(), "there was no reservation");
}

#[test]
fn what_an_earlier_bridge_has_left_frees_its_name_when_it_is_removed_before_that_is_this_bridges() {
    let name = Name::parse("a", "x").unwrap();
    let mut node = Joined::after(|before| {
        before.claim(INCARNATION, Revision(0));
        before.member.adopt(INCARNATION, name.clone(), Room::default());
        before.outcomes = Some(Vec::new());
    });
    node.see(NOW, Event::Called { call: 7, what: Call::Release { incarnation: INCARNATION } });
    assert!(node.name().is_some(), "the write of its record has no outcome yet");
    for outcome in node.outcomes.take().unwrap() {
        node.see(NOW, outcome);
    }
    assert_eq!(node.name(), None, "the name is still taken");
    assert_eq!(node.member.status(NOW).holdings, 0);
}

#[test]
fn who_removes_a_sandbox_on_its_host_is_answered_when_the_name_is_free() {
    let (mut node, ..) = Joined::asked_to_start();
    node.see(NOW, Event::MachineStarted { incarnation: INCARNATION, failure: None });
    node.done.clear();
    let what = Call::Release { incarnation: INCARNATION };
    node.see(NOW, Event::Called { call: 7, what: what.clone() });
    let name = Key::Name(Name::parse("a", "x").unwrap());
    assert_eq!(node.entries[&name].value, None, "the name is still taken");
    let answered = |node: &Joined| {
        let answers = node.done.iter().filter_map(|action| match action {
            Action::Answer { answer, .. } => Some(answer.clone()),
            _ => None,
        });
        answers.collect::<Vec<_>>()
    };
    assert_eq!(answered(&node), [Answer::Removed]);
    // What this node does not have, it has nothing to free of.
    node.see(NOW, Event::Called { call: 8, what });
    assert_eq!(answered(&node), [Answer::Removed, Answer::Removed]);
}

#[test]
fn what_an_earlier_bridge_has_left_ends_where_its_name_is_not_this_nodes() {
    let name = Name::parse("a", "x").unwrap();
    for is_ours in [true, false] {
        let node = Joined::adopting(INCARNATION, &name, is_ours);
        let ends = node.done.iter().any(|action| matches!(action, Action::End { .. }));
        assert_eq!(ends, !is_ours, "its name is this node's: {is_ours}");
        assert_eq!(node.member.status(NOW).holdings, usize::from(is_ours));
    }
}

/// A node where a sandbox was removed, and where the write that frees its name got no answer.
fn with_an_unwritten_removal() -> Joined {
    let (mut node, ..) = Joined::asked_to_start();
    node.see(NOW, Event::MachineStarted { incarnation: INCARNATION, failure: None });
    node.is_away = true;
    let what = Call::Release { incarnation: INCARNATION };
    node.see(NOW, Event::Called { call: 7, what });
    let away = Answer::Refused(Refusal::Away);
    assert!(
        node.done.iter().any(|a| matches!(a, Action::Answer { answer, .. } if *answer == away))
    );
    assert!(!node.has_freed() && node.name().is_some());
    node
}

#[test]
fn a_removal_that_the_store_has_not_seen_is_made_good_by_the_next_bridge() {
    for state in [NameState::Owned, NameState::Lost] {
        let node = Joined::after(|before| {
            before.claim(INCARNATION, Revision(0));
            if let Some(Value::Name(mut record)) = before.name().cloned() {
                record.state = state;
                record.returns = true;
                before.store(Key::Name(Name::parse("a", "x").unwrap()), Some(Value::Name(record)));
            }
            before.member.adopt_removed(INCARNATION);
        });
        assert_eq!(node.name(), None, "it was removed, and is {state:?}");
        let is_made_again =
            node.done.iter().any(|action| matches!(action, Action::Note(Note::Waits { .. })));
        assert!(node.has_freed() && !is_made_again);
        assert_eq!(node.member.status(NOW).holdings, 0);
    }
}

#[test]
fn a_removal_that_the_store_has_not_seen_outlives_the_lease() {
    let mut node = with_an_unwritten_removal();
    let over = NOW + 21_000;
    node.see(over, Event::Tick);
    assert_eq!(node.member.session(), None, "its lease is over");
    node.is_away = false;
    node.see(over + RENEW_EVERY_MS, Event::Tick);
    assert_eq!(node.name(), None, "the name is still taken");
    assert!(node.has_freed());
    assert_eq!(node.member.status(over).holdings, 0);
}

#[test]
fn a_removal_whose_answer_was_lost_keeps_no_room() {
    let mut node = with_an_unwritten_removal();
    // Only its answer was lost.
    let key = Key::Name(Name::parse("a", "x").unwrap());
    node.store(key, None);
    node.is_away = false;
    node.see(NOW + RENEW_EVERY_MS, Event::Tick);
    assert!(node.has_freed());
    assert_eq!(node.member.status(NOW).holdings, 0);
}

//! Finding a sandbox's owner and removing a sandbox, at the gateway that a client has called.

use super::{Answered, Member, Pending};
use crate::event::{Answer, Entry, Outcome, Refusal, Reply, Request, Ticket};
use crate::ids::{Name, Revision};
use crate::records::{Key, NameRecord, NameState, Value};

pub(super) enum Step {
    Find {
        call: Ticket,
    },
    /// The record of what a client removes.
    Look {
        call: Ticket,
        name: Name,
    },
    /// The owner's reply.
    Ask {
        call: Ticket,
        name: Name,
        revision: Revision,
        record: NameRecord,
    },
    /// The reply of the node that is marked.
    Mark {
        call: Ticket,
    },
    /// The answer, when this is written.
    Then {
        call: Ticket,
        answer: Answer,
    },
}

/// The record of a name, or the answer when there is none.
fn owned(entry: Option<Entry>) -> Result<(Revision, NameRecord), Answer> {
    let Some(entry) = entry else { return Err(Answer::Refused(Refusal::Away)) };
    match entry.value {
        Some(Value::Name(record)) if record.state == NameState::Owned => {
            Ok((entry.revision, record))
        }
        Some(Value::Name(record)) => Err(lost(&record)),
        _ => Err(Answer::Absent),
    }
}

/// The answer about a lost sandbox.
fn lost(record: &NameRecord) -> Answer {
    Answer::Lost {
        incarnation: record.incarnation,
        node: record.node.clone(),
        returns: record.returns,
        request: record.request.clone(),
    }
}

impl Member {
    pub(super) fn find(&mut self, call: Ticket, name: Name) {
        self.read(Key::Name(name), Pending::Calling(Step::Find { call }));
    }

    pub(super) fn remove(&mut self, call: Ticket, name: Name) {
        let step = Step::Look { call, name: name.clone() };
        self.read(Key::Name(name), Pending::Calling(step));
    }

    pub(super) fn calling(&mut self, step: Step, answer: Answered) {
        match (step, answer) {
            (Step::Find { call }, Answered::Read(entry)) => {
                let answer = match owned(entry) {
                    Ok((fence, NameRecord { incarnation, node, .. })) => {
                        Answer::Found { incarnation, node, fence }
                    }
                    Err(answer) => answer,
                };
                self.answer(call, answer);
            }
            (Step::Look { call, name }, Answered::Read(entry)) => match owned(entry) {
                Ok((revision, record)) => {
                    let (namespace, token) = name.parts();
                    let incarnation = record.incarnation;
                    let request = Request::Remove { incarnation, namespace, name: token };
                    let owner = record.node.clone();
                    let step = Step::Ask { call, name, revision, record };
                    self.ask(owner, request, Pending::Calling(step));
                }
                Err(answer) => self.answer(call, answer),
            },
            (Step::Ask { call, name, revision, record }, Answered::Replied(reply)) => match reply {
                Some(Reply::Removed) => self.answer(call, Answer::Removed),
                // The owner does not have it, and never will.
                Some(Reply::Refused) => {
                    let then = Pending::Calling(Step::Then { call, answer: lost(&record) });
                    self.declare_lost(name, revision, record, then);
                }
                Some(Reply::Pending) => self.answer(call, Answer::Refused(Refusal::UnderWay)),
                _ => self.answer(call, Answer::Refused(Refusal::Unknown)),
            },
            (Step::Then { call, answer }, Answered::Wrote(Outcome::Stored(_))) => {
                self.answer(call, answer);
            }
            (Step::Mark { call }, Answered::Replied(Some(Reply::Marked))) => {
                self.answer(call, Answer::Marked);
            }
            (
                Step::Mark { call }
                | Step::Then { call, .. }
                | Step::Find { call }
                | Step::Look { call, .. }
                | Step::Ask { call, .. },
                _,
            ) => self.answer(call, Answer::Refused(Refusal::Unknown)),
        }
    }
}

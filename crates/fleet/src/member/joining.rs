//! The lease: joining, renewing, and what happens when that fails.
//!
//! ```text
//! Away ── the lease is free, or ours ──▶ Joining ── stored ──▶ Joined ── renewed each second ──▶ Joined
//!  ▲                                        │                    │
//!  └────────────── conflict ────────────────┴──── the grace is over, or the lease is another's
//! ```
//!
//! Joining always gives a new session. What the node had under older ones is found by a scan: sandboxes that are
//! still here are written with the new session, all others are declared lost. Until then it makes no offers.

use std::sync::Arc;

use super::{Answered, Member, Pending, phase_of};
use crate::event::{Action, Entry, Note, Outcome, Scope};
use crate::ids::{Millis, Revision, Session};
use crate::lease::{Leash, Phase, leash, ttl_s};
use crate::limits::{RENEW_EVERY_MS, RESCAN_EVERY_MS};
use crate::records::{Key, Lease, Value};

pub(super) enum Standing {
    /// No lease.
    Away,
    /// The write that joins is under way, or what comes before it.
    Joining,
    Joined(Joined),
}

pub(super) struct Joined {
    session: Session,
    /// Of the last renewal that is known.
    revision: Revision,
    leash: Leash,
    renewing: bool,
    renew_at: Millis,
}

/// What is done now and then beside the renewals.
#[expect(clippy::struct_excessive_bools, reason = "three jobs that are each under way or not")]
pub(super) struct Upkeep {
    join_at: Millis,
    /// The description in the store is not the present one.
    is_stale: bool,
    describing: bool,
    scanning: bool,
    scan_at: Millis,
    /// The names of older sessions have been looked at.
    pub(super) has_scanned: bool,
}

impl Default for Upkeep {
    fn default() -> Self {
        Self {
            join_at: 0,
            is_stale: true,
            describing: false,
            scanning: false,
            scan_at: 0,
            has_scanned: false,
        }
    }
}

impl Upkeep {
    pub(super) fn describe(&mut self) {
        self.is_stale = true;
    }

    /// Something of the last scan got no answer.
    pub(super) fn scan_again(&mut self, now: Millis) {
        self.scan_at = self.scan_at.min(now + RENEW_EVERY_MS);
    }

    pub(super) fn scanned(&mut self, is_whole: bool) {
        self.scanning = false;
        self.has_scanned |= is_whole;
    }
}

pub(super) enum Step {
    /// The lease as it is before joining.
    Look,
    /// The write that joins.
    Join {
        sent_at: Millis,
    },
    Renew {
        session: Session,
        sent_at: Millis,
    },
    /// The lease after a renewal whose outcome is not known.
    Check {
        session: Session,
    },
    DescriptionRead,
    DescriptionWritten,
    Scan {
        session: Session,
    },
}

/// The session of a lease that is alive.
fn session_of(entry: &Entry) -> Option<Session> {
    match &entry.value {
        Some(Value::Lease(Lease::Alive { session, .. })) => Some(session.unwrap_or(entry.revision)),
        _ => None,
    }
}

impl Member {
    pub(super) fn session(&self) -> Option<Session> {
        match &self.standing {
            Standing::Joined(joined) => Some(joined.session),
            _ => None,
        }
    }

    pub(super) fn phase(&self, now: Millis) -> Phase {
        match &self.standing {
            Standing::Joined(joined) => phase_of(Some(&joined.leash), now),
            _ => Phase::Over,
        }
    }

    pub(super) fn tick_lease(&mut self, now: Millis) {
        match &self.standing {
            Standing::Away if now >= self.upkeep.join_at => {
                self.standing = Standing::Joining;
                self.upkeep.join_at = now + RENEW_EVERY_MS;
                self.read(Key::Lease(self.me.id.clone()), Pending::Joining(Step::Look));
            }
            Standing::Away | Standing::Joining => {}
            Standing::Joined(_) => {
                self.renew_when_due(now);
                self.keep_up(now);
            }
        }
    }

    /// Before anything else is handled: a member that was stopped finds here that its time is up.
    pub(super) fn end_when_over(&mut self, now: Millis) {
        if self.session().is_some() && self.phase(now) == Phase::Over {
            self.over(now);
        }
    }

    /// Nothing of this session may run from here on.
    fn over(&mut self, now: Millis) {
        self.standing = Standing::Away;
        self.upkeep = Upkeep { join_at: now + RENEW_EVERY_MS, ..Upkeep::default() };
        self.owned.clear(&mut self.out);
        self.out.push(Action::EndAll);
        self.out.push(Action::Note(Note::Over));
    }

    fn alive(&self, session: Option<Session>) -> Value {
        Value::Lease(Lease::Alive {
            session,
            installation: self.me.installation.clone(),
            used: self.owned.used(),
        })
    }

    fn write_lease(&mut self, expected: Revision, session: Option<Session>, step: Step) {
        let value = Some(self.alive(session));
        let ticket = self.ticket(Pending::Joining(step));
        let ttl_s = Some(ttl_s(self.me.grace_ms));
        let key = Key::Lease(self.me.id.clone());
        self.out.push(Action::Write { ticket, key, expected, value, ttl_s });
    }

    fn renew_when_due(&mut self, now: Millis) {
        let Standing::Joined(joined) = &mut self.standing else { return };
        if joined.renewing || now < joined.renew_at {
            return;
        }
        joined.renewing = true;
        joined.renew_at = now + RENEW_EVERY_MS;
        let (session, revision) = (joined.session, joined.revision);
        self.write_lease(revision, Some(session), Step::Renew { session, sent_at: now });
    }

    /// The description when it is stale, and the scan when it is due.
    fn keep_up(&mut self, now: Millis) {
        if self.upkeep.is_stale && !self.upkeep.describing {
            self.upkeep.describing = true;
            self.upkeep.is_stale = false;
            self.read(Key::Node(self.me.id.clone()), Pending::Joining(Step::DescriptionRead));
        }
        let is_due = !self.upkeep.has_scanned || now >= self.upkeep.scan_at;
        if let (true, false, Some(session)) = (is_due, self.upkeep.scanning, self.session()) {
            self.upkeep.scanning = true;
            self.upkeep.scan_at = now + RESCAN_EVERY_MS;
            let scope = Scope::Node(self.me.id.clone());
            self.scan(scope, Pending::Joining(Step::Scan { session }));
        }
    }

    pub(super) fn joining(&mut self, now: Millis, step: Step, answer: Answered) {
        match (step, answer) {
            (Step::Look, Answered::Read(Some(entry))) => self.join(now, &entry),
            (Step::Join { sent_at }, Answered::Wrote(Outcome::Stored(session))) => {
                self.joined(now, sent_at, session);
            }
            // A write that was stored without an answer is found by the next look, as our own lease.
            (Step::Look | Step::Join { .. }, _) => self.standing = Standing::Away,
            (Step::Renew { session, sent_at }, Answered::Wrote(outcome)) => {
                self.renewed(session, sent_at, outcome);
            }
            (Step::Check { session }, Answered::Read(entry)) => self.checked(now, session, entry),
            (Step::DescriptionRead, Answered::Read(Some(entry))) => {
                let record = Some(Value::Node(Arc::new(self.me.record.clone())));
                let key = Key::Node(self.me.id.clone());
                self.write(key, entry.revision, record, Pending::Joining(Step::DescriptionWritten));
            }
            (Step::DescriptionWritten, Answered::Wrote(Outcome::Stored(_))) => {
                self.upkeep.describing = false;
            }
            (Step::DescriptionRead | Step::DescriptionWritten, _) => {
                self.upkeep.describing = false;
                self.upkeep.is_stale = true;
            }
            (Step::Scan { session }, Answered::Scanned(records)) => {
                self.scanned_own(now, session, records);
            }
            (Step::Renew { .. } | Step::Check { .. } | Step::Scan { .. }, _) => {}
        }
    }

    fn join(&mut self, now: Millis, entry: &Entry) {
        if let Some(Value::Lease(Lease::Alive { installation, .. })) = &entry.value
            && *installation != self.me.installation
        {
            self.standing = Standing::Away;
            self.out.push(Action::Note(Note::Twin));
            return;
        }
        self.write_lease(entry.revision, None, Step::Join { sent_at: now });
    }

    fn joined(&mut self, now: Millis, sent_at: Millis, session: Session) {
        let leash = leash(sent_at, self.me.grace_ms);
        self.standing = Standing::Joined(Joined {
            session,
            revision: session,
            leash,
            renewing: false,
            renew_at: now + RENEW_EVERY_MS,
        });
        self.upkeep = Upkeep { join_at: now, ..Upkeep::default() };
        self.out.push(Action::Leash(leash));
        self.out.push(Action::Note(Note::Joined { session }));
        self.keep_up(now);
    }

    fn renewed(&mut self, session: Session, sent_at: Millis, outcome: Outcome) {
        let grace_ms = self.me.grace_ms;
        let Standing::Joined(joined) = &mut self.standing else { return };
        if joined.session != session {
            return;
        }
        let Outcome::Stored(revision) = outcome else {
            self.read(Key::Lease(self.me.id.clone()), Pending::Joining(Step::Check { session }));
            return;
        };
        joined.renewing = false;
        joined.revision = revision;
        joined.leash = leash(sent_at, grace_ms);
        self.out.push(Action::Leash(joined.leash));
    }

    /// A renewal got no answer, or a conflict that may come from an earlier one that was stored without an
    /// answer. If the lease is still ours, the next renewal goes by its revision; the leash does not grow.
    fn checked(&mut self, now: Millis, session: Session, entry: Option<Entry>) {
        let Standing::Joined(joined) = &mut self.standing else { return };
        if joined.session != session {
            return;
        }
        joined.renewing = false;
        let Some(entry) = entry else { return };
        if session_of(&entry) == Some(session) {
            joined.revision = entry.revision;
            joined.renew_at = now;
            self.renew_when_due(now);
        } else {
            self.over(now);
        }
    }
}

//! The ladder by which a run is ended: a polite interrupt, a firm one, and the kill of the interpreter.
//! Interrupts and deadlines use the same ladder.

use protocol::repl::{self, RunEnd, Rung};
use tokio::time::Instant;

use super::actor::Actor;
use super::current::{Current, Ladder};

impl Actor {
    /// Begins the ladder, or shortens the graces of one that has begun.
    pub fn climb(&mut self, end: RunEnd, requested: repl::Grace) {
        let Some(current) = &mut self.current else { return };
        let (polite, firm) = current.graces(requested);
        let now = Instant::now();
        if let Some(ladder) = &mut current.ladder {
            ladder.firm = ladder.firm.min(firm);
            let given = if ladder.rung == Rung::Polite { polite } else { firm };
            ladder.next_rung = ladder.next_rung.min(now + given);
            return;
        }
        let (rung, next_rung) = (Rung::Polite, now + polite);
        current.ladder = Some(Ladder { rung, end, next_rung, again: None, firm });
        self.run_rung(now, false);
    }

    /// Presses the next rung, or this one again, or begins with the deadline.
    pub fn climb_if_due(&mut self, now: Instant) {
        let Some(current) = &mut self.current else { return };
        let Some(ladder) = &mut current.ladder else {
            if let Some((deadline, limit_ms)) = current.deadline
                && deadline <= now
            {
                self.climb(RunEnd::TimedOut { limit_ms }, repl::Grace::default());
            }
            return;
        };
        if ladder.next_rung <= now && ladder.rung != Rung::Killed {
            let firm = ladder.firm;
            ladder.rung = if ladder.rung == Rung::Polite { Rung::Firm } else { Rung::Killed };
            ladder.next_rung = now + firm;
            ladder.again = None;
            self.run_rung(now, false);
        } else if ladder.again.is_some_and(|again| again <= now) {
            self.run_rung(now, true);
        }
    }

    fn run_rung(&mut self, now: Instant, again: bool) {
        let Some(Current { number, ladder: Some(ladder), .. }) = &mut self.current else { return };
        let Some(rung) = self.context.language.rung(ladder.rung) else {
            let because = format!("because run {number} did not end otherwise");
            return self.kill(&because);
        };
        ladder.again = rung.repeat.map(|(interval, _)| now + interval);
        let firm = ladder.rung == Rung::Firm;
        let actions = rung.repeat.filter(|_| again).map_or(rung.actions, |(_, actions)| actions);
        if let Some(interpreter) = &mut self.interpreter {
            interpreter.act(actions, *number, firm);
        }
    }
}

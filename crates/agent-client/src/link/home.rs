//! Threads that links may move to: a request that is made on the link's own thread costs no hand-over to
//! another one, neither on its way out nor for its answer.
//!
//! Only a thread whose runtime lasts as long as the process declares itself a home: a link on a runtime that
//! ends is lost. Elsewhere links stay where they were made.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;

use super::limits::MOVE_AFTER_REQUESTS;

thread_local! {
    static HERE: RefCell<Option<Home>> = const { RefCell::new(None) };
}

/// How much one request from another thread reduces the lead of a thread.
const OTHERS_WEIGHT: u32 = 2;

static HOMES: AtomicU64 = AtomicU64::new(1);

/// A thread with its own long-lived runtime.
#[derive(Clone, Debug)]
pub struct Home {
    number: u64,
    pub(super) runtime: Handle,
}

/// Says that this thread runs a current-thread runtime for as long as any link may be used. Called inside
/// that runtime.
pub fn settle() {
    let number = HOMES.fetch_add(1, Ordering::Relaxed);
    HERE.set(Some(Home { number, runtime: Handle::current() }));
}

/// The home that the calling thread is, if it is one.
fn here() -> Option<Home> {
    HERE.with_borrow(Clone::clone)
}

fn number_here() -> Option<u64> {
    HERE.with_borrow(|home| home.as_ref().map(|home| home.number))
}

/// The thread of a link, and who has called it lately.
#[derive(Debug, Default)]
pub struct Residence {
    number: Option<u64>,
    /// Which other home calls most, and by how many requests it leads.
    caller: Option<u64>,
    lead: u32,
    moving: Option<Home>,
}

impl Residence {
    /// The home of a link that is made on this thread.
    pub fn here() -> Self {
        Self { number: number_here(), ..Self::default() }
    }

    /// Notes a request from this thread.
    pub fn called(&mut self) {
        let caller = number_here();
        let is_elsewhere = caller.is_some() && caller != self.number;
        if is_elsewhere && (caller == self.caller || self.lead == 0) {
            (self.caller, self.lead) = (caller, self.lead + 1);
            if self.lead >= MOVE_AFTER_REQUESTS {
                self.moving = here();
            }
        } else {
            // Threads that call equally often never move it; checking now and then delays nobody.
            self.lead = self.lead.saturating_sub(OTHERS_WEIGHT);
        }
    }

    /// Moves to the calling thread, without waiting for more requests from it; stays if that is no home.
    pub fn move_here(&mut self) {
        let is_elsewhere = number_here().is_some_and(|number| Some(number) != self.number);
        if is_elsewhere {
            self.moving = here();
        }
    }

    pub fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// Where the link should move now, if anywhere.
    pub fn take_move(&mut self) -> Option<Home> {
        let home = self.moving.take()?;
        *self = Self { number: Some(home.number), ..Self::default() };
        Some(home)
    }
}

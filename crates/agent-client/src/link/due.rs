//! When what is queued for a link has to go out. Words that nobody waits for go with others, so that they
//! cost neither end a call of its own.
//!
//! Pure. `state` says what is queued, and the driver learns from it how long it may sleep.

use std::time::Duration;

use protocol::stream::Debt;

use super::limits::{END_PAUSE, ROOM_PAUSE};

/// The least urgent first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// Nothing is queued.
    #[default]
    Never,
    /// With the next frame, or after [`END_PAUSE`].
    Later,
    /// With the next frame, or after [`ROOM_PAUSE`].
    Soon,
    Now,
}

impl Due {
    /// When an acknowledgement is due.
    pub fn of(debt: Debt) -> Option<Self> {
        match debt {
            Debt::Small => None,
            Debt::End => Some(Self::Later),
            Debt::Spool => Some(Self::Soon),
            Debt::Window => Some(Self::Now),
        }
    }
}

/// The most urgent of all that is queued.
#[derive(Debug, Default)]
pub struct DueTime {
    due: Due,
    /// What of that the driver knows.
    known: Due,
}

impl DueTime {
    /// Something more is queued. True when the driver has to hear of it.
    pub fn add(&mut self, due: Due) -> bool {
        let is_news = due > self.due || due == Due::Now;
        self.due = self.due.max(due);
        is_news
    }

    pub fn is_now(&self) -> bool {
        self.due == Due::Now
    }

    /// Whether the driver does not know yet how long it may sleep.
    pub fn has_pause(&self) -> bool {
        self.due > self.known && !self.is_now()
    }

    /// How long that is, once.
    pub fn take_pause(&mut self) -> Option<Duration> {
        let is_news = self.has_pause();
        self.known = self.due;
        match self.due {
            Due::Later if is_news => Some(END_PAUSE),
            Due::Soon if is_news => Some(ROOM_PAUSE),
            _ => None,
        }
    }
}

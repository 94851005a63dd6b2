//! The life of one run, checked against the guest's events. Pure.
//!
//! ```text
//!            started                finished
//!  Waiting ───────────▶ Running ───────────────▶ Over
//!     └────────────── finished ─────────────────▲
//! ```

use protocol::repl::{Event, Happening};

use super::GuestError;

/// The state of a run, as its events show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is queued.
    Waiting,
    Running,
    /// Its last event has arrived.
    Over,
}

/// See the module's description.
#[derive(Debug)]
pub struct Life {
    run: u64,
    stage: Stage,
    stdout_bytes: u64,
    stderr_bytes: u64,
}

impl Life {
    pub fn new(run: u64) -> Self {
        Self { run, stage: Stage::Waiting, stdout_bytes: 0, stderr_bytes: 0 }
    }

    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Takes in the next event, unless it cannot be one of this run at this point.
    pub fn admit(&mut self, event: &Event) -> Result<(), GuestError> {
        let refuse = |what| Err(GuestError::Malformed { what });
        if self.is_over() {
            return refuse("an event behind the end of its run");
        }
        match &event.what {
            // Output of others, and events of the context, belong to another run or to none.
            Happening::Late(_) | Happening::Lost { .. } => return Ok(()),
            _ if event.run != self.run => return refuse("an event of another run"),
            Happening::Gap { .. } => return refuse("a gap in a run's own events"),
            Happening::Started(_) if self.stage == Stage::Waiting => self.stage = Stage::Running,
            Happening::Started(_) => return refuse("a second start of a run"),
            Happening::Finished(end) => {
                if (end.stdout_bytes, end.stderr_bytes) != (self.stdout_bytes, self.stderr_bytes) {
                    return refuse("an end that counts other output than its run's");
                }
                self.stage = Stage::Over;
            }
            _ if self.stage == Stage::Waiting => return refuse("an event before its run's start"),
            Happening::Stdout { bytes } => self.stdout_bytes += bytes.as_bytes().len() as u64,
            Happening::Stderr { bytes } => self.stderr_bytes += bytes.as_bytes().len() as u64,
            Happening::Display(_)
            | Happening::Artifact(_)
            | Happening::Error(_)
            | Happening::InputRequest { .. } => {}
        }
        Ok(())
    }
}

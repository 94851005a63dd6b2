//! Commands that make files: run to their end, with how far they are on the way there and what they
//! have made after it. The native API and tools both have such, and answer each in their own shape.

mod gauge;

use protocol::ExitRecord;
use protocol::message::Channel;

use super::capture::Capture;
use agent_client::guest::GuestError;
use agent_client::program::{Event, Running, Tail};
use sandbox::refusal::Refusal;
use services::artifact::Captured;

pub use gauge::Reading;

use gauge::Gauge;

/// What is kept of the end of all that a command says.
const TAIL_BYTES: usize = 16 * 1024;

/// A command under way.
pub struct Rendering {
    running: Running,
    capture: Option<Capture>,
    stdout: Gauge,
    stderr: Gauge,
    tail: Tail,
}

/// The next part of it.
pub enum Step {
    Progress(Reading),
    Ended(Box<Rendered>),
}

/// A command that has ended.
pub struct Rendered {
    pub record: ExitRecord,
    /// The end of its output, both streams as they came.
    pub log: String,
    /// Whether there was more output.
    pub is_cut: bool,
    pub captured: Captured,
}

impl Rendering {
    pub fn new(running: Running, capture: Capture) -> Self {
        Self {
            running,
            capture: Some(capture),
            stdout: Gauge::default(),
            stderr: Gauge::default(),
            tail: Tail::new(TAIL_BYTES),
        }
    }

    /// The next step. `None` after the last one.
    pub async fn next(&mut self) -> Result<Step, Refusal> {
        loop {
            match self.running.next().await? {
                Some(Event::Output { channel, bytes, .. }) => {
                    if let Some(reading) = self.read_gauge(channel, &bytes) {
                        return Ok(Step::Progress(reading));
                    }
                }
                Some(Event::Ended(ended)) => {
                    return Ok(Step::Ended(Box::new(self.end(ended.record).await)));
                }
                Some(Event::Started(_) | Event::Gap { .. }) => {}
                None => return Err(GuestError::Malformed { what: "no exit record" }.into()),
            }
        }
    }

    fn read_gauge(&mut self, channel: Channel, bytes: &[u8]) -> Option<Reading> {
        self.tail.add(bytes);
        match channel {
            Channel::Stderr => self.stderr.take(bytes),
            Channel::Stdout | Channel::Terminal => self.stdout.take(bytes),
        }
    }

    async fn end(&mut self, record: ExitRecord) -> Rendered {
        let captured = match self.capture.take() {
            Some(capture) => capture.end(None).await,
            None => Captured::default(),
        };
        let log = String::from_utf8_lossy(self.tail.bytes()).into_owned();
        Rendered { record, log, is_cut: self.tail.is_cut(), captured }
    }
}

//! One session as steps on a clock that begins with it, for exports.

use std::time::Duration;

use protocol::message::Channel;

use sandbox::SandboxRef;
use sandbox::log::{Event, LogError, Playback, RecordedSession};

/// The size of a terminal that nobody has sized.
const SIZE_DEFAULT: (u16, u16) = (80, 24);

/// See the module's description.
#[derive(Debug, PartialEq)]
pub struct Recording {
    pub title: String,
    pub command: String,
    /// Milliseconds since 1970.
    pub started_at_ms: u64,
    /// Columns and rows at the beginning.
    pub size: (u16, u16),
    /// Each with its time since the beginning.
    pub steps: Vec<(Duration, Step)>,
}

#[derive(Debug, PartialEq)]
pub enum Step {
    /// As a terminal shows it: output of a pipe has returns before its line ends.
    Output {
        channel: Channel,
        bytes: Vec<u8>,
    },
    /// Columns and rows.
    Resized(u16, u16),
    Note(String),
}

impl Recording {
    /// Reads all of a session, with pauses of at most `max_idle`.
    pub fn read(
        which: &SandboxRef,
        session: &RecordedSession,
        mut playback: Playback,
        max_idle: Option<Duration>,
    ) -> Result<Self, LogError> {
        let mut recording = Self {
            title: format!("{which} {}", session.session),
            command: session.command.clone(),
            started_at_ms: session.run.started_at_ms,
            size: SIZE_DEFAULT,
            steps: Vec::new(),
        };
        let (mut at, mut before_ms) = (Duration::ZERO, None);
        let mut has_output = false;
        while let Some(entry) = playback.next()? {
            let pause = entry.time_ms.saturating_sub(*before_ms.get_or_insert(entry.time_ms));
            before_ms = Some(entry.time_ms);
            at += Duration::from_millis(pause).min(max_idle.unwrap_or(Duration::MAX));
            let step = match entry.event {
                Event::Output { channel, bytes, .. } => {
                    has_output = true;
                    let bytes =
                        if channel == Channel::Terminal { bytes } else { with_returns(&bytes) };
                    Step::Output { channel, bytes }
                }
                Event::Resized { rows, columns, .. } if has_output => Step::Resized(columns, rows),
                Event::Resized { rows, columns, .. } => {
                    recording.size = (columns, rows);
                    continue;
                }
                Event::Gap { channel, from, to, .. } => {
                    let (bytes, output) = (to.saturating_sub(from), channel.name());
                    Step::Note(format!("{bytes} bytes of {output} are not in the log"))
                }
                Event::Exited { record, .. } => {
                    Step::Note(format!("ended with code {}", record.cause.shell_code()))
                }
                _ => continue,
            };
            recording.steps.push((at, step));
        }
        Ok(recording)
    }
}

fn with_returns(bytes: &[u8]) -> Vec<u8> {
    let ends = bytes.split_inclusive(|byte| *byte == b'\n');
    let mut out = Vec::with_capacity(bytes.len());
    for line in ends {
        match line.split_last() {
            Some((b'\n', line)) => {
                out.extend_from_slice(line);
                out.extend_from_slice(b"\r\n");
            }
            _ => out.extend_from_slice(line),
        }
    }
    out
}

//! One session as steps on a clock that begins with it, for exports.

use std::time::Duration;

use protocol::message::Channel;

use super::source::{Moments, Played};
use sandbox::SandboxRef;
use sandbox::log::{Event, LogError, Typed};
use services::timeline::{Kind, What};

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
    Output { channel: Channel, bytes: Vec<u8> },
    /// What was typed.
    Input(Typed),
    /// Columns and rows.
    Resized(u16, u16),
    /// About the session itself.
    Note { text: String, failed: bool },
    /// Something that happened to its sandbox meanwhile.
    Mark { text: String, failed: bool },
}

impl Recording {
    /// Reads all of a session, with pauses of at most `max_idle`.
    pub fn read(
        which: &SandboxRef,
        session: &Played,
        mut moments: Moments,
        max_idle: Option<Duration>,
    ) -> Result<Self, LogError> {
        let mut recording = Self {
            title: format!("{which} {}", session.session),
            command: session.command.clone(),
            started_at_ms: session.started_at_ms,
            size: SIZE_DEFAULT,
            steps: Vec::new(),
        };
        let (mut at, mut before_ms) = (Duration::ZERO, None);
        let mut has_output = false;
        while let Some(moment) = moments.next()? {
            let kind = moment.kind();
            // What was before it and comes after it is not its own.
            if !kind.is_of_log() && (before_ms.is_none() || moments.is_log_over()) {
                continue;
            }
            let pause = moment.at_ms.saturating_sub(*before_ms.get_or_insert(moment.at_ms));
            before_ms = Some(moment.at_ms);
            at += Duration::from_millis(pause).min(max_idle.unwrap_or(Duration::MAX));
            let (text, failed) = (moment.summary(), moment.is_failure());
            let step = match moment.what {
                What::Log(Event::Output { channel, bytes, .. }) => {
                    has_output = true;
                    let bytes =
                        if channel == Channel::Terminal { bytes } else { with_returns(&bytes) };
                    Step::Output { channel, bytes }
                }
                What::Input { typed, .. } => Step::Input(typed),
                What::Log(Event::Resized { rows, columns, .. }) if has_output => {
                    Step::Resized(columns, rows)
                }
                What::Log(Event::Resized { rows, columns, .. }) => {
                    recording.size = (columns, rows);
                    continue;
                }
                _ if matches!(kind, Kind::Gap | Kind::Exited) => Step::Note { text, failed },
                _ if kind == Kind::Started => continue,
                _ => Step::Mark { text, failed },
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

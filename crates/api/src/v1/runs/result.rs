//! The whole result of a run. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::ContextName;
use protocol::repl::{self, DisplayRole, Event, Happening};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::end::End;
use super::event::{Artifact, Display, Late, RunError};
use super::limits::THINGS_MAX;
use crate::budget::{Share, json_bytes, unreadable_bytes};
use crate::forms::artifacts::Captured;
use crate::forms::notebooks::InNotebook;
use crate::v1::value::lossy;
use agent_client::program::Memory;
use sandbox::refusal::Refusal;

/// A finished run and its output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    pub context: String,
    pub run: u64,
    /// The number of the run in its interpreter, from 1; absent if it never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub count: Option<u64>,
    #[serde(flatten)]
    pub end: End,
    /// Why the interpreter was a new one, if the variables of the last run are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub lost: Option<String>,
    /// The text; invalid UTF-8 is shown as U+FFFD.
    pub stdout: String,
    /// The exact bytes of stdout, if they are not valid UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub stdout_base64: Option<String>,
    pub stderr: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub stderr_base64: Option<String>,
    /// The value of the last expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Display")]
    pub value: Option<Display>,
    /// The displays, each as it was last updated.
    pub displays: Vec<Display>,
    /// Files that the code offered.
    pub artifacts: Vec<Artifact>,
    /// With `artifacts`: the artifacts that were captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Captured")]
    pub captured: Option<Captured>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RunError")]
    pub error: Option<RunError>,
    /// Output of earlier runs after they ended.
    pub late: Vec<Late>,
    /// Whether a limit cut something.
    pub truncated: bool,
    /// Details of a run in a notebook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "InNotebook")]
    pub notebook: Option<InNotebook>,
}

/// Gathers the events of a run that is under way.
#[derive(Debug)]
pub struct Gathering {
    context: ContextName,
    count: Option<u64>,
    lost: Option<String>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    value: Option<repl::Display>,
    displays: Vec<repl::Display>,
    artifacts: Vec<repl::Artifact>,
    error: Option<repl::ErrorReport>,
    late: Vec<repl::Late>,
    /// What stdout and stderr may still take together.
    output_room_bytes: usize,
    /// What all the rest may still take.
    room_bytes: usize,
    /// What all calls share.
    memory: Share,
    is_output_cut: bool,
    truncated: bool,
}

impl Gathering {
    /// Keeps at most `bytes_max` of output, and as much again of all the rest. An error is always
    /// kept: it is the run's answer. What `memory` has no room for ends the call; see
    /// [`Share::exceeded`].
    pub fn new(context: ContextName, bytes_max: u64, memory: Share) -> Self {
        let room_bytes = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        Self {
            context,
            count: None,
            lost: None,
            stdout: Vec::new(),
            stderr: Vec::new(),
            value: None,
            displays: Vec::new(),
            artifacts: Vec::new(),
            error: None,
            late: Vec::new(),
            output_room_bytes: room_bytes,
            room_bytes,
            memory,
            is_output_cut: false,
            truncated: false,
        }
    }

    /// Takes in the next event; the last one makes a whole of them.
    pub fn take(&mut self, event: Event) -> Option<RunResult> {
        match event.what {
            Happening::Started(started) => {
                self.count = Some(started.count);
                self.lost = started.lost.or(self.lost.take());
            }
            Happening::Stdout { bytes } => {
                let stored = self.output(bytes.as_bytes());
                self.stdout.extend_from_slice(stored);
                self.trim(true, stored.len() < bytes.as_bytes().len());
            }
            Happening::Stderr { bytes } => {
                let stored = self.output(bytes.as_bytes());
                self.stderr.extend_from_slice(stored);
                self.trim(false, stored.len() < bytes.as_bytes().len());
            }
            Happening::Late(late) => {
                if self.late.len() < THINGS_MAX
                    && self.spend(late.bytes.as_bytes().len(), late_cost(&late))
                {
                    self.late.push(late);
                } else {
                    self.truncated = true;
                }
            }
            Happening::Display(shown) => self.display(shown),
            Happening::Artifact(file) => {
                let bytes = file.path.as_bytes().len() + file.name.len() + file.mime.len();
                if self.artifacts.len() < THINGS_MAX && self.spend(bytes, 2 * bytes) {
                    self.artifacts.push(file);
                } else {
                    self.truncated = true;
                }
            }
            Happening::Error(report) => {
                self.memory.try_keep(report.message.as_bytes());
                self.memory.try_keep(report.traceback.as_bytes());
                self.error = Some(report);
            }
            Happening::Lost { reason } => self.lost = Some(reason),
            // A question is over when its run is, and a run's own events have no gap.
            Happening::InputRequest { .. } | Happening::Gap { .. } => {}
            Happening::Finished(finished) => {
                // Where there is no room, the call is refused.
                return self.check().ok().map(|()| self.finish(event.run, finished.into()));
            }
        }
        None
    }

    /// What of some output there is room for. Once some is left out, all that follows is.
    fn output<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let room = if self.is_output_cut { 0 } else { self.output_room_bytes };
        let mut count = room.min(bytes.len());
        if !self.memory.try_keep(&bytes[..count]) {
            count = 0;
        }
        self.output_room_bytes -= count;
        if count < bytes.len() {
            self.is_output_cut = true;
            self.truncated = true;
        }
        &bytes[..count]
    }

    /// Text that a bound has cut within a character ends before it, and so stays text.
    fn trim(&mut self, is_stdout: bool, is_cut: bool) {
        let output = if is_stdout { &mut self.stdout } else { &mut self.stderr };
        if is_cut
            && let Err(error) = std::str::from_utf8(output)
            && error.error_len().is_none()
        {
            output.truncate(error.valid_up_to());
        }
    }

    fn display(&mut self, shown: repl::Display) {
        let before = match shown.role {
            DisplayRole::Value | DisplayRole::Shown => None,
            DisplayRole::Update => {
                self.displays.iter().position(|known| known.id.is_some() && known.id == shown.id)
            }
        };
        let freed = before.map_or(0, |at| display_bytes(&self.displays[at]));
        let has_place = before.is_some() || self.displays.len() < THINGS_MAX;
        self.room_bytes += freed;
        if !has_place || !self.spend(display_bytes(&shown), display_cost(&shown)) {
            self.room_bytes -= freed;
            self.truncated = true;
            return;
        }
        self.memory.shrink(before.map_or(0, |at| display_cost(&self.displays[at])));
        match (shown.role, before) {
            (DisplayRole::Value, _) => self.value = Some(shown),
            (_, Some(at)) => {
                let role = self.displays[at].role;
                self.displays[at] = repl::Display { role, ..shown };
            }
            (_, None) => self.displays.push(shown),
        }
    }

    /// Takes room for so many bytes, which cost so much here and on the wire.
    fn spend(&mut self, bytes: usize, cost: usize) -> bool {
        match self.room_bytes.checked_sub(bytes) {
            Some(rest) if self.memory.grow(cost).is_ok() => {
                self.room_bytes = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes the room that is needed to say what is no text.
    fn check(&self) -> Result<(), Refusal> {
        for output in [&self.stdout, &self.stderr] {
            if std::str::from_utf8(output).is_err() {
                self.memory.grow(unreadable_bytes(output))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, run: u64, end: End) -> RunResult {
        let (stdout, stdout_base64) = text(std::mem::take(&mut self.stdout));
        let (stderr, stderr_base64) = text(std::mem::take(&mut self.stderr));
        RunResult {
            context: self.context.to_string(),
            run,
            count: self.count,
            end,
            lost: self.lost.take(),
            stdout,
            stdout_base64,
            stderr,
            stderr_base64,
            value: self.value.take().map(Display::from),
            displays: self.displays.drain(..).map(Display::from).collect(),
            artifacts: self.artifacts.drain(..).map(Artifact::from).collect(),
            captured: None,
            error: self.error.take().map(RunError::from),
            late: self.late.drain(..).map(Late::from).collect(),
            truncated: self.truncated,
            notebook: None,
        }
    }
}

/// Bytes as text, and as they are if that is not the same.
fn text(bytes: Vec<u8>) -> (String, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => (lossy(error.as_bytes()), Some(STANDARD.encode(error.as_bytes()))),
    }
}

fn display_bytes(shown: &repl::Display) -> usize {
    let forms = shown.data.iter().map(|form| form.mime.len() + form.data.as_bytes().len());
    forms.sum::<usize>() + shown.metadata.as_ref().map_or(0, String::len)
}

/// The same as it is held and as it is sent, in JSON or base64.
fn display_cost(shown: &repl::Display) -> usize {
    let forms = shown.data.iter().map(|form| {
        let bytes = form.data.as_bytes();
        form.mime.len() + bytes.len() + json_bytes(bytes).max(2 * bytes.len())
    });
    let metadata = shown.metadata.as_deref().unwrap_or_default().as_bytes();
    forms.sum::<usize>() + metadata.len() + json_bytes(metadata)
}

fn late_cost(late: &repl::Late) -> usize {
    let bytes = late.bytes.as_bytes();
    bytes.len() + json_bytes(bytes).max(2 * bytes.len())
}

#[cfg(test)]
mod tests {
    use protocol::repl::{Datum, Finished, RunEnd};

    use super::*;
    use crate::limits::MEMORY_STEP_BYTES;

    fn event(what: Happening) -> Event {
        Event { run: 4, at_us: 0, what }
    }

    fn stdout(bytes: impl AsRef<[u8]>) -> Happening {
        Happening::Stdout { bytes: bytes.as_ref().to_vec().into() }
    }

    fn stderr(bytes: impl AsRef<[u8]>) -> Happening {
        Happening::Stderr { bytes: bytes.as_ref().to_vec().into() }
    }

    fn shown(role: DisplayRole, id: Option<&str>, text: &str) -> Happening {
        let data = vec![Datum { mime: "text/plain".to_owned(), data: text.into() }];
        let id = id.map(str::to_owned);
        Happening::Display(repl::Display { role, id, data, metadata: None })
    }

    fn gathered(bytes_max: u64, all: impl IntoIterator<Item = Happening>) -> RunResult {
        let context = "python".parse().expect("a name");
        let mut gathering = Gathering::new(context, bytes_max, Share::within(0));
        for what in all {
            assert_eq!(gathering.take(event(what)), None);
        }
        let finished = Finished {
            end: RunEnd::Ok {},
            duration_us: 1,
            cpu_us: None,
            memory_bytes_peak: None,
            state_kept: true,
            rung: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            cached: None,
        };
        gathering.take(event(Happening::Finished(finished))).expect("it is over")
    }

    #[test]
    fn output_is_kept_to_the_last_byte_that_there_is_room_for() {
        let ran = gathered(4, [stdout("ab"), stderr("cd")]);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.truncated), ("ab", "cd", false));
        let ran = gathered(4, [stdout("ab"), stderr("cde"), stdout("f")]);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.truncated), ("ab", "cd", true));
        let ran = gathered(0, [stdout(""), stderr("")]);
        assert!(!ran.truncated);
    }

    #[test]
    fn text_that_is_cut_within_a_character_stays_text() {
        let ran = gathered(3, [stdout("a€")]);
        assert_eq!((ran.stdout.as_str(), ran.stdout_base64), ("a", None));
        assert!(ran.truncated);
    }

    #[test]
    fn bytes_that_are_no_text_are_there_as_they_are() {
        let ran = gathered(9, [stdout(b"a\xff")]);
        assert_eq!(
            (ran.stdout.as_str(), ran.stdout_base64.as_deref()),
            ("a\u{fffd}", Some("Yf8="))
        );
    }

    #[test]
    fn an_update_takes_the_place_of_what_it_updates() {
        use DisplayRole::{Shown, Update, Value};
        let all = [
            shown(Shown, Some("bar"), "1 %"),
            shown(Shown, None, "other"),
            shown(Update, Some("bar"), "99 %"),
            shown(Update, Some("elsewhere"), "x"),
            shown(Value, None, "42"),
        ];
        // Room for what stays, and not for what was replaced beside it.
        let ran = gathered(60, all);
        let texts: Vec<_> = ran.displays.iter().map(|shown| format!("{:?}", shown.data)).collect();
        assert_eq!(texts.len(), 3, "{texts:?}");
        assert!(texts[0].contains("99 %") && texts[1].contains("other"), "{texts:?}");
        assert!(format!("{:?}", ran.value).contains("42"));
        assert!(!ran.truncated);
    }

    #[test]
    fn what_there_is_no_memory_for_is_left_out_and_updates_pile_nothing_up() {
        use DisplayRole::{Shown, Update};
        let step = MEMORY_STEP_BYTES as usize;
        let large = "x".repeat(step / 8);
        let mut all = vec![stdout("ab"), shown(Shown, Some("bar"), &large)];
        all.extend((0..20).map(|_| shown(Update, Some("bar"), &large)));
        let ran = gathered(u64::MAX, all.clone());
        assert_eq!((ran.displays.len(), ran.truncated), (1, false));
        all.extend([stdout("y".repeat(step)), stdout("c"), stderr("d")]);
        let ran = gathered(u64::MAX, all);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.truncated), ("ab", "", true));
    }

    #[test]
    fn what_finds_no_room_is_reported_as_missing() {
        let ran = gathered(20, [shown(DisplayRole::Shown, None, "more than there is room for")]);
        assert!(ran.displays.is_empty());
        assert!(ran.truncated);
    }
}

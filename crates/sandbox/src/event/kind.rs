//! The table of what can happen to a sandbox, as the stream of events has it. The reference page, the
//! OpenAPI document, the command line and the configuration read their kinds here. Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::label::Labels;
use crate::{ExpiryKind, Name, Phase, Record, State, StopReason};
use machine::MachineKind;

/// Defines [`Kind`] from its rows: the variant, its word, the state that a sandbox is in after it, the
/// facts that it may have, and what has happened.
macro_rules! kinds {
    ($($variant:ident, $name:literal, $phase:expr, [$($fact:literal),*], $about:literal;)*) => {
        /// A kind of event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Kind {
            $(#[doc = $about] $variant,)*
        }

        impl Kind {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word in records and queries.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The state after it; `None` if it changes none.
            pub fn leads_to(self) -> Option<Phase> {
                match self { $(Self::$variant => $phase,)* }
            }

            /// The facts that an event of this kind may have.
            pub fn facts(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($fact),*],)* }
            }

            /// What has happened.
            pub fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }
        }
    };
}

kinds! {
    Created, "created", Some(Phase::Creating), ["machine", "image", "labels"],
        "Its name is taken, and its machine is being made.";
    Ready, "ready", Some(Phase::Running), [],
        "Its agent has answered: it runs.";
    Failed, "failed", None, ["cause"],
        "It could not be made, and nothing is left of it.";
    Paused, "paused", Some(Phase::Paused), ["reason", "on_disk"],
        "Its machine is paused.";
    Resumed, "resumed", Some(Phase::Running), ["reason"],
        "Its machine goes on after a pause.";
    Snapshotted, "snapshotted", None, ["snapshot"],
        "A snapshot of it was taken.";
    Committed, "committed", None, ["image"],
        "An image was made of its files.";
    Forked, "forked", None, ["forks"],
        "Copies were made of it, by these names.";
    Changed, "changed", None, ["cause", "ttl_ms", "idle_ttl_ms"],
        "Its times to live were changed, or, with a `cause`, what it may reach. An absent time has no limit.";
    OutOfMemory, "out_of_memory", None, ["session", "limit_bytes"],
        "The kernel killed a session or the machine because its memory was used up.";
    CommandBegun, "command_begun", None, ["session"],
        "A program was started in it. Only with `programs` in `[events]`.";
    CommandEnded, "command_ended", None, ["session", "reason", "code", "duration_us", "cpu_us", "memory_bytes_peak", "read_bytes", "written_bytes"],
        "A program has ended. Only with `programs` in `[events]`.";
    RunBegun, "run_begun", None, ["context", "run"],
        "Code was given to a context, and may wait for other runs. Only with `programs` in `[events]`.";
    RunEnded, "run_ended", None, ["context", "run", "reason", "duration_us", "cpu_us", "memory_bytes_peak"],
        "A run of code has ended. Only with `programs` in `[events]`.";
    Exited, "exited", Some(Phase::Stopped), ["reason", "cause"],
        "Its machine is gone. Its record and logs are kept.";
    Lost, "lost", Some(Phase::Lost), ["cause"],
        "Its agent no longer answers. Its machine may still run.";
    Damaged, "damaged", Some(Phase::Damaged), ["cause"],
        "Its record on disk cannot be read.";
    Removed, "removed", None, ["cause"],
        "It is gone, with its record and logs, and its name is free.";
    EventsLost, "events_lost", None, ["count"],
        "So many events of this namespace could not be recorded, because the disk was full or too slow.";
    Gap, "gap", None, ["from", "to"],
        "The events from one offset up to another are no longer kept. It is made for the reader who asks for them.";
    Unanswered, "unanswered", None, ["cause"],
        "In events of all nodes of a fleet: a node does not answer. Its events come when it does.";
}

impl Kind {
    /// Whether nothing is left of a sandbox after it.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Failed | Self::Removed)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No kind of event is called that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a kind of event; the kinds are {}", names().join(", "))]
pub struct UnknownKind {
    found: String,
}

fn names() -> Vec<&'static str> {
    Kind::ALL.iter().map(|kind| kind.name()).collect()
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        /// Enough of an unknown word to recognise it.
        const CHARS_SHOWN: usize = 32;
        let known = Self::ALL.iter().find(|kind| kind.name() == text);
        known
            .copied()
            .ok_or_else(|| UnknownKind { found: text.chars().take(CHARS_SHOWN).collect() })
    }
}

/// What is known of an event beside its kind; each kind has those of its row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Why it ended, was paused or went on, as a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, as text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Its memory is on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disk: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forks: Vec<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The exit code of a program that returned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The number of a run in its context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// Of a program or a run, with the children that it has waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_peak: Option<u64>,
    /// From and to block devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
}

impl Facts {
    pub fn none() -> Self {
        Self::default()
    }

    pub fn cause(cause: impl fmt::Display) -> Self {
        Self { cause: Some(cause.to_string()), ..Self::default() }
    }

    /// Of a sandbox that is made.
    pub fn creation(record: &Record) -> Self {
        Self {
            machine: Some(record.machine),
            image: record.image.clone(),
            labels: record.labels.clone(),
            ..Self::default()
        }
    }

    fn stop(why: &StopReason) -> Self {
        let reason = match why {
            StopReason::Requested => "asked",
            StopReason::Killed => "killed",
            StopReason::Ended { .. } => "ended",
            StopReason::Expired { kind: ExpiryKind::Idle } => "expired_idle",
            StopReason::Expired { kind: ExpiryKind::Age } => "expired_age",
            StopReason::Expired { kind: ExpiryKind::RunTime } => "expired_run_time",
            StopReason::Expired { kind: ExpiryKind::Output } => "expired_output",
            StopReason::BridgeAway => "bridge_away",
        };
        Self { reason: Some(reason.to_owned()), ..Self::cause(why) }
    }
}

/// The event that a change from one state to another is, if it is one.
pub fn of_change(before: Phase, state: &State) -> Option<(Kind, Facts)> {
    if before == state.phase() {
        return None;
    }
    match state {
        State::Creating | State::Stopping => None,
        // A stop that a dying bridge has begun, and that the next one does not know.
        State::Running if before == Phase::Stopping => None,
        State::Running if before == Phase::Paused => Some((Kind::Resumed, Facts::none())),
        State::Running => Some((Kind::Ready, Facts::none())),
        State::Paused { by_idle, by_lease, on_disk, .. } => {
            let reason = match (by_idle, by_lease) {
                (true, _) => "idle",
                (false, true) => "lease",
                (false, false) => "asked",
            };
            let (reason, on_disk) = (Some(reason.to_owned()), on_disk.then_some(true));
            Some((Kind::Paused, Facts { reason, on_disk, ..Facts::none() }))
        }
        State::Stopped { why, .. } => Some((Kind::Exited, Facts::stop(why))),
        State::Lost { reason } => Some((Kind::Lost, Facts::cause(reason))),
        State::Damaged { reason } => Some((Kind::Damaged, Facts::cause(reason))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_and_written_by_its_name() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        assert!("readyy".parse::<Kind>().unwrap_err().to_string().contains("created, ready"));
    }

    #[test]
    fn facts_have_the_names_of_the_table() {
        let labels = [("a".to_owned(), "b".to_owned())].into_iter().collect();
        let text = || Some("t".to_owned());
        let all = Facts {
            machine: Some(MachineKind::Process),
            image: text(),
            labels,
            reason: text(),
            cause: text(),
            on_disk: Some(true),
            snapshot: text(),
            forks: vec!["fork".parse().unwrap()],
            session: text(),
            code: Some(1),
            context: text(),
            run: Some(1),
            duration_us: Some(1),
            cpu_us: Some(1),
            memory_bytes_peak: Some(1),
            read_bytes: Some(1),
            written_bytes: Some(1),
            limit_bytes: Some(1),
            ttl_ms: Some(1),
            idle_ttl_ms: Some(1),
            count: Some(1),
            from: Some(1),
            to: Some(1),
        };
        let written = serde_json::to_value(all).unwrap();
        let written: std::collections::BTreeSet<_> =
            written.as_object().unwrap().keys().map(String::as_str).collect();
        let listed = Kind::ALL.iter().flat_map(|kind| kind.facts()).copied().collect();
        assert_eq!(written, listed);
    }

    #[test]
    fn the_reference_page_has_the_table() {
        let page = include_str!("../../../../docs/reference/events.md");
        let rows = Kind::ALL.iter().map(|kind| {
            let facts: Vec<_> = kind.facts().iter().map(|fact| format!("`{fact}`")).collect();
            let facts = if facts.is_empty() { "–".to_owned() } else { facts.join(", ") };
            format!("| `{kind}` | {} | {facts} |\n", kind.about())
        });
        let table = "| kind | what has happened | facts |\n|---|---|---|\n".to_owned();
        assert!(page.contains(&rows.fold(table, |table, row| table + &row)));
    }

    #[test]
    fn a_change_of_state_is_one_event_and_no_change_is_none() {
        let running = State::Running;
        let kind = |before, state: &State| of_change(before, state).map(|(kind, _)| kind);
        assert_eq!(kind(Phase::Creating, &running), Some(Kind::Ready));
        assert_eq!(kind(Phase::Paused, &running), Some(Kind::Resumed));
        assert_eq!(kind(Phase::Running, &running), None);
        assert_eq!(kind(Phase::Running, &State::Stopping), None);
        let stopped = State::Stopped { why: StopReason::Killed, at_ms: 1 };
        let (kind, facts) = of_change(Phase::Stopping, &stopped).unwrap();
        assert_eq!((kind, facts.reason.as_deref()), (Kind::Exited, Some("killed")));
    }
}

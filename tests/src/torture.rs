//! Difficult code as a table: each row runs in a context after earlier rows, and is judged by its output, its
//! end, its state, and the next run.

use std::time::Duration;

use agent_client::guest::{Guest, Ran, RunCode};
use protocol::repl::{Grace, RunEnd};

use crate::contexts::{context, late, ran, run, stderr, stdout, value};

/// The expected end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Ok,
    /// With an error of this kind.
    Error(&'static str),
    Exited(i32),
    /// By the deadline, with the state kept or not.
    TimedOut,
    /// The interpreter died of this signal, or exited with this code.
    Signal(i32),
    Code(i32),
}

/// The expected form of some text.
#[derive(Clone, Debug)]
pub enum Text {
    Is(String),
    Has(&'static str),
    /// So many bytes.
    Bytes(u64),
    Any,
}

/// One row.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: &'static str,
    pub code: Vec<u8>,
    pub stdout: Text,
    pub stderr: Text,
    pub value: Option<&'static str>,
    pub end: End,
    /// Whether a variable that was set before is still there.
    pub keeps_state: bool,
    pub deadline: Duration,
    /// Late output of this row that later runs may report.
    pub late: Text,
}

/// A row that says nothing, ends well and keeps the state.
pub fn case(name: &'static str, code: impl Into<Vec<u8>>) -> Case {
    Case {
        name,
        code: code.into(),
        stdout: Text::Is(String::new()),
        stderr: Text::Is(String::new()),
        value: None,
        end: End::Ok,
        keeps_state: true,
        deadline: Duration::from_secs(60),
        late: Text::Is(String::new()),
    }
}

impl Case {
    #[must_use]
    pub fn out(mut self, text: impl Into<String>) -> Self {
        self.stdout = Text::Is(text.into());
        self
    }

    #[must_use]
    pub fn out_has(mut self, text: &'static str) -> Self {
        self.stdout = Text::Has(text);
        self
    }

    #[must_use]
    pub fn out_bytes(mut self, bytes: u64) -> Self {
        self.stdout = Text::Bytes(bytes);
        self
    }

    #[must_use]
    pub fn out_any(mut self) -> Self {
        self.stdout = Text::Any;
        self
    }

    #[must_use]
    pub fn err(mut self, text: impl Into<String>) -> Self {
        self.stderr = Text::Is(text.into());
        self
    }

    #[must_use]
    pub fn err_has(mut self, text: &'static str) -> Self {
        self.stderr = Text::Has(text);
        self
    }

    #[must_use]
    pub fn err_any(mut self) -> Self {
        self.stderr = Text::Any;
        self
    }

    #[must_use]
    pub fn value(mut self, text: &'static str) -> Self {
        self.value = Some(text);
        self
    }

    #[must_use]
    pub fn error(mut self, kind: &'static str) -> Self {
        self.end = End::Error(kind);
        self
    }

    #[must_use]
    pub fn ends(mut self, end: End) -> Self {
        self.keeps_state = matches!(end, End::Ok | End::Error(_) | End::Exited(_) | End::TimedOut);
        self.end = end;
        self
    }

    /// Ends by a deadline this short.
    #[must_use]
    pub fn within_ms(mut self, ms: u64) -> Self {
        self.deadline = Duration::from_millis(ms);
        self.ends(End::TimedOut)
    }

    /// The interpreter is another afterwards.
    #[must_use]
    pub fn loses_state(mut self) -> Self {
        self.keeps_state = false;
        self
    }

    #[must_use]
    pub fn late(mut self, text: Text) -> Self {
        self.late = text;
        self
    }
}

/// What the suite needs to know about a language.
pub struct Tongue {
    pub context: &'static str,
    /// Sets a variable to a number.
    pub set: fn(usize) -> String,
    /// Prints that variable.
    pub get: &'static str,
}

/// Graces that are long enough for a busy machine, and short enough for a long table: the second try of a test has more.
fn grace() -> Grace {
    let ms = u64::from(1500 * crate::slowness());
    Grace { polite_ms: Some(ms), firm_ms: Some(ms) }
}

/// Runs the rows in order, and returns all failures.
pub async fn run_table(guest: &Guest, tongue: &Tongue, cases: &[Case]) -> Vec<String> {
    let mut wrong = Vec::new();
    let only = std::env::var("BURROW_TORTURE").ok();
    for (number, case) in cases.iter().enumerate() {
        if only.as_ref().is_some_and(|only| !case.name.contains(only.as_str())) {
            continue;
        }
        let problems = run_case(guest, tongue, number, case).await;
        wrong.extend(problems.into_iter().map(|problem| format!("{}: {problem}", case.name)));
    }
    wrong
}

async fn run_case(guest: &Guest, tongue: &Tongue, number: usize, case: &Case) -> Vec<String> {
    run(guest, tongue.context, &(tongue.set)(number)).await;
    let mut ask = RunCode::new(context(tongue.context), case.code.clone());
    ask.deadline = Some(case.deadline);
    ask.grace = grace();
    let judged = ran(guest, ask).await;
    let mut wrong = Vec::new();
    check(&mut wrong, "stdout", &case.stdout, &stdout(&judged));
    check(&mut wrong, "stderr", &case.stderr, &stderr(&judged));
    if value(&judged).as_deref() != case.value {
        wrong.push(format!("value {:?} instead of {:?}", value(&judged), case.value));
    }
    let end = end_of(&judged);
    let expected = format!("{:?}", case.end);
    if end != expected {
        let error = judged.error().map(|error| clipped(&error.traceback));
        wrong.push(format!("end {end} instead of {expected}; {error:?}"));
    }
    if judged.finished.state_kept != case.keeps_state {
        wrong.push(format!("state_kept is {}", judged.finished.state_kept));
    }
    // The next run is unaffected, whatever the row has done.
    let next = run(guest, tongue.context, tongue.get).await;
    let expected = if case.keeps_state { format!("{number}\n") } else { String::new() };
    if stdout(&next) != expected {
        let error = next.error().map(|error| clipped(&error.traceback));
        wrong.push(format!(
            "the next run says {:?} instead of {expected:?}; {error:?}; lost: {:?}",
            clipped(&stdout(&next)),
            next.started.as_ref().and_then(|started| started.lost.clone()),
        ));
    }
    if case.keeps_state != next.started.as_ref().is_some_and(|started| started.lost.is_none()) {
        wrong.push("the next run is told otherwise of the state".to_owned());
    }
    check(&mut wrong, "late output", &case.late, &late(&next));
    wrong
}

fn check(wrong: &mut Vec<String>, what: &str, expected: &Text, found: &str) {
    let right = match expected {
        Text::Is(text) => found == text,
        Text::Has(text) => found.contains(text),
        Text::Bytes(bytes) => found.len() as u64 == *bytes,
        Text::Any => true,
    };
    if !right {
        wrong.push(format!("{what} {:?} instead of {expected:?}", clipped(found)));
    }
}

fn end_of(ran: &Ran) -> String {
    use protocol::exit::Cause;
    let end = match &ran.finished.end {
        RunEnd::Ok {} => return "Ok".to_owned(),
        RunEnd::Error {} => {
            let kind = ran.error().map_or("", |error| &error.kind);
            return format!("Error({kind:?})");
        }
        RunEnd::Exited { code } => End::Exited(*code),
        RunEnd::TimedOut { .. } => End::TimedOut,
        RunEnd::Died { cause: Cause::Signaled { signal, .. } } => End::Signal(*signal),
        RunEnd::Died { cause: Cause::Exited { code } } => End::Code(*code),
        other => return format!("{other:?}"),
    };
    format!("{end:?}")
}

fn clipped(text: &str) -> String {
    if text.chars().count() <= 600 {
        return text.to_owned();
    }
    let head: String = text.chars().take(400).collect();
    format!("{head}… ({} bytes)", text.len())
}

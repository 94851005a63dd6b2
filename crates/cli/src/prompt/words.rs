//! Formats the messages of the prompt. Pure. Text from the guest is made printable here before it
//! becomes part of a message.

use std::path::Path;

use protocol::exit::Cause;
use protocol::repl::{
    Artifact, ContextInfo, Datum, Display, DisplayRole, ErrorReport, Finished, RunEnd, Rung,
};

use crate::exit;
use crate::output::printable;
use crate::values::{human_bytes, signal_name};
use agent_client::guest::contexts::language::Language;

/// Characters of a guest's word that fit a line of ours.
const WORD_CHARS_MAX: usize = 80;

const PLAIN: &str = "text/plain";

/// The first two lines: the interpreter, who shares it, and what of it exists after the prompt.
pub(super) fn banner(
    language: &Language,
    info: &ContextInfo,
    place: &str,
    is_kept: bool,
) -> String {
    let title =
        if language.title.is_empty() { words(&info.language) } else { language.title.into() };
    let version = info.interpreter.as_ref().map(|living| words(&living.version));
    let version = version.filter(|version| !version.is_empty());
    let version = version.map_or_else(String::new, |version| format!(" {version}"));
    if !is_kept {
        return format!(
            "{title}{version} in {place}: ctrl-d ends it, with its state and its files\n\
             to keep them: host-bridge start --name NAME, then host-bridge repl NAME"
        );
    }
    format!(
        "{title}{version} in context {} of {place}\n\
         its state is shared with everyone who uses it, and lives on after ctrl-d",
        info.context
    )
}

/// The message for a person who attaches while code runs.
pub(super) fn busy(run: u64, queued: u32) -> String {
    let more = match queued {
        0 => String::new(),
        1 => " and 1 more waits".to_owned(),
        _ => format!(" and {queued} more wait"),
    };
    format!("run {run} of another client is running{more}; what you enter runs after that")
}

/// The message for a lost interpreter.
pub(super) fn lost(reason: &str) -> String {
    format!("the interpreter and its state were lost: {}", words(reason))
}

pub(super) fn waiting(running: Option<u64>, ahead: u32) -> String {
    let more = match ahead {
        0 | 1 => String::new(),
        2 => ", then another".to_owned(),
        _ => format!(", then {} more", ahead - 1),
    };
    match running {
        Some(run) => format!("waiting for run {run} of another client{more}"),
        None if ahead > 1 => format!("waiting for {ahead} runs of other clients"),
        None => "waiting for a run of another client".to_owned(),
    }
}

/// The message about runs of other clients.
pub(super) fn others(runs: u64) -> Option<String> {
    match runs {
        0 => None,
        1 => Some("another client ran code here meanwhile".to_owned()),
        _ => Some(format!("other clients ran code here {runs} times meanwhile")),
    }
}

/// How a run ended, if its own output does not show it. `ours`: we asked for its end; `was_told`: an
/// error has been shown.
pub(super) fn end(finished: &Finished, ours: bool, was_shown: bool) -> Option<String> {
    let mut line = match &finished.end {
        RunEnd::Ok {} | RunEnd::Error {} | RunEnd::Exited { .. } => None,
        RunEnd::Interrupted { by } if !ours => Some(format!("interrupted by {}", words(by))),
        RunEnd::Interrupted { .. } => match finished.rung {
            Some(Rung::Firm) => Some("interrupted by force".to_owned()),
            Some(Rung::Killed) => Some("the interpreter was killed".to_owned()),
            _ => (!was_shown).then(|| "interrupted".to_owned()),
        },
        RunEnd::TimedOut { limit_ms } => Some(format!("ended after its limit of {limit_ms} ms")),
        RunEnd::Died { cause } => Some(died(cause)),
        RunEnd::Cancelled { reason } => Some(format!("not run: {}", words(reason))),
    };
    let began = !matches!(finished.end, RunEnd::Cancelled { .. });
    if began && !finished.state_kept {
        let line = line.get_or_insert_with(|| "the interpreter has ended".to_owned());
        line.push_str("; its state is lost, and the next input starts a new one");
    }
    line
}

fn died(cause: &Cause) -> String {
    match cause {
        Cause::Exited { code } => format!("the interpreter exited with code {code}"),
        Cause::Signaled { signal, .. } => {
            format!("the interpreter was ended by {}", signal_name(*signal))
        }
        _ => exit::explain(cause, "the interpreter")
            .unwrap_or_else(|| "the interpreter has ended".to_owned()),
    }
}

/// An error as the language's own interpreter prints it; none if there is nothing to print.
pub(super) fn traceback(error: &ErrorReport) -> Option<String> {
    let text = error.traceback.trim_end();
    if !text.is_empty() {
        return Some(text.to_owned());
    }
    match (error.kind.is_empty(), error.message.is_empty()) {
        (true, true) => None,
        (false, true) => Some(error.kind.clone()),
        (true, false) => Some(error.message.clone()),
        (false, false) => Some(format!("{}: {}", error.kind, error.message)),
    }
}

/// The form of a display that a terminal can show, if there is something in it.
pub(super) fn plain(display: &Display) -> Option<Vec<u8>> {
    let form = display.data.iter().find(|form| form.mime.split(';').next() == Some(PLAIN))?;
    let text = form.data.as_bytes();
    let update: &[u8] = if display.role == DisplayRole::Update { b"[update] " } else { b"" };
    (!text.is_empty()).then(|| [update, text].concat())
}

/// The forms that go to files, and are named in a line each.
pub(super) fn rich(display: &Display) -> impl Iterator<Item = &Datum> {
    display.data.iter().filter(|form| form.mime.split(';').next() != Some(PLAIN))
}

/// The line that names a file.
pub(super) fn saved(role: DisplayRole, form: &Datum, path: &Path) -> String {
    let update = if role == DisplayRole::Update { "update, " } else { "" };
    let (mime, size) = (words(&form.mime), human_bytes(form.data.as_bytes().len() as u64));
    format!("[{update}{mime} {size}: {}]", path.display())
}

/// The line if no file was saved.
pub(super) fn not_saved(form: &Datum, why: &impl std::fmt::Display) -> String {
    let (mime, size) = (words(&form.mime), human_bytes(form.data.as_bytes().len() as u64));
    format!("[{mime} {size}: {}]", printable(&why.to_string()))
}

/// The line that names a file in the sandbox.
pub(super) fn artifact(artifact: &Artifact) -> String {
    let path = printable(&artifact.path.to_string_lossy());
    let mime = if artifact.mime.is_empty() { "file".to_owned() } else { words(&artifact.mime) };
    format!("[{mime} {}, in the sandbox: {path}]", human_bytes(artifact.bytes))
}

/// The line with the prompt of an input, and the lines before it.
pub(super) fn question(begun: &str, prompt: &str) -> (Option<String>, String) {
    match prompt.rsplit_once('\n') {
        Some((before, last)) => {
            let lines: Vec<String> = before.split('\n').map(printable).collect();
            (Some(format!("{begun}{}", lines.join("\n"))), printable(last))
        }
        None => (None, format!("{begun}{}", printable(prompt))),
    }
}

/// A guest's words, as a part of a line.
fn words(text: &str) -> String {
    let mut clipped: String = text.chars().take(WORD_CHARS_MAX).collect();
    if clipped.len() < text.len() {
        clipped.push_str("...");
    }
    printable(&clipped)
}

#[cfg(test)]
mod tests;

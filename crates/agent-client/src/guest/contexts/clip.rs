//! Cuts oversized texts from a guest, so that code that shows or stores them need not. Pure.
//!
//! Texts that are the run's own content (output, displays, the text of an error) are bounded by
//! their event and stay complete; names and labels have no reason to be long.

use protocol::fault::clip_to;
use protocol::limits::{PATH_BYTES_MAX, TEXT_BYTES_MAX};
use protocol::repl::{
    Artifact, Completions, ContextInfo, Display, ErrorReport, Event, Finished, Happening, RunEnd,
};

use super::GuestError;
use crate::guest::limits::{DISPLAY_FORMS_MAX, MATCHES_MAX, TRACE_FRAMES_MAX, WARNINGS_MAX};

pub fn context(mut info: ContextInfo) -> ContextInfo {
    label(&mut info.language);
    if let Some(interpreter) = &mut info.interpreter {
        cut(&mut interpreter.program, PATH_BYTES_MAX);
        label(&mut interpreter.version);
    }
    if info.cwd.as_ref().is_some_and(|path| path.as_bytes().len() > PATH_BYTES_MAX) {
        // A path that is cut is another path.
        info.cwd = None;
    }
    option(&mut info.lost);
    info.warnings.truncate(WARNINGS_MAX);
    info.warnings.iter_mut().for_each(label);
    info
}

/// Completions of `code`. Their place in it is used to cut it, so one that is none is refused.
pub fn completions(mut found: Completions, code: &str) -> Result<Completions, GuestError> {
    let place = |at: u64| usize::try_from(at).ok().filter(|&at| code.is_char_boundary(at));
    match (place(found.start), place(found.end)) {
        (Some(start), Some(end)) if start <= end => {}
        _ => return Err(GuestError::Malformed { what: "completions of no place in the code" }),
    }
    found.matches.truncate(MATCHES_MAX);
    found.matches.iter_mut().for_each(|text| cut(text, PATH_BYTES_MAX));
    Ok(found)
}

pub fn event(mut event: Event) -> Event {
    match &mut event.what {
        Happening::Started(started) => option(&mut started.lost),
        Happening::Display(shown) => display(shown),
        Happening::Artifact(file) => artifact(file),
        Happening::Error(report) => error(report),
        Happening::Lost { reason } => label(reason),
        Happening::Finished(end) => finished(end),
        Happening::Stdout { .. }
        | Happening::Stderr { .. }
        | Happening::Late(_)
        | Happening::InputRequest { .. }
        | Happening::Gap { .. } => {}
    }
    event
}

fn display(shown: &mut Display) {
    option(&mut shown.id);
    shown.data.truncate(DISPLAY_FORMS_MAX);
    shown.data.iter_mut().for_each(|form| label(&mut form.mime));
}

fn artifact(file: &mut Artifact) {
    label(&mut file.name);
    label(&mut file.mime);
}

fn error(report: &mut ErrorReport) {
    label(&mut report.kind);
    report.frames.truncate(TRACE_FRAMES_MAX);
    for frame in &mut report.frames {
        cut(&mut frame.file, PATH_BYTES_MAX);
        label(&mut frame.function);
        cut(&mut frame.source, PATH_BYTES_MAX);
    }
}

fn finished(end: &mut Finished) {
    match &mut end.end {
        RunEnd::Interrupted { by } => label(by),
        RunEnd::Cancelled { reason } => label(reason),
        RunEnd::Ok {}
        | RunEnd::Error {}
        | RunEnd::Exited { .. }
        | RunEnd::TimedOut { .. }
        | RunEnd::Died { .. } => {}
    }
}

fn option(text: &mut Option<String>) {
    if let Some(text) = text {
        label(text);
    }
}

fn label(text: &mut String) {
    cut(text, TEXT_BYTES_MAX);
}

fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        *text = clip_to(std::mem::take(text), bytes_max);
    }
}

//! Contexts of a sandbox, driven through the bridge's library.

use std::time::Duration;

use agent_client::guest::contexts::open;
use agent_client::guest::{Guest, Ran, RunCode};
use protocol::repl::{Happening, OpenContext};
use serde_json::json;

/// How much of one run's output is kept: more than any test prints on purpose.
const BYTES_MAX: usize = 256 << 20;

/// A context's ask: `python`, or `name:language`.
///
/// # Panics
/// When it is no name.
pub fn context(which: &str) -> OpenContext {
    let (name, language) = which.split_once(':').unwrap_or((which, which));
    open(name.parse().expect("a name"), language)
}

/// Runs code to its end.
///
/// # Panics
/// When it cannot be run.
pub async fn run(guest: &Guest, which: &str, code: &str) -> Ran {
    ran(guest, RunCode::new(context(which), code)).await
}

/// The same with a deadline.
///
/// # Panics
/// When it cannot be run.
pub async fn run_within(guest: &Guest, which: &str, code: &str, deadline: Duration) -> Ran {
    let ask = RunCode { deadline: Some(deadline), ..RunCode::new(context(which), code) };
    ran(guest, ask).await
}

/// # Panics
/// When it cannot be run.
pub async fn ran(guest: &Guest, ask: RunCode) -> Ran {
    let run = guest.run_code(ask).await.expect("a run that is accepted");
    run.collect(BYTES_MAX).await.expect("a run's events")
}

/// A run's output, as a person would see it.
pub fn stdout(ran: &Ran) -> String {
    String::from_utf8_lossy(&ran.stdout()).into_owned()
}

pub fn stderr(ran: &Ran) -> String {
    String::from_utf8_lossy(&ran.stderr()).into_owned()
}

/// The text of the last expression's value.
pub fn value(ran: &Ran) -> Option<String> {
    let text = ran.value()?.data.iter().find(|datum| datum.mime == "text/plain")?;
    Some(text.data.to_string())
}

/// The late output, joined.
pub fn late(ran: &Ran) -> String {
    let late = ran.events.iter().filter_map(|event| match &event.what {
        Happening::Late(late) => Some(late.bytes.to_string()),
        _ => None,
    });
    late.collect()
}

/// The file of a notebook with a cell of words and two of Python: it prints `first`, and its value is 42.
pub fn notebook() -> String {
    let cell = |source: &str| json!({ "cell_type": "code", "source": source, "outputs": [], "execution_count": null });
    let words = json!({ "cell_type": "markdown", "source": ["# Words"] });
    let cells = [words, cell("a = 6\n%matplotlib inline\nprint('first')"), cell("a * 7")];
    json!({ "cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5 }).to_string()
}

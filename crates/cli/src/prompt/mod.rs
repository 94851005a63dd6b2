//! The interactive prompt: a conversation of a person with a living interpreter, which programs may
//! be using at the same time. `attach --repl` and `repl` hold it.
//!
//! ```text
//!  keyboard ─▶ editor (a thread with the line editor) ──▶ conversation ──▶ guest
//!                 ▲ prompts, answers to a Tab                 │  ▲ runs, a watch of the context
//!                 └───────────────────────────────────────────┤
//!  terminal ◀───────────────────── screen ◀── words, gallery ◀┘
//! ```
//!
//! While a line is edited the terminal is in the editor's raw mode; while code runs it is as we
//! found it, so that ctrl-c is a signal and what is typed ahead is kept for the next line. The
//! guard of [`terminal_mode`] lives through both and restores, whatever ends us.

mod block;
mod conversation;
mod editor;
mod gallery;
mod history;
mod language;
mod screen;
mod secret;
mod terminal_mode;
mod turn;
mod watching;
mod words;

use std::io::{IsTerminal, stdin};
use std::time::Duration;

use anyhow::{Context as _, Result};
use protocol::repl::{ContextInfo, OpenContext};

use super::exit::Exit;
use super::missing::explain_missing;
use crate::terminal::{Notice, Notices, TerminalError};
use agent_client::guest::Guest;
use conversation::Conversation;
use host::paths::Paths;
use terminal_mode::TerminalMode;

/// How long opening a context may take before the cause is checked.
const OPENING_PATIENCE: Duration = Duration::from_millis(300);

/// The options of a prompt.
pub struct Prompt {
    /// Opened if it does not exist.
    pub context: OpenContext,
    /// The name of the machine for people: `work`, `/run/agent.sock`, `CID 3`.
    pub place: String,
    /// The command that returns here; none if the machine ends with the prompt.
    pub way_back: Option<String>,
}

/// Why the prompt ended.
enum PromptExit {
    /// The person left; the last code may have set the exit code.
    Person(Exit),
    /// A signal ended us, or the terminal was closed (which is a hang-up).
    Signalled(i32),
    /// Our stdout is closed.
    Unread,
}

/// Runs the prompt until the person leaves. The context keeps running, and the guest stays open.
pub async fn hold(guest: &Guest, paths: &Paths, mut prompt: Prompt) -> Result<Exit> {
    if !stdin().is_terminal() {
        return Err(TerminalError::NotATerminal.into());
    }
    let mut notices = Notices::watch()?;
    guest.settle(&mut prompt.context).await?;
    // An interpreter may take its time to start, and the person may lose patience with it.
    let opened = tokio::select! {
        opened = guest.open_context(&prompt.context) => opened.map_err(explain_missing)?,
        busy = find_busy(guest, &prompt.context) => busy,
        signal = next_end(&mut notices) => return Ok(Exit::signalled(signal)),
    };
    let mut seat = TerminalMode::take()?;
    let mut conversation = Conversation::begin(guest, paths, &prompt, &opened).await?;
    let left = conversation.hold(&mut notices).await;
    if conversation.is_editing() {
        // The editor is interrupted within its line, with its own mode and paste mode.
        seat.tidy_at_end();
    }
    drop(seat);
    match left.with_context(|| format!("lost the connection to {}", prompt.place))? {
        PromptExit::Person(exit) => {
            conversation.part().await;
            Ok(exit)
        }
        PromptExit::Signalled(signal) => {
            conversation.part().await;
            Ok(Exit::signalled(signal))
        }
        PromptExit::Unread => Ok(Exit::UNREAD),
    }
}

/// Waits until the context runs somebody's code, in which case it cannot be opened because it is open
/// already. Never returns for one that only starts slowly.
async fn find_busy(guest: &Guest, context: &OpenContext) -> ContextInfo {
    loop {
        tokio::time::sleep(OPENING_PATIENCE).await;
        let contexts = guest.contexts().await.unwrap_or_default();
        let ours = contexts.into_iter().find(|info| info.context == context.context);
        if let Some(info) = ours.filter(|info| info.running.is_some()) {
            return info;
        }
    }
}

/// Waits for the next signal that ends the process.
async fn next_end(notices: &mut Notices) -> i32 {
    loop {
        if let Notice::End(signal) = notices.next().await {
            return signal;
        }
    }
}

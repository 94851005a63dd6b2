//! A failure, as one line that a newcomer can act on.
//!
//! Verbs return `anyhow` errors; the typed error at their root decides the hint that follows.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Error;
use protocol::FaultCode;
use protocol::hello::GoodbyeReason;

use super::exit::{self, Exit};
use super::output::{self, printable};
use crate::terminal::TerminalError;
use agent_client::guest::GuestError;
use agent_client::link::LinkError;
use control::{ClientError, ErrorCode};
use host::agent::AgentMissing;
use host::similar::distance;
use image::ImageError;
use sandbox::{InvalidName, SandboxError, SandboxRef, State};
use workspace::WorkspaceError;

/// Errors of the command line itself.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("there is no sandbox {name}{}", alternatives(similar))]
    UnknownSandbox { name: SandboxRef, similar: Vec<String> },
    #[error("sandbox {name} was lost with its node {node} at {at}{}", durable_to(ends))]
    LostWithNode { name: SandboxRef, node: String, at: String, ends: Vec<String> },
    #[error("sandbox {name} is not running: it is {state}")]
    NotRunning { name: SandboxRef, state: State },
    #[error("{wanted:?} matches no session of the sandbox{}", alternatives(sessions))]
    UnknownSession { wanted: String, sessions: Vec<String> },
    #[error("session {session} has ended: {how}")]
    SessionEnded { name: SandboxRef, session: String, how: String },
    #[error("there is no notebook {name}{}", alternatives(similar))]
    UnknownNotebook { name: SandboxRef, similar: Vec<String> },
    #[error("{wanted:?} matches several sessions: {}", matches.join(", "))]
    AmbiguousSession { wanted: String, matches: Vec<String> },
    #[error(
        "the log has several sessions or none; name the one to export{}",
        alternatives(sessions)
    )]
    SessionNeeded { sessions: Vec<String> },
    #[error("{format:?} is no format of a recording: write asciicast or html")]
    UnknownExport { format: String },
    #[error("no command given, and the image has none")]
    NoCommand,
    #[error(
        "{program} does not run notebooks; `host-bridge repl [SANDBOX] {notebook}` runs one cell by cell"
    )]
    Notebook { program: String, notebook: String },
    #[error("-t with -i needs a terminal, but stdin is not one")]
    StdinNotATerminal,
    #[error("a shell needs a terminal, but stdin is not one")]
    NoTerminalForShell,
    #[error("{0} bytes of output were lost: the connection skipped them")]
    OutputMissing(u64),
    #[error("cannot read {path}: {source}")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("cannot write {path}: {source}")]
    Unwritable { path: PathBuf, source: std::io::Error },
    #[error(
        "stdout is a terminal, which cannot show an archive; name a file with -o, or write to a pipe"
    )]
    ArchiveToTerminal,
    #[error(
        "the bridge sent {written} of {bytes} bytes, and nothing was kept; its log says why it stopped"
    )]
    ArchiveCutOff { written: u64, bytes: u64 },
    #[error("neither end of the copy is in a sandbox")]
    NoSandboxInCopy,
    #[error("both ends of the copy are in sandboxes")]
    TwoSandboxesInCopy,
    #[error("the sandbox has no directory {0}")]
    NoGuestDirectory(String),
    #[error("the sandbox {name} is {state}")]
    SandboxEnded { name: SandboxRef, state: String },
    #[error("the sandbox ended: {exit}")]
    MachineEnded { exit: String },
    #[error("{0} is not a directory")]
    NotADirectory(String),
    #[error("{path} in the sandbox is neither a file nor a directory, but a {kind}")]
    NotCopyable { path: String, kind: &'static str },
    #[error("the root of a sandbox has no name to copy it under")]
    RootHasNoName,
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: std::io::Error },
    #[error("{word:?} is neither a file (write ./{word} for one) nor a sandbox's name: {reason}")]
    NeitherSandboxNorFile { word: String, reason: InvalidName },
    #[error("the code is given twice: by -c and by {0}")]
    TwoCodeSources(String),
    #[error("{} {} for a new sandbox, but {which} exists already", flags.join(", "), if flags.len() == 1 { "is" } else { "are" })]
    SandboxExists { which: SandboxRef, flags: Vec<&'static str> },
    #[error("unknown option {option}{}", meant.as_ref().map(|meant| format!("; did you mean {meant}?")).unwrap_or_default())]
    UnknownOption { option: String, meant: Option<String> },
    /// `of` are the verbs that it stands below, each with a space behind it.
    #[error("unknown verb {verb}{}", meant_verbs(meant, of))]
    UnknownVerb { verb: String, of: String, meant: Vec<String> },
    #[error("{what}: {why}; {instead}")]
    OtherWords { what: String, why: &'static str, instead: String },
    #[error("the code is larger than the limit of {limit} bytes")]
    CodeTooLong { limit: usize },
    #[error("a line of stdin is longer than the limit of {limit} bytes")]
    LineTooLong { limit: usize },
    /// The agent has no interpreter to run code with; it says which it has looked for and where.
    #[error("{}", .0.message)]
    NoInterpreter(protocol::Fault),
    #[error("the app {app} cannot be reached: it is {state}")]
    AppUnreachable { app: String, state: String },
    #[error("sandbox {0} has no contexts")]
    NoContexts(SandboxRef),
    #[error("sandbox {which} has several contexts: {}", names.join(", "))]
    SeveralContexts { which: SandboxRef, names: Vec<String> },
    #[error("the daemon could not start: {reason} (its log is {log})")]
    DaemonFailed { reason: String, log: PathBuf },
    #[error("the daemon has not answered within {} s (its log is {log})", waited.as_secs())]
    DaemonSilent { waited: Duration, log: PathBuf },
    #[error(transparent)]
    ContextName(protocol::ids::InvalidName),
}

/// Prints an error and returns the exit code.
pub fn report(error: &Error) -> Exit {
    let mut line = describe(error);
    if let Some(hint) = hint(error) {
        line = format!("{line}; {hint}");
    }
    output::note(&line);
    code(error)
}

/// The chain of reasons as one line. Guests take part in wording them, so nothing is obeyed.
fn describe(error: &Error) -> String {
    if let Some(failure) = spawn_failure(error) {
        return exit::explain_spawn(failure);
    }
    let mut line = String::new();
    for reason in error.chain() {
        let reason = on_one_line(&reason.to_string());
        // Many errors quote their source themselves.
        if line.ends_with(&reason) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&reason);
    }
    printable(&line)
}

fn on_one_line(text: &str) -> String {
    let mut line = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        if !line.is_empty() {
            line.push_str(if line.ends_with(['.', ':', ';', ',']) { " " } else { "; " });
        }
        line.push_str(part);
    }
    line
}

fn code(error: &Error) -> Exit {
    let missing = match find::<CliError>(error) {
        Some(CliError::NoInterpreter(fault)) => fault.spawn.as_ref(),
        _ => spawn_failure(error),
    };
    missing
        .and_then(|failure| u8::try_from(failure.shell_code()).ok())
        .map_or(Exit::FAILED_ITSELF, Exit)
}

fn spawn_failure(error: &Error) -> Option<&protocol::exit::SpawnFailure> {
    match find::<GuestError>(error)? {
        GuestError::Fault(fault) => fault.spawn.as_ref(),
        _ => None,
    }
}

fn find<E: std::error::Error + Send + Sync + 'static>(error: &Error) -> Option<&E> {
    error.chain().find_map(|reason| reason.downcast_ref())
}

/// Whether the link to an agent broke.
pub fn is_lost(error: &Error) -> bool {
    let link = match find::<GuestError>(error) {
        Some(GuestError::Link(error)) => Some(error),
        _ => find::<LinkError>(error),
    };
    link.is_some_and(LinkError::is_loss)
}

/// The same failure with a better known reason; its subject stays.
pub fn because(error: &Error, reason: CliError) -> Error {
    let about = error.chain().next().filter(|_| error.chain().nth(1).is_some());
    let about = about.map(ToString::to_string);
    match about {
        Some(about) => Error::new(reason).context(about),
        None => reason.into(),
    }
}

/// The hint of an error, if there is one.
fn hint(error: &Error) -> Option<String> {
    if let Some(error) = find::<CliError>(error) {
        return error.hint();
    }
    if let Some(error) = find::<ClientError>(error) {
        return client_hint(error);
    }
    if find::<AgentMissing>(error).is_some() {
        // Its message already ends in a hint.
        return None;
    }
    if let Some(error) = find::<TerminalError>(error) {
        return terminal_hint(error);
    }
    if let Some(SandboxError::Machine(error)) = find::<SandboxError>(error)
        && let Some(hint) = error.hint()
    {
        return Some(hint.to_owned());
    }
    if let Some(SandboxError::Workspace(WorkspaceError::Unknown { name, .. })) =
        find::<SandboxError>(error)
    {
        return Some(format!("write ./{name} for a directory"));
    }
    if let Some(hint) = image_hint(error) {
        return Some(hint.to_owned());
    }
    let hint = match find::<GuestError>(error) {
        Some(GuestError::Fault(fault)) => fault_hint(fault.code),
        Some(GuestError::Link(error)) => link_hint(error),
        _ => find::<LinkError>(error).and_then(link_hint),
    };
    hint.map(str::to_owned)
}

fn image_hint(error: &Error) -> Option<&'static str> {
    let is_unknown = |error: &ImageError| matches!(error.inner(), ImageError::NotFound { .. });
    match (find::<SandboxError>(error), find::<ImageError>(error)) {
        (Some(SandboxError::Image(error)), _) if is_unknown(error) => Some(
            "`host-bridge image ls` lists the images; --pull missing pulls one that is not there",
        ),
        (_, Some(error)) if is_unknown(error) => Some("`host-bridge image ls` lists the images"),
        _ => None,
    }
}

impl CliError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::UnknownSandbox { similar, .. } if similar.is_empty() => {
                "`host-bridge ps -a` lists all sandboxes; `host-bridge start --name NAME` starts one"
            }
            Self::UnknownSandbox { .. } => "`host-bridge ps -a` lists all sandboxes",
            Self::LostWithNode { .. } => {
                "this was all of its output that outlived the node; the name is free"
            }
            Self::NotRunning { name, state: State::Damaged { .. } } => {
                return Some(format!("`host-bridge rm {name}` ends and removes it"));
            }
            Self::NotRunning { name, .. } => {
                return Some(format!(
                    "`host-bridge restart {name}` starts it again; `host-bridge logs {name}` shows its output"
                ));
            }
            Self::SandboxEnded { name, .. } => {
                return Some(format!("`host-bridge logs {name}` shows its output"));
            }
            Self::UnknownSession { .. } => "`host-bridge inspect SANDBOX` lists its sessions",
            Self::SessionEnded { name, session, .. } => {
                return Some(format!(
                    "`host-bridge logs {name} --session {session}` shows its output"
                ));
            }
            Self::UnknownNotebook { .. } => "`host-bridge history` shows the runs of all notebooks",
            Self::SessionNeeded { .. } => {
                "`host-bridge verify SANDBOX` lists the sessions of a log"
            }
            Self::AmbiguousSession { .. } => "give a longer prefix of the id",
            Self::StdinNotATerminal => "omit -t to pipe data in, or omit -i to give no input",
            Self::NoTerminalForShell => {
                "pipe commands into `host-bridge exec -i SANDBOX sh` instead, or watch with --read-only"
            }
            Self::NoSandboxInCopy => {
                "write one of them as SANDBOX:/path (and ./a:b for a file named a:b)"
            }
            Self::TwoSandboxesInCopy => {
                "use a pipe: host-bridge cp --tar A:/path - | host-bridge cp --tar - B:/path"
            }
            Self::NoGuestDirectory(_) => "create it first, or copy with --parents",
            Self::RootHasNoName => {
                "name a new directory, or write SANDBOX:/. for the contents of the root"
            }
            Self::Listen { .. } => "choose another port, or 0 for a free one",
            Self::TwoCodeSources(_) => "omit one of them",
            Self::SandboxExists { .. } => "omit the options, or omit the sandbox to get a new one",
            Self::NoInterpreter(_) => {
                "name another with `--program PATH`, or install one with `host-bridge exec`"
            }
            Self::ContextName(_) => "name the context with --context",
            Self::NoContexts(_) => "`host-bridge context open` starts one, and so does a first run",
            Self::SeveralContexts { .. } => "name one of them",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

fn client_hint(error: &ClientError) -> Option<String> {
    match error {
        ClientError::NotRunning { .. } => {
            Some("omit --no-daemon, and it starts; `host-bridge run` does not need it".to_owned())
        }
        ClientError::Refused(refusal) => refusal.hint.clone().or_else(|| match refusal.code {
            ErrorCode::NameTaken => {
                Some("choose another --name, or free it with `host-bridge rm -f NAME`".to_owned())
            }
            ErrorCode::StillRunning => Some("stop it first, or use -f".to_owned()),
            _ => None,
        }),
        _ => None,
    }
}

fn terminal_hint(error: &TerminalError) -> Option<String> {
    match error {
        TerminalError::NotATerminal => Some("run it from a terminal, or without -t".to_owned()),
        TerminalError::Mode { .. } => Some("the terminal may have been closed".to_owned()),
        TerminalError::Signals(_) => None,
    }
}

fn fault_hint(code: FaultCode) -> Option<&'static str> {
    match code {
        FaultCode::Limit => {
            Some("a limit of the sandbox is reached; stop something in it, or try again later")
        }
        FaultCode::Stopping => Some("the sandbox is being stopped"),
        FaultCode::Denied => Some("the path leaves the directory that it must stay in"),
        _ => None,
    }
}

fn link_hint(error: &LinkError) -> Option<&'static str> {
    match error {
        LinkError::Dial { .. } => Some(
            "is the agent running, and is this its address? `host-bridge ps -a` shows the sandboxes",
        ),
        LinkError::Handshake { .. } => {
            Some("is this the hybrid socket of a VMM, and the port the agent's?")
        }
        LinkError::Version { .. } => Some(
            "the agent in the sandbox and this program have incompatible versions; update the older one",
        ),
        LinkError::Refused { reason: GoodbyeReason::BootFailed, .. } => {
            Some("`host-bridge doctor` shows what this host can run")
        }
        LinkError::Closed | LinkError::Silent { .. } => {
            Some("the sandbox has stopped or hangs; `host-bridge ps -a` shows its state")
        }
        _ => None,
    }
}

/// Which verbs may have been meant, or where they all are.
fn meant_verbs(meant: &[String], of: &str) -> String {
    match meant {
        [] => format!("; `host-bridge {of}--help` lists the verbs"),
        [one] => format!("; did you mean {one}?"),
        [others @ .., last] => format!("; did you mean {} or {last}?", others.join(", ")),
    }
}

/// Where outputs end that have outlived their node.
fn durable_to(ends: &[String]) -> String {
    if ends.is_empty() {
        return String::new();
    }
    format!("; durable are, in bytes: {}", ends.join(", "))
}

fn alternatives(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let names: Vec<String> = names.iter().map(|name| printable(name)).collect();
    format!(" (there is {})", names.join(", "))
}

/// The names that are similar to `wanted`, the most similar first.
pub fn similar(wanted: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut rated: Vec<(usize, String)> = names
        .into_iter()
        .map(|name| (distance(wanted, &name), name))
        .filter(|(distance, name)| {
            *distance <= 1 + wanted.len() / 4
                || name.contains(wanted)
                || wanted.contains(name.as_str())
        })
        .collect();
    rated.sort();
    rated.into_iter().take(SIMILAR_MAX).map(|(_, name)| name).collect()
}

/// The maximum number of suggestions.
const SIMILAR_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_offered_and_others_are_not() {
        let names = || ["web", "worker", "web-2", "database"].map(str::to_owned);
        assert_eq!(similar("xyz", names()), Vec::<String>::new());
        assert_eq!(similar("wab", names()), ["web"]);
        assert_eq!(similar("web-1", names()), ["web-2", "web"]);
        assert_eq!(similar("databse", names()), ["database"]);
    }

    #[test]
    fn a_chain_is_one_line_without_repetitions() {
        let inner = std::io::Error::other("no such thing\n");
        let error = Error::new(CliError::Unreadable { path: "x".into(), source: inner });
        assert_eq!(
            describe(&error.context("while copying")),
            "while copying: cannot read x: no such thing"
        );
    }

    #[test]
    fn a_program_that_was_not_found_is_127() {
        let failure = protocol::exit::SpawnFailure {
            stage: protocol::exit::SpawnStage::Exec,
            errno: 2,
            subject: "nope".to_owned(),
        };
        let error = Error::new(GuestError::Fault(protocol::Fault::spawn("failed", failure)));
        assert_eq!(code(&error), Exit(127));
        assert!(describe(&error).starts_with("nope: no such program"));
        assert_eq!(code(&Error::new(CliError::NoSandboxInCopy)), Exit(125));
    }
}

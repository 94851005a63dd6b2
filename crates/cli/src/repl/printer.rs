//! Prints the events of a run, like the language's own interpreter or as JSON.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use protocol::message::Channel;
use protocol::repl::{Artifact, Display, DisplayRole, ErrorReport, Event, Happening, Started};

use super::super::output::{self, Sink, printable};
use super::super::values::human_bytes;
use super::displays::{Displays, Saved, plain_form, rich_forms};
use super::json;

/// Whether the sandbox outlives the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxLifetime {
    /// The sandbox keeps running, and others may use the context.
    Persistent,
    /// The sandbox is removed at the end.
    Temporary,
}

/// The format of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    Json,
    Plain { save_displays: Option<PathBuf> },
}

/// Whether stdout still has a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum StdoutState {
    Open,
    /// Our stdout is closed.
    Closed,
}

/// See the module's description.
pub struct Printer {
    stdout: Sink,
    stderr: Sink,
    stderr_is_read: bool,
    lifetime: SandboxLifetime,
    form: Form,
    /// Bytes of late output of earlier runs.
    late_bytes: u64,
    /// The kind of the last error.
    error: Option<String>,
    /// The type of the first display that was not saved.
    unkept: Option<String>,
}

enum Form {
    Json(json::Lines),
    Plain(Option<Displays>),
}

impl Printer {
    pub fn new(lifetime: SandboxLifetime, telling: &OutputFormat) -> Result<Self> {
        let form = match telling {
            OutputFormat::Json => Form::Json(json::Lines::default()),
            OutputFormat::Plain { save_displays: None } => Form::Plain(None),
            OutputFormat::Plain { save_displays: Some(dir) } => {
                Form::Plain(Some(Displays::into(dir)?))
            }
        };
        Ok(Self {
            stdout: Sink::stdout()?,
            stderr: Sink::stderr()?,
            stderr_is_read: true,
            lifetime,
            form,
            late_bytes: 0,
            error: None,
            unkept: None,
        })
    }

    /// The kind of the last error that was printed.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Prints one event, and returns when it has been written.
    pub async fn print(&mut self, event: &Event) -> Result<StdoutState> {
        if let Happening::Error(report) = &event.what {
            self.error = Some(report.kind.clone());
        }
        if let Form::Json(lines) = &mut self.form {
            let mut text = String::new();
            lines.append(event, &mut text);
            return self.write(Channel::Stdout, text.into_bytes()).await;
        }
        match &event.what {
            Happening::Stdout { bytes } => {
                return self.write(Channel::Stdout, bytes.as_bytes().to_vec()).await;
            }
            Happening::Stderr { bytes } => {
                return self.write(Channel::Stderr, bytes.as_bytes().to_vec()).await;
            }
            Happening::Display(shown) => return self.show(shown).await,
            Happening::Error(report) => return self.report(report).await,
            Happening::Started(Started { lost: Some(lost), .. }) => {
                output::note(&format!(
                    "the context has a new interpreter, and its old state is lost: {}",
                    printable(lost)
                ));
            }
            Happening::Artifact(file) => self.offer(file),
            Happening::Late(late) => {
                self.late_bytes += late.bytes.as_bytes().len() as u64 + late.dropped;
            }
            // Our caller sees the question, and the end.
            Happening::Started(_)
            | Happening::InputRequest { .. }
            | Happening::Lost { .. }
            | Happening::Gap { .. }
            | Happening::Finished(_) => {}
        }
        Ok(StdoutState::Open)
    }

    /// Prints output of the run that arrived after its end.
    pub async fn print_late(&mut self, event: &Event) -> Result<StdoutState> {
        match &event.what {
            Happening::Late(late) if matches!(self.form, Form::Plain(_)) => {
                self.write(late.channel, late.bytes.as_bytes().to_vec()).await
            }
            Happening::Late(_) => self.print(event).await,
            _ => Ok(StdoutState::Open),
        }
    }

    /// Prints a question of the code. A question for a secret goes to stderr, which is rarely redirected.
    pub async fn ask(&mut self, prompt: &str, secret: bool) -> Result<StdoutState> {
        if matches!(self.form, Form::Json(_)) {
            return Ok(StdoutState::Open);
        }
        let channel = if secret { Channel::Stderr } else { Channel::Stdout };
        self.write(channel, prompt.as_bytes().to_vec()).await
    }

    /// Prints the closing notes after the end of the run.
    pub fn part(&self) {
        if let Some(mime) = &self.unkept {
            output::note(&format!(
                "the code displayed {}; --save-displays DIR saves what it displays",
                printable(mime)
            ));
        }
        if self.late_bytes > 0 && matches!(self.form, Form::Plain(_)) {
            output::note(&format!(
                "earlier runs in this context printed {} meanwhile; --json shows it",
                human_bytes(self.late_bytes)
            ));
        }
    }

    async fn show(&mut self, shown: &Display) -> Result<StdoutState> {
        let Form::Plain(displays) = &mut self.form else { return Ok(StdoutState::Open) };
        match displays.as_mut().map(|displays| displays.save(shown)).transpose()? {
            Some(Saved::Files(files)) => {
                for path in files {
                    output::note(&format!("displayed: {}", path.display()));
                }
            }
            Some(Saved::TooMany) => {
                output::note("the code displays too much; the rest is not saved");
            }
            // Its value is not a display.
            None if shown.role == DisplayRole::Shown => {
                if let Some(form) = rich_forms(shown).next() {
                    self.unkept.get_or_insert_with(|| form.mime.clone());
                }
            }
            Some(Saved::Nothing) | None => {}
        }
        match plain_form(shown) {
            Some(form) if shown.role == DisplayRole::Shown => {
                let mut line = form.data.as_bytes().to_vec();
                line.push(b'\n');
                self.write(Channel::Stdout, line).await
            }
            _ => Ok(StdoutState::Open),
        }
    }

    async fn report(&mut self, report: &ErrorReport) -> Result<StdoutState> {
        let mut text = report.traceback.clone();
        if text.is_empty() {
            text = format!("{}: {}", report.kind, report.message);
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        self.write(Channel::Stderr, text.into_bytes()).await
    }

    fn offer(&self, file: &Artifact) {
        let path = printable(&file.path.to_string_lossy());
        let size = human_bytes(file.bytes);
        let way = match self.lifetime {
            SandboxLifetime::Persistent => "`host-bridge cp` fetches it",
            SandboxLifetime::Temporary => {
                "it is removed with this sandbox; use `host-bridge start` to keep the sandbox"
            }
        };
        output::note(&format!("the code offers {path} ({size}); {way}"));
    }

    async fn write(&mut self, channel: Channel, bytes: Vec<u8>) -> Result<StdoutState> {
        if channel == Channel::Stderr {
            if self.stderr_is_read {
                self.stderr_is_read = self.stderr.write(bytes).await.is_ok();
            }
            return Ok(StdoutState::Open);
        }
        stdout_state(self.stdout.write(bytes).await)
    }
}

fn stdout_state(written: io::Result<()>) -> Result<StdoutState> {
    match written {
        Ok(()) => Ok(StdoutState::Open),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(StdoutState::Closed),
        Err(error) => Err(error).context("cannot write to stdout"),
    }
}

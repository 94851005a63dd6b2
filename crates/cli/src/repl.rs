//! `repl`: code in a living interpreter, of a box or of a box of its own. With code it is what the
//! language's own interpreter would be; without any, and in front of a person, it is the prompt.

mod afterwards;
mod displays;
mod ending;
mod json;
pub mod language;
mod lines;
mod pump;
mod source;
mod teller;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use protocol::exit::SpawnFailure;
use protocol::repl::{Grace, OpenContext};
use protocol::requests::GroupLimits;
use protocol::{ContextName, Text};

use super::context::Context;
use super::exit::Exit;
use super::failure::CliError;
use super::prompt::{self, Prompt};
use super::values::{parse_duration, parse_size, resolve_variable};
use agent_client::guest::{Guest, GuestError, RunCode};
use language::Language;
use sandbox::{Name, SandboxRef, Spec};
use source::Source;
use teller::Manner;
use words::Wanted;

/// Run code in a living interpreter, or talk to one
#[derive(Debug, Args)]
#[command(
    override_usage = "host-bridge repl [OPTIONS] [BOX] [-c CODE | FILE | -]",
    after_help = "Examples:
  host-bridge repl                                 a Python prompt in a box of its own
  host-bridge repl work                            a prompt in the box work, beside its programs
  host-bridge repl work -c 'x = 1'                 what it defines is there for the next run
  host-bridge repl work -c 'print(x)'
  host-bridge repl train.py --timeout 10m          a file, in a box of its own
  host-bridge repl work train.py                   the same in the box work
  host-bridge repl --lang node -c 'console.log(await fetch(\"http://localhost\"))'
  generate | host-bridge repl --json work - | jq -r 'select(.event == \"display\")'

One word is the FILE if it has a dot or begins with a slash, or is -, which is stdin; write ./run for
a file called run. Any other word is the BOX. Of two words the first is the box. Without code, stdin
is the code, unless it is a terminal: then you get a prompt.

With code it prints what the language's own interpreter would: no value of the last line, tracebacks
on stderr. What the code asks for as input is read from stdin. ctrl-c interrupts the code; a second
one leaves it less choice, a third one none. The exit code is the interpreter's own; 124 after
--timeout, 125 when we failed, 127 when there is no interpreter, 128+n when signal n ended it, 130
when it was interrupted."
)]
pub struct Repl {
    #[command(flatten)]
    interpreter: InterpreterArguments,

    /// The context to run in, which others who name it share (default: the language's name)
    #[arg(long, value_name = "NAME")]
    context: Option<ContextName>,

    /// Run this code
    #[arg(short, value_name = "CODE", allow_hyphen_values = true)]
    code: Option<OsString>,

    /// Interrupt the code after so long (as in 90s, 5m); the exit code is then 124
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,

    /// Write what the code displays (images, tables) to files in this directory, and name them
    #[arg(long, value_name = "DIR")]
    save_displays: Option<PathBuf>,

    /// Print all that happens as JSON, one event on each line
    #[arg(long, conflicts_with = "save_displays")]
    json: bool,

    /// Without BOX: the directory that is its root (default: the host's)
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,

    /// Without BOX: size of its writable layer, as in 512M or 4G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    scratch: Option<u64>,

    /// The box (NAME or NAMESPACE/NAME), the file, or both
    #[arg(value_name = "BOX] [FILE", num_args = 0..=2)]
    words: Vec<OsString>,
}

/// Which interpreter, and in what surroundings.
#[derive(Debug, Args)]
pub struct InterpreterArguments {
    /// The language: python, node or bash (default: by the ending of FILE, or python)
    #[arg(long, value_name = "LANGUAGE")]
    pub lang: Option<Language>,

    /// The interpreter, as a path or a name in the box, instead of those that are looked for
    #[arg(long, value_name = "PATH")]
    program: Option<OsString>,

    /// Set an environment variable of the interpreter; NAME alone passes ours on
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Start the interpreter in this directory of the box
    #[arg(short = 'w', long, visible_alias = "workdir", value_name = "DIR")]
    cwd: Option<OsString>,

    /// Run as NAME, NAME:GROUP, UID or UID:GID
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
}

impl InterpreterArguments {
    /// What is asked of the context.
    pub fn open(&self, context: ContextName, language: &Language) -> Result<OpenContext> {
        let mut env = Vec::new();
        for variable in &self.env {
            let variable = resolve_variable(variable, |name| std::env::var(name).ok())?;
            env.extend(variable.map(|(name, value)| (name.into(), value.into())));
        }
        Ok(OpenContext {
            context,
            language: language.as_str().to_owned(),
            program: self.program.clone().map(text),
            cwd: self.cwd.clone().map(text),
            env,
            user: self.user.clone(),
            limits: GroupLimits::default(),
        })
    }
}

/// In the guest, what the command line says is bytes, too.
pub fn text(argument: OsString) -> Text {
    use std::os::unix::ffi::OsStringExt;
    argument.into_vec().into()
}

/// Tells a box without an interpreter from other failures, because something can be done about it.
pub fn explain_missing(error: GuestError) -> anyhow::Error {
    match error {
        GuestError::Fault(fault)
            if fault.spawn.as_ref().is_some_and(SpawnFailure::is_not_found) =>
        {
            CliError::NoInterpreter(fault).into()
        }
        error => error.into(),
    }
}

impl Repl {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let Wanted { place, source } = words::read(&self.words, self.code.as_deref())?;
        let source = source.or_stdin(self.json);
        let language = self
            .interpreter
            .lang
            .clone()
            .or_else(|| source.path().and_then(Language::of_file))
            .unwrap_or_default();
        let name = match &self.context {
            Some(name) => name.clone(),
            None => language.context()?,
        };
        let open = self.interpreter.open(name, &language)?;
        // Whatever is wrong with the code is said before anything is started for it.
        let code = match &source {
            Source::Person => None,
            source => Some(source.read().await?),
        };
        let act = Act { repl: self, context, language, open, source, code };
        match place {
            Some(which) => act.in_box(which).await,
            None => act.in_box_of_its_own().await,
        }
    }

    /// The box of its own.
    fn spec(&self) -> Result<Spec> {
        let which = SandboxRef { namespace: Name::default_namespace(), name: Name::generate()? };
        let mut spec = Spec::new(which);
        if let Some(image) = &self.image {
            let failed = |source| CliError::Unreadable { path: image.clone(), source };
            spec.image = Some(image.canonicalize().map_err(failed)?.display().to_string());
        }
        spec.scratch_bytes = self.scratch;
        Ok(spec)
    }
}

/// All that the command line has settled.
struct Act<'a> {
    repl: &'a Repl,
    context: &'a Context,
    language: Language,
    open: OpenContext,
    source: Source,
    /// Absent when a person gives it line by line.
    code: Option<Vec<u8>>,
}

impl Act<'_> {
    async fn in_box(self, which: SandboxRef) -> Result<Exit> {
        if self.repl.image.is_some() || self.repl.scratch.is_some() {
            return Err(CliError::BoxIsMadeAlready(which).into());
        }
        let guest =
            self.context.guest(&which, "repl").await.map_err(|error| match words::file_instead(
                &self.repl.words,
            ) {
                Some(file) => error.context(format!("the file of that name is {file}")),
                None => error,
            })?;
        let exit = if let Some(code) = &self.code {
            self.perform(&guest, code, Manner::Shared).await
        } else {
            let language = self.language.as_str();
            let name = self.repl.context.as_ref().map(|name| format!(" --context {name}"));
            let name = name.unwrap_or_default();
            let way_back = format!("host-bridge attach --repl {language}{name} {which}");
            self.converse(&guest, which.to_string(), Some(way_back)).await
        };
        guest.close().await;
        exit
    }

    async fn in_box_of_its_own(self) -> Result<Exit> {
        let spec = self.repl.spec()?;
        let one_shot = sandbox::one_shot(&self.context.paths, &spec).await?;
        let guest = one_shot.guest();
        let exit = match &self.code {
            Some(code) => self.perform(guest, code, Manner::Alone).await,
            None => self.converse(guest, "a box of its own".to_owned(), None).await,
        };
        one_shot.end().await;
        exit
    }

    async fn converse(
        &self,
        guest: &Guest,
        place: String,
        way_back: Option<String>,
    ) -> Result<Exit> {
        let prompt = Prompt { context: self.open.clone(), place, way_back };
        prompt::hold(guest, &self.context.paths, prompt).await
    }

    async fn perform(&self, guest: &Guest, code: &[u8], manner: Manner) -> Result<Exit> {
        let ask = RunCode {
            context: self.open.clone(),
            code: code.to_vec().into(),
            name: Some(self.source.name(&self.language)),
            deadline: self.repl.timeout,
            grace: Grace::default(),
            // Where stdin was the code, there is none left.
            input: !matches!(self.source, Source::Stdin),
            tied: true,
            aside: false,
        };
        let telling = if self.repl.json {
            teller::Telling::Json
        } else {
            teller::Telling::Plain { save_displays: self.repl.save_displays.clone() }
        };
        pump::perform(guest, ask, manner, telling).await
    }
}

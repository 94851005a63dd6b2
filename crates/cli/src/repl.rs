//! `repl`: run code in an interpreter of a running sandbox or of a new one. With code it behaves
//! like the language's own interpreter; without code, on a terminal, it opens the prompt.

mod displays;
mod ending;
mod json;
pub mod language;
mod late_output;
mod lines;
mod printer;
mod pump;
mod source;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use protocol::repl::OpenContext;
use protocol::requests::GroupLimits;
use protocol::{ContextName, Text};

use super::context::{Context, explain_gone};
use super::exit::Exit;
use super::failure::CliError;
use super::one_shot;
use super::prompt::{self, Prompt};
use super::sandbox_options::OwnedSandboxOptions;
use super::values::{parse_duration, resolve_variable};
use agent_client::guest::{Guest, RunCode};
use control::RefusedHosts;
use language::Language;
use printer::SandboxLifetime;
use sandbox::SandboxRef;
use source::Source;
use words::Selection;

/// Run code in an interpreter that keeps state
#[derive(Debug, Args)]
#[command(
    override_usage = "host-bridge repl [OPTIONS] [SANDBOX] [-c CODE | FILE | -]",
    after_help = "Examples:
  host-bridge repl                                 a Python prompt in a new sandbox
  host-bridge repl work                            a prompt in the sandbox \"work\"
  host-bridge repl work -c 'x = 1'                 x is defined for the next run
  host-bridge repl work -c 'print(x)'
  host-bridge repl train.py --timeout 10m          run a file in a new sandbox
  host-bridge repl --memory 2G --egress @pypi -c 'print(1)'     in a new sandbox with these options
  host-bridge repl work train.py                   run a file in \"work\"
  host-bridge repl work study.ipynb                run a notebook cell by cell
  host-bridge repl --lang node -c 'console.log(await Promise.resolve(6 * 7))'
  generate | host-bridge repl --json work - | jq -r 'select(.event == \"display\")'

A single argument is a FILE if it contains a dot, begins with a slash, or is - (stdin); write ./run for
a file named run. Any other single argument is the SANDBOX. With two arguments the first is the SANDBOX.
Without code, the code is read from stdin; if stdin is a terminal, a prompt opens.

With code, the output is what the language's own interpreter prints: the value of the last line is not
shown, and tracebacks go to stderr. Input that the code asks for is read from stdin. ctrl-c interrupts
the code; a second one forces it, a third one kills the interpreter. The exit code is the interpreter's
own; 124 after --timeout, 125 when host-bridge failed, 127 when there is no interpreter, 128+n when
signal n ended it, and 130 when it was interrupted."
)]
pub struct Repl {
    #[command(flatten)]
    interpreter: InterpreterArguments,

    /// Set the context, which is shared by all who name it (default: the language's name)
    #[arg(long, value_name = "NAME")]
    context: Option<ContextName>,

    /// Run this code
    #[arg(short, value_name = "CODE", allow_hyphen_values = true)]
    code: Option<OsString>,

    /// Interrupt the code after this time, as in 90s or 5m; exit with 124 (default: no limit)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,

    /// Save images and tables that the code displays to this directory, and print their paths
    #[arg(long, value_name = "DIR")]
    save_displays: Option<PathBuf>,

    /// Print every event as a line of JSON
    #[arg(long, conflicts_with = "save_displays")]
    json: bool,

    /// The sandbox (NAME or NAMESPACE/NAME), the file, or both
    #[arg(value_name = "SANDBOX] [FILE", num_args = 0..=2)]
    words: Vec<OsString>,

    #[command(flatten)]
    sandbox: OwnedSandboxOptions,
}

/// Where a virtual environment has its interpreter.
const VENV_PYTHON: &str = "/bin/python";

/// The options of an interpreter.
#[derive(Debug, Args)]
pub struct InterpreterArguments {
    #[arg(long, value_name = "LANGUAGE", help = language::help())]
    pub lang: Option<Language>,

    /// Set the interpreter: a path or name in the sandbox (default: the first one found)
    #[arg(long, value_name = "PATH")]
    program: Option<OsString>,

    /// Use the Python of a virtual environment: its directory in the sandbox
    #[arg(long, value_name = "DIR", conflicts_with = "program")]
    venv: Option<OsString>,

    /// Set an environment variable; NAME alone passes the current value; repeatable
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Set the working directory of the interpreter
    #[arg(short = 'w', long, visible_alias = "workdir", value_name = "DIR")]
    cwd: Option<OsString>,

    /// Set the user: NAME, NAME:GROUP, UID or UID:GID (default: the sandbox's user)
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
}

impl InterpreterArguments {
    /// The request to open the context.
    pub fn open(&self, context: ContextName, language: &Language) -> Result<OpenContext> {
        let mut env = Vec::new();
        for variable in &self.env {
            let variable = resolve_variable(variable, |name| std::env::var(name).ok())?;
            env.extend(variable.map(|(name, value)| (name.into(), value.into())));
        }
        Ok(OpenContext {
            context,
            language: language.as_str().to_owned(),
            program: self.program.clone().or_else(|| self.venv_program()).map(text),
            cwd: self.cwd.clone().map(text),
            env,
            user: self.user.clone(),
            limits: GroupLimits::default(),
        })
    }

    fn venv_program(&self) -> Option<OsString> {
        let mut program = self.venv.clone()?;
        program.push(VENV_PYTHON);
        Some(program)
    }
}

/// Converts an argument to the protocol's text, which is bytes.
pub fn text(argument: OsString) -> Text {
    use std::os::unix::ffi::OsStringExt;
    argument.into_vec().into()
}

impl Repl {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let Selection { place, source } = words::read(&self.words, self.code.as_deref())?;
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
        // Errors in the arguments are reported before anything is started.
        let code = match &source {
            Source::Person => None,
            source => Some(source.read().await?),
        };
        let act = Invocation { repl: self, context, language, open, source, code };
        match place {
            Some(which) => act.in_sandbox(which).await,
            None => Box::pin(act.in_new_sandbox()).await,
        }
    }
}

/// The parsed command line.
struct Invocation<'a> {
    repl: &'a Repl,
    context: &'a Context,
    language: Language,
    open: OpenContext,
    source: Source,
    /// Absent if a person types it line by line.
    code: Option<Vec<u8>>,
}

impl Invocation<'_> {
    async fn in_sandbox(self, which: SandboxRef) -> Result<Exit> {
        let flags = self.repl.sandbox.given()?;
        if !flags.is_empty() {
            return Err(CliError::SandboxExists { which, flags }.into());
        }
        let guest =
            self.context.guest(&which, "repl").await.map_err(|error| match words::file_instead(
                &self.repl.words,
            ) {
                Some(file) => error.context(format!("write {file} for the file")),
                None => error,
            })?;
        let exit = if let Some(code) = &self.code {
            self.perform(&guest, code, SandboxLifetime::Persistent).await
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

    async fn in_new_sandbox(self) -> Result<Exit> {
        let options = &self.repl.sandbox;
        let mut spec = options.spec()?;
        let audit = self.context.audit()?;
        let refused = RefusedHosts::default();
        options.install_packages(self.context, &mut spec).await?;
        let one_shot = one_shot::begin(self.context, &mut spec, &audit, &refused).await?;
        let guest = one_shot.guest();
        let exit = match &self.code {
            Some(code) => self.perform(guest, code, SandboxLifetime::Temporary).await,
            None => self.converse(guest, "a new sandbox".to_owned(), None).await,
        };
        let exit = match exit {
            Err(error) => Err(explain_gone(&one_shot, error).await),
            ended => ended,
        };
        let ended = one_shot::end(one_shot, &refused).await;
        audit.close().await;
        let exit = exit?;
        ended?;
        Ok(exit)
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

    async fn perform(&self, guest: &Guest, code: &[u8], lifetime: SandboxLifetime) -> Result<Exit> {
        let ask = RunCode {
            name: Some(self.source.name(&self.language)),
            deadline: self.repl.timeout,
            // If stdin was the code, there is none left.
            input: !matches!(self.source, Source::Stdin),
            ..RunCode::new(self.open.clone(), code.to_vec())
        };
        let telling = if self.repl.json {
            printer::OutputFormat::Json
        } else {
            printer::OutputFormat::Plain { save_displays: self.repl.save_displays.clone() }
        };
        pump::perform(guest, ask, lifetime, telling).await
    }
}

//! Asks an interpreter in a sandbox about its modules, before an app is started with it.

use protocol::exit::SpawnFailure;
use protocol::{SessionId, Text, requests};

use super::limits::{INTERPRETER_SAID_BYTES_MAX, INTERPRETER_TIME_MAX};
use agent_client::guest::{Guest, GuestError};
use agent_client::program::{Outputs, Program, Unlimited};

/// Prints which of its arguments are no modules. It finds them as the app would, without executing any of
/// them.
const ASK: &str = "\
import importlib.util, sys
for name in sys.argv[1:]:
    if importlib.util.find_spec(name) is None:
        print(name)
";

/// What an interpreter lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingParts {
    Nothing,
    Modules(Vec<String>),
    /// The interpreter itself is missing.
    Itself,
    /// It does not run as one should; this is its last word.
    Sense(String),
}

/// Asks an interpreter, in the directory and the environment that the app will have.
pub async fn ask(
    guest: &Guest,
    session: SessionId,
    python: &str,
    modules: &[&str],
    cwd: Option<Text>,
    env: Vec<(Text, Text)>,
) -> Result<MissingParts, GuestError> {
    let argv = [python, "-c", ASK].into_iter().chain(modules.iter().copied());
    let mut program = Program::new(session, requests::Program::argv(argv));
    program.start.cwd = cwd;
    program.start.env = env;
    program.start.deadline_ms = Some(INTERPRETER_TIME_MAX.as_millis() as u64);
    let mut outputs = Outputs::new(INTERPRETER_SAID_BYTES_MAX, Unlimited);
    let ended = match program.begin(guest)?.collect(b"", &mut outputs).await {
        Ok(ended) => ended,
        Err(GuestError::Fault(fault))
            if fault.spawn.as_ref().is_some_and(SpawnFailure::is_not_found) =>
        {
            return Ok(MissingParts::Itself);
        }
        Err(error) => return Err(error),
    };
    if !ended.is_success() {
        let message = String::from_utf8_lossy(outputs.stderr.bytes());
        let last = message.lines().rev().find(|line| !line.trim().is_empty());
        return Ok(MissingParts::Sense(last.unwrap_or("it printed nothing").to_owned()));
    }
    let message = String::from_utf8_lossy(outputs.stdout.bytes());
    // Only what was asked about: the interpreter's own start may print more.
    let missing: Vec<String> =
        message.lines().filter(|line| modules.contains(line)).map(str::to_owned).collect();
    Ok(if missing.is_empty() { MissingParts::Nothing } else { MissingParts::Modules(missing) })
}

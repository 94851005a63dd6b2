//! Whether a caller's request fits the protocol.
//!
//! A request beyond a limit would cost us the link, and with it everybody else's work; so it is
//! refused here, before it is sent.

use protocol::Text;
use protocol::limits::{ARGUMENTS_BYTES_MAX, ARGUMENTS_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX};
use protocol::repl::OpenContext;
use protocol::requests::{Program, Start};

use super::GuestError;

pub fn check(what: &'static str, length: usize, limit: usize) -> Result<(), GuestError> {
    if length > limit {
        return Err(GuestError::TooLong { what, length, limit });
    }
    Ok(())
}

pub fn check_path(path: &Text) -> Result<(), GuestError> {
    check("the bytes of the path", path.as_bytes().len(), PATH_BYTES_MAX)
}

pub fn check_name(name: &str) -> Result<(), GuestError> {
    check("the bytes of the name", name.len(), NAME_BYTES_MAX)
}

pub fn check_start(start: &Start) -> Result<(), GuestError> {
    let (count, bytes) = match &start.program {
        Program::Argv { argv } => (argv.len(), argv.iter().map(|text| text.as_bytes().len()).sum()),
        Program::Script { script, shell } => {
            let shell = shell.as_ref().map_or(0, |shell| shell.as_bytes().len());
            (1, script.as_bytes().len() + shell)
        }
        Program::LoginShell {} => (0, 0),
    };
    let environment = variables_bytes(&start.env);
    let user = start.user.as_ref().map_or(0, String::len);
    check("the number of arguments", count, ARGUMENTS_MAX)?;
    check("the number of variables", start.env.len(), ARGUMENTS_MAX)?;
    check(
        "the bytes of arguments and environment",
        bytes + environment + user,
        ARGUMENTS_BYTES_MAX,
    )?;
    check("the number of holders", start.holders.len(), NAME_BYTES_MAX)?;
    start.holders.iter().try_for_each(|holder| check_name(holder))?;
    start.cwd.as_ref().map_or(Ok(()), check_path)
}

/// How many bytes of its request a context's description takes, roughly.
pub fn check_context(open: &OpenContext) -> Result<usize, GuestError> {
    check_name(&open.language)?;
    open.program.as_ref().map_or(Ok(()), check_path)?;
    open.cwd.as_ref().map_or(Ok(()), check_path)?;
    check("the number of variables", open.env.len(), ARGUMENTS_MAX)?;
    let bytes = variables_bytes(&open.env) + open.user.as_ref().map_or(0, String::len);
    check("the bytes of the environment", bytes, ARGUMENTS_BYTES_MAX)?;
    Ok(bytes + open.env.len() * VARIABLE_FRAME_BYTES)
}

/// The overhead of encoding one variable: the heads of a pair and two texts.
const VARIABLE_FRAME_BYTES: usize = 11;

pub fn variables_bytes(variables: &[(Text, Text)]) -> usize {
    variables.iter().map(|(name, value)| name.as_bytes().len() + value.as_bytes().len()).sum()
}

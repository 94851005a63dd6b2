//! Whether what a caller asks for fits the protocol.
//!
//! A request beyond a limit would cost us the link, and with it everybody else's work; so it is
//! refused here, before it is sent.

use protocol::Text;
use protocol::limits::{ARGUMENTS_BYTES_MAX, ARGUMENTS_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX};
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
    let environment: usize =
        start.env.iter().map(|(name, value)| name.as_bytes().len() + value.as_bytes().len()).sum();
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

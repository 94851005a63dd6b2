//! What the agent is to be: from its arguments and from the host's boot frame to a [`Config`].
//! Pure.

use std::ffi::OsString;
use std::path::PathBuf;

use protocol::hello::BootStep;

/// The help text, and the whole list of what can be asked of the program itself.
pub const HELP: &str = "\
The agent inside a Burrow sandbox. Usually started by host-bridge, not by hand.

Usage:
  guest-agent launch                Become a sandbox: descriptor 0 is a socket to the host, which
                                    sends the configuration; 1 is a listening socket or /dev/null.
  guest-agent serve --listen PATH   Serve on a Unix socket as an ordinary process, for a container
                                    or for debugging; try `host-bridge attach --uds PATH`.
  guest-agent --help | --version
";

/// What the arguments ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation {
    Launch,
    Serve { listen: PathBuf },
    Help,
    Version,
}

/// Arguments that ask for nothing that we know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    #[error("what shall it do? Say `launch` or `serve --listen PATH`; `--help` explains")]
    Nothing,
    #[error("{0:?} is not known; `--help` lists what is")]
    Unknown(OsString),
    #[error("`serve` wants `--listen PATH`: the Unix socket to listen on")]
    NoSocket,
}

/// Reads the arguments after the program's name.
pub fn parse_arguments(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Invocation, UsageError> {
    let mut arguments = arguments.into_iter();
    let verb = arguments.next().ok_or(UsageError::Nothing)?;
    let invocation = match verb.to_str() {
        Some("launch") => Invocation::Launch,
        Some("serve") => {
            let flag = arguments.next().ok_or(UsageError::NoSocket)?;
            if flag != "--listen" {
                return Err(UsageError::Unknown(flag));
            }
            let listen = arguments.next().ok_or(UsageError::NoSocket)?.into();
            Invocation::Serve { listen }
        }
        Some("--help" | "-h" | "help") => Invocation::Help,
        Some("--version" | "-V") => Invocation::Version,
        _ => return Err(UsageError::Unknown(verb)),
    };
    match arguments.next() {
        Some(extra) => Err(UsageError::Unknown(extra)),
        None => Ok(invocation),
    }
}

/// The settings of a running agent.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether the agent is the init of its machine or namespace.
    pub init: bool,
    /// The environment of every program, under what a start adds.
    pub env: Vec<(String, String)>,
    /// Whether what is written at `/` is kept in memory.
    pub scratch_in_memory: bool,
    /// What was done to get here.
    pub boot: Vec<BootStep>,
    /// When `main` began, by the monotonic clock.
    pub began_us: u64,
    /// Whether the agent ends when its last link does: nobody could reach it again.
    pub ends_with_link: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Invocation, UsageError> {
        parse_arguments(words.iter().map(OsString::from))
    }

    #[test]
    fn every_invocation_is_understood() {
        assert_eq!(parse(&["launch"]), Ok(Invocation::Launch));
        let listen = "/run/a.sock".into();
        assert_eq!(parse(&["serve", "--listen", "/run/a.sock"]), Ok(Invocation::Serve { listen }));
        assert_eq!(parse(&["--help"]), Ok(Invocation::Help));
        assert_eq!(parse(&["--version"]), Ok(Invocation::Version));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(parse(&[]), Err(UsageError::Nothing));
        assert_eq!(parse(&["lunch"]), Err(UsageError::Unknown("lunch".into())));
        assert_eq!(parse(&["serve"]), Err(UsageError::NoSocket));
        assert_eq!(parse(&["serve", "--listen"]), Err(UsageError::NoSocket));
        assert_eq!(parse(&["launch", "now"]), Err(UsageError::Unknown("now".into())));
    }
}

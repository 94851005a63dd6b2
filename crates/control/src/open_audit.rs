//! Opens the audit log for commands that work without the daemon: `run`, an MCP session, key
//! management. It is the log of the state directory, and a running daemon may write to it at the
//! same time.

use super::audit::{options, user};
use access::audit::{Audit, AuditError, Door, Entry};
use host::paths::Paths;
use settings::{Overrides, Settings, SettingsError};

/// Why the audit log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenAuditError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("cannot write the audit log, and audit.on_failure is \"refuse\": {0}")]
    Audit(AuditError),
}

/// Opens the log as the options say. Where it cannot be opened and need not be, `trouble` gets the reason, and there is
/// none.
pub fn open_audit(paths: &Paths, trouble: fn(String)) -> Result<Audit, OpenAuditError> {
    let settings = Settings::load(None, &Overrides::default())?.audit;
    if !settings.enabled {
        return Ok(Audit::default());
    }
    match Audit::visit(paths.audit(), options(&settings), Box::new(trouble)) {
        Err(error) if settings.refuse_on_failure => Err(OpenAuditError::Audit(error)),
        Err(error) => {
            trouble(error.to_string());
            Ok(Audit::default())
        }
        opened => opened.map_err(OpenAuditError::Audit),
    }
}

/// An entry for a command of this process's user.
pub fn entry(operation: &str) -> Entry {
    Entry::new(user(nix::unistd::geteuid().as_raw()), Door::Cli, operation)
}

//! The specification of an app.

use std::collections::BTreeMap;
use std::time::Duration;

use super::limits::{
    CODE_BYTES_MAX, READY_PATH_BYTES_MAX, READY_TIMEOUT_DEFAULT, READY_TIMEOUT_MAX,
};
use super::{AppError, AppName, Kind};
use sandbox::SandboxRef;

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A file of Python. What serves it is its kind's.
    Code {
        kind: Kind,
        code: String,
    },
    /// A command line for `/bin/sh`.
    Line(String),
    Argv(Vec<String>),
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct AppSpec {
    pub which: SandboxRef,
    /// One is found when it is absent.
    pub name: Option<AppName>,
    pub program: Program,
    /// In the sandbox; a free one when it is absent.
    pub port: Option<u16>,
    /// The port on this host; 0 takes any free port.
    pub host_port: u16,
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
    pub ready_path: String,
    pub ready_timeout: Duration,
    /// The interpreter of code.
    pub python: String,
}

impl AppSpec {
    pub fn new(which: SandboxRef, program: Program) -> Self {
        Self {
            which,
            name: None,
            program,
            port: None,
            host_port: 0,
            env: BTreeMap::new(),
            workdir: None,
            ready_path: "/".to_owned(),
            ready_timeout: READY_TIMEOUT_DEFAULT,
            python: "python3".to_owned(),
        }
    }

    pub fn kind(&self) -> Kind {
        match self.program {
            Program::Code { kind, .. } => kind,
            Program::Line(_) | Program::Argv(_) => Kind::Command,
        }
    }

    /// Refuses what cannot be started anywhere.
    pub fn check(&self) -> Result<(), AppError> {
        if let Program::Code { code, .. } = &self.program
            && code.len() > CODE_BYTES_MAX
        {
            return Err(AppError::CodeTooLong { bytes: code.len(), limit: CODE_BYTES_MAX });
        }
        let path = &self.ready_path;
        // It becomes a part of a line of HTTP.
        let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic());
        if !path.starts_with('/') || !is_plain || path.len() > READY_PATH_BYTES_MAX {
            return Err(AppError::ReadyPath { limit: READY_PATH_BYTES_MAX });
        }
        let timeout = self.ready_timeout;
        if timeout.is_zero() || timeout > READY_TIMEOUT_MAX {
            return Err(AppError::ReadyTimeout { requested: timeout, limit: READY_TIMEOUT_MAX });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(path: &str, timeout: Duration) -> AppSpec {
        let which = "box".parse().unwrap();
        let mut spec = AppSpec::new(which, Program::Line("true".to_owned()));
        (spec.ready_path, spec.ready_timeout) = (path.to_owned(), timeout);
        spec
    }

    #[test]
    fn the_ready_path_is_one_line_of_http() {
        let minute = Duration::from_secs(60);
        assert!(spec("/health?full=1", minute).check().is_ok());
        for wrong in ["", "health", "/a b", "/a\r\nX: y", "/é", &"/".repeat(2000)] {
            let refused = spec(wrong, minute).check();
            assert!(matches!(refused, Err(AppError::ReadyPath { .. })), "{wrong:?}");
        }
        for wrong in [Duration::ZERO, READY_TIMEOUT_MAX + Duration::from_millis(1)] {
            let refused = spec("/", wrong).check();
            assert!(matches!(refused, Err(AppError::ReadyTimeout { .. })), "{wrong:?}");
        }
    }
}

//! The end of a program.

use protocol::exit::{Cause, ExitRecord};

/// How a program ended, and how much it has written. The usage is in the record.
#[derive(Clone, Debug)]
pub struct Ended {
    pub record: ExitRecord,
    /// Bytes of stdout, or of the terminal, that came here.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Bytes of both that were lost before they came here, to a `drop_oldest` policy.
    pub missing_bytes: u64,
}

impl Ended {
    /// What a shell would report: 124 for a program that overran its deadline, 128+n for signal n.
    pub fn shell_code(&self) -> i32 {
        self.record.cause.shell_code()
    }

    /// Whether the program has exited with 0.
    pub fn is_success(&self) -> bool {
        self.record.cause == Cause::Exited { code: 0 }
    }
}

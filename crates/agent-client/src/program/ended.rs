//! The end of a program.

use protocol::exit::{Cause, ExitRecord};

/// The end of a sentence about a program that ran out of memory.
pub fn ran_out_of_memory(limit_bytes: Option<u64>) -> String {
    const MIB: u64 = 1 << 20;
    match limit_bytes {
        Some(bytes) if bytes % MIB == 0 => {
            format!("ran out of memory, with a limit of {} MiB", bytes / MIB)
        }
        Some(bytes) => format!("ran out of memory, with a limit of {bytes} bytes"),
        None => "ran out of memory, which the sandbox had no more of".to_owned(),
    }
}

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
    /// The exit code that a shell would report: 124 after a timeout, 128+n for signal n.
    pub fn shell_code(&self) -> i32 {
        self.record.cause.shell_code()
    }

    /// Whether the program has exited with 0.
    pub fn is_success(&self) -> bool {
        self.record.cause == Cause::Exited { code: 0 }
    }
}

//! Fetching by the machine's own `curl` or `wget`, so that its proxies and certificates count.
//!
//! Whatever comes is not believed: callers hold it against a digest before they use it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How many packages are fetched at once; more gains nothing and annoys a mirror.
const AT_ONCE: usize = 8;

/// How often a fetch is tried again after a passing failure.
const RETRIES: u32 = 3;

/// Why something did not come.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("neither curl nor wget is on PATH; install one of them")]
    NoProgram,
    #[error("{program} cannot be run: {source}")]
    Run { program: &'static str, source: io::Error },
    #[error("{program} could not fetch {address}: {message}")]
    Failed { program: &'static str, address: String, message: String },
}

/// The program that fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetcher {
    Curl,
    Wget,
}

impl Fetcher {
    /// The one that is there.
    pub fn find() -> Result<Self, FetchError> {
        let there = |fetcher: &Self| on_path(fetcher.name()).is_some();
        [Self::Curl, Self::Wget].into_iter().find(there).ok_or(FetchError::NoProgram)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Wget => "wget",
        }
    }

    /// Fetches one file.
    pub fn fetch(self, address: &str, to: &Path) -> Result<(), FetchError> {
        self.fetch_all(&[(address.to_owned(), to.to_owned())])
            .map_err(|message| FetchError::Failed {
                program: self.name(),
                address: address.to_owned(),
                message,
            })
            .and_then(|()| {
                if to.exists() {
                    return Ok(());
                }
                Err(FetchError::Failed {
                    program: self.name(),
                    address: address.to_owned(),
                    message: "it is not there".to_owned(),
                })
            })
    }

    /// Fetches many files, as far as they are there; what is missing after it did not come. The
    /// error is what the program said.
    pub fn fetch_all(self, wanted: &[(String, PathBuf)]) -> Result<(), String> {
        match self {
            Self::Curl => curl(wanted),
            Self::Wget => wanted.iter().try_for_each(|(address, to)| wget(address, to)),
        }
    }
}

fn curl(wanted: &[(String, PathBuf)]) -> Result<(), String> {
    let config: String = wanted.iter().fold(String::new(), |config, (address, to)| {
        config + &format!("url = {}\noutput = {}\n", quoted(address), quoted(&to.to_string_lossy()))
    });
    let mut command = Command::new("curl");
    command.args(["--fail", "--silent", "--show-error", "--location", "--globoff"]);
    command.args(["--retry", &RETRIES.to_string(), "--connect-timeout", "20"]);
    // A transfer that all but stands still for a minute is dead.
    command.args(["--speed-limit", "1000", "--speed-time", "60"]);
    if wanted.len() > 1 {
        command.args(["--parallel", "--parallel-max", &AT_ONCE.to_string()]);
    }
    command.args(["--config", "-"]);
    run(command, config.as_bytes())
}

fn wget(address: &str, to: &Path) -> Result<(), String> {
    let mut command = Command::new("wget");
    command.args(["--quiet", "--tries", &RETRIES.to_string(), "--timeout", "60"]);
    command.arg("--output-document").arg(to).arg(address);
    let result = run(command, b"");
    // Unlike curl it leaves an empty file when there is none.
    if result.is_err() {
        let _ = std::fs::remove_file(to);
    }
    result
}

fn run(mut command: Command, input: &[u8]) -> Result<(), String> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input).map_err(|error| error.to_string())?;
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} ({})", said.trim(), output.status))
}

/// A value as curl's configuration has it.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Where a program is.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

/// Whether `gpgv` finds a signature of one of these keys on a file; nothing when it cannot be asked.
pub fn signature_is_good(keyring: &Path, signed: &Path) -> Option<bool> {
    let program = on_path("gpgv").filter(|_| File::open(keyring).is_ok())?;
    let mut command = Command::new(program);
    command.arg("--keyring").arg(keyring).arg(signed);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().ok().map(|status| status.success())
}

//! Fetching by the machine's own `curl` or `wget`, so that its proxies and certificates count.
//!
//! Downloads are untrusted: callers give a size limit, and check a digest or a signature before they use
//! the file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// How many packages are fetched at once; more gains nothing and burdens a mirror.
const AT_ONCE: usize = 8;

/// How often a fetch is retried after a temporary failure.
const RETRIES: u32 = 3;

/// How much of a program's messages is kept.
const MESSAGE_BYTES_MAX: u64 = 64 * 1024;

/// Why something did not come.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("neither curl nor wget is on PATH; install one of them")]
    NoProgram,
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
    pub fn fetch(self, wanted: Download) -> Result<(), FetchError> {
        let to = wanted.to.clone();
        let (address, bytes_max) = (wanted.address.clone(), wanted.bytes_max);
        let failed = |message| FetchError::Failed { program: self.name(), address, message };
        if let Err(message) = self.fetch_all(&[wanted]) {
            return Err(failed(message));
        }
        // curl holds to a bound only where the size was announced, before its version 8.4.
        match std::fs::metadata(&to).map(|there| there.len()) {
            Ok(bytes) if bytes <= bytes_max => Ok(()),
            Ok(bytes) => Err(failed(format!("it has {bytes} bytes, more than {bytes_max}"))),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Fetches missing files; files that are missing or short afterwards were not fetched. The error is the
    /// program's message.
    pub fn fetch_all(self, wanted: &[Download]) -> Result<(), String> {
        match self {
            Self::Curl => curl(wanted),
            Self::Wget => wanted.iter().try_for_each(wget),
        }
    }
}

/// A file to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    pub address: String,
    pub to: PathBuf,
    pub bytes_max: u64,
}

fn curl(wanted: &[Download]) -> Result<(), String> {
    // Each file has its own limit, so each is an operation, for which all options are repeated.
    let operations: Vec<String> = wanted
        .iter()
        .map(|Download { address, to, bytes_max }| {
            // A transfer that almost stalls for a minute is dead.
            format!(
                "url = {}\noutput = {}\nmax-filesize = {bytes_max}\nfail\nsilent\nshow-error\n\
                 location\ngloboff\nretry = {RETRIES}\nconnect-timeout = 20\n\
                 speed-limit = 1000\nspeed-time = 60\n",
                quoted(address),
                quoted(&to.to_string_lossy())
            )
        })
        .collect();
    let mut command = Command::new("curl");
    if wanted.len() > 1 {
        command.args(["--parallel", "--parallel-max", &AT_ONCE.to_string()]);
    }
    command.args(["--config", "-"]);
    run(command, operations.join("next\n").as_bytes(), &mut io::sink(), 0)
}

fn wget(wanted: &Download) -> Result<(), String> {
    let mut command = Command::new("wget");
    command.args(["--quiet", "--tries", &RETRIES.to_string(), "--timeout", "60"]);
    // It has no limit per file, so its output is counted here.
    command.args(["--output-document", "-"]).arg(&wanted.address);
    let mut file = File::create(&wanted.to).map_err(|error| error.to_string())?;
    let result = run(command, b"", &mut file, wanted.bytes_max);
    if result.is_err() {
        // Unlike curl's, the file is there even if nothing came.
        let _ = std::fs::remove_file(&wanted.to);
    }
    result
}

/// Runs a program and passes on its output, up to a limit; the error is its message.
pub(crate) fn run(
    mut command: Command,
    input: &[u8],
    out: &mut dyn Write,
    bytes_max: u64,
) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(text)?;
    let stdout = child.stdout.take().expect("piped above");
    let stderr = child.stderr.take().expect("piped above");
    let mut stdin = child.stdin.take().expect("piped above");
    let (given, status, errors) = std::thread::scope(|scope| {
        // Read concurrently, so that a program with many messages does not block forever.
        let errors = scope.spawn(move || {
            let mut errors = Vec::new();
            // An unreadable message is ignored.
            let _ = stderr.take(MESSAGE_BYTES_MAX).read_to_end(&mut errors);
            errors
        });
        let given = stdin.write_all(input).and_then(|()| {
            drop(stdin);
            io::copy(&mut stdout.take(bytes_max.saturating_add(1)), out)
        });
        if !matches!(given, Ok(bytes) if bytes <= bytes_max) {
            // It may have ended already.
            let _ = child.kill();
        }
        (given, child.wait(), errors.join().expect("reading does not panic"))
    });
    let errors = String::from_utf8_lossy(&errors);
    match (given, status) {
        (Ok(bytes), _) if bytes > bytes_max => Err(format!("more than {bytes_max} bytes")),
        (Ok(_), Ok(status)) if status.success() => Ok(()),
        (_, Ok(status)) if !status.success() => Err(format!("{} ({status})", errors.trim())),
        (Err(error), _) | (_, Err(error)) => Err(text(error)),
        (Ok(_), Ok(_)) => unreachable!("both are taken above"),
    }
}

/// A value in the syntax of curl's configuration.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The path of a program.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server that announces and gives as many bytes as a path says: `/announced/given`.
    fn server() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let mut request = [0; 4096];
                let bytes = stream.read(&mut request).unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..bytes]).into_owned();
                let mut words = request.split(['/', ' ']).filter_map(|word| word.parse().ok());
                let (announced, given) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
                let body = "x".repeat(given);
                let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {announced}\r\n\r\n");
                // A client that disconnects is no failure of the server.
                let _ = stream.write_all((head + &body).as_bytes());
            }
        });
        format!("http://{address}")
    }

    fn fetched(fetcher: Fetcher, path: &str, bytes_max: u64) -> (Result<(), FetchError>, u64) {
        let directory = tempfile::tempdir().expect("a directory");
        let (address, to) = (server() + path, directory.path().join("file"));
        let result = fetcher.fetch(Download { address, to: to.clone(), bytes_max });
        (result, std::fs::metadata(&to).map_or(0, |there| there.len()))
    }

    #[test]
    fn oversized_and_truncated_files_are_not_fetched() {
        for fetcher in [Fetcher::Curl, Fetcher::Wget] {
            if on_path(fetcher.name()).is_none() {
                crate::skipped(&format!("there is no {} here", fetcher.name()));
                continue;
            }
            assert!(matches!(fetched(fetcher, "/50/50", 50), (Ok(()), 50)), "{fetcher:?}");
            let (result, bytes) = fetched(fetcher, "/50/50", 49);
            let error = result.expect_err("too large").to_string();
            let bound = ["Maximum file size", "more than 49 bytes"];
            assert!(bound.iter().any(|bound| error.contains(bound)), "{fetcher:?}: {error}");
            assert_eq!(bytes, 0, "{fetcher:?}");
            let error = fetched(fetcher, "/80/50", 80).0.expect_err("cut short").to_string();
            assert!(error.contains("exit status"), "{fetcher:?}: {error}");
        }
    }

    #[test]
    fn each_of_many_files_has_its_own_bound() {
        if on_path("curl").is_none() {
            return crate::skipped("there is no curl here");
        }
        let (directory, server) = (tempfile::tempdir().expect("a directory"), server());
        let wanted = [(10, 10), (20, 19), (30, 30)].map(|(bytes, bytes_max)| {
            let address = format!("{server}/{bytes}/{bytes}");
            Download { address, to: directory.path().join(bytes.to_string()), bytes_max }
        });
        let error = Fetcher::Curl.fetch_all(&wanted).expect_err("one is too large");
        assert!(error.contains("(63)"), "{error}");
        for (wanted, bytes) in wanted.iter().zip([10, 0, 30]) {
            let there = std::fs::metadata(&wanted.to).map_or(0, |there| there.len());
            assert_eq!(there, bytes, "{}", wanted.address);
        }
    }
}

//! The four sources of secret values. Each is read for each new sandbox, so a secret that was
//! changed on the host takes effect with the next sandbox.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::error::ProviderError;
use super::limits::{COMMAND_DEADLINE, FILE_DEADLINE, SECRET_BYTES_MAX};
use super::value::wipe;
use super::{Secret, Source};

/// The directory of a service's systemd credentials.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// Room for one value, a line break and one byte that is too many. It is never reallocated, which
/// would leave a copy behind.
const ROOM_BYTES: usize = SECRET_BYTES_MAX + 3;

/// Reads a value. `hidden` are variables that a program must not inherit.
pub async fn read(source: &Source, hidden: &[String]) -> Result<Secret, ProviderError> {
    match source {
        Source::Environment(variable) => {
            let value = std::env::var_os(variable);
            let value = value.ok_or_else(|| ProviderError::Unset { variable: variable.clone() })?;
            Secret::of(value.into_vec())
        }
        Source::File(path) => read_file(path.clone()).await,
        Source::Credential(name) => {
            let directory = credentials_directory().ok_or(ProviderError::NoCredentials)?;
            read_file(directory.join(name)).await
        }
        Source::Command(words) => run(words, hidden).await,
    }
}

/// Systemd's directory for the credentials of this service, if there is one.
pub fn credentials_directory() -> Option<PathBuf> {
    std::env::var_os(CREDENTIALS).filter(|path| !path.is_empty()).map(PathBuf::from)
}

async fn read_file(path: PathBuf) -> Result<Secret, ProviderError> {
    let named = path.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let unread = |source| ProviderError::Unread { path: path.clone(), source };
        let file = File::open(&path).map_err(unread)?;
        let mut bytes = Vec::with_capacity(ROOM_BYTES);
        match file.take(ROOM_BYTES as u64 - 1).read_to_end(&mut bytes) {
            Ok(_) => Secret::of(bytes),
            Err(source) => {
                wipe(&mut bytes);
                Err(unread(source))
            }
        }
    });
    match timeout(FILE_DEADLINE, reading).await {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => {
            Err(ProviderError::Unread { path: named, source: std::io::Error::other(error) })
        }
        Err(_) => Err(ProviderError::Slow { path: named, seconds: FILE_DEADLINE.as_secs() }),
    }
}

/// Runs a program of the host for its output. Its stderr is discarded: it may quote the secret. After a
/// timeout, its whole group is killed.
async fn run(words: &[String], hidden: &[String]) -> Result<Secret, ProviderError> {
    let Some((program, arguments)) = words.split_first() else { return Err(ProviderError::Empty) };
    let not_started = |source| ProviderError::NotStarted { program: program.clone(), source };
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.process_group(0).kill_on_drop(true);
    for variable in hidden {
        command.env_remove(variable);
    }
    let mut child = command.spawn().map_err(not_started)?;
    let mut group = Group(child.id());
    let mut bytes = Vec::with_capacity(ROOM_BYTES);
    let ended = timeout(COMMAND_DEADLINE, async {
        if let Some(stdout) = child.stdout.take() {
            // One that says more is refused below; it is not let to say it all.
            stdout.take(ROOM_BYTES as u64 - 1).read_to_end(&mut bytes).await?;
        }
        if bytes.len() > SECRET_BYTES_MAX + 1 {
            return Ok(None);
        }
        let status = child.wait().await?;
        // From here on its number may be another's.
        group.0 = None;
        Ok(Some(status))
    });
    let ended = ended.await;
    drop(group);
    let failed = match ended {
        Ok(Ok(Some(status))) if status.success() => return Secret::of(bytes),
        Ok(Ok(Some(status))) => ProviderError::Failed { program: program.clone(), status },
        Ok(Ok(None)) => ProviderError::TooLong,
        Ok(Err(source)) => not_started(source),
        Err(_) => {
            let seconds = COMMAND_DEADLINE.as_secs();
            ProviderError::Overran { program: program.clone(), seconds }
        }
    };
    wipe(&mut bytes);
    Err(failed)
}

/// The process group of a program that has not ended by itself: dropping this kills it, also when
/// nobody waits for the sandbox any more.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let leader = self.0.and_then(|id| i32::try_from(id).ok());
        if let Some(leader) = leader.map(nix::unistd::Pid::from_raw) {
            // It may have ended in this moment.
            let _ = nix::sys::signal::killpg(leader, nix::sys::signal::Signal::SIGKILL);
        }
    }
}

//! The daemon that starts by itself: a verb that needs the daemon and finds none starts
//! `serve --unattended` in the background and waits until it answers.
//!
//! ```text
//!  verb ── connect ──▶ answers: done
//!    │       nobody: take the lock of those who start ──▶ spawn, wait until it answers or ends
//!    │                 somebody has it: wait for theirs
//! ```
//!
//! `serve` takes the same lock, and ends an automatically started daemon before it serves: the sandboxes
//! continue, and belong to `serve` from then on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result};

use super::exit::Exit;
use super::failure::CliError;
use super::output;
use control::{Client, ClientError, Version};
use host::helper::Helper;
use host::lock::{LockError, Locks, Starting};
use host::paths::{PRIVATE_FILE, Paths, VARIABLES};

/// The exit code of a daemon that found another one serving.
pub const SERVED_ELSEWHERE: Exit = Exit(75);

/// How long a daemon may take to answer: it first takes over the sandboxes of an earlier one.
const START_MAX: Duration = Duration::from_secs(60);
/// How long an existing daemon may take to answer or to end.
const ELSEWHERE_MAX: Duration = Duration::from_secs(10);
/// The pause before another daemon is tried.
const ELSEWHERE_PAUSE: Duration = Duration::from_millis(100);
/// How long a daemon may take to end.
const END_MAX: Duration = Duration::from_secs(60);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);
/// How much of the end of the log is read to find the reason of a failure.
const REASON_BYTES_MAX: u64 = 4096;
/// What a daemon must not inherit: it has no service manager, and starts no other daemon.
const NOT_INHERITED: [&str; 4] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "BURROW_NO_DAEMON"];
/// Names a configuration file; the other paths are in [`VARIABLES`].
const CONFIG_VARIABLE: &str = "BURROW_CONFIG";

/// Connects to the daemon, and starts it first if none runs.
pub async fn reach(paths: &Paths) -> Result<Client> {
    if let Some((client, _)) = answering(paths).await? {
        return Ok(client);
    }
    paths.prepare()?;
    let mut deadline = Instant::now() + START_MAX;
    let mut own: Option<Spawned> = None;
    let mut refused = None;
    let mut begin_at = Instant::now();
    loop {
        if let Some((client, version)) = answering(paths).await? {
            if own.is_some() && output::stderr_is_screen() {
                output::note(&format!("started the daemon, process {}", version.pid));
            }
            return Ok(client);
        }
        match &mut own {
            Some(spawned) => {
                if let Some((code, reason)) = spawned.ended(paths)? {
                    let failed = CliError::DaemonFailed { reason, log: paths.daemon_log() };
                    if code != Some(i32::from(SERVED_ELSEWHERE.0)) {
                        return Err(failed.into());
                    }
                    // Another daemon was faster and will answer, or is ending and will be gone.
                    begin_at = Instant::now() + ELSEWHERE_PAUSE;
                    if refused.is_none() {
                        deadline = deadline.min(Instant::now() + ELSEWHERE_MAX);
                    }
                    (own, refused) = (None, Some(failed));
                }
            }
            None if Instant::now() >= begin_at => {
                let lock = Starting::try_take(paths).context("cannot lock the daemon's start")?;
                own = lock.map(|lock| Spawned::spawn(paths, lock)).transpose()?;
            }
            None => {}
        }
        if Instant::now() >= deadline {
            let silent = CliError::DaemonSilent { waited: START_MAX, log: paths.daemon_log() };
            return Err(refused.unwrap_or(silent).into());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Connects to a daemon that answers, if there is one. An ending one no longer serves its socket.
async fn answering(paths: &Paths) -> Result<Option<(Client, Version)>, ClientError> {
    let mut client = match Client::connect(paths).await {
        Ok(client) => client,
        Err(ClientError::NotRunning { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    match client.version().await {
        Ok(version) => Ok(Some((client, version))),
        Err(ClientError::Ended | ClientError::Io(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Prepares for `serve`: ends an automatically started daemon, and keeps verbs from starting another. `None`
/// if somebody else serves, which `serve` itself refuses.
pub async fn take_over(paths: &Paths) -> Result<Option<Starting>> {
    paths.prepare()?;
    let deadline = Instant::now() + START_MAX;
    while Instant::now() < deadline {
        // `serve` refuses or replaces a daemon that cannot be asked.
        match answering(paths).await.unwrap_or_default() {
            Some((mut client, version)) if version.unattended => {
                let note = "takes over from the daemon that started by itself";
                output::note(&format!("{note}, process {}", version.pid));
                client.end(false).await?;
                drop(client);
                wait_for_end(paths).await?;
            }
            Some(_) => return Ok(None),
            None => {
                if let Some(lock) = Starting::try_take(paths).context("cannot lock our start")? {
                    return Ok(Some(lock));
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Ok(None)
}

/// Waits until no daemon has the directories.
pub async fn wait_for_end(paths: &Paths) -> Result<()> {
    let deadline = Instant::now() + END_MAX;
    loop {
        match Locks::take(paths) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Whether the error is that another bridge serves.
pub fn is_served(error: &Error) -> bool {
    matches!(error.downcast_ref::<LockError>(), Some(LockError::Served { .. }))
}

/// A daemon that this process has started. Nobody else starts one while this lives.
struct Spawned {
    child: Child,
    /// The offset of its own lines in the log.
    log_offset: u64,
    _lock: Starting,
}

impl Spawned {
    fn spawn(paths: &Paths, lock: Starting) -> Result<Self> {
        let path = paths.daemon_log();
        let cannot = || format!("cannot write the daemon's log {}", path.display());
        let log = open_log(&path).with_context(cannot)?;
        let log_offset = log.metadata().with_context(cannot)?.len();
        let mut command = Command::new(Helper::ThisProgram.program());
        command.arg0("host-bridge").args(["serve", "--unattended"]);
        // It must keep no directory of its starter busy.
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(log.try_clone().with_context(cannot)?).stderr(log);
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        for name in VARIABLES.iter().map(|variable| variable.name).chain([CONFIG_VARIABLE]) {
            let value = std::env::var_os(name).filter(|value| !value.is_empty());
            if let Some(path) = value.and_then(|value| std::path::absolute(value).ok()) {
                command.env(name, path);
            }
        }
        let child = command.spawn().context("cannot start the daemon")?;
        Ok(Self { child, log_offset, _lock: lock })
    }

    /// The exit code and the reason, if it has ended.
    fn ended(&mut self, paths: &Paths) -> Result<Option<(Option<i32>, String)>> {
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        let log = paths.daemon_log();
        let reason = read_reason(&log, self.log_offset).ok().flatten();
        let reason = reason.or_else(|| full_disk(&log));
        Ok(Some((status.code(), reason.unwrap_or_else(|| status.to_string()))))
    }
}

/// Opens the daemon's log for more lines.
pub fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(PRIVATE_FILE).open(path)
}

/// Why there may be no line in the log.
fn full_disk(log: &Path) -> Option<String> {
    let directory = log.parent()?;
    let is_full = rustix::fs::statvfs(directory).ok()?.f_bavail == 0;
    is_full.then(|| {
        format!("no space is left on the disk of {}; free some, and try again", directory.display())
    })
}

/// The last line after an offset, without our name.
fn read_reason(log: &Path, offset: u64) -> io::Result<Option<String>> {
    let mut file = File::open(log)?;
    let end = file.metadata()?.len();
    file.seek(SeekFrom::Start(offset.max(end.saturating_sub(REASON_BYTES_MAX))))?;
    let mut bytes = Vec::new();
    file.take(REASON_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    Ok(last.map(|line| line.strip_prefix("host-bridge: ").unwrap_or(line).to_owned()))
}

/// Makes this process a daemon: it belongs to no terminal, and keeps nothing of its starter open. The
/// descriptors of a script's locks and pipes would be held as long as it lives.
///
/// Call it while the process has one thread and no files of its own.
pub fn detach() {
    // A process that is started by hand may lead a group already.
    let _ = nix::unistd::setsid();
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let open: Vec<i32> =
        names.filter_map(|name| name.to_str()?.parse().ok()).filter(|fd| *fd > 2).collect();
    for descriptor in open {
        // The one of the listing is closed already.
        let _ = nix::unistd::close(descriptor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_line_of_its_own() {
        let path = std::env::temp_dir().join(format!("burrow-reason-{}", std::process::id()));
        fs::write(&path, "host-bridge: old\n").unwrap();
        let offset = fs::metadata(&path).unwrap().len();
        assert_eq!(read_reason(&path, offset).unwrap(), None);
        fs::write(&path, "host-bridge: old\nhost-bridge: listening\nhost-bridge: no space\n\n")
            .unwrap();
        assert_eq!(read_reason(&path, offset).unwrap().as_deref(), Some("no space"));
        fs::remove_file(path).unwrap();
    }
}

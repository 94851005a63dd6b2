//! The floor for the benchmarks: a small static program that does the bare minimum of the agent's
//! work, over its stdin, a Unix socket.
//!
//! `r` runs `/bin/true` and answers when it has ended. `p` answers at once. `h` answers once a process of its own has
//! answered `p`. `c` runs a program that writes [`COPY_BYTES`] and copies its output from the pipe to the socket. `s`
//! answers, and from then on it is woken each [`REST`] in which there is no order, and reads [`READ`] every second time.
//! `S` is the same each second, and each time.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What `c` copies.
const COPY_BYTES: usize = 100 * 1024 * 1024;
/// An agent at rest is woken as often: each 12.3 seconds for a sample, each 15 for a heartbeat, and each minute for
/// the bridge's question for samples.
const REST: Duration = Duration::from_secs(6);
/// As many short files of the kernel as an agent's sample reads.
const READ: [&str; 9] =
    ["stat", "statm", "status", "io", "limits", "cgroup", "schedstat", "oom_score", "maps"];

fn main() -> std::io::Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut socket = UnixStream::from(socket);
    let mut buffer = vec![0; 64 * 1024];
    let mut order = [0];
    let files = READ.map(|name| File::open(format!("/proc/self/{name}")));
    let (mut wakes, mut wakes_per_look) = (0, 2);
    let mut behind = None;
    loop {
        match socket.read(&mut order) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wakes += 1;
                for file in files.iter().flatten().filter(|_| wakes % wakes_per_look == 0) {
                    file.read_at(&mut buffer[..2048], 0)?;
                }
                continue;
            }
            Err(error) => return Err(error),
        }
        match order[0] {
            b'r' => {
                let status = Command::new("/bin/true").stdin(Stdio::null()).status()?;
                socket.write_all(&[u8::from(status.success())])?;
            }
            b'c' => {
                let mut child = Command::new("/usr/bin/head")
                    .args(["-c", &COPY_BYTES.to_string(), "/dev/zero"])
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .spawn()?;
                let mut output = child.stdout.take().expect("piped");
                loop {
                    let count = output.read(&mut buffer)?;
                    if count == 0 {
                        break;
                    }
                    socket.write_all(&buffer[..count])?;
                }
                child.wait()?;
            }
            b'h' => {
                let behind = match &mut behind {
                    Some(behind) => behind,
                    none => none.insert(start_behind()?),
                };
                behind.write_all(b"p")?;
                behind.read_exact(&mut order)?;
                socket.write_all(&order)?;
            }
            b's' => {
                socket.set_read_timeout(Some(REST))?;
                socket.write_all(b"s")?;
            }
            b'S' => {
                wakes_per_look = 1;
                socket.set_read_timeout(Some(Duration::from_secs(1)))?;
                socket.write_all(b"S")?;
            }
            _ => socket.write_all(b"p")?,
        }
    }
}

/// This program once more. It ends with the socket to it.
fn start_behind() -> std::io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    Command::new(std::env::current_exe()?).stdin(OwnedFd::from(theirs)).spawn()?;
    Ok(ours)
}

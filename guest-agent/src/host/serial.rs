//! A host at a virtio-serial port: finding the port, and the boot frame over it.
//!
//! `boot::machine` calls it before there is an event loop; `doors::serial` then carries links over the
//! port. What the bytes mean is `protocol::serial`'s.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{read, write};
use protocol::boot::BootConfig;
use protocol::limits::HELLO_DEADLINE;
use protocol::serial::Intake;

use super::{BootFrameError, parse_boot_frame};

/// Where the kernel lists the names of the host's ports.
const PORTS: &str = "/sys/class/virtio-ports";

/// How long a port may take to appear after its driver was loaded, and how often to look.
const PORT_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// How much is read at once before there is an event loop.
const CHUNK_BYTES: usize = 4096;

/// A port, which nobody else has open, and what has arrived over it.
pub struct Port {
    /// Non-blocking.
    pub file: OwnedFd,
    pub intake: Intake,
    /// Frames of the current link that nobody has taken yet.
    pub received: Vec<u8>,
    /// Whether a link has begun.
    pub is_linked: bool,
}

impl Port {
    /// Waits for the port of this name and opens it.
    pub fn open(name: &str) -> io::Result<Self> {
        let path = within(PORT_MAX, || Ok(find(name)))?;
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = open(&path, flags, Mode::empty())?;
        let (intake, received) = (Intake::default(), Vec::new());
        Ok(Self { file, intake, received, is_linked: false })
    }

    /// Waits for a host, and for its first message.
    pub fn read_boot_frame(&mut self) -> Result<BootConfig, BootFrameError> {
        loop {
            if let Some((config, length)) = parse_boot_frame(&self.received)? {
                self.received.drain(..length);
                return Ok(config);
            }
            let mut buffer = [0; CHUNK_BYTES];
            let count = within(HELLO_DEADLINE, || match read(&self.file, &mut buffer) {
                // Nobody is there yet, or nothing has arrived.
                Ok(0) | Err(Errno::EAGAIN) => Ok(None),
                result => Ok(Some(result?)),
            })?;
            let mut bytes = &buffer[..count];
            while let (taken, Some(link)) = self.intake.take(bytes, &mut self.received) {
                bytes = &bytes[taken..];
                self.received.clear();
                self.is_linked = true;
                // The port accepts so little in one piece.
                write(&self.file, &link.answer()).map_err(io::Error::from)?;
            }
        }
    }
}

/// The device of the port of this name.
fn find(name: &str) -> Option<PathBuf> {
    let ports = fs::read_dir(PORTS).ok()?;
    let named = |entry: &fs::DirEntry| {
        fs::read_to_string(entry.path().join("name")).is_ok_and(|text| text.trim_end() == name)
    };
    let port = ports.flatten().find(named)?.file_name();
    Some(PathBuf::from("/dev").join(port)).filter(|device| device.exists())
}

/// Tries until there is something, or the time is over.
fn within<T>(time: Duration, mut attempt: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    let until = Instant::now() + time;
    loop {
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(PAUSE);
    }
}

//! Getting the machine's configuration from the host.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::{TimeVal, TimeValLike};

use super::super::{BootError, Outcome, Stage};
use crate::config::line::Line;
use crate::host::serial::Port;
use crate::host::{self, BootFrameError};
use crate::sys::vsock;

/// A driver is loaded some moments before its device is connected.
const DIALS_MAX: usize = 40;
const DIAL_PAUSE: Duration = Duration::from_millis(25);

/// Reads the configuration from a drive or from the host, if the command line names one.
pub(super) fn receive(stage: &mut Stage) -> Result<Outcome, BootError> {
    let line = stage.facts().line.clone();
    let failed = |error: BootFrameError| BootError::NoConfiguration { error };
    if let Some(name) = &line.serial {
        let port = Port::open(name).map_err(BootError::path("opening the serial port", name))?;
        stage.facts().serial = Some(port);
    }
    if let Some(path) = line.drive {
        let drive = super::disk::await_device(&path)
            .and_then(|()| File::open(&path))
            .map_err(BootError::path("opening", &path))?;
        stage.config = host::read_frame(drive.as_fd()).map_err(failed)?;
    } else if let Some(port) = stage.facts().serial.as_mut().filter(|_| line.ask) {
        stage.config = port.read_boot_frame().map_err(failed)?;
    } else if line.ask {
        let link = dial(&line).map_err(BootError::call("dialling the host"))?;
        let config = host::read_boot_frame(link.as_fd());
        // Kept in any case, to report to the host why the machine cannot start.
        stage.facts().link = Some(link);
        stage.config = config.map_err(failed)?;
    } else {
        return Ok(Outcome::Done);
    }
    Ok(Outcome::Done)
}

fn dial(line: &Line) -> io::Result<OwnedFd> {
    let mut tries = 1;
    loop {
        match vsock::dial(line.port) {
            Err(error) if tries < DIALS_MAX && is_passing(&error) => {
                tries += 1;
                std::thread::sleep(DIAL_PAUSE);
            }
            dialled => {
                let link = dialled?;
                // The deadline of the read is set by the caller.
                setsockopt(&link, ReceiveTimeout, &TimeVal::seconds(0))?;
                return Ok(link);
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENODEV | libc::ENETUNREACH | libc::ECONNRESET | libc::EADDRNOTAVAIL)
    )
}

//! Moving within a file system.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::fcntl::renameat;
use protocol::message::Reply;
use protocol::requests::Move;
use protocol::{Fault, FaultCode};

use super::path;
use super::refusal::{quoted, refused, unfit};
use crate::sys::rename::rename_new;
use crate::task::blocking;

/// Renames a file or directory. Without `replace`, an existing file at the new path stays and is a
/// fault.
pub async fn rename(ask: Move) -> Result<Reply, Fault> {
    blocking(move || {
        let from = path::absolute(ask.from)?;
        let to = path::absolute(ask.to)?;
        let (from_directory, name) = path::place("moved", &from)?;
        let (to_directory, new_name) = path::place("moved to", &to)?;
        let moved = if ask.replace {
            renameat(&from_directory, name, &to_directory, new_name)
        } else {
            rename_new(from_directory.as_fd(), name, to_directory.as_fd(), new_name)
        };
        match moved {
            Ok(()) => Ok(Reply::Done {}),
            Err(Errno::EEXIST) => Err(refused("move to", to.as_path(), Errno::EEXIST)),
            Err(Errno::EXDEV) => {
                let why = format!(
                    "cannot be moved to {}: it is on another file system, so it must be copied",
                    quoted(to.as_path()),
                );
                let fault = unfit(FaultCode::Io, from.as_path(), &why);
                Err(Fault { errno: Some(Errno::EXDEV as i32), ..fault })
            }
            Err(Errno::EINVAL) if !ask.replace && !to.starts_with(&from) => {
                let why = "is on a file system that can only move with `replace`";
                Err(unfit(FaultCode::Unsupported, from.as_path(), why))
            }
            Err(errno) => {
                let (from, to) = (quoted(from.as_path()), quoted(to.as_path()));
                let message = format!("cannot move {from} to {to}: {}", errno.desc());
                Err(Fault::io(message, errno as i32))
            }
        }
    })
    .await
}

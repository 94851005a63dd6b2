//! The owner and the permissions of a file, as requested or as found.

use std::os::fd::AsFd;

use nix::sys::stat::{FileStat, Mode, fchmod};
use nix::unistd::{Gid, Uid, fchown};
use protocol::{Fault, FaultCode};

use super::limits::PERMISSIONS_MAX;

/// The new attributes of a file; absent ones are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub permissions: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

impl Attributes {
    /// Takes absent values from `other`.
    pub fn or(self, other: Self) -> Self {
        Self {
            permissions: self.permissions.or(other.permissions),
            uid: self.uid.or(other.uid),
            gid: self.gid.or(other.gid),
        }
    }

    pub fn of(status: &FileStat) -> Self {
        Self {
            permissions: Some(status.st_mode & PERMISSIONS_MAX),
            uid: Some(status.st_uid),
            gid: Some(status.st_gid),
        }
    }

    /// Gives them to a file that is `status` now. The owner comes first, because a change of owner
    /// takes set-id bits away; and only if it differs, because only root may try.
    pub fn apply(self, file: impl AsFd, status: &FileStat) -> nix::Result<()> {
        let uid = self.uid.filter(|&uid| uid != status.st_uid).map(Uid::from_raw);
        let gid = self.gid.filter(|&gid| gid != status.st_gid).map(Gid::from_raw);
        if uid.is_some() || gid.is_some() {
            fchown(&file, uid, gid)?;
        }
        if let Some(permissions) = self.permissions {
            fchmod(&file, mode(permissions))?;
        }
        Ok(())
    }
}

/// Permission bits as system calls take them; all others are dropped.
pub fn mode(permissions: u32) -> Mode {
    Mode::from_bits_truncate(permissions & PERMISSIONS_MAX)
}

/// Refuses bits that are no permissions.
pub fn check_permissions(permissions: Option<u32>) -> Result<(), Fault> {
    match permissions {
        Some(bits) if bits > PERMISSIONS_MAX => {
            Err(Fault::new(FaultCode::Invalid, format!("{bits:#o} are no permission bits")))
        }
        _ => Ok(()),
    }
}

//! How a process machine that root starts is kept apart from the host, as far as the operator can choose.

use protocol::boot::{IDS_PER_SANDBOX, IdRanges};

use crate::limits::PROCESSES_MAX;

/// Whether the users of a sandbox are users of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Users {
    /// They are not where the kernel can map the owners of files; elsewhere a warning says so.
    #[default]
    Auto,
    /// They never are: a sandbox whose users cannot be mapped is refused.
    Required,
    /// They always are. Root of the sandbox is root of the host.
    Host,
}

/// See the module's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    pub users: Users,
    /// The first of the ids that are set aside for sandboxes, and how many ranges of
    /// [`IDS_PER_SANDBOX`] there are.
    pub ids_first: u32,
    pub id_ranges: u32,
    /// Processes and threads of one sandbox.
    pub processes_max: u64,
}

/// Ids that hosts do not give to users: above those that systemd reserves for containers, and below the
/// numbers that some programs read as negative.
pub const IDS_FIRST: u32 = 0x7000_0000;
pub const ID_RANGES: u32 = 4095;

impl Default for Confinement {
    fn default() -> Self {
        Self {
            users: Users::default(),
            ids_first: IDS_FIRST,
            id_ranges: ID_RANGES,
            processes_max: PROCESSES_MAX,
        }
    }
}

impl Confinement {
    pub(super) fn ids(self) -> Option<IdRanges> {
        let required = match self.users {
            Users::Auto => false,
            Users::Required => true,
            Users::Host => return None,
        };
        // No range goes beyond the last id.
        let count = self.id_ranges.min((u32::MAX - self.ids_first) / IDS_PER_SANDBOX);
        Some(IdRanges { first: self.ids_first, count, required })
    }
}

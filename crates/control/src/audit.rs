//! Converts the audit settings, and identifies the user at the other end of the control socket.

use access::audit::{OnFailure, Options, Who};
use nix::unistd::{Uid, User};

/// The options of the log, from the settings.
pub fn options(set: &settings::Audit) -> Options {
    Options {
        reads: set.reads,
        arguments: set.arguments,
        chain: set.chain,
        on_failure: if set.refuse_on_failure { OnFailure::Refuse } else { OnFailure::Continue },
        file_bytes_max: set.file_bytes_max,
        files_max: set.files_max,
        age_max: set.age_max,
    }
}

/// The user at the other end, who is us or root.
pub fn user(uid: u32) -> Who {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    Who::User { uid, name: user.map(|user| user.name) }
}

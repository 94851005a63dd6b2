//! How the audit log is kept, and who is at the other end of the control socket.

use access::audit::{OnFailure, Options, Who};
use nix::unistd::{Uid, User};

/// How the log is kept, as the operator has set it.
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

//! Converts the audit settings, records of sandboxes and decisions about egress, and identifies the user at the other end of the
//! control socket.

use access::audit::{Entry, OnFailure, Options, Outcome, Verdict, Who};
use egress::{EgressEvent, EventSubject};
use nix::unistd::{Uid, User};
use sandbox::Record;

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

/// The user at the other end: ours or root.
pub fn user(uid: u32) -> Who {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    Who::User { uid, name: user.map(|user| user.name) }
}

/// The entry with the sandbox that a record describes.
pub fn described(mut entry: Entry, record: Record) -> Entry {
    entry.describe(record);
    entry
}

/// An egress decision for a sandbox, or the end of an allowed connection.
pub fn of_egress(event: &EgressEvent) -> Entry {
    let operation = match (event.what, &event.verdict) {
        (EventSubject::Name, _) => "egress.name",
        (EventSubject::Connection, egress::Verdict::Ended { .. }) => "egress.ended",
        (EventSubject::Connection, egress::Verdict::Filled { .. }) => "egress.secret",
        (EventSubject::Connection, _) => "egress.connection",
    };
    let mut entry = Entry::of_bridge(operation).fact("host", event.host.as_str());
    entry.policy = Some(Verdict::Egress);
    if let Some(port) = event.port {
        entry = entry.fact("port", port);
    }
    if event.untold > 0 {
        entry = entry.fact("untold", event.untold);
    }
    match &event.verdict {
        egress::Verdict::Allowed { rule, address } => {
            let entry = entry.fact("rule", rule.as_str());
            match address {
                Some(address) => entry.fact("address", address.to_string()),
                None => entry,
            }
        }
        egress::Verdict::Refused { why } => {
            Entry { outcome: Outcome::Refused, ..entry.fact("why", why.as_str()) }
        }
        egress::Verdict::Filled { secrets } => Entry { secrets: secrets.clone(), ..entry },
        egress::Verdict::Ended { sent_bytes, received_bytes, why, is_limit } => {
            let outcome = if *is_limit { Outcome::Failed } else { Outcome::Ok };
            let entry = Entry { outcome, ..entry };
            let entry =
                entry.fact("sent_bytes", *sent_bytes).fact("received_bytes", *received_bytes);
            match why {
                Some(why) => entry.fact("why", why.as_str()),
                None => entry,
            }
        }
    }
}

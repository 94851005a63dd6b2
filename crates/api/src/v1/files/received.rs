//! What a sandbox was given, for the audit log: path, place, length and SHA-256 of what a client has sent. Receipts have it
//! from the log of the sandbox, where all doors record it.

use agent_client::guest::ReceivedFile;

use super::super::super::trail::Trail;

/// Notes a file or an archive that is in the sandbox, if somebody has kept what it was.
pub fn note(trail: &Trail, received: Option<ReceivedFile>) {
    let Some(ReceivedFile { path, place, content }) = received else { return };
    trail.fact("path", path);
    trail.fact("bytes", content.bytes);
    trail.fact("sha256", content.sha256);
    if let Some(place) = place.name() {
        trail.fact("place", place);
    }
}

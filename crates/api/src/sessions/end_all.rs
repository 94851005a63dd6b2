//! Ends all that runs in a sandbox, as a stop does at servers that keep the files of what has stopped.

use std::time::Duration;

use nix::libc::SIGKILL;
use protocol::requests::{Signal, Target};
use tokio::time::timeout;

use agent_client::guest::Guest;
use sandbox::refusal::Refusal;

/// Ends the contexts and sessions of a sandbox, and waits so long for them.
pub async fn end_all(guest: &Guest, wait_max: Duration) -> Result<(), Refusal> {
    for info in guest.contexts().await? {
        // It may be gone by now.
        let _ = guest.close_context(&info.context).await;
    }
    let sessions = guest.sessions(0).await?.sessions;
    let running: Vec<_> = sessions.into_iter().filter(|info| info.exit.is_none()).collect();
    for info in &running {
        let (session, target) = (info.session.clone(), Target::Tree);
        let _ = guest.signal(Signal { session, signal: SIGKILL, target }).await;
    }
    let waiting = async {
        for info in &running {
            let _ = guest.wait(&info.session).await;
        }
    };
    // One that cannot be killed is paused with the others.
    let _ = timeout(wait_max, waiting).await;
    Ok(())
}

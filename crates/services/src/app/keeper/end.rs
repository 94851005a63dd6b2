//! The end of an app: its forward, its processes, its session, its files and its note. Each step is taken
//! even if others fail, and each waits for a guest only for a limited time.

use protocol::SessionId;
use protocol::requests::{Release, Remove, Signal, Target};
use tokio::time::timeout;

use super::super::limits::{ASK_TIME_MAX, STOP_GRACE};
use super::super::note;
use super::{HOLDER, Keeper};

/// The signals that ask and that nothing survives.
const TERMINATE: i32 = nix::sys::signal::Signal::SIGTERM as i32;
const KILL: i32 = nix::sys::signal::Signal::SIGKILL as i32;

impl Keeper {
    /// Ends the app, and gives its name up.
    pub(super) async fn end(self) {
        self.close_forward().await;
        let session = self.seat.session.clone();
        // If there is nothing left to signal, that is fine.
        if self.signal(&session, TERMINATE).await {
            let _ = timeout(STOP_GRACE, self.guest.wait(&session)).await;
        }
        self.clear().await;
    }

    /// Removes the remains of an app in its sandbox and on this host.
    pub(super) async fn clear(&self) {
        self.close_forward().await;
        // Only our hold: the log keeps its own until it has everything. The check has none.
        let sessions =
            [(self.seat.session.clone(), Some(HOLDER.to_owned())), (self.asking(), None)];
        for (session, holder) in sessions {
            if self.signal(&session, KILL).await {
                let _ = timeout(ASK_TIME_MAX, self.guest.wait(&session)).await;
            }
            let release = Release { session, holder, kill_survivors: true };
            let _ = timeout(ASK_TIME_MAX, self.guest.release(release)).await;
        }
        let remove = Remove { path: self.directory().into(), recursive: true };
        // An app without code has none.
        let _ = timeout(ASK_TIME_MAX, self.guest.remove(remove)).await;
        self.seat.leave_port();
        self.forget();
    }

    /// The sandbox has ended, and with it all of the app except what is on this host. Its forward ends by
    /// itself.
    pub(super) fn forget(&self) {
        note::forget(&self.state, &self.seat.session);
    }

    async fn close_forward(&self) {
        let host_port = self.seat.shown.borrow().host_port;
        if let Some(host_port) = host_port {
            self.apps.forwards().close(&self.record.which(), host_port).await;
        }
    }

    /// Sends a signal to all that a session has started, and says whether there was a session.
    async fn signal(&self, session: &SessionId, signal: i32) -> bool {
        let signal = Signal { session: session.clone(), signal, target: Target::Tree };
        matches!(timeout(ASK_TIME_MAX, self.guest.signal(signal)).await, Ok(Ok(())))
    }
}

//! One session: a program that a client started, and its state.
//!
//! `starting` makes it, `ending` sets its record, and `router` asks it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use nix::sys::signal::Signal as UnixSignal;
use nix::unistd::Pid;
use protocol::exit::ExitRecord;
use protocol::message::{Channel, SessionInfo, Subscribed};
use protocol::requests::{Input, Origin, Resize, Role, Signal, Subscribe, Target, TerminalSize};
use protocol::sorted::{SortedMap, SortedSet};
use protocol::{ClientId, Fault, FaultCode, SessionId};
use tokio::sync::{Notify, watch};

use super::keyboard::Keyboard;
use super::pump::Terminal;
use crate::cgroup::SessionGroup;
use crate::flow::{Digested, Inlet, Outlet, Pin, Tap};
use crate::metrics::UsageSnapshot;
use crate::pid1::reaper::Reaper;
use crate::process::tree::{Members, Tree};
use crate::sys::spawn::Birth;

/// One program and its state.
pub struct Session {
    pub id: SessionId,
    /// The digest of the start's content, to distinguish a repeated start from a conflicting one.
    pub(super) digest: u64,
    pub(super) command: String,
    /// The leader's; `None` if it was never to be born.
    pub(super) birth: Option<Arc<Birth>>,
    /// Until the program has executed, or has failed to.
    pub(super) is_starting: Cell<bool>,
    pub(super) begun: Notify,
    /// A signal that came before the leader was born.
    pub(super) early_signal: Cell<Option<UnixSignal>>,
    pub(super) started_at_ms: u64,
    pub(super) started_us: u64,
    pub(super) outputs: Vec<(Channel, Outlet)>,
    pub(super) keyboard: Keyboard,
    pub(super) terminal: Option<Terminal>,
    pub(super) group: RefCell<Option<SessionGroup>>,
    pub(super) memory_limit: Option<u64>,
    /// How many processes of the sandbox had run out of memory when it began.
    pub(super) sandbox_oom_kills: u64,
    /// The client that the session dies with.
    pub(super) tied_to: Cell<Option<ClientId>>,
    /// Holders that have not released it.
    pub(super) holders: RefCell<SortedSet<String>>,
    /// Which client has last subscribed as which holder.
    pub(super) claims: RefCell<SortedMap<String, ClientId>>,
    /// It had holders, and all have released it, perhaps before its end.
    pub(super) let_go: Cell<bool>,
    /// The terminal size of each client that may type.
    pub(super) views: RefCell<SortedMap<ClientId, TerminalSize>>,
    /// Signals that clients have sent to the leader, and which client did last.
    pub(super) killed_by: RefCell<SortedMap<i32, String>>,
    pub(super) timed_out: Cell<Option<u64>>,
    pub(super) leader_reaped: Cell<bool>,
    /// All of it was killed, by a deadline or a client.
    pub(super) tree_killed: Cell<bool>,
    pub(super) exit: watch::Sender<Option<Rc<ExitRecord>>>,
}

impl Session {
    pub fn record(&self) -> Option<Rc<ExitRecord>> {
        self.exit.borrow().clone()
    }

    /// The record with the digests that there are by now.
    pub fn digested_record(&self) -> Option<ExitRecord> {
        let mut record = (*self.record()?).clone();
        for total in &mut record.outputs {
            let digest = self.outlet(total.channel).ok().and_then(Outlet::digest);
            if let Some(Digested { bytes, sha256 }) = digest {
                (total.digested, total.sha256) = (Some(bytes), Some(sha256));
            }
        }
        Some(record)
    }

    /// When the leader ended, by the monotonic clock.
    pub(super) fn ended_us(&self) -> Option<u64> {
        self.record().map(|record| self.started_us + record.duration_us)
    }

    /// Whether anybody but the client that it is tied to needs to see it: that client is not its only keeper,
    /// or was not.
    pub(super) fn is_lasting(&self) -> bool {
        self.tied_to.get().is_none() || self.let_go.get() || !self.holders.borrow().is_empty()
    }

    /// Whether it has ended and no holder keeps it.
    pub(super) fn is_unheld(&self) -> bool {
        self.record().is_some() && self.holders.borrow().is_empty()
    }

    /// Its first process. `None` before that is born, and if it never ran. (Number 0 would mean the agent's own
    /// group to the kernel.)
    pub(super) fn leader(&self) -> Option<Pid> {
        self.birth.as_ref().and_then(|birth| birth.child())
    }

    /// Resolves when the program has executed, or has failed to.
    pub(super) async fn begun(&self) {
        while self.is_starting.get() {
            self.begun.notified().await;
        }
    }

    /// The start is over, and what was asked of the program meanwhile is done.
    pub(super) fn begin(&self) {
        self.is_starting.set(false);
        self.begun.notify_waiters();
        if let Some(signal) = self.early_signal.take() {
            self.signal_tree(signal);
        }
        if self.tree_killed.get() {
            self.kill_tree();
        }
    }

    /// The record, as soon as there is one.
    pub async fn wait(&self) -> Rc<ExitRecord> {
        let mut exit = self.exit.subscribe();
        loop {
            if let Some(record) = exit.borrow_and_update().clone() {
                return record;
            }
            if exit.changed().await.is_err() {
                unreachable!("the sender lives in the session that is borrowed");
            }
        }
    }

    pub fn outlet(&self, channel: Channel) -> Result<&Outlet, Fault> {
        let found = self.outputs.iter().find(|(name, _)| *name == channel);
        found.map(|(_, outlet)| outlet).ok_or_else(|| {
            let (id, name) = (&self.id, channel.name());
            Fault::new(FaultCode::Invalid, format!("session {id} has no output {name}"))
        })
    }

    /// Where a subscription begins.
    pub fn subscription_start(&self, ask: &Subscribe) -> Result<Subscribed, Fault> {
        let outlet = self.outlet(ask.channel)?;
        let (oldest, end) = (outlet.start(), outlet.end());
        let from = match ask.from {
            Origin::Oldest {} => oldest,
            Origin::Tail { bytes } => end.saturating_sub(bytes).max(oldest),
            Origin::Offset { offset } if offset > end => {
                let message = format!("offset {offset} is beyond the end of the output at {end}");
                return Err(Fault::new(FaultCode::Invalid, message));
            }
            Origin::Offset { offset } => offset,
        };
        Ok(Subscribed { from, oldest, end })
    }

    /// Attaches a tap to an output.
    pub fn subscribe(
        &self,
        ask: &Subscribe,
        tap: Tap,
        from: u64,
        client: ClientId,
    ) -> Result<Outlet, Fault> {
        let outlet = self.outlet(ask.channel)?;
        let pin = match &ask.role {
            Role::Observer {} => Pin::None,
            Role::Holder { name } if self.holders.borrow().contains(name) => {
                self.claims.borrow_mut().insert(name.clone(), client);
                Pin::Holder(name.clone())
            }
            Role::Holder { .. } => Pin::Tap,
        };
        outlet.attach(tap, pin, from);
        Ok(outlet.clone())
    }

    /// The holders that a client was the last to subscribe as.
    pub(super) fn claimed_by(&self, client: ClientId) -> Vec<String> {
        let claims = self.claims.borrow();
        let own = claims.iter().filter(|(_, claimant)| **claimant == client);
        own.map(|(name, _)| name.clone()).collect()
    }

    /// Drops these holders.
    pub(super) fn release(&self, names: Vec<String>) {
        for name in names {
            if self.holders.borrow_mut().remove(&name) && self.holders.borrow().is_empty() {
                self.let_go.set(true);
            }
            self.outputs.iter().for_each(|(_, outlet)| outlet.release(&name));
        }
    }

    /// Sends a signal on behalf of `by`.
    pub fn signal(&self, ask: &Signal, by: &str, reaper: &Reaper) -> Result<(), Fault> {
        let signal = UnixSignal::try_from(ask.signal).map_err(|_| {
            Fault::new(FaultCode::Invalid, format!("{} is not a signal number", ask.signal))
        })?;
        let ended = self.record().is_some();
        if self.is_starting.get() {
            self.note_kill(ask.signal, by);
            self.signal_unborn(signal, reaper);
            return Ok(());
        }
        let Some(leader) = self.leader() else {
            return Err(Fault::new(FaultCode::Gone, format!("session {} never ran", self.id)));
        };
        let reached = match ask.target {
            Target::Leader => {
                self.note_kill(ask.signal, by);
                reaper.signal(leader, signal)
            }
            // A group without members may belong to another process by now.
            Target::Group if self.leader_reaped.get() && self.is_gone() => false,
            Target::Group => {
                self.note_kill(ask.signal, by);
                let group = self.terminal.as_ref().and_then(Terminal::foreground_group);
                let group = group.unwrap_or(leader);
                nix::sys::signal::killpg(group, signal).is_ok()
            }
            Target::Tree => {
                self.note_kill(ask.signal, by);
                self.signal_tree(signal) > 0
            }
        };
        if reached || !ended {
            return Ok(());
        }
        Err(Fault::new(FaultCode::Gone, format!("session {} has ended", self.id)))
    }

    /// Sends a signal to a program that is being started, which has no process but its first.
    fn signal_unborn(&self, signal: UnixSignal, reaper: &Reaper) {
        if self.leader().is_none_or(|leader| !reaper.signal(leader, signal)) {
            self.early_signal.set(Some(signal));
        }
    }

    /// Remembers who sent a signal that may end the leader, so that the record can say so.
    pub(super) fn note_kill(&self, signal: i32, by: &str) {
        if !self.leader_reaped.get() && !HARMLESS.contains(&signal) {
            self.killed_by.borrow_mut().insert(signal, by.to_owned());
        }
    }

    /// Notes how large a client sees the terminal, and sizes it to the smallest view.
    /// Returns whether its size has changed.
    pub(super) fn resize(&self, ask: &Resize, client: ClientId) -> Result<bool, Fault> {
        let Some(terminal) = &self.terminal else {
            let message = format!("session {} has no terminal", self.id);
            return Err(Fault::new(FaultCode::Invalid, message));
        };
        if ask.size.rows == 0 || ask.size.columns == 0 {
            return Err(Fault::new(
                FaultCode::Invalid,
                "a terminal has at least one row and column",
            ));
        }
        self.views.borrow_mut().insert(client, ask.size);
        let changed = self.apply_size();
        if ask.redraw && !changed {
            terminal.redraw();
        }
        Ok(changed)
    }

    pub(super) fn drop_view(&self, client: ClientId) {
        if self.views.borrow_mut().remove(&client).is_some() {
            self.apply_size();
        }
        self.keyboard.client_gone(client);
    }

    /// Whether the terminal's size changed.
    fn apply_size(&self) -> bool {
        let views = self.views.borrow();
        let rows = views.values().map(|size| size.rows).min();
        let columns = views.values().map(|size| size.columns).min();
        match (&self.terminal, rows, columns) {
            (Some(terminal), Some(rows), Some(columns)) => {
                terminal.resize(TerminalSize { rows, columns })
            }
            _ => false,
        }
    }

    /// Whether a client can have the keyboard, and at which offset it would continue.
    pub fn check_keyboard(&self, ask: &Input, client: ClientId) -> Result<u64, Fault> {
        self.keyboard.check(ask, client)
    }

    /// Gives a client the keyboard, after [`Session::check_keyboard`] has allowed it.
    pub fn open_keyboard(&self, tap: Tap, client: ClientId, name: &str) -> Inlet {
        self.keyboard.open(tap, client, name)
    }

    /// The client's input stream is closed.
    pub fn leave_keyboard(&self, tap: &Tap) {
        self.keyboard.leave(tap);
    }

    /// Runs `act` on the session's processes, if there ever were any.
    fn tree_with<T>(&self, act: impl FnOnce(&Tree<'_>) -> T) -> Option<T> {
        let group = self.group.borrow();
        self.leader().map(|leader| {
            act(&Tree {
                session: self.id.as_str(),
                leader,
                leader_reaped: self.leader_reaped.get(),
                group: group.as_ref(),
            })
        })
    }

    /// Sends a signal to every process of the session, and says how many that were.
    pub fn signal_tree(&self, signal: UnixSignal) -> usize {
        match signal {
            UnixSignal::SIGKILL => self.kill_tree(),
            other => self.tree_with(|tree| tree.signal(other)).unwrap_or(0),
        }
    }

    /// Whether no process of the session lives.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "a method's path is bound to one lifetime of the tree"
    )]
    pub fn is_gone(&self) -> bool {
        !self.is_starting.get() && self.tree_with(|tree| tree.is_gone()).unwrap_or(true)
    }

    /// Kills every process of the session, and says how many that were.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "a method's path is bound to one lifetime of the tree"
    )]
    pub(super) fn kill_tree(&self) -> usize {
        self.tree_killed.set(true);
        self.tree_with(|tree| tree.kill()).unwrap_or(0)
    }

    /// The processes of the session that live.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "a method's path is bound to one lifetime of the tree"
    )]
    pub(super) fn members(&self) -> Members {
        self.tree_with(|tree| tree.members()).unwrap_or_default()
    }

    /// Its processes, whose current usage can be read; none if it never ran.
    pub fn usage_snapshot(&self) -> UsageSnapshot {
        self.tree_with(UsageSnapshot::of).unwrap_or_default()
    }

    pub(super) fn info(&self) -> SessionInfo {
        SessionInfo {
            session: self.id.clone(),
            pid: self.leader().map_or(0, |leader| leader.as_raw() as u32),
            command: self.command.clone(),
            terminal: self.terminal.is_some(),
            started_at_ms: self.started_at_ms,
            exit: self.digested_record(),
            holders: self.holders.borrow().iter().cloned().collect(),
            viewers: self.outputs.iter().map(|(_, outlet)| outlet.reader_count()).max().unwrap_or(0)
                as u32,
            keyboard: self.keyboard.owner(),
            starting: self.is_starting.get(),
            size: self.terminal.as_ref().and_then(Terminal::size),
        }
    }
}

/// Signals that end nothing by themselves.
const HARMLESS: [i32; 8] = [
    libc::SIGCHLD,
    libc::SIGCONT,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGURG,
    libc::SIGWINCH,
];

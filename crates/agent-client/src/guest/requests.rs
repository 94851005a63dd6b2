//! Requests that are a question and an answer.

use std::time::Duration;

use protocol::exit::ExitRecord;
use protocol::hello::AgentInfo;
use protocol::message::{Entries, FileInfo, Reply, Request, SessionList, Started};
use protocol::requests::{
    List, MakeDirectory, Move, Release, Remove, Resize, Shutdown, Signal, Start,
};
use protocol::{SessionId, Text};

use super::fit::{check_name, check_path, check_start};
use super::limits::LIST_ENTRIES_MAX;
use super::{Guest, GuestError, Observed, Pending, trace};

macro_rules! pick {
    ($reply:pat => $value:expr) => {
        |reply| match reply {
            $reply => Some($value),
            _ => None,
        }
    };
}
pub(super) use pick;

impl Guest {
    pub async fn start(&self, start: &Start) -> Result<Started, GuestError> {
        let (mut start, mut span) = (start.clone(), self.start_span(start));
        if let Some(span) = &span {
            trace::pass_on(span, &mut start);
        }
        let session = start.session.clone();
        let started = self.start_owned_now(start)?.await;
        trace::started(&mut span, &started);
        if started.as_ref().is_ok_and(|started| !started.repeated) {
            self.observer().tell(Observed::ProgramBegun { session: &session });
        }
        started
    }

    pub fn start_now(&self, start: &Start) -> Result<Pending<Started>, GuestError> {
        self.start_owned_now(start.clone())
    }

    /// Takes the bytes without a copy.
    pub(crate) fn start_owned_now(&self, mut start: Start) -> Result<Pending<Started>, GuestError> {
        start.user = start.user.or_else(|| self.usual_user.as_deref().map(str::to_owned));
        start.cwd = start.cwd.or_else(|| self.usual_directory.as_deref().map(Into::into));
        self.record(&mut start)?;
        check_start(&start)?;
        let request = Request::Start(start);
        self.ask(request, "started", pick!(Reply::Started(started) => started))
    }

    /// The sessions, as soon as their list is newer than version `since`; 0 returns it at once.
    pub async fn sessions(&self, since: u64) -> Result<SessionList, GuestError> {
        self.listed(Request::Sessions { since, lasting: false }).await
    }

    /// The sessions, without those that end with the client that started them and have no holder: their
    /// client knows about them, and others need not.
    pub async fn lasting_sessions(&self, since: u64) -> Result<SessionList, GuestError> {
        self.listed(Request::Sessions { since, lasting: true }).await
    }

    async fn listed(&self, request: Request) -> Result<SessionList, GuestError> {
        self.ask(request, "sessions", pick!(Reply::Sessions(list) => list))?.await
    }

    /// The session's exit record, as soon as there is one.
    pub async fn wait(&self, session: &SessionId) -> Result<ExitRecord, GuestError> {
        let record = self.wait_now(session)?.await?;
        self.observer().tell(Observed::ProgramEnded { session, record: &record });
        Ok(record)
    }

    pub fn wait_now(&self, session: &SessionId) -> Result<Pending<ExitRecord>, GuestError> {
        let request = Request::Wait { session: session.clone() };
        self.ask(request, "exited", pick!(Reply::Exited(record) => record))
    }

    pub async fn signal(&self, signal: Signal) -> Result<(), GuestError> {
        self.signal_now(signal)?.await
    }

    pub fn signal_now(&self, signal: Signal) -> Result<Pending<()>, GuestError> {
        self.order(Request::Signal(signal))
    }

    pub async fn resize(&self, resize: Resize) -> Result<(), GuestError> {
        self.resize_now(resize)?.await
    }

    pub fn resize_now(&self, resize: Resize) -> Result<Pending<()>, GuestError> {
        self.order(Request::Resize(resize))
    }

    pub async fn release(&self, release: Release) -> Result<(), GuestError> {
        self.release_now(release)?.await
    }

    pub fn release_now(&self, release: Release) -> Result<Pending<()>, GuestError> {
        if let Some(holder) = &release.holder {
            check_name(holder)?;
        }
        self.order(Request::Release(release))
    }

    /// Releases a session that has ended, with the next request or a little later.
    pub(crate) fn release_later(&self, session: SessionId) -> Result<(), GuestError> {
        let release = Release { session, holder: None, kill_survivors: false };
        Ok(self.link.request_later(Request::Release(release), "done")?)
    }

    /// The agent's description of itself now.
    pub async fn refresh_info(&self) -> Result<AgentInfo, GuestError> {
        self.ask(Request::Info {}, "info", pick!(Reply::Info(info) => info))?.await
    }

    pub async fn stat(&self, path: impl Into<Text>, follow: bool) -> Result<FileInfo, GuestError> {
        let path = path.into();
        check_path(&path)?;
        let request = Request::Stat { path, follow };
        self.ask(request, "stat", pick!(Reply::Stat(info) => info))?.await
    }

    /// The entries of a directory in byte order of their names, joined from as many pages as it has.
    pub async fn list(&self, path: impl Into<Text>) -> Result<Vec<FileInfo>, GuestError> {
        let path = path.into();
        let mut all: Vec<FileInfo> = Vec::new();
        loop {
            let page = self.list_page(&path, all.last().map(|info| &info.name)).await?;
            if all.len() + page.entries.len() > LIST_ENTRIES_MAX {
                return Err(GuestError::TooManyEntries);
            }
            all.extend(page.entries);
            if !page.more {
                return Ok(all);
            }
        }
    }

    /// The entries of a directory after the name `after`, as many as the agent sends at once.
    pub async fn list_page(
        &self,
        path: &Text,
        after: Option<&Text>,
    ) -> Result<Entries, GuestError> {
        check_path(path)?;
        after.map_or(Ok(()), check_path)?;
        let request = Request::List(List { path: path.clone(), after: after.cloned() });
        let page = self.ask(request, "entries", pick!(Reply::Entries(page) => page))?.await?;
        // Pages that repeat themselves or get no further would never end.
        let names = after.into_iter().chain(page.entries.iter().map(|info| &info.name));
        let is_further = !page.more || !page.entries.is_empty();
        if !names.is_sorted_by(|before, name| before < name) || !is_further {
            return Err(GuestError::Malformed { what: "a directory listing out of order" });
        }
        Ok(page)
    }

    pub async fn make_directory(&self, ask: MakeDirectory) -> Result<(), GuestError> {
        check_path(&ask.path)?;
        self.order(Request::MakeDirectory(ask))?.await
    }

    pub async fn rename(&self, ask: Move) -> Result<(), GuestError> {
        check_path(&ask.from)?;
        check_path(&ask.to)?;
        self.order(Request::Move(ask))?.await
    }

    pub async fn remove(&self, ask: Remove) -> Result<(), GuestError> {
        check_path(&ask.path)?;
        self.order(Request::Remove(ask))?.await
    }

    /// Asks the agent to stop all that it runs, and itself. The link ends with it.
    pub async fn shutdown(&self, grace: Option<Duration>) -> Result<(), GuestError> {
        let grace_ms = grace.map(|grace| grace.as_millis() as u64);
        self.order(Request::Shutdown(Shutdown { grace_ms }))?.await
    }

    /// Queues a request that opens no stream.
    pub(super) fn ask<T>(
        &self,
        request: Request,
        expects: &'static str,
        pick: fn(Reply) -> Option<T>,
    ) -> Result<Pending<T>, GuestError> {
        let id = self.link.request(request, expects, None)?;
        Ok(Pending::new(self.link.clone(), id, pick))
    }

    /// Queues a request whose answer says only that it was done.
    pub(super) fn order(&self, request: Request) -> Result<Pending<()>, GuestError> {
        self.ask(request, "done", pick!(Reply::Done {} => ()))
    }
}

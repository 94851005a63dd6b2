//! The log of a sandbox that is gone with its node, as the fleet's log has it: read in parts through this host's bridge.

use std::collections::VecDeque;
use std::io;

use anyhow::Result;
use protocol::SessionId;

use super::Logs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::{instant, session};
use control::message::{LostPage, Request};
use control::{Client, ClientError};
use sandbox::SandboxRef;
use sandbox::log::{Entry, Event};

/// See the module's description.
pub(crate) struct LostLog {
    daemon: Client,
    which: SandboxRef,
    page: LostPage,
}

impl LostLog {
    /// `None`: no sandbox of that name was lost, as far as this host knows.
    pub(crate) async fn open(context: &Context, which: &SandboxRef) -> Result<Option<Self>> {
        let Ok(mut daemon) = context.running().await else { return Ok(None) };
        match read(&mut daemon, which, 0).await {
            Ok(page) => Ok(Some(Self { daemon, which: which.clone(), page })),
            Err(ClientError::Refused(refusal))
                if refusal.code == control::ErrorCode::NotRunning =>
            {
                Err(ClientError::Refused(refusal).into())
            }
            Err(_) => Ok(None),
        }
    }

    /// The next part; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Entry>>> {
        if !self.page.entries.is_empty() {
            return Ok(Some(std::mem::take(&mut self.page.entries)));
        }
        let Some(after) = self.page.next else { return Ok(None) };
        self.page = read(&mut self.daemon, &self.which, after).await?;
        Ok(Some(std::mem::take(&mut self.page.entries)))
    }

    /// After the last part: success if the sandbox had ended before its node was gone, or where its output ends.
    pub(crate) fn end(self) -> Result<Exit> {
        if self.page.is_closed {
            return Ok(Exit::SUCCESS);
        }
        let ends = self.page.last_durable_offset.iter().flat_map(|(session, ends)| {
            ends.iter().map(move |(channel, end)| format!("{session} {channel} {end}"))
        });
        let ends = ends.collect();
        let LostPage { node, at_ms, .. } = self.page;
        Err(CliError::LostWithNode { name: self.which, node, at: instant::format(at_ms), ends }
            .into())
    }
}

async fn read(
    daemon: &mut Client,
    which: &SandboxRef,
    after: u64,
) -> Result<LostPage, ClientError> {
    daemon.ask(&Request::ReadLost { sandbox: which.clone(), after }).await
}

/// The last entries, so that their output has so many lines.
#[derive(Default)]
struct Tail {
    entries: VecDeque<(Entry, u64)>,
    lines: u64,
}

impl Tail {
    fn push(&mut self, entry: Entry, wanted: u64) {
        let lines = match &entry.event {
            Event::Output { bytes, .. } => {
                bytes.split(|byte| *byte == b'\n').skip(1).count() as u64
            }
            _ => 0,
        };
        self.lines += lines;
        self.entries.push_back((entry, lines));
        while let Some((_, first)) = self.entries.front()
            && self.lines - first >= wanted
            && self.entries.len() > 1
        {
            self.lines -= first;
            self.entries.pop_front();
        }
    }

    /// Without the lines of the first entry that are too many.
    fn finish(mut self, wanted: u64) -> impl Iterator<Item = Entry> {
        let surplus = self.lines.saturating_sub(wanted) as usize;
        if let Some((Entry { event: Event::Output { bytes, offset, .. }, .. }, _)) =
            self.entries.front_mut()
        {
            let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            let cut = surplus.checked_sub(1).and_then(|nth| ends.map(|(at, _)| at + 1).nth(nth));
            let cut = cut.unwrap_or(0);
            bytes.drain(..cut);
            *offset += cut as u64;
        }
        self.entries.into_iter().map(|(entry, _)| entry)
    }
}

impl Logs {
    /// Prints what outlived the node, and fails with the end of it unless the sandbox had ended before.
    pub(super) async fn print_lost(&self, mut lost: LostLog) -> Result<Exit> {
        let mut sessions: Vec<SessionId> = Vec::new();
        let printer = self.printer()?;
        let mut tail = self.tail.map(|lines| (lines, Tail::default()));
        while let Some(entries) = lost.next().await? {
            for entry in entries {
                if let Some(session) = entry.event.session().filter(|new| !sessions.contains(new)) {
                    sessions.push(session.clone());
                }
                if !self.wants(&entry) {
                    continue;
                }
                match &mut tail {
                    Some((lines, tail)) => tail.push(entry, *lines),
                    None => match printer.print(entry).await {
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                            return Ok(Exit::SUCCESS);
                        }
                        printed => printed?,
                    },
                }
            }
        }
        for entry in tail.into_iter().flat_map(|(lines, tail)| tail.finish(lines)) {
            match printer.print(entry).await {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(Exit::SUCCESS);
                }
                printed => printed?,
            }
        }
        if let Some(wanted) = &self.session {
            session::find_by(&sessions, wanted, |session| session)?;
        }
        lost.end()
    }

    fn wants(&self, entry: &Entry) -> bool {
        let is_of_session = match (&self.session, entry.event.session()) {
            (Some(wanted), Some(session)) => session.as_str().starts_with(wanted.as_str()),
            _ => true,
        };
        let is_of_channel = match &entry.event {
            Event::Output { channel, .. } | Event::Gap { channel, .. } => {
                let is_stderr = *channel == protocol::message::Channel::Stderr;
                (!self.stdout || !is_stderr) && (!self.stderr || is_stderr)
            }
            _ => true,
        };
        is_of_session && is_of_channel
    }
}

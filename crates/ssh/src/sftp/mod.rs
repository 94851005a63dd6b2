//! The subsystem `sftp`, which `sftp`, `scp` and editors use: requests in their order, each answered before the
//! next is looked at.

mod files;
mod names;
mod packet;
mod refusal;
mod tools;

use std::collections::HashMap;

use protocol::Text;
use protocol::message::FileKind;
use protocol::requests::{MakeDirectory, Move, Remove};
use russh::ChannelWriteHalf;
use russh::server::Msg;

use agent_client::guest::{Guest, GuestError};
use sandbox::Visit;

use crate::flow::Input;
use crate::limits::{SFTP_HANDLES_MAX, SFTP_PACKET_BYTES_MAX};
use crate::place::Place;
use files::{Directory, File, UMASK};
use packet::{Handle, Reply, Request, Status};
use refusal::refused;

/// Serves to the end of the channel.
pub async fn serve(place: Place, writer: ChannelWriteHalf<Msg>, input: Input) {
    let mut trail = place.trail("ssh_sftp");
    let code = match trail.visit(&place.door, &place.login).await {
        Ok(visit) => {
            let mut session = Sftp::new(&visit);
            session.attend(&writer, input).await;
            trail.fact("read_bytes", session.read_bytes);
            trail.fact("written_bytes", session.written_bytes);
            0
        }
        Err(why) => {
            let why = format!("host-bridge: {why}\r\n");
            let _ = writer.extended_data_bytes(1, why.into_bytes()).await;
            1
        }
    };
    // A client that is gone need not know.
    let _ = writer.exit_status(code).await;
    let _ = writer.eof().await;
    let _ = writer.close().await;
}

enum Open {
    File(Box<File>),
    Directory(Directory),
}

struct Sftp {
    guest: Guest,
    /// Where paths begin that are not absolute, once it is known.
    start: Option<Text>,
    open: HashMap<Handle, Open>,
    next: Handle,
    read_bytes: u64,
    written_bytes: u64,
}

impl Sftp {
    fn new(visit: &Visit) -> Self {
        let start = visit.workdir.as_deref().map(Into::into);
        let guest = visit.guest.clone();
        Self { guest, start, open: HashMap::new(), next: 0, read_bytes: 0, written_bytes: 0 }
    }

    /// Returns at the end of the input, and at what is no packet.
    async fn attend(&mut self, writer: &ChannelWriteHalf<Msg>, mut input: Input) {
        let mut pending: Vec<u8> = Vec::new();
        loop {
            let mut taken = 0;
            while let Some((length, rest)) = pending[taken..].split_first_chunk() {
                let length = u32::from_be_bytes(*length) as usize;
                if length > SFTP_PACKET_BYTES_MAX {
                    return;
                }
                let Some(packet) = rest.get(..length) else { break };
                let Some((id, request)) = packet::parse(packet) else { return };
                taken += 4 + length;
                let reply = match request {
                    Some(request) => self.answer(request).await.unwrap_or_else(Reply::Status),
                    None => Reply::Status(Status::Bad),
                };
                if writer.data_bytes(packet::encode(id, &reply)).await.is_err() {
                    return;
                }
            }
            pending.drain(..taken);
            match input.next().await {
                Some(bytes) => pending.extend(bytes),
                None => return,
            }
        }
    }

    async fn answer(&mut self, request: Request) -> Result<Reply, Status> {
        let done = |done: Result<(), Status>| done.map(|()| Reply::Status(Status::Ok));
        match request {
            Request::Init => Ok(Reply::Version),
            Request::Open { path, flags, attributes } => {
                let path = self.path(path).await?;
                let file = File::open(&self.guest, path, flags, attributes).await?;
                self.keep(Open::File(Box::new(file)))
            }
            Request::OpenDirectory { path } => {
                let path = self.path(path).await?;
                let directory = Directory::open(&self.guest, path).await?;
                self.keep(Open::Directory(directory))
            }
            Request::Close { handle } => match self.open.remove(&handle) {
                Some(Open::File(mut file)) => done(file.settle().await),
                Some(Open::Directory(_)) => done(Ok(())),
                None => Err(no_handle()),
            },
            Request::Read { handle, offset, bytes } => {
                let (file, guest) = self.file(handle)?;
                let data = file.read(guest, offset, bytes).await?;
                self.read_bytes += data.len() as u64;
                Ok(Reply::Data(data))
            }
            Request::Write { handle, offset, data } => {
                let (file, guest) = self.file(handle)?;
                file.write(guest, offset, &data).await?;
                self.written_bytes += data.len() as u64;
                done(Ok(()))
            }
            Request::Sync { handle } => done(self.file(handle)?.0.settle().await),
            Request::HandleStat { handle } => {
                let (file, guest) = self.file(handle)?;
                file.stat(guest).await.map(Reply::Attributes)
            }
            Request::HandleSetStat { handle, attributes } => {
                let (file, guest) = self.file(handle)?;
                done(file.set(guest, attributes).await)
            }
            Request::ReadDirectory { handle } => {
                let Some(Open::Directory(directory)) = self.open.get_mut(&handle) else {
                    return Err(no_handle());
                };
                let entries = directory.next(&self.guest).await?;
                if entries.is_empty() {
                    return Err(Status::End);
                }
                let named = entries.into_iter();
                let named = named.map(|info| (info.name.clone(), names::line(&info), Some(info)));
                Ok(Reply::Names(named.collect()))
            }
            request => self.answer_named(request).await,
        }
    }

    /// What names a path.
    async fn answer_named(&mut self, request: Request) -> Result<Reply, Status> {
        let guest = self.guest.clone();
        for open in self.open.values_mut() {
            if let Open::File(file) = open {
                file.settle_aside().await;
            }
        }
        let made = match request {
            Request::Stat { path, follow } => {
                let info = guest.stat(self.path(path).await?, follow).await;
                return info.map(Reply::Attributes).map_err(|error| refused(&error));
            }
            Request::RealPath { path } => {
                let path = self.path(path).await?;
                return Ok(Reply::Names(vec![(path.clone(), path.to_string(), None)]));
            }
            Request::ReadLink { path } => {
                let info = guest.stat(self.path(path).await?, false).await;
                let target = info.map_err(|error| refused(&error))?.target;
                let target = target.ok_or_else(|| Status::Failure("it is no link".to_owned()))?;
                return Ok(Reply::Names(vec![(target.clone(), target.to_string(), None)]));
            }
            Request::SetStat { path, attributes } => {
                let path = self.path(path).await?;
                return ok(tools::set_attributes(&guest, &path, attributes).await);
            }
            Request::MakeLink { target, path } => {
                let path = self.path(path).await?;
                return ok(tools::make_link(&guest, &target, &path).await);
            }
            Request::MakeDirectory { path, attributes } => {
                let path = self.path(path).await?;
                let permissions = attributes.permissions.map(|permissions| permissions & !UMASK);
                guest.make_directory(MakeDirectory { path, permissions, parents: false }).await
            }
            Request::Remove { path } => self.remove(path, false).await?,
            Request::RemoveDirectory { path } => self.remove(path, true).await?,
            Request::Rename { from, to, replace } => {
                let (from, to) = (self.path(from).await?, self.path(to).await?);
                guest.rename(Move { from, to, replace }).await
            }
            _ => return Err(Status::Unsupported("this server does not do that".to_owned())),
        };
        ok(made.map_err(|error| refused(&error)))
    }

    async fn remove(
        &mut self,
        path: Text,
        is_directory: bool,
    ) -> Result<Result<(), GuestError>, Status> {
        let path = self.path(path).await?;
        let info = self.guest.stat(path.clone(), false).await.map_err(|error| refused(&error))?;
        match (info.kind == FileKind::Directory, is_directory) {
            (true, false) => Err(Status::Failure(format!("{path} is a directory"))),
            (false, true) => Err(Status::Failure(format!("{path} is not a directory"))),
            _ => Ok(self.guest.remove(Remove { path, recursive: false }).await),
        }
    }

    async fn path(&mut self, path: Text) -> Result<Text, Status> {
        if self.start.is_none() && !path.as_bytes().starts_with(b"/") {
            self.start = Some(tools::directory(&self.guest).await?);
        }
        let start = self.start.as_ref().map_or(&b"/"[..], Text::as_bytes);
        Ok(names::absolute(start, path.as_bytes()))
    }

    fn keep(&mut self, open: Open) -> Result<Reply, Status> {
        if self.open.len() >= SFTP_HANDLES_MAX {
            return Err(Status::Failure(format!(
                "{SFTP_HANDLES_MAX} files are open, which is the limit"
            )));
        }
        self.next = self.next.wrapping_add(1);
        self.open.insert(self.next, open);
        Ok(Reply::Handle(self.next))
    }

    fn file(&mut self, handle: Handle) -> Result<(&mut File, &Guest), Status> {
        match self.open.get_mut(&handle) {
            Some(Open::File(file)) => Ok((file, &self.guest)),
            _ => Err(no_handle()),
        }
    }
}

fn ok(done: Result<(), Status>) -> Result<Reply, Status> {
    done.map(|()| Reply::Status(Status::Ok))
}

fn no_handle() -> Status {
    Status::Failure("there is no such handle".to_owned())
}

//! Requests that open a stream.

use std::net::Ipv4Addr;

use protocol::limits::TEXT_BYTES_MAX;
use protocol::message::{Channel, FileInfo, InputOpened, Reply, Request, Subscribed};
use protocol::mux::Direction;
use protocol::requests::{
    Arrival, Forward, Input, LayerGet, LayerPut, Origin, ReadFile, Role, Subscribe, TarGet, TarPut,
    Watch, WriteFile, WriteMode,
};
use protocol::{SessionId, StreamId, Text};

use super::fit::{check, check_name, check_path};
use super::requests::pick;
use super::{Guest, GuestError, Output, Pending, Upload, Watcher, Writer, Written};
use crate::link::{Begins, Opening};

/// The target of an upload. See [`WriteFile`].
#[derive(Clone, Debug)]
pub struct FileTarget {
    pub path: Text,
    pub mode: WriteMode,
    pub permissions: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Make missing parent directories.
    pub parents: bool,
}

impl FileTarget {
    /// The whole content of `path`, with the permissions that it has or the usual ones.
    pub fn replace(path: impl Into<Text>) -> Self {
        let mode = WriteMode::Replace {};
        Self { path: path.into(), mode, permissions: None, uid: None, gid: None, parents: false }
    }
}

/// What will arrive in the guest. Dropping it stops listening.
#[derive(Debug)]
pub struct Awaited {
    writer: Writer,
    output: Output,
    arrived: Pending<()>,
}

impl Awaited {
    /// Resolves when it has arrived.
    pub async fn arrived(self) -> Result<(Writer, Output), GuestError> {
        let Self { writer, output, arrived } = self;
        arrived.await?;
        Ok((writer, output))
    }
}

impl Guest {
    /// Opens an output of a session, and says where it begins.
    pub async fn subscribe(
        &self,
        session: &SessionId,
        channel: Channel,
        from: Origin,
        role: Role,
    ) -> Result<(Output, Subscribed), GuestError> {
        let (output, subscribed) = self.subscribe_now(session, channel, from, role)?;
        Ok((output, subscribed.await?))
    }

    /// Opens it without waiting. The output also reports a refusal.
    pub fn subscribe_now(
        &self,
        session: &SessionId,
        channel: Channel,
        from: Origin,
        role: Role,
    ) -> Result<(Output, Pending<Subscribed>), GuestError> {
        if let Role::Holder { name } = &role {
            check_name(name)?;
        }
        let horizon = self.horizon(session, channel, &role)?;
        let session = session.clone();
        let make = |stream| Request::Subscribe(Subscribe { session, channel, stream, from, role });
        let pick = pick!(Reply::Subscribed(subscribed) => subscribed);
        let (stream, pending) =
            self.open(Direction::In, Begins::Answered, make, "subscribed", pick)?;
        Ok((self.output(stream).within(horizon), pending))
    }

    /// Opens the input of a session, at `from` or wherever it stands, which the answer says.
    pub async fn input(
        &self,
        session: &SessionId,
        from: Option<u64>,
        take: bool,
    ) -> Result<(Writer, InputOpened), GuestError> {
        let (writer, opened) = self.input_now(session, from, take)?;
        Ok((writer, opened.await?))
    }

    /// Opens it without waiting. What is written meanwhile is sent once the input is open.
    pub fn input_now(
        &self,
        session: &SessionId,
        from: Option<u64>,
        take: bool,
    ) -> Result<(Writer, Pending<InputOpened>), GuestError> {
        let typed = self.input_rules().open(session)?;
        let account = self.provenance().input(session);
        let session = session.clone();
        let make = |stream| Request::Input(Input { session, stream, from, take });
        let pick = pick!(Reply::Input(opened) => opened);
        let (stream, pending) = self.open(Direction::Out, Begins::Answered, make, "input", pick)?;
        Ok((self.writer(stream).recorded(typed).accounted(account), pending))
    }

    /// Opens a file for reading: its bytes (whose offsets are the file's), its metadata, and how
    /// many bytes will come, if that is known.
    pub async fn read_file(
        &self,
        path: impl Into<Text>,
        offset: u64,
        length: Option<u64>,
    ) -> Result<(Output, FileInfo, Option<u64>), GuestError> {
        let path = path.into();
        check_path(&path)?;
        let make = |stream| Request::ReadFile(ReadFile { path, stream, offset, length });
        let pick = pick!(Reply::Reading { bytes, info } => (info, bytes));
        let (stream, pending) =
            self.open(Direction::In, Begins::At(offset), make, "reading", pick)?;
        let output = self.output(stream);
        let (info, bytes) = pending.await?;
        Ok((output, info, bytes))
    }

    /// Opens a file for writing. Bytes may follow at once; a refusal shows while they are written or
    /// at the end.
    pub fn write_file(&self, target: FileTarget) -> Result<Upload, GuestError> {
        let FileTarget { path, mode, permissions, uid, gid, parents } = target;
        check_path(&path)?;
        let account = self.provenance().file(&path, mode);
        let upload = self.upload(|stream| {
            Request::WriteFile(WriteFile { path, stream, mode, permissions, uid, gid, parents })
        })?;
        Ok(upload.accounted(account))
    }

    /// Opens a stream of a tar archive of `path`.
    pub async fn tar_get(&self, path: impl Into<Text>, follow: bool) -> Result<Output, GuestError> {
        let path = path.into();
        check_path(&path)?;
        self.download(|stream| Request::TarGet(TarGet { path, stream, follow })).await
    }

    /// Opens a stream of a tar archive that is unpacked into the directory `path`.
    pub fn tar_put(
        &self,
        path: impl Into<Text>,
        owners: bool,
        parents: bool,
    ) -> Result<Upload, GuestError> {
        let path = path.into();
        check_path(&path)?;
        let account = self.provenance().archive(&path);
        let upload =
            self.upload(|stream| Request::TarPut(TarPut { path, stream, owners, parents }))?;
        Ok(upload.accounted(account))
    }

    /// Opens a stream of the writable layer, and gives the variables of the sandbox's programs that are text.
    pub async fn layer_get(&self) -> Result<(Output, Vec<(String, String)>), GuestError> {
        let make = |stream| Request::LayerGet(LayerGet { stream });
        let pick = pick!(Reply::Layer { env } => env);
        let (stream, pending) = self.open(Direction::In, Begins::At(0), make, "layer", pick)?;
        let output = self.output(stream);
        let text = |text: Text| String::from_utf8(text.into_bytes()).ok();
        let env = pending.await?.into_iter();
        Ok((output, env.filter_map(|(name, value)| text(name).zip(text(value))).collect()))
    }

    /// Opens a stream of another sandbox's layer, which is repeated here.
    pub fn layer_put(&self) -> Result<Upload, GuestError> {
        self.upload(|stream| Request::LayerPut(LayerPut { stream }))
    }

    /// Watches a path, and with `recursive` all that is below it.
    pub async fn watch(
        &self,
        path: impl Into<Text>,
        recursive: bool,
    ) -> Result<Watcher, GuestError> {
        let path = path.into();
        check_path(&path)?;
        let output =
            self.download(|stream| Request::Watch(Watch { path, stream, recursive })).await?;
        Ok(Watcher::new(output))
    }

    /// Connects to a TCP port inside the sandbox.
    pub async fn forward(
        &self,
        address: Option<String>,
        port: u16,
    ) -> Result<(Writer, Output), GuestError> {
        check("the bytes of the address", address.as_ref().map_or(0, String::len), TEXT_BYTES_MAX)?;
        let make = |stream| Request::Forward(Forward { stream, address, port, accept: None });
        let pick = pick!(Reply::Done {} => ());
        let (stream, pending) = self.open(Direction::Both, Begins::At(0), make, "done", pick)?;
        let halves = (self.writer(stream), self.output(stream));
        pending.await?;
        Ok(halves)
    }

    /// Requests what arrives next at an address of the sandbox that stands for the host. The agent listens
    /// there from now on, as long as this is called again each time.
    pub fn accept_now(
        &self,
        address: Ipv4Addr,
        port: u16,
        arrival: Arrival,
    ) -> Result<Awaited, GuestError> {
        let (address, accept) = (Some(address.to_string()), Some(arrival));
        let make = |stream| Request::Forward(Forward { stream, address, port, accept });
        let pick = pick!(Reply::Done {} => ());
        let (stream, arrived) = self.open(Direction::Both, Begins::At(0), make, "done", pick)?;
        Ok(Awaited { writer: self.writer(stream), output: self.output(stream), arrived })
    }

    pub(super) async fn download(
        &self,
        make: impl FnOnce(StreamId) -> Request,
    ) -> Result<Output, GuestError> {
        let pick = pick!(Reply::Done {} => ());
        let (stream, pending) = self.open(Direction::In, Begins::At(0), make, "done", pick)?;
        let output = self.output(stream);
        pending.await?;
        Ok(output)
    }

    fn upload(&self, make: impl FnOnce(StreamId) -> Request) -> Result<Upload, GuestError> {
        let pick = pick!(Reply::Written { bytes, entries } => Written { bytes, entries });
        let (stream, pending) = self.open(Direction::Out, Begins::Now, make, "written", pick)?;
        Ok(Upload::new(self.writer(stream), pending))
    }

    /// Queues a request that opens a stream. Take its ends from the answer at once: dropping them
    /// closes it.
    pub(super) fn open<T>(
        &self,
        direction: Direction,
        begins: Begins,
        make: impl FnOnce(StreamId) -> Request,
        expects: &'static str,
        pick: fn(Reply) -> Option<T>,
    ) -> Result<(StreamId, Pending<T>), GuestError> {
        let stream = self.link.next_stream();
        let opening = Opening { stream, direction, begins };
        let id = self.link.request(make(stream), expects, Some(opening))?;
        Ok((stream, Pending::new(self.link.clone(), id, pick)))
    }

    pub(super) fn output(&self, stream: StreamId) -> Output {
        Output::new(self.link.clone(), stream)
    }

    pub(super) fn writer(&self, stream: StreamId) -> Writer {
        Writer::new(self.link.clone(), stream)
    }
}

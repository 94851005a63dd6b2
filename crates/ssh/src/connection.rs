//! One connection: who it is, and its channels. It answers what the client asks and waits for nothing, because
//! nothing of a connection moves while it waits; the work of a channel is a task of its own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use protocol::Text;
use protocol::requests::{Program, TerminalSize};
use russh::server::{
    Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey,
};
use russh::{
    Channel, ChannelId, ChannelOpenFailure, ChannelWriteHalf, Disconnect, Error, Pty, Sig,
};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::Options;
use crate::flow::{Flow, InputSender};
use crate::forward;
use crate::limits::{CHANNELS_MAX, CONTROLS_MAX, VARIABLES_BYTES_MAX, VARIABLES_MAX};
use crate::login::Login;
use crate::place::{Control, Ends, Place, Setting};
use crate::program;
use crate::sftp;
use crate::trail::Trail;
use crate::usage::Usage;

/// The one subsystem.
const SFTP: &str = "sftp";

/// See the module's description.
pub struct Connection {
    door: Arc<Options>,
    peer: SocketAddr,
    flow: Flow,
    usage: Usage,
    /// Who it is, for those who watch the connection.
    login: watch::Sender<Option<Login>>,
    seats: HashMap<ChannelId, Seat>,
    /// End with the connection.
    tasks: JoinSet<()>,
}

/// A channel.
#[derive(Default)]
struct Seat {
    /// Until something is started.
    writer: Option<ChannelWriteHalf<Msg>>,
    setting: Setting,
    variables_bytes: usize,
    /// Until the client has sent all.
    input: Option<InputSender>,
    controls: Option<mpsc::Sender<Control>>,
    task: Option<AbortHandle>,
}

impl Seat {
    /// Whether it is taken: there are few, and they are short.
    fn set_variable(&mut self, name: &str, value: &str) -> bool {
        let is_name = !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
        self.variables_bytes = self.variables_bytes.saturating_add(name.len() + value.len());
        let variables = &mut self.setting.variables;
        let is_taken = is_name
            && variables.len() < VARIABLES_MAX
            && self.variables_bytes <= VARIABLES_BYTES_MAX;
        if is_taken {
            variables.push((name.into(), value.into()));
        }
        is_taken
    }
}

impl Connection {
    pub fn new(
        door: Arc<Options>,
        peer: SocketAddr,
        flow: Flow,
        usage: Usage,
        login: watch::Sender<Option<Login>>,
    ) -> Self {
        Self { door, peer, flow, usage, login, seats: HashMap::new(), tasks: JoinSet::new() }
    }

    fn place(&self) -> Option<Place> {
        let login = self.login.borrow().clone()?;
        Some(Place { door: Arc::clone(&self.door), peer: self.peer, login })
    }

    /// Whether there is room for one more channel. Those that have ended make room.
    fn has_room(&mut self) -> bool {
        while self.tasks.try_join_next().is_some() {}
        self.seats.retain(|_, seat| !seat.task.as_ref().is_some_and(AbortHandle::is_finished));
        self.seats.len() < CHANNELS_MAX
    }

    /// Starts the one thing that a channel is for.
    fn start<W: Future<Output = ()> + Send + 'static>(
        &mut self,
        id: ChannelId,
        session: &mut Session,
        work: impl FnOnce(Place, Setting, Ends) -> W,
    ) -> Result<(), Error> {
        let place = self.place();
        let started = self.seats.get_mut(&id).and_then(|seat| {
            let (place, writer) = (place?, seat.writer.take()?);
            let (sender, input) = self.flow.input();
            let (controls, controlled) = mpsc::channel(CONTROLS_MAX);
            (seat.input, seat.controls) = (Some(sender), Some(controls));
            let handle = session.handle();
            let ends = Ends { writer, handle, input, controls: controlled };
            let work = work(place, std::mem::take(&mut seat.setting), ends);
            let in_use = self.usage.begin();
            seat.task = Some(self.tasks.spawn(async move {
                work.await;
                drop(in_use);
            }));
            Some(())
        });
        match started {
            Some(()) => session.channel_success(id),
            None => session.channel_failure(id),
        }
    }

    fn control(&self, id: ChannelId, control: Control) {
        if let Some(controls) = self.seats.get(&id).and_then(|seat| seat.controls.as_ref()) {
            // Of a client that sends more than a program takes, the last are lost.
            let _ = controls.try_send(control);
        }
    }
}

impl Handler for Connection {
    type Error = Error;

    async fn auth_publickey_offered(
        &mut self,
        user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Error> {
        let login = Login::of(&self.door.keyring, user, offer.public_key);
        Ok(login.map_or_else(Auth::reject, |_| Auth::Accept))
    }

    async fn auth_publickey(
        &mut self,
        user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Error> {
        let Some(login) = Login::of(&self.door.keyring, user, key.public_key) else {
            return Ok(Auth::reject());
        };
        drop(Trail::begin(&self.door, &login, self.peer, "ssh_login"));
        self.login.send_replace(Some(login));
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Error> {
        if !self.has_room() {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        let id = channel.id();
        // What comes is given to `data`. The other end of it would stop the connection when it is full.
        let (_, writer) = channel.split();
        self.seats.insert(id, Seat { writer: Some(writer), ..Seat::default() });
        reply.accept().await;
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host_to_connect: &str,
        port_to_connect: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Error> {
        let port = forward::port_of(host_to_connect, port_to_connect);
        let (Some(place), Some(port), true) = (self.place(), port, self.has_room()) else {
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        };
        let id = channel.id();
        let (_, writer) = channel.split();
        let (sender, input) = self.flow.input();
        let in_use = self.usage.begin();
        let task = self.tasks.spawn(async move {
            forward::carry(place, port, reply, writer, input).await;
            drop(in_use);
        });
        let seat = Seat { input: Some(sender), task: Some(task), ..Seat::default() };
        self.seats.insert(id, seat);
        Ok(())
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), Error> {
        let Some(seat) = self.seats.get_mut(&channel) else { return Ok(()) };
        if !seat.set_variable(name, value) {
            return session.channel_failure(channel);
        }
        session.channel_success(channel)
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        term: &str,
        columns: u32,
        rows: u32,
        _: u32,
        _: u32,
        _: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Error> {
        let Some(seat) = self.seats.get_mut(&channel) else { return Ok(()) };
        // Without a good name it is a terminal too.
        let _ = seat.set_variable("TERM", term);
        seat.setting.terminal = Some(size(columns, rows));
        session.channel_success(channel)
    }

    async fn shell_request(
        &mut self,
        channel: ChannelId,
        session: &mut Session,
    ) -> Result<(), Error> {
        self.start(channel, session, |place, setting, ends| {
            program::run(place, Program::LoginShell {}, setting, ends)
        })
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), Error> {
        let command = Program::script(Text::from(command.to_vec()));
        self.start(channel, session, |place, setting, ends| {
            program::run(place, command, setting, ends)
        })
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), Error> {
        if name != SFTP {
            return session.channel_failure(channel);
        }
        self.start(channel, session, |place, _, ends| sftp::serve(place, ends.writer, ends.input))
    }

    async fn window_change_request(
        &mut self,
        channel: ChannelId,
        columns: u32,
        rows: u32,
        _: u32,
        _: u32,
        _: &mut Session,
    ) -> Result<(), Error> {
        self.control(channel, Control::Resize(size(columns, rows)));
        Ok(())
    }

    async fn signal(
        &mut self,
        channel: ChannelId,
        signal: Sig,
        _: &mut Session,
    ) -> Result<(), Error> {
        if let Some(number) = program::signal_number(&signal) {
            self.control(channel, Control::Signal(number));
        }
        Ok(())
    }

    async fn data(
        &mut self,
        channel: ChannelId,
        bytes: &[u8],
        session: &mut Session,
    ) -> Result<(), Error> {
        let Some(input) = self.seats.get(&channel).and_then(|seat| seat.input.as_ref()) else {
            return Ok(());
        };
        if input.send(&self.flow, bytes).is_err() {
            let why = "more was sent than the windows of the channels allow";
            session.disconnect(Disconnect::ProtocolError, why, "")?;
        }
        Ok(())
    }

    fn adjust_window(&mut self, _: ChannelId, _: u32) -> u32 {
        self.flow.window()
    }

    async fn channel_eof(&mut self, channel: ChannelId, _: &mut Session) -> Result<(), Error> {
        if let Some(seat) = self.seats.get_mut(&channel) {
            seat.input = None;
        }
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _: &mut Session) -> Result<(), Error> {
        if let Some(task) = self.seats.remove(&channel).and_then(|seat| seat.task) {
            task.abort();
        }
        Ok(())
    }
}

fn size(columns: u32, rows: u32) -> TerminalSize {
    /// Of a client that has no window itself.
    const USUAL: (u32, u32) = (80, 24);
    let (columns, rows) = if columns == 0 || rows == 0 { USUAL } else { (columns, rows) };
    let cells = |count| u16::try_from(count).unwrap_or(u16::MAX);
    TerminalSize { rows: cells(rows), columns: cells(columns) }
}

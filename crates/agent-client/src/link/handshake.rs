//! The first words on a new link: our hello, the agent's welcome.
//!
//! `Link` and the driver call it. Nothing here tries twice.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::ClientId;
use protocol::codec::{FrameBuffer, decode_body, encode_message};
use protocol::frame::{Frame, Kind};
use protocol::hello::{Goodbye, Hello, Resume, VERSION_MAX, VERSION_MIN, Welcome};
use protocol::mux::ProtocolError;

use super::dial::dial;
use super::random::random;
use super::{Address, LinkError, Options, Socket};

/// Our identity towards one agent.
#[derive(Debug)]
pub struct Caller {
    client: ClientId,
    pub options: Options,
    /// Hellos so far: the number of a link tells the agent which is the newest.
    dials: u64,
}

impl Caller {
    /// With the id of the options, or a random one. It is no secret: only the agent's token allows resuming
    /// streams.
    pub fn new(options: Options) -> Self {
        match options.client {
            // Its links continue the numbers of the id's previous owner.
            Some(client) => Self { client, options, dials: now_us() },
            None => Self { client: draw(), options, dials: 0 },
        }
    }

    /// Continues under another id, unless this one is random; returns whether it does. The clock may have
    /// been set back since an earlier process had it: that one's streams then expire by themselves.
    pub fn draw_another(&mut self) -> bool {
        let is_drawn = self.options.client.take().is_none();
        if !is_drawn {
            (self.client, self.dials) = (draw(), 0);
        }
        !is_drawn
    }

    /// The hello of the next link.
    pub fn hello(&mut self, resume: Option<Resume>) -> Hello {
        let dial = self.dials;
        self.dials += 1;
        Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            client: self.client,
            name: self.options.name.clone(),
            dial,
            resume,
            resume_window_ms: self.options.resume_window.as_millis() as u64,
        }
    }
}

fn draw() -> ClientId {
    let mut id = [0; 16];
    let (first, second) = id.split_at_mut(8);
    first.copy_from_slice(&random().to_be_bytes());
    second.copy_from_slice(&random().to_be_bytes());
    ClientId(id)
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A link that has begun.
#[derive(Debug)]
pub struct OpenLink {
    pub socket: Socket,
    /// Bytes after the welcome.
    pub frames: FrameBuffer,
    pub welcome: Welcome,
}

/// Dials once and greets; neither takes longer than `deadline`.
pub async fn meet(
    address: &Address,
    hello: &Hello,
    deadline: Duration,
) -> Result<OpenLink, LinkError> {
    // A machine monitor may accept and then never answer.
    let dialled = tokio::time::timeout(deadline, dial(address)).await;
    let socket = dialled.unwrap_or(Err(LinkError::NoWelcome { waited: deadline }))?;
    greet(socket, hello, deadline).await
}

/// Says hello and waits for the welcome, no longer than `deadline`.
pub async fn greet(
    socket: Socket,
    hello: &Hello,
    deadline: Duration,
) -> Result<OpenLink, LinkError> {
    let mut frames = FrameBuffer::new();
    let exchange = async {
        let mut bytes = Vec::new();
        encode_message(Kind::Hello, 0, hello, &mut bytes);
        socket.write_all(&bytes).await?;
        read_welcome(&socket, &mut frames).await
    };
    let welcome = match tokio::time::timeout(deadline, exchange).await {
        Ok(welcome) => welcome,
        Err(_) => Err(LinkError::NoWelcome { waited: deadline }),
    };
    if let Some(goodbye) = welcome.as_ref().err().and_then(LinkError::goodbye) {
        let mut bytes = Vec::new();
        encode_message(Kind::Goodbye, 0, &goodbye, &mut bytes);
        // Best effort: the error matters more, and a fresh socket accepts so little at once.
        socket.try_write(&bytes).ok();
    }
    Ok(OpenLink { welcome: welcome?, socket, frames })
}

async fn read_welcome(socket: &Socket, frames: &mut FrameBuffer) -> Result<Welcome, LinkError> {
    loop {
        if let Some(frame) = frames.take()? {
            return parse_welcome(frame);
        }
        let count = socket.read(frames.space()).await?;
        if count == 0 {
            return Err(LinkError::Closed);
        }
        frames.filled(count);
    }
}

fn parse_welcome(frame: Frame<'_>) -> Result<Welcome, LinkError> {
    match frame.kind {
        Kind::Welcome => {
            let welcome: Welcome = decode_body(frame.kind, frame.body)?;
            if !(VERSION_MIN..=VERSION_MAX).contains(&welcome.version) {
                return Err(LinkError::Version { spoken: welcome.version });
            }
            Ok(welcome)
        }
        Kind::Goodbye => Err(decode_body::<Goodbye>(frame.kind, frame.body)?.into()),
        other => Err(ProtocolError::Unexpected { kind: other.name() }.into()),
    }
}

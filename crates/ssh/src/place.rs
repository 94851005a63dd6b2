//! What the task of a channel has: its connection, its ends, and what the client has set.

use std::net::SocketAddr;
use std::sync::Arc;

use protocol::Text;
use protocol::requests::TerminalSize;
use russh::ChannelWriteHalf;
use russh::server::{Handle, Msg};
use tokio::sync::mpsc;

use crate::Options;
use crate::flow::Input;
use crate::login::Login;
use crate::trail::Trail;

/// What a channel's task has of its connection.
#[derive(Clone)]
pub struct Place {
    pub door: Arc<Options>,
    pub peer: SocketAddr,
    pub login: Login,
}

impl Place {
    pub fn trail(&self, operation: &str) -> Trail {
        Trail::begin(&self.door, &self.login, self.peer, operation)
    }
}

/// The ends of a channel that its task has.
pub struct Ends {
    pub writer: ChannelWriteHalf<Msg>,
    pub handle: Handle,
    pub input: Input,
    pub controls: mpsc::Receiver<Control>,
}

/// What a client has set before it starts a program.
#[derive(Debug, Default)]
pub struct Setting {
    pub variables: Vec<(Text, Text)>,
    /// Absent for pipes.
    pub terminal: Option<TerminalSize>,
}

/// What a client says to a program beside its input.
#[derive(Clone, Copy, Debug)]
pub enum Control {
    Resize(TerminalSize),
    Signal(i32),
}

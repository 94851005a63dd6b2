//! Where the output of a program goes that is run to its end.

use protocol::message::Channel;

use super::{Head, Memory};

/// Receives the outputs of a program as they arrive.
pub trait Sink {
    /// Bytes of one output, in their order.
    fn add(&mut self, channel: Channel, bytes: &[u8]);

    /// Bytes of one output were lost here. [`super::Ended`] counts them in any case.
    fn lose(&mut self, _channel: Channel, _bytes: u64) {}
}

/// A function for stdout and the terminal, and one for stderr.
impl<O: FnMut(&[u8]), E: FnMut(&[u8])> Sink for (O, E) {
    fn add(&mut self, channel: Channel, bytes: &[u8]) {
        match channel {
            Channel::Stderr => (self.1)(bytes),
            Channel::Stdout | Channel::Terminal => (self.0)(bytes),
        }
    }
}

/// The beginnings of both outputs. What is lost leaves no mark in them.
#[derive(Clone, Debug)]
pub struct Outputs<M> {
    /// Also a terminal's output.
    pub stdout: Head,
    pub stderr: Head,
    memory: M,
}

impl<M: Memory> Outputs<M> {
    /// Keeps at most so many bytes of each, as far as `memory` has room.
    pub fn new(bytes_max: usize, memory: M) -> Self {
        Self { stdout: Head::new(bytes_max), stderr: Head::new(bytes_max), memory }
    }

    /// Whether a byte of either was left out.
    pub fn is_cut(&self) -> bool {
        self.stdout.is_cut() || self.stderr.is_cut()
    }
}

impl<M: Memory> Sink for Outputs<M> {
    fn add(&mut self, channel: Channel, bytes: &[u8]) {
        match channel {
            Channel::Stderr => self.stderr.add(bytes, &self.memory),
            Channel::Stdout | Channel::Terminal => self.stdout.add(bytes, &self.memory),
        }
    }
}

//! A guest that sends whatever the test wants: bare frames over a socket pair.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream as StdStream;

use protocol::codec::{FrameBuffer, decode_body, encode_body, encode_message};
use protocol::data;
use protocol::frame::{Kind, encode_frame};
use protocol::hello::Goodbye;
use protocol::message::{Answer, Reply, RequestBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::agent::welcome;
use super::quick;
use crate::guest::Guest;

pub struct Raw {
    stream: UnixStream,
    frames: FrameBuffer,
}

impl Raw {
    /// A guest that has sent a welcome, and the host that accepted it.
    pub async fn meet() -> (Self, Guest) {
        let (ours, theirs) = StdStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let stream = UnixStream::from_std(ours).unwrap();
        let mut raw = Self { stream, frames: FrameBuffer::new() };
        let greeting = async {
            assert_eq!(raw.next().await.0, Kind::Hello);
            raw.send(Kind::Welcome, 0, &welcome(1)).await;
        };
        let (guest, ()) = tokio::join!(Guest::over(theirs, None, quick()), greeting);
        (raw, guest.unwrap())
    }

    /// The next frame from the host.
    pub async fn next(&mut self) -> (Kind, u64, Vec<u8>) {
        loop {
            if let Some(frame) = self.frames.take().unwrap() {
                return (frame.kind, frame.id, frame.body.to_vec());
            }
            let count = self.stream.read(self.frames.space()).await.unwrap();
            assert_ne!(count, 0, "the host closed the link");
            self.frames.filled(count);
        }
    }

    /// Whether nothing from the host waits to be read.
    pub fn receives_nothing(&mut self) -> bool {
        let space = self.frames.space();
        matches!(self.stream.try_read(space), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    pub async fn next_request(&mut self) -> (u64, RequestBody) {
        loop {
            let (kind, id, body) = self.next().await;
            if kind == Kind::Request {
                return (id, decode_body(kind, &body).unwrap());
            }
        }
    }

    pub async fn next_goodbye(&mut self) -> Goodbye {
        loop {
            let (kind, _, body) = self.next().await;
            if kind == Kind::Goodbye {
                return decode_body(kind, &body).unwrap();
            }
        }
    }

    pub async fn send<T: serde::Serialize>(&mut self, kind: Kind, id: u64, body: &T) {
        let mut bytes = Vec::new();
        encode_message(kind, id, body, &mut bytes);
        self.send_bytes(&bytes).await;
    }

    pub async fn reply(&mut self, id: u64, reply: Reply) {
        self.send_bytes(&frame(Kind::Reply, id, &encode_body(&Answer::Ok(reply)))).await;
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        // The host may have hung up already, which the test then sees on its side.
        self.stream.write_all(bytes).await.ok();
    }
}

pub fn frame(kind: Kind, id: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame(kind, id, body, &mut bytes);
    bytes
}

pub fn data(stream: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    data::encode_prefix(offset, payload.len() as u32, &mut body);
    body.extend_from_slice(payload);
    frame(Kind::Data, stream, &body)
}

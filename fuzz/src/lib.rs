//! What the fuzz targets share: an end that is fed arbitrary bytes.

use protocol::codec::{FrameBuffer, decode_body};
use protocol::frame::{Frame, Kind};
use protocol::hello::{Hello, StreamPosition, Welcome};
use protocol::limits::CONTROL_BYTES_MAX;
use protocol::message::{Answer, RequestBody};
use protocol::mux::{Direction, Fetched, Incoming, Mux, Side, Source};
use protocol::sorted::SortedSet;
use protocol::{StreamId, boot::BootConfig};

/// What the parsers name `host` is, of that crate, [`secret`] alone.
extern crate self as host;

/// The parsers of egress as they are in the bridge, of which they need nothing else.
#[path = "../../crates/egress/src"]
pub mod egress {
    pub mod dns;
    pub mod hello;
    pub mod host;
    pub mod http;
    pub mod inject;
    pub mod limits;
}

/// What egress puts into requests.
#[path = "../../crates/host/src/secret"]
pub mod secret {
    pub mod error;
    pub mod limits;
    pub mod value;

    pub use error::ProviderError;
    pub use value::{Secret, Wiped, wipe};
}

/// Every stream always has bytes, and ends at 1 MiB.
struct Endless;

impl Source for Endless {
    fn fetch(&mut self, _: StreamId, from: u64, max: usize, out: &mut Vec<u8>) -> Fetched {
        if from >= 1 << 20 {
            return Fetched::End;
        }
        out.resize(out.len() + max, 0);
        Fetched::Bytes(max)
    }
}

/// Feeds `data` to one end in slices, as a link would, until it refuses; nothing may panic, and
/// what waits to be sent stays bounded. The first byte says how large the slices are.
pub fn feed(side: Side, data: &[u8]) {
    let Some((slice, data)) = data.split_first() else { return };
    let mut frames = FrameBuffer::new();
    let mut mux = open_streams(side);
    let mut out = Vec::new();
    for piece in data.chunks(usize::from(*slice) + 1) {
        frames.extend(piece);
        loop {
            let frame = match frames.take() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => return,
            };
            if accept(&mut mux, frame).is_none() {
                return;
            }
            mux.transmit(&mut Endless, &mut out, 128 * 1024);
            assert!(out.len() <= CONTROL_BYTES_MAX, "an answer in proportion");
            out.clear();
            mux.take_completed();
        }
    }
}

fn open_streams(side: Side) -> Mux {
    let mut mux = Mux::new(side);
    let directions = [Direction::In, Direction::Out, Direction::Both];
    for (id, direction) in (0..).zip(directions) {
        mux.open(StreamId(id), direction, 0).expect("few streams");
    }
    mux
}

/// `None` when the frame costs the peer its link.
fn accept(mux: &mut Mux, frame: Frame<'_>) -> Option<()> {
    match frame.kind {
        Kind::Hello => {
            let hello: Hello = decode_body(frame.kind, frame.body).ok()?;
            resume(mux, &hello.resume?.streams);
        }
        Kind::Welcome => {
            let welcome: Welcome = decode_body(frame.kind, frame.body).ok()?;
            resume(mux, &welcome.streams);
        }
        Kind::Boot => {
            decode_body::<BootConfig>(frame.kind, frame.body).ok()?;
        }
        _ => match mux.accept(frame).ok()? {
            Incoming::Request { body, .. } => {
                decode_body::<RequestBody>(Kind::Request, body).ok()?;
            }
            Incoming::Reply { body, .. } => {
                decode_body::<Answer>(Kind::Reply, body).ok()?;
            }
            // The application takes whatever comes at once.
            Incoming::Data { stream, offset, bytes } => {
                mux.consumed(stream, offset + bytes.len() as u64);
            }
            Incoming::Gap { stream, to, .. } => {
                mux.consumed(stream, to);
            }
            _ => {}
        },
    }
    Some(())
}

fn resume(mux: &mut Mux, theirs: &[StreamPosition]) {
    mux.positions();
    mux.resume(theirs, &SortedSet::from_iter([StreamId(1)]));
}

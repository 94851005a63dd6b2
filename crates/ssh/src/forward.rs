//! `ssh -L`: one connection to a port of the sandbox itself.

use russh::ChannelOpenFailure;
use russh::ChannelWriteHalf;
use russh::server::{ChannelOpenHandle, Msg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use access::audit::Outcome;
use protocol::limits::CHUNK_BYTES_MAX;
use sandbox::Visit;
use sandbox::refusal::Refusal;
use services::forwards::Reached;

use crate::flow::Input;
use crate::place::Place;

/// The names of the sandbox itself. Anything else would be another host, whatever its rules of egress say.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The port of the sandbox that is meant; none for a port of another host.
pub fn port_of(host: &str, port: u32) -> Option<u16> {
    let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
    OWN_NAMES.contains(&host).then_some(port)
}

/// Connects, and carries both directions to their ends.
pub async fn carry(
    place: Place,
    port: u16,
    reply: ChannelOpenHandle,
    writer: ChannelWriteHalf<Msg>,
    input: Input,
) {
    let mut trail = place.trail("ssh_forward");
    trail.fact("port", u64::from(port));
    let Ok(visit) = trail.visit(&place.door, &place.login).await else {
        return reply.reject(ChannelOpenFailure::ConnectFailed).await;
    };
    let Visit { id, guest, activity, .. } = visit;
    match place.door.forwards.reach(&id, guest, activity, port).await {
        Ok(reached) => {
            reply.accept().await;
            exchange(reached, &writer, input).await;
            let _ = writer.close().await;
        }
        Err(error) => {
            trail.fail(Outcome::Refused, &Refusal::from(&error));
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
        }
    }
}

/// Each direction goes to its own end. One that breaks ends both.
async fn exchange(reached: Reached, writer: &ChannelWriteHalf<Msg>, mut input: Input) {
    let (mut reader, mut sink) = tokio::io::split(reached);
    let down = async {
        loop {
            let mut piece = vec![0; CHUNK_BYTES_MAX];
            let count = reader.read(&mut piece).await.map_err(drop)?;
            if count == 0 {
                return writer.eof().await.map_err(drop);
            }
            piece.truncate(count);
            writer.data_bytes(piece).await.map_err(drop)?;
        }
    };
    let up = async {
        while let Some(bytes) = input.next().await {
            sink.write_all(&bytes).await.map_err(drop)?;
        }
        sink.shutdown().await.map_err(drop)
    };
    let _: Result<((), ()), ()> = tokio::try_join!(down, up);
}

#[cfg(test)]
mod tests {
    use super::port_of;

    #[test]
    fn only_ports_of_the_sandbox_itself_are_meant() {
        assert_eq!(port_of("localhost", 80), Some(80));
        assert_eq!(port_of("::1", 65535), Some(65535));
        for (host, port) in [
            ("localhost", 0),
            ("127.0.0.1", 65536),
            ("example.org", 80),
            ("127.0.0.2", 80),
            ("", 80),
        ] {
            assert_eq!(port_of(host, port), None, "{host}:{port}");
        }
    }
}

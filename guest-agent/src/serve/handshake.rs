//! The handshake of a link: a hello is answered with a welcome or a goodbye.

use std::rc::Rc;
use std::time::Duration;

use protocol::codec::decode_body;
use protocol::frame::{Frame, Kind};
use protocol::hello::{
    Goodbye, GoodbyeReason, Hello, VERSION_MAX, VERSION_MIN, Welcome, common_version,
};
use protocol::limits::{NAME_BYTES_MAX, RESUME_WINDOW};
use protocol::mux::ProtocolError;
use protocol::{Token, fault};

use crate::agent::Agent;
use crate::limits::PEERS_MAX;
use crate::peer::Peer;
use crate::sys::entropy;

/// Answers a hello. Returns the client with the welcome to send, or the goodbye.
pub fn greet(agent: &Rc<Agent>, frame: Frame<'_>) -> Result<(Rc<Peer>, Welcome), Goodbye> {
    if frame.kind != Kind::Hello {
        return Err(ProtocolError::Unexpected { kind: frame.kind.name() }.goodbye());
    }
    let hello: Hello = decode_body(Kind::Hello, frame.body)
        .map_err(|error| ProtocolError::from(error).goodbye())?;
    let theirs = (hello.version_min, hello.version_max);
    let version = common_version((VERSION_MIN, VERSION_MAX), theirs).ok_or_else(|| Goodbye {
        reason: GoodbyeReason::Version,
        message: format!(
            "the agent speaks versions {VERSION_MIN} to {VERSION_MAX}, the host {} to {}",
            theirs.0, theirs.1
        ),
    })?;
    let known = agent.peers.get(hello.client);
    if known.as_ref().is_some_and(|known| hello.dial < known.dial()) {
        let message = "a newer link of the same client is open already".to_owned();
        return Err(Goodbye { reason: GoodbyeReason::Replaced, message });
    }
    let resumable = known.as_ref().zip(hello.resume.as_ref());
    let (peer, resumed) = match resumable {
        Some((peer, resume)) if peer.accepts(resume) => (peer.clone(), Some(peer.resume(resume))),
        _ => {
            if let Some(stale) = &known {
                agent.peers.remove(stale);
            }
            (new_peer(agent, &hello)?, None)
        }
    };
    let window = Duration::from_millis(hello.resume_window_ms).min(RESUME_WINDOW);
    peer.begin_link(hello.dial, window);
    let (streams, taken) = resumed.clone().unwrap_or_default();
    let welcome = Welcome {
        version,
        agent: agent.id.get(),
        token: peer.token(),
        resumed: resumed.is_some(),
        streams,
        taken,
        info: agent.ground.info(),
    };
    Ok((peer, welcome))
}

fn new_peer(agent: &Rc<Agent>, hello: &Hello) -> Result<Rc<Peer>, Goodbye> {
    if agent.peers.len() >= PEERS_MAX {
        let message = format!("{PEERS_MAX} clients are connected, which is the limit");
        return Err(Goodbye { reason: GoodbyeReason::Limit, message });
    }
    let mut token = [0; 16];
    entropy::fill(&mut token).map_err(|error| Goodbye {
        reason: GoodbyeReason::Limit,
        message: fault::clip(format!("no random numbers for a token: {error}")),
    })?;
    let name = hello.name.chars().filter(|c| !c.is_control()).take(NAME_BYTES_MAX).collect();
    let peer = Peer::new(hello.client, Token(token), name);
    agent.peers.insert(&peer);
    Ok(peer)
}

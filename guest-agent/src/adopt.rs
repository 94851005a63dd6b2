//! Adoption by a new host: the machine was restored from a snapshot, or taken from a pool.
//!
//! `router` calls it once for each `adopt`. It does everything before it returns, so that no other
//! request comes in between. Steps that can fail come first: a refused adoption has not changed the
//! agent's identity.

use std::io;
use std::rc::Rc;

use protocol::ids::is_name;
use protocol::limits::{ENTROPY_BYTES_MAX, ENTROPY_BYTES_MIN};
use protocol::message::{Adopted, Reply};
use protocol::requests::Adopt;
use protocol::{AgentId, Fault, FaultCode, RequestId, Token};

use crate::agent::Agent;
use crate::boot::network;
use crate::freeze;
use crate::peer::Peer;
use crate::process::environment::check_names;
use crate::sys::{clock, entropy};

/// Takes on a new identity for `peer`, which has requested it by request `id`.
pub fn adopt(
    agent: &Rc<Agent>,
    peer: &Rc<Peer>,
    id: RequestId,
    ask: Adopt,
) -> Result<Reply, Fault> {
    check(agent, &ask)?;
    let random = ask.entropy.as_bytes();
    if agent.ground.config.machine {
        entropy::mix(random).map_err(io_fault("the entropy cannot be mixed in"))?;
    }
    let drawn = "there are no random numbers";
    let own = draw(&random[..16]).map_err(io_fault(drawn))?;
    let token = Token(draw(&random[16..32]).map_err(io_fault(drawn))?);
    let mut warnings = Vec::new();
    if let Some(name) = &ask.hostname {
        let refused = |error: &dyn ToString| Fault::new(FaultCode::Io, error.to_string());
        network::set_name(name).map_err(|error| refused(&error))?;
        if let Err(error) = network::write_names(name) {
            warnings.push(error.to_string());
        }
    }
    let frozen_ms = freeze::thaw(&agent.ground).unwrap_or_else(|fault| {
        warnings.push(format!("programs are still frozen: {}", fault.message));
        0
    });
    let drift_us = drift_from(ask.time_us);
    let stepped = match agent.ground.config.machine.then(|| clock::set_wall(ask.time_us)) {
        Some(Err(error)) => {
            warnings.push(format!("the clock cannot be set: {error}"));
            false
        }
        step => step.is_some(),
    };
    let has_changed = agent.ground.environment.extend(ask.env);
    agent.id.set(AgentId(own));
    peer.rotate(id, token);
    agent.peers.keep_only(peer);
    if has_changed || ask.restored {
        agent.contexts.renew();
    }
    let adopted = Adopted { drift_us, stepped, agent: AgentId(own), token, frozen_ms, warnings };
    Ok(Reply::Adopted(adopted))
}

/// Sets the clock of a machine that was paused. Returns how far the clock was ahead, or `None` if it
/// cannot be set.
pub fn step(agent: &Agent, time_us: u64) -> Option<i64> {
    let drift_us = drift_from(time_us);
    (agent.ground.config.machine && clock::set_wall(time_us).is_ok()).then_some(drift_us)
}

/// How far this clock is ahead of the host's.
fn drift_from(host_us: u64) -> i64 {
    let host_us = i64::try_from(host_us).unwrap_or(i64::MAX);
    (clock::wall_us() as i64).saturating_sub(host_us)
}

fn check(agent: &Agent, ask: &Adopt) -> Result<(), Fault> {
    agent.ground.check_not_stopping()?;
    let invalid = |message: String| Err(Fault::new(FaultCode::Invalid, message));
    let bytes = ask.entropy.as_bytes().len();
    if !(ENTROPY_BYTES_MIN..=ENTROPY_BYTES_MAX).contains(&bytes) {
        let (min, max) = (ENTROPY_BYTES_MIN, ENTROPY_BYTES_MAX);
        return invalid(format!("{bytes} bytes of entropy are not within {min} and {max}"));
    }
    check_names(&ask.env)?;
    // It would make every later start fail.
    if ask
        .env
        .iter()
        .any(|(name, value)| [name, value].iter().any(|text| text.as_bytes().contains(&0)))
    {
        return invalid("the environment has a zero byte in it".to_owned());
    }
    agent.ground.environment.check_room(&ask.env)?;
    match &ask.hostname {
        Some(name) if !is_name(name, b"._-") => invalid(format!("{name:?} is not a host name")),
        Some(_) if !agent.ground.config.init => {
            let message = "this agent shares its machine, so it cannot change the host name";
            Err(Fault::new(FaultCode::Unsupported, message))
        }
        _ => Ok(()),
    }
}

/// Makes 16 random bytes that no clone of this machine has. The kernel's generator may have the same state in
/// a clone, so its bytes are combined with those that the host has given to this machine only.
fn draw(given: &[u8]) -> io::Result<[u8; 16]> {
    let mut drawn = [0; 16];
    entropy::fill(&mut drawn)?;
    drawn.iter_mut().zip(given).for_each(|(byte, given)| *byte ^= given);
    Ok(drawn)
}

fn io_fault(what: &'static str) -> impl Fn(io::Error) -> Fault {
    move |error| Fault::io(format!("{what}: {error}"), error.raw_os_error().unwrap_or(libc::EIO))
}

//! A machine's network, as the kernel command line gives it. Nothing is asked of the network itself.

use super::super::{BootError, Outcome, Stage};
use crate::sys::net;

pub(super) fn raise(stage: &mut Stage) -> Result<Outcome, BootError> {
    let Some(network) = &stage.facts().line.net else {
        return Ok(Outcome::Skipped("the kernel command line gives no network"));
    };
    net::raise(&network.interface, network.address, network.mask(), network.gateway)
        .map_err(BootError::path("raising the network interface", &network.interface))?;
    Ok(Outcome::Done)
}

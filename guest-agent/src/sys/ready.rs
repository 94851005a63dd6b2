//! Putting descriptors under the event loop's watch.
//!
//! `session` and `pid1` call it. Registering is `unsafe` in tokio because the loop would watch
//! another file if the descriptor were closed or exchanged meanwhile; the types here own their
//! descriptor, so that cannot happen.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::signalfd::SignalFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches a non-blocking descriptor. To be called within the runtime.
pub fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    register(descriptor, interest)
}

/// Watches for signals. To be called within the runtime.
pub fn watch_signals(descriptor: SignalFd) -> io::Result<AsyncFd<SignalFd>> {
    register(descriptor, Interest::READABLE)
}

fn register<T: AsRawFd>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: only called with types that own one descriptor for as long as they live.
    let registered = unsafe { AsyncFd::register_with_interest(owner, interest) };
    registered.map_err(|error| error.into_parts().1)
}

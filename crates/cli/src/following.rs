//! Printing that goes on until somebody ends it: `logs -f`, `events -f`.

use std::pin::pin;

use anyhow::Result;

use super::exit::Exit;
use super::terminal::{Notice, Notices};

/// Prints until there is nothing more, or until a signal ends it.
pub async fn until_ended(printing: impl Future<Output = Result<Exit>>) -> Result<Exit> {
    let mut notices = Notices::watch()?;
    let mut printing = pin!(printing);
    loop {
        tokio::select! {
            printed = &mut printing => return printed,
            notice = notices.next() => match notice {
                // The only way to end a following is no failure of it.
                Notice::End(nix::libc::SIGINT) => return Ok(Exit::SUCCESS),
                Notice::End(signal) => return Ok(Exit::signalled(signal)),
                Notice::Resized | Notice::Continued => {}
            },
        }
    }
}

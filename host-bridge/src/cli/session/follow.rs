//! Beside a session on pipes that somebody else started: what it writes is shown, and nothing is
//! asked of it. ctrl-c leaves, since it can go nowhere else.

use anyhow::{Context as _, Result};
use protocol::SessionId;
use protocol::message::Channel;
use protocol::requests::{Origin, Role};

use super::super::output::{self, Sink};
use super::screen::Left;
use crate::guest::{Guest, Output, Piece};
use crate::terminal::{Notice, Notices};

/// Follows both outputs of a session to its end, beginning with the newest `tail_bytes` of each.
pub async fn follow(guest: &Guest, session: &SessionId, tail_bytes: u64) -> Result<Left> {
    let mut notices = Notices::watch()?;
    let origin = Origin::Tail { bytes: tail_bytes };
    let stdout = guest.subscribe(session, Channel::Stdout, origin, Role::Observer {}).await?.0;
    let stderr = guest.subscribe(session, Channel::Stderr, origin, Role::Observer {}).await?.0;
    let ending = guest.wait_now(session)?;
    let copies = async {
        tokio::try_join!(copy(stdout, Sink::stdout()?), copy(stderr, Sink::stderr()?))?;
        anyhow::Ok(())
    };
    tokio::pin!(copies, ending);
    let mut copied = false;
    loop {
        tokio::select! {
            // Output that was written before the end is sent before the record of it.
            biased;
            result = &mut copies, if !copied => {
                result?;
                copied = true;
            }
            record = &mut ending => {
                return Ok(Left::Exited(record.context("the session's end is not known")?));
            }
            notice = notices.next() => match notice {
                Notice::End(nix::libc::SIGINT) => return Ok(Left::Detached),
                Notice::End(signal) => return Ok(Left::Signalled(signal)),
                Notice::Resized | Notice::Continued => {}
            },
        }
    }
}

async fn copy(mut output: Output, sink: Sink) -> Result<()> {
    loop {
        match output.next().await {
            Piece::Bytes { bytes, .. } => sink.write(bytes).await?,
            Piece::Gap { from, to } => {
                output::note(&format!(
                    "{} bytes were skipped, because they came too fast",
                    to - from
                ));
            }
            Piece::End => return Ok(()),
            Piece::Failed(error) => return Err(error.into()),
        }
    }
}

//! Bytes of a guest on their way to a client: a task for each, which ends with the stream, the
//! client or the deadline of the call.

use super::super::super::body::{Gone, Outgoing, Sink};
use super::super::super::call::{Call, passed};
use crate::guest::{GuestError, Output, Piece};
use crate::sandbox::Activity;

/// A body of what comes out of `output`. It is cut off unless all of it has come, so that no client
/// takes a part for the whole.
pub fn outflow(
    call: &Call,
    activity: Option<Activity>,
    output: Output,
    length: Option<u64>,
) -> Outgoing {
    let (sink, body) = Outgoing::pieces(length);
    let (deadline, request_id) = (call.deadline, call.request_id.clone());
    tokio::spawn(async move {
        let carried = tokio::select! {
            carried = carry(output, &sink) => carried,
            // The client is gone; dropping the output tells the guest.
            () = sink.closed() => Err(CutShort::Client(Gone)),
            () = passed(deadline) => Err(CutShort::Deadline),
        };
        match carried {
            Ok(()) => sink.finish(),
            Err(CutShort::Client(Gone)) => {}
            Err(error) => {
                let request = &*request_id.0;
                tracing::info!(target: "burrow::http", request, %error, "an answer is cut off");
            }
        }
        drop(activity);
    });
    body
}

/// Why an answer is not whole.
#[derive(Debug, thiserror::Error)]
enum CutShort {
    #[error(transparent)]
    Client(#[from] Gone),
    #[error(transparent)]
    Guest(#[from] GuestError),
    #[error("bytes {from} to {to} no longer exist")]
    Gap { from: u64, to: u64 },
    #[error("the deadline of the call has passed")]
    Deadline,
}

async fn carry(mut output: Output, sink: &Sink) -> Result<(), CutShort> {
    loop {
        match output.next().await {
            Piece::Bytes { bytes, .. } => sink.send(bytes).await?,
            Piece::Gap { from, to } => return Err(CutShort::Gap { from, to }),
            Piece::End => return Ok(()),
            Piece::Failed(error) => return Err(error.into()),
        }
    }
}

//! The border between the event loop and the threads that may block.
//!
//! Streams stay on the loop's thread; files stay on the pool's. Between them go whole pieces of
//! bytes, together with whatever makes or takes them, so that a thread is only ever held for one
//! piece and a slow client holds none.

use protocol::{Fault, FaultCode};
use tokio::task::JoinHandle;

use crate::flow::{Inlet, Outlet};

/// Makes the bytes of a stream out.
pub trait Producer: Send + 'static {
    /// Appends about [`super::limits::PIECE_BYTES`] to `piece`, and says what can be expected next.
    fn produce(&mut self, piece: &mut Vec<u8>) -> Result<Next, Fault>;
}

/// What follows a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Piece,
    End,
}

/// Takes the bytes of a stream in. When it is dropped, it undoes what is not to stay.
pub trait Consumer: Send + 'static {
    fn consume(&mut self, bytes: &[u8]) -> Result<(), Fault>;
}

/// Runs `work` where it may block.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    joined(tokio::task::spawn_blocking(work)).await
}

/// Sends all that `producer` makes, in the background.
pub fn send(producer: impl Producer, outlet: Outlet) {
    tokio::task::spawn_local(async move {
        match try_send(producer, &outlet).await {
            Ok(()) => outlet.close(),
            Err(fault) => outlet.fail(&fault),
        }
    });
}

/// One piece is made ready while the one before it is sent.
async fn try_send<P: Producer>(producer: P, outlet: &Outlet) -> Result<(), Fault> {
    let mut ahead = produce(producer, Vec::new());
    let mut spare = Vec::new();
    loop {
        let made = joined(ahead).await?;
        if made.next == Next::End {
            // When nobody reads any more there is nobody to tell of it either.
            outlet.write(&made.piece).await.ok();
            return Ok(());
        }
        ahead = produce(made.producer, spare);
        if outlet.write(&made.piece).await.is_err() {
            return Ok(());
        }
        spare = made.piece;
        spare.clear();
    }
}

struct Made<P> {
    producer: P,
    piece: Vec<u8>,
    next: Next,
}

fn produce<P: Producer>(mut producer: P, mut piece: Vec<u8>) -> JoinHandle<Result<Made<P>, Fault>> {
    tokio::task::spawn_blocking(move || {
        let next = producer.produce(&mut piece)?;
        Ok(Made { producer, piece, next })
    })
}

/// Hands all of a stream to `consumer`, and gives it back at the stream's end. On failure it is
/// dropped where that may block.
pub async fn receive<C: Consumer>(mut consumer: C, inlet: &Inlet) -> Result<C, Fault> {
    let mut taken = 0;
    loop {
        let piece = match inlet.next().await {
            Ok(Some(piece)) => piece,
            Ok(None) => return Ok(consumer),
            Err(fault) => {
                return blocking(move || {
                    drop(consumer);
                    Err(fault)
                })
                .await;
            }
        };
        taken += piece.len() as u64;
        consumer = blocking(move || {
            consumer.consume(&piece)?;
            Ok(consumer)
        })
        .await?;
        inlet.consumed(taken);
    }
}

async fn joined<T>(work: JoinHandle<Result<T, Fault>>) -> Result<T, Fault> {
    work.await.unwrap_or_else(|_| {
        Err(Fault::new(FaultCode::Io, "the agent's work on files broke off; that is its bug"))
    })
}

//! The border between the event loop and the threads that may block.
//!
//! Streams stay on the loop's thread; files stay on the pool's. Whole pieces of bytes pass between
//! them, together with their producer or consumer, so that a thread is only ever held for one piece
//! and a slow client holds none.

use protocol::Fault;
use protocol::message::Reply;

use crate::flow::{Inlet, Outlet};
use crate::task::{self, blocking};

/// Makes the bytes of a stream out.
pub trait Producer: Send {
    /// Appends about [`super::limits::PIECE_BYTES`] to `piece`, and returns what follows.
    fn produce(&mut self, piece: &mut Vec<u8>) -> Result<Next, Fault>;
}

/// What follows a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Piece,
    End,
}

/// Consumes the bytes of a stream. Dropping it undoes what must not stay.
pub trait Consumer: Send {
    fn consume(&mut self, bytes: &[u8]) -> Result<(), Fault>;

    /// The stream has ended; its result stays.
    fn finish(self: Box<Self>) -> Result<Reply, Fault>;
}

/// Sends all that `producer` makes, in the background.
pub fn send(producer: Box<dyn Producer>, outlet: Outlet) {
    task::spawn(async move {
        match try_send(producer, &outlet).await {
            Ok(()) => outlet.close(),
            Err(fault) => outlet.fail(&fault),
        }
    });
}

/// One piece is made ready while the one before it is sent.
async fn try_send(producer: Box<dyn Producer>, outlet: &Outlet) -> Result<(), Fault> {
    let mut ahead = produce(producer, Vec::new());
    let mut spare = Vec::new();
    loop {
        let made = ahead.await?;
        if made.next == Next::End {
            // Without a reader, nobody needs the error either.
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

struct ProducedPiece {
    producer: Box<dyn Producer>,
    piece: Vec<u8>,
    next: Next,
}

fn produce(
    mut producer: Box<dyn Producer>,
    mut piece: Vec<u8>,
) -> impl Future<Output = Result<ProducedPiece, Fault>> {
    blocking(move || {
        let next = producer.produce(&mut piece)?;
        Ok(ProducedPiece { producer, piece, next })
    })
}

/// Passes a whole stream to `consumer`, and answers with its result. On failure the consumer is
/// dropped on a thread that may block.
pub async fn receive(mut consumer: Box<dyn Consumer>, inlet: &Inlet) -> Result<Reply, Fault> {
    let mut taken = 0;
    loop {
        let piece = match inlet.next().await {
            Ok(Some(piece)) => piece,
            Ok(None) => return blocking(move || consumer.finish()).await,
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

//! Connections of the control socket that become an archive of a snapshot, on its way out or in.

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use control::limits::CONTROL_WRITE_DEADLINE;
use control::line::write_line;
use control::message::{Answer, ErrorCode, ErrorReply, Reply};
use sandbox::{Registry, SandboxRef};

/// Answers, and sends the archive. A client that does not read sets the pace.
pub(super) async fn export(
    registry: &Registry,
    which: &SandboxRef,
    writer: &mut OwnedWriteHalf,
) -> Result<Reply, ErrorReply> {
    let export = match registry.export_snapshot(which).await {
        Ok(export) => export,
        Err(error) => return Err(refuse(writer, error.into()).await),
    };
    let reply = Reply::Exported { bytes: export.bytes() };
    answer(writer, Answer::Ok(reply.clone())).await;
    let mut pieces = export.pieces();
    while let Some(piece) = pieces.recv().await {
        let sent = match piece {
            Ok(piece) => writer.write_all(&piece).await,
            Err(error) => Err(error),
        };
        // The client sees that bytes are missing.
        sent.map_err(|error| ErrorReply::new(ErrorCode::Io, error.to_string(), None))?;
    }
    Ok(reply)
}

/// Answers, reads the archive up to the end of what the client writes, and answers again.
pub(super) async fn import(
    registry: &Registry,
    which: Option<SandboxRef>,
    reader: &mut BufReader<OwnedReadHalf>,
    writer: &mut OwnedWriteHalf,
) -> Result<Reply, ErrorReply> {
    answer(writer, Answer::Ok(Reply::Importing {})).await;
    let import = registry.import_snapshot(which, None);
    loop {
        let piece = tokio::select! {
            // A client that is slow learns at once why no more is wanted.
            biased;
            () = import.refused() => break,
            read = reader.fill_buf() => match read {
                Ok(bytes) => bytes.to_vec(),
                // What has come is no whole archive.
                Err(_) => break,
            },
        };
        reader.consume(piece.len());
        if piece.is_empty() || !import.push(piece).await {
            break;
        }
    }
    match import.finish().await {
        Ok(snapshot) => {
            let reply = Reply::Snapshot(Box::new(snapshot));
            answer(writer, Answer::Ok(reply.clone())).await;
            Ok(reply)
        }
        Err(error) => Err(refuse(writer, error.into()).await),
    }
}

async fn refuse(writer: &mut OwnedWriteHalf, refusal: ErrorReply) -> ErrorReply {
    answer(writer, Answer::Error(refusal.clone())).await;
    refusal
}

/// A client that does not read its answer does not get it.
async fn answer(writer: &mut OwnedWriteHalf, answer: Answer) {
    let _ = timeout(CONTROL_WRITE_DEADLINE, write_line(writer, &answer)).await;
}

//! Input of a program: a message of it, a stream of messages, and its end.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::message::SessionInfo;
use serde::Deserialize;
use serde_json::json;

use super::{About, Selector, running};
use crate::call::Call;
use crate::e2b::connect::{Envelopes, Message, Messages, done, parse, stream as answer};
use crate::e2b::limits::TYPING_PAUSE_MAX;
use crate::e2b::seat;
use crate::sessions::typing::write;
use crate::shape::{Nothing, Octets, Raw};
use sandbox::refusal::{Code, Refusal};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SendAsk {
    process: Selector,
    input: Typed,
}

/// Bytes for a pipe or for a terminal.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Typed {
    stdin: Option<String>,
    pty: Option<String>,
}

/// One message of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Piece {
    start: Option<About>,
    data: Option<Data>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Data {
    input: Typed,
}

impl Typed {
    fn into_bytes(self, info: &SessionInfo) -> Result<Vec<u8>, Refusal> {
        let text = match (info.terminal, self.stdin, self.pty) {
            (true, None, Some(text)) | (false, Some(text), None) => text,
            (_, None, None) => String::new(),
            (true, ..) => return Err(Refusal::invalid("this process has a terminal: send pty")),
            (false, ..) => {
                return Err(Refusal::invalid("this process has no terminal: send stdin"));
            }
        };
        let decoded = STANDARD.decode(text);
        decoded.map_err(|error| Refusal::invalid(format!("the input is not base64: {error}")))
    }
}

pub async fn send(call: Call, _: Nothing, Message(ask): Message<SendAsk>) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let info = running(&inside, &call, &ask.process).await?;
    let bytes = ask.input.into_bytes(&info)?;
    write(call.api.typists(), &inside.guest, &info.session, &bytes, false).await?;
    Ok(done(&json!({})))
}

pub async fn close(call: Call, _: Nothing, Message(ask): Message<About>) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let info = running(&inside, &call, &ask.process).await?;
    if info.terminal {
        let message = "a terminal has no end of input; send the character of ctrl-d";
        return Err(Refusal::new(Code::Internal, message));
    }
    match write(call.api.typists(), &inside.guest, &info.session, b"", true).await {
        // It is closed already.
        Err(refusal) if matches!(refusal.code, Code::Gone | Code::Conflict | Code::Invalid) => {}
        closed => closed?,
    }
    Ok(done(&json!({})))
}

/// Types what comes, as it comes: the client may wait for an answer of the program before it sends more.
pub async fn stream(mut call: Call, _: Nothing, _: Octets) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    call.body.be_patient(TYPING_PAUSE_MAX);
    let mut envelopes = Envelopes::default();
    let first = envelopes.next(&mut call.body).await?;
    let first: Piece = parse(&first.unwrap_or_default())?;
    let Some(start) = first.start else {
        return Err(Refusal::invalid("the first message names no process"));
    };
    let info = running(&inside, &call, &start.process).await?;
    while let Some(message) = envelopes.next(&mut call.body).await? {
        let piece: Piece = parse(&message)?;
        if let Some(data) = piece.data {
            let bytes = data.input.into_bytes(&info)?;
            write(call.api.typists(), &inside.guest, &info.session, &bytes, false).await?;
        }
    }
    let response = answer(&mut call, |messages: Messages| async move {
        let _ = messages.send(&json!({})).await;
        Ok(())
    })?;
    Ok(Raw(response))
}

//! Whether an app answers: a connection from inside its sandbox, a question in HTTP, and any status
//! at all.

use tokio::time::{sleep, timeout};

use super::limits::{TRY_PAUSE_MAX, TRY_PAUSE_MIN, TRY_TIME_MAX};
use agent_client::guest::{Guest, GuestError, Piece};

/// The beginning of an HTTP answer, which identifies it.
const ANSWER: &[u8] = b"HTTP/";
/// Enough of an answer to contain the status.
const STATUS_LINE_BYTES: usize = b"HTTP/1.1 200".len();

/// Why an app has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReadyReason {
    /// Nothing accepts connections.
    Refused,
    /// Something does, but at another address than 127.0.0.1.
    Aside,
    /// Something does, and sends nothing.
    Mute,
    /// Something does, and sends no HTTP.
    Babble,
}

/// Asks until there is an answer. `silence` says why there is none so far.
pub async fn answers(
    guest: &Guest,
    port: u16,
    path: &str,
    silence: &mut NotReadyReason,
) -> Result<(), GuestError> {
    let mut pause = TRY_PAUSE_MIN;
    loop {
        match timeout(TRY_TIME_MAX, ask(guest, port, path)).await {
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(why))) => *silence = why,
            Ok(Err(error)) => return Err(error),
            Err(_) => *silence = NotReadyReason::Mute,
        }
        sleep(pause).await;
        pause = (pause * 2).min(TRY_PAUSE_MAX);
    }
}

/// One question, and why there was no answer to it.
async fn ask(guest: &Guest, port: u16, path: &str) -> Result<Option<NotReadyReason>, GuestError> {
    let (mut writer, mut output) = match guest.forward(None, port).await {
        Ok(connected) => connected,
        Err(GuestError::Fault(_)) => return Ok(Some(NotReadyReason::Refused)),
        Err(error) => return Err(error),
    };
    let question =
        format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    if writer.write(question.as_bytes()).await.is_err() {
        return Ok(Some(NotReadyReason::Mute));
    }
    let mut response = Vec::new();
    while response.len() < STATUS_LINE_BYTES {
        match output.next().await {
            Piece::Bytes { bytes, .. } => response.extend(bytes.iter().take(STATUS_LINE_BYTES)),
            Piece::Gap { .. } | Piece::End | Piece::Failed(_) => break,
        }
    }
    Ok(judge(&response))
}

fn judge(response: &[u8]) -> Option<NotReadyReason> {
    if response.is_empty() {
        Some(NotReadyReason::Mute)
    } else if response.len() >= STATUS_LINE_BYTES && response.starts_with(ANSWER) {
        None
    } else {
        Some(NotReadyReason::Babble)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_status_is_an_answer_and_nothing_else_is() {
        assert_eq!(judge(b"HTTP/1.1 200 OK"), None);
        assert_eq!(judge(b"HTTP/1.0 500"), None);
        assert_eq!(judge(b""), Some(NotReadyReason::Mute));
        assert_eq!(judge(b"HTTP/1.1"), Some(NotReadyReason::Babble));
        assert_eq!(judge(b"220 mail.example ESMTP"), Some(NotReadyReason::Babble));
    }
}

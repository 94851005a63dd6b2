//! Messages of Jupyter's protocol on a WebSocket, in both framings. Pure.
//!
//! ```text
//!  without a subprotocol   one JSON text with `channel`, `header`, `parent_header`, `metadata`, `content`
//!  [`V1`]                  count, then offsets (u64, little-endian), the channel, and the four as JSON, in bytes
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::limits::HEADER_BYTES_MAX;
use sandbox::refusal::Refusal;

/// The subprotocol with messages in bytes.
pub const V1: &str = "v1.kernel.websocket.jupyter.org";
/// The channel, header, parent header, metadata and content.
const PARTS: usize = 5;
const OFFSET_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Text,
    Binary,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    #[default]
    Shell,
    Control,
    Stdin,
    Iopub,
}

impl Channel {
    fn name(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Control => "control",
            Self::Stdin => "stdin",
            Self::Iopub => "iopub",
        }
    }
}

/// What a client has sent.
#[derive(Debug)]
pub struct Request {
    pub channel: Channel,
    pub kind: String,
    /// Its header, as the answers carry it.
    pub parent: Bytes,
    pub content: Content,
}

/// The fields of all requests. What a request does not know is passed over, and takes no memory.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Content {
    pub code: String,
    pub silent: bool,
    pub store_history: Option<bool>,
    pub allow_stdin: bool,
    pub stop_on_error: Option<bool>,
    /// Characters, as Unicode counts them.
    pub cursor_pos: Option<u32>,
    /// The line for a question.
    pub value: String,
    pub restart: bool,
    pub comm_id: String,
    pub hist_access_type: String,
    pub n: Option<usize>,
    pub start: i64,
    pub stop: Option<i64>,
    pub pattern: String,
}

#[derive(Deserialize)]
struct Whole {
    /// `jupyter_server`'s own client leaves it out.
    #[serde(default)]
    channel: Channel,
    header: Map<String, Value>,
    content: Content,
}

/// Reads a message without a subprotocol.
pub fn parse_text(text: &str) -> Result<Request, Refusal> {
    let whole: Whole = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
    request(whole.channel, &whole.header, whole.content)
}

/// Reads a message of [`V1`]. Buffers behind the content are passed over: nothing here takes any.
pub fn parse_binary(bytes: &[u8]) -> Result<Request, Refusal> {
    let count = offset(bytes, 0)?;
    if count <= PARTS || count > bytes.len() / OFFSET_BYTES {
        let message =
            format!("the message has {count} offsets; it must have at least {}", PARTS + 1);
        return Err(Refusal::invalid(message));
    }
    let part = |number: usize| {
        let (from, to) = (offset(bytes, 1 + number)?, offset(bytes, 2 + number)?);
        bytes.get(from..to).ok_or_else(|| {
            let message =
                format!("the message has {} bytes, and a part from {from} to {to}", bytes.len());
            Refusal::invalid(message)
        })
    };
    let channel = String::from_utf8_lossy(part(0)?);
    let channel: Channel =
        serde_json::from_value(Value::from(channel)).map_err(|error| unreadable(&error))?;
    let header: Map<_, _> = serde_json::from_slice(part(1)?).map_err(|error| unreadable(&error))?;
    let content = serde_json::from_slice(part(4)?).map_err(|error| unreadable(&error))?;
    request(channel, &header, content)
}

fn request(
    channel: Channel,
    header: &Map<String, Value>,
    content: Content,
) -> Result<Request, Refusal> {
    let Some(kind) = header.get("msg_type").and_then(Value::as_str) else {
        return Err(Refusal::invalid("the header of the message has no msg_type"));
    };
    // A map with keys of text is always JSON.
    let parent = serde_json::to_vec(header).unwrap_or_default();
    if parent.len() > HEADER_BYTES_MAX {
        let message = format!(
            "the header of the message has {} bytes; at most {HEADER_BYTES_MAX} are allowed",
            parent.len()
        );
        return Err(Refusal::invalid(message));
    }
    Ok(Request { channel, kind: kind.to_owned(), parent: parent.into(), content })
}

fn unreadable(error: &serde_json::Error) -> Refusal {
    Refusal::invalid(format!("the message is not one of Jupyter's: {error}"))
}

fn offset(bytes: &[u8], number: usize) -> Result<usize, Refusal> {
    let at = number.saturating_mul(OFFSET_BYTES);
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk::<OFFSET_BYTES>());
    let value = field.and_then(|field| usize::try_from(u64::from_le_bytes(*field)).ok());
    value.ok_or_else(|| Refusal::invalid("the message ends within its offsets"))
}

/// A message to clients, as JSON in its parts.
#[derive(Debug)]
pub struct Outgoing {
    channel: Channel,
    header: Bytes,
    parent: Bytes,
    content: Bytes,
    /// They are at the top of a text, too.
    id: String,
    kind: String,
}

impl Outgoing {
    /// The message of a kernel's session, with this number.
    pub fn new(
        channel: Channel,
        kind: &str,
        (session, number): (&str, u64),
        parent: &Bytes,
        content: &Value,
    ) -> Self {
        let id = format!("{session}_{number}");
        let header = json!({
            "msg_id": id, "msg_type": kind, "session": session, "username": "kernel",
            "date": host::instant::format(host::instant::now_ms()), "version": super::specs::PROTOCOL,
        });
        let bytes = |value: &Value| Bytes::from(value.to_string());
        let parent = if parent.is_empty() { Bytes::from_static(b"{}") } else { parent.clone() };
        let (header, content) = (bytes(&header), bytes(content));
        Self { channel, header, parent, content, id, kind: kind.to_owned() }
    }

    /// What it takes while it waits, and when it is sent.
    pub fn memory_bytes(&self) -> usize {
        2 * (self.header.len() + self.parent.len() + self.content.len()) + 256
    }

    pub fn encode(&self, framing: Framing) -> Bytes {
        match framing {
            Framing::Text => self.text(),
            Framing::Binary => self.binary(),
        }
    }

    fn text(&self) -> Bytes {
        let (id, kind) = (Value::from(self.id.as_str()), Value::from(self.kind.as_str()));
        let head = format!(
            "{{\"channel\":\"{}\",\"msg_id\":{id},\"msg_type\":{kind},",
            self.channel.name()
        );
        let mut text = BytesMut::with_capacity(self.memory_bytes() / 2);
        for part in [
            head.as_bytes(),
            b"\"buffers\":[],\"metadata\":{},\"header\":",
            &self.header,
            b",\"parent_header\":",
            &self.parent,
            b",\"content\":",
            &self.content,
            b"}",
        ] {
            text.put_slice(part);
        }
        text.freeze()
    }

    fn binary(&self) -> Bytes {
        let parts: [&[u8]; PARTS] =
            [self.channel.name().as_bytes(), &self.header, &self.parent, b"{}", &self.content];
        let mut bytes = BytesMut::with_capacity(self.memory_bytes() / 2);
        bytes.put_u64_le(PARTS as u64 + 1);
        let mut at = OFFSET_BYTES * (1 + PARTS + 1);
        bytes.put_u64_le(at as u64);
        for part in parts {
            at += part.len();
            bytes.put_u64_le(at as u64);
        }
        for part in parts {
            bytes.put_slice(part);
        }
        bytes.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Outgoing {
        let content = json!({ "code": "é\n", "cursor_pos": 2 });
        Outgoing::new(Channel::Shell, "execute_request", ("s", 7), &Bytes::new(), &content)
    }

    #[test]
    fn a_message_reads_back_in_both_framings() {
        let message = sample();
        let text = message.encode(Framing::Text);
        let binary = message.encode(Framing::Binary);
        for read in [
            parse_text(std::str::from_utf8(&text).unwrap()).unwrap(),
            parse_binary(&binary).unwrap(),
        ] {
            assert_eq!((read.channel, read.kind.as_str()), (Channel::Shell, "execute_request"));
            assert_eq!((read.content.code.as_str(), read.content.cursor_pos), ("é\n", Some(2)));
            assert!(read.parent.starts_with(b"{"));
        }
    }

    #[test]
    fn no_bytes_of_a_client_are_more_than_refused() {
        let whole = sample().encode(Framing::Binary);
        for length in 0..whole.len() {
            assert!(parse_binary(&whole[..length]).is_err(), "{length}");
        }
        for at in 0..56 {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.to_vec();
                changed[at] = byte;
                drop(parse_binary(&changed));
            }
        }
        for text in ["", "[]", "{}", r#"{"channel":"shell","header":{},"content":{}}"#] {
            assert!(parse_text(text).is_err(), "{text}");
        }
        let long = format!(
            r#"{{"channel":"shell","header":{{"msg_type":"a","x":"{}"}},"content":{{}}}}"#,
            "x".repeat(HEADER_BYTES_MAX)
        );
        assert!(parse_text(&long).is_err());
    }
}

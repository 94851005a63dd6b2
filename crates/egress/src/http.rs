//! The client's side of an HTTP/1 connection. Each request is checked against the host that the
//! connection is for before any of its bytes are forwarded. Pure. Its input is untrusted and may arrive
//! in pieces of any size.
//!
//! ```text
//!            ┌───────────── the next request ──────────────┐
//!            ▼                                             │
//!  head ─▶ judged ─┬─▶ body of so many bytes ──────────────┤
//!                  ├─▶ pieces, each with its size, a tail ─┤
//!                  └─▶ upgrade: nothing more, until the server has agreed; then anything
//! ```
//!
//! A server and this parser must agree on where each request ends, or a second request could hide in the
//! first. So anything ambiguous is refused: two lengths, a length with chunked encoding, folded lines, bare
//! line feeds. Some servers skip the body of a request that needs none, and find the next request in it: such
//! a request is the last of its connection, and the server is asked to close.

pub(super) mod bad_request;
mod head;
mod last;
mod second;

pub use bad_request::BadRequest;
pub use head::{Head, authority};
pub use last::LastAnswer;
pub use second::refusal as refusal_in_second;

use std::sync::Arc;

use super::host::Host;
use super::inject::Injections;
use super::limits::{HEAD_BYTES_MAX, PIECE_LINE_BYTES_MAX};

/// What may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// This many bytes.
    Body {
        left: u64,
    },
    /// The line with the size of a piece.
    Size,
    Piece {
        left: u64,
    },
    /// The end of a piece's line.
    PieceEnd,
    /// The trailer after the last chunk, up to an empty line.
    Tail {
        bytes: usize,
    },
    /// A request to switch protocols was sent.
    Upgrade,
    /// The only request that there may be has been sent.
    Over,
}

/// The requests of one connection.
#[derive(Debug)]
pub struct Requests {
    host: Host,
    port: u16,
    state: State,
    /// Bytes that cannot be judged yet.
    held: Vec<u8>,
    /// Requests whose head has gone on.
    count: u64,
    only_one: bool,
    /// The secrets for placeholders in heads.
    secrets: Option<Arc<Injections>>,
    used: Vec<String>,
}

impl Requests {
    pub fn new(host: Host, port: u16) -> Self {
        Self {
            host,
            port,
            state: State::Head,
            held: Vec::new(),
            count: 0,
            only_one: false,
            secrets: None,
            used: Vec::new(),
        }
    }

    /// For a connection that is read here: placeholders in its heads become secrets.
    pub fn with_secrets(host: Host, port: u16, secrets: Arc<Injections>) -> Self {
        Self { secrets: Some(secrets), ..Self::new(host, port) }
    }

    /// The secrets that have gone out since this was last asked.
    pub fn take_used(&mut self) -> Vec<String> {
        std::mem::take(&mut self.used)
    }

    /// For the rest of a request whose head was already checked, and for nothing after it.
    pub fn rest_of(host: Host, port: u16, head: &Head) -> Result<Self, BadRequest> {
        let mut requests = Self::new(host, port);
        requests.only_one = true;
        requests.state = requests.body_of(head)?;
        if requests.state == State::Upgrade {
            let protocol = head::shown(head.one("upgrade")?.unwrap_or_default());
            return Err(BadRequest::Upgrade { protocol });
        }
        Ok(requests)
    }

    /// Whether the server must agree before anything more is forwarded.
    pub fn awaits_agreement(&self) -> bool {
        self.state == State::Upgrade
    }

    /// The server declined to switch protocols, so the client continues with HTTP.
    pub fn declined(&mut self) {
        self.state = self.next();
    }

    /// Whether the first request is the only one.
    pub fn is_only_one(&self) -> bool {
        self.only_one
    }

    /// Whether the only request has been sent.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Takes bytes from the client, and appends what may be forwarded to `out`.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<(), BadRequest> {
        while !bytes.is_empty() {
            match self.state {
                State::Head => {
                    let Some(line_end) = self.hold_to(&mut bytes, b"\r\n\r\n", HEAD_BYTES_MAX)?
                    else {
                        break;
                    };
                    let head = std::mem::take(&mut self.held);
                    debug_assert_eq!(line_end, head.len(), "the head is all that is held");
                    let judged = self.judge(&head)?;
                    let head = self.as_it_goes_on(&judged, head)?;
                    match &self.secrets {
                        None => out.extend_from_slice(&head),
                        Some(secrets) => {
                            let (filled, used) = secrets.fill(&self.host, &head)?;
                            out.extend_from_slice(&filled);
                            self.used.extend(used);
                        }
                    }
                }
                State::Body { left } => {
                    let left = pass(&mut bytes, left, out);
                    self.state = if left == 0 { self.next() } else { State::Body { left } };
                }
                State::Size => {
                    let held = self.hold_to(&mut bytes, b"\r\n", PIECE_LINE_BYTES_MAX)?;
                    if held.is_none() {
                        break;
                    }
                    let line = std::mem::take(&mut self.held);
                    let size = piece_size(&line)?;
                    out.extend_from_slice(&line);
                    self.state = if size == 0 {
                        State::Tail { bytes: 0 }
                    } else {
                        State::Piece { left: size }
                    };
                }
                State::Piece { left } => {
                    let left = pass(&mut bytes, left, out);
                    self.state = if left == 0 { State::PieceEnd } else { State::Piece { left } };
                }
                State::PieceEnd => {
                    let held = self.hold_to(&mut bytes, b"\r\n", 2)?;
                    if held.is_none() {
                        break;
                    }
                    out.append(&mut self.held);
                    self.state = State::Size;
                }
                State::Tail { bytes: before } => {
                    let held = self.hold_to(&mut bytes, b"\r\n", PIECE_LINE_BYTES_MAX)?;
                    let Some(length) = held else { break };
                    let total = before + length;
                    if total > HEAD_BYTES_MAX {
                        return Err(BadRequest::TooLong);
                    }
                    head::check_line(&self.held)?;
                    out.append(&mut self.held);
                    self.state =
                        if length == 2 { self.next() } else { State::Tail { bytes: total } };
                }
                State::Upgrade => {
                    return Err(BadRequest::Malformed(
                        "it sends data before the server has agreed to upgrade",
                    ));
                }
                State::Over => return Err(BadRequest::Malformed("it sends more than one request")),
            }
        }
        Ok(())
    }

    fn next(&self) -> State {
        if self.only_one { State::Over } else { State::Head }
    }

    /// Holds bytes up to and with `end`, and says how many they are; `None` while it is not there.
    fn hold_to(
        &mut self,
        bytes: &mut &[u8],
        end: &[u8],
        max: usize,
    ) -> Result<Option<usize>, BadRequest> {
        // The end may begin in the held bytes.
        let from = self.held.len().saturating_sub(end.len() - 1);
        let before = self.held.len();
        let room = (max + 1).saturating_sub(before).min(bytes.len());
        self.held.extend_from_slice(&bytes[..room]);
        let found = self.held[from..].windows(end.len()).position(|window| window == end);
        let found = found.filter(|at| from + at + end.len() <= max);
        let Some(at) = found else {
            if self.held.len() > max {
                return Err(if end.len() == 4 {
                    BadRequest::TooLong
                } else {
                    BadRequest::Malformed("a chunk of its body has an invalid size")
                });
            }
            *bytes = &bytes[room..];
            return Ok(None);
        };
        let length = from + at + end.len();
        self.held.truncate(length);
        *bytes = &bytes[length - before..];
        Ok(Some(length))
    }

    fn judge(&mut self, bytes: &[u8]) -> Result<Head, BadRequest> {
        let head = Head::parse(bytes)?;
        if head.method == "CONNECT" {
            return Err(BadRequest::Tunnel);
        }
        // The answer to these methods repeats the request, with the injected secrets.
        let shows = ["TRACE", "TRACK"].iter().any(|one| head.method.eq_ignore_ascii_case(one));
        if shows && self.secrets.is_some() {
            return Err(BadRequest::Shown);
        }
        head.check_host(&self.host, self.port)?;
        self.state = self.body_of(&head)?;
        self.count += 1;
        Ok(head)
    }

    /// A checked head, without the parts that must not be forwarded.
    fn as_it_goes_on(&mut self, judged: &Head, head: Vec<u8>) -> Result<Vec<u8>, BadRequest> {
        let head = if judged.offers_second()? { second::without_offer(&head) } else { head };
        if judged.has_needless_body()? {
            self.only_one = true;
            return Ok(head::closing(&head));
        }
        Ok(head)
    }

    /// The body after a head.
    fn body_of(&self, head: &Head) -> Result<State, BadRequest> {
        let length = head.length()?;
        // Other protocols carry requests of their own, which would not be checked. Some servers switch
        // protocols without the `connection` token.
        if let Some(protocol) = head.one("upgrade")?.filter(|protocol| !second::is_offer(protocol))
        {
            let is_meant = head.lists("connection", "upgrade");
            let is_plain = is_meant && length == head::Length::Bytes(0) && self.count == 0;
            if !protocol.eq_ignore_ascii_case("websocket") || !is_plain {
                return Err(BadRequest::Upgrade { protocol: head::shown(protocol) });
            }
            return Ok(State::Upgrade);
        }
        Ok(match length {
            head::Length::Bytes(0) => self.next(),
            head::Length::Bytes(left) => State::Body { left },
            head::Length::Pieces => State::Size,
        })
    }
}

/// Passes on up to `left` bytes, and says how many are left.
fn pass(bytes: &mut &[u8], left: u64, out: &mut Vec<u8>) -> u64 {
    let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    out.extend_from_slice(&bytes[..count]);
    *bytes = &bytes[count..];
    left - count as u64
}

fn piece_size(line: &[u8]) -> Result<u64, BadRequest> {
    /// Sixteen digits are all that a `u64` has.
    const DIGITS_MAX: usize = 15;
    let wrong = BadRequest::Malformed("a chunk of its body has an invalid size");
    head::check_line(line)?;
    let line = line.strip_suffix(b"\r\n").unwrap_or(line);
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let text = std::str::from_utf8(digits).map_err(|_| wrong.clone())?;
    let is_plain = text.len() <= DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_plain {
        return Err(wrong);
    }
    u64::from_str_radix(text, 16).map_err(|_| wrong)
}

/// Whether a server's answer agrees to switch protocols; `None` while it is too short to know.
pub fn agrees(answer: &[u8]) -> Option<bool> {
    const AGREES: &[u8] = b"HTTP/1.1 101 ";
    let length = answer.len().min(AGREES.len());
    if answer[..length] != AGREES[..length] {
        return Some(false);
    }
    (length == AGREES.len()).then_some(true)
}

/// How an HTTP/2 connection begins.
const SECOND: &[u8] = b"PRI * HTTP/2";

/// Whether the first bytes of a connection are those of the second version.
pub fn is_second(bytes: &[u8]) -> bool {
    bytes.starts_with(SECOND)
}

/// Whether the first bytes of a connection can be those of an HTTP/1 request; `None` while too few
/// are there.
pub fn is_request(bytes: &[u8]) -> Option<bool> {
    /// No method that is in use has more letters.
    const METHOD_BYTES_MAX: usize = 32;
    let method = bytes.iter().position(|byte| !(byte.is_ascii_uppercase() || *byte == b'-'));
    match method {
        // HTTP/2 begins so, and hides what follows.
        Some(_) if is_second(bytes) => Some(false),
        Some(0) => Some(false),
        Some(3) if bytes.starts_with(b"PRI ") && bytes.len() < SECOND.len() => None,
        Some(end) => Some(bytes[end] == b' ' && end <= METHOD_BYTES_MAX),
        None if bytes.len() > METHOD_BYTES_MAX => Some(false),
        None => None,
    }
}

#[cfg(test)]
mod tests;

//! The answer to one request that could not be done. It ends nothing else.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::exit::SpawnFailure;
use crate::limits::TEXT_BYTES_MAX;
use crate::{decode_enum, decode_struct};

/// What went wrong with one request, for programs (`code`) and for people (`message`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    pub code: FaultCode,
    /// One sentence that names the request's object and why it was refused.
    pub message: String,
    /// The kernel's error number, where the kernel refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// How a start failed, for [`FaultCode::SpawnFailed`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawn: Option<SpawnFailure>,
}

decode_struct!(Fault: code, message; errno, spawn);

/// The kinds of refusal that a program may need to distinguish. Codes are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultCode {
    /// The request contradicts itself or breaks a rule; asking again will not help.
    Invalid,
    /// No such session, stream, file or user.
    NotFound,
    /// It is there already.
    Exists,
    /// It exists, and differs from what this request would make.
    Conflict,
    /// A named limit is reached; asking again later may help.
    Limit,
    /// The program could not be started; `spawn` says at which step.
    SpawnFailed,
    /// The kernel refused; `errno` says why.
    Io,
    /// Somebody else took it over, or it ended meanwhile.
    Gone,
    /// This agent cannot do that here.
    Unsupported,
    /// A path leads out of where it must stay.
    Denied,
    /// The agent is stopping and takes no new work.
    Stopping,
}

decode_enum! {
    FaultCode:
    Invalid, NotFound, Exists, Conflict, Limit, SpawnFailed, Io, Gone, Unsupported, Denied, Stopping
}

impl FaultCode {
    pub const ALL: [Self; 11] = [
        Self::Invalid,
        Self::NotFound,
        Self::Exists,
        Self::Conflict,
        Self::Limit,
        Self::SpawnFailed,
        Self::Io,
        Self::Gone,
        Self::Unsupported,
        Self::Denied,
        Self::Stopping,
    ];

    /// The word on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not_found",
            Self::Exists => "exists",
            Self::Conflict => "conflict",
            Self::Limit => "limit",
            Self::SpawnFailed => "spawn_failed",
            Self::Io => "io",
            Self::Gone => "gone",
            Self::Unsupported => "unsupported",
            Self::Denied => "denied",
            Self::Stopping => "stopping",
        }
    }
}

impl fmt::Display for FaultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Fault {
    pub fn new(code: FaultCode, message: impl Into<String>) -> Self {
        Self { code, message: clip(message.into()), errno: None, spawn: None }
    }

    /// A refusal of the kernel's. `ENOENT` and `EEXIST` get codes of their own, because callers
    /// branch on them.
    pub fn io(message: impl Into<String>, errno: i32) -> Self {
        const ENOENT: i32 = 2;
        const EEXIST: i32 = 17;
        let code = match errno {
            ENOENT => FaultCode::NotFound,
            EEXIST => FaultCode::Exists,
            _ => FaultCode::Io,
        };
        Self { code, message: clip(message.into()), errno: Some(errno), spawn: None }
    }

    pub fn spawn(message: impl Into<String>, failure: SpawnFailure) -> Self {
        Self {
            code: FaultCode::SpawnFailed,
            message: clip(message.into()),
            errno: Some(failure.errno),
            spawn: Some(failure),
        }
    }
}

/// Cuts `text` to [`TEXT_BYTES_MAX`] at a character border.
pub fn clip(text: String) -> String {
    clip_to(text, TEXT_BYTES_MAX)
}

/// Cuts `text` to `bytes_max` at a character border.
pub fn clip_to(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

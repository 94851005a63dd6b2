//! The forms of contexts, and of the interpreter in a request.

use protocol::repl::{ContextInfo, ContextState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use sandbox::refusal::Refusal;

/// The current state of a context.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Context")]
pub struct OpenedContext {
    pub context: String,
    /// The language's own name.
    pub language: String,
    pub state: ContextStateName,
    /// The current interpreter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Interpreter")]
    pub interpreter: Option<Interpreter>,
    /// How many interpreters the context has had, including the current one.
    pub interpreters: u64,
    /// How many runs have started.
    pub runs: u64,
    /// The current run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub running: Option<u64>,
    /// How many runs are waiting.
    pub queued: u32,
    pub opened_at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub cwd: Option<String>,
    /// How the last interpreter ended, until a run has reported that its variables are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub lost: Option<String>,
    /// Requested options that this host could not provide.
    pub warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContextStateName {
    /// It has no interpreter; the next run starts one.
    Cold,
    Starting,
    Idle,
    Running,
    /// A run is being interrupted.
    Interrupting,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interpreter {
    pub pid: u32,
    pub program: String,
    /// Its version, such as `3.11.7`.
    pub version: String,
}

/// The interpreter that is asked for: a program, or that of a virtual environment.
pub fn interpreter_of(
    program: Option<String>,
    venv: Option<String>,
) -> Result<Option<String>, Refusal> {
    match (program, venv) {
        (Some(_), Some(_)) => Err(Refusal::invalid("give `program` or `venv`, not both")),
        (None, Some(venv)) => Ok(Some(format!("{}/bin/python", venv.trim_end_matches('/')))),
        (program, None) => Ok(program),
    }
}

impl From<ContextInfo> for OpenedContext {
    fn from(info: ContextInfo) -> Self {
        let state = match info.state {
            ContextState::Cold => ContextStateName::Cold,
            ContextState::Starting => ContextStateName::Starting,
            ContextState::Idle => ContextStateName::Idle,
            ContextState::Running => ContextStateName::Running,
            ContextState::Interrupting => ContextStateName::Interrupting,
        };
        let interpreter = info.interpreter.map(|living| Interpreter {
            pid: living.pid,
            program: living.program,
            version: living.version,
        });
        Self {
            context: info.context.to_string(),
            language: info.language,
            state,
            interpreter,
            interpreters: info.interpreters,
            runs: info.runs,
            running: info.running,
            queued: info.queued,
            opened_at_ms: info.opened_at_ms,
            cwd: info.cwd.map(|path| path.to_string()),
            lost: info.lost,
            warnings: info.warnings,
        }
    }
}

/// The offset of the byte after so many characters; `None` beyond the last.
pub fn byte_at(code: &str, characters: u32) -> Option<usize> {
    let starts = code.char_indices().map(|(at, _)| at).chain([code.len()]);
    starts.into_iter().nth(characters as usize)
}

/// How many characters precede a byte.
pub fn characters_before(code: &str, byte: u64) -> u32 {
    let before = usize::try_from(byte).ok().and_then(|byte| code.get(..byte));
    before.map_or(0, |before| before.chars().count() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_counts_characters_and_not_bytes() {
        let code = "é€𝄞x";
        let bytes: Vec<_> = (0..6).map(|cursor| byte_at(code, cursor)).collect();
        assert_eq!(bytes, [Some(0), Some(2), Some(5), Some(9), Some(10), None]);
        for cursor in 0..5 {
            let byte = byte_at(code, cursor).expect("a place") as u64;
            assert_eq!(characters_before(code, byte), cursor);
        }
        assert_eq!(byte_at("", 0), Some(0));
        assert_eq!(byte_at("", 1), None);
    }
}

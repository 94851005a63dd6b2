//! The keepers: code that runs beside a notebook's code in its interpreter, and saves its variables.
//!
//! One file for each language, loaded by the bridge's [`aside`](agent_client::guest::RunCode::aside) runs;
//! the agent knows nothing of them. Orders to them are code, and their answers are JSON on stdout, which is
//! as trustworthy as the guest.

use std::time::Duration;

use protocol::repl::OpenContext;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::timeout;

use super::error::NotebookError;
use super::limits::{
    ANSWER_BYTES_MAX, ORDER_DEADLINE, ORDER_MARGIN, RESTORE_DEADLINE, SAVE_TIME, STATE_BYTES_MAX,
    VALUE_BYTES_MAX,
};
use super::manifest::{Dependent, LostName, Unavailable, mended};
use agent_client::guest::contexts::language;
use agent_client::guest::{Guest, RunCode};

const PYTHON: &str = include_str!("keeper.py");
const NODE: &str = include_str!("keeper.js");
/// The file name of orders in tracebacks.
const NAME: &str = "<burrow>";

/// The languages whose variables can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    Python,
    Node,
}

/// A keeper's answer to a save.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SaveReply {
    pub state: SaveState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SaveState {
    /// A child does it.
    Started,
    /// It is done.
    Done,
    /// A child before it is still under way.
    Again,
    /// The interpreter is another, which has not the notebook's variables.
    Foreign,
    /// The keeper is not there yet.
    Bare,
}

/// A keeper's answer to a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Restored {
    pub state: String,
    #[serde(default, rename = "restored")]
    pub names: Vec<String>,
    #[serde(default)]
    pub lost: Vec<LostName>,
    #[serde(default)]
    pub depends: Vec<Dependent>,
    #[serde(default)]
    pub unavailable: Vec<Unavailable>,
    /// Why the working directory is different.
    #[serde(default)]
    pub cwd: Option<String>,
}

#[derive(Deserialize)]
struct TokenReply {
    ours: bool,
}

#[derive(Deserialize)]
struct Count {
    count: u64,
}

/// A keeper in one interpreter, which `token` identifies.
pub struct Orders<'a> {
    pub keeper: Keeper,
    pub guest: &'a Guest,
    pub context: &'a OpenContext,
    pub token: &'a str,
}

impl Keeper {
    pub fn of(language: &str) -> Option<Self> {
        let language = language::called(language)?;
        [Self::Python, Self::Node].into_iter().find(|keeper| keeper.language() == language)
    }

    pub fn language(self) -> &'static str {
        match self {
            Self::Python => language::PYTHON.name,
            Self::Node => language::NODE.name,
        }
    }
}

impl Keeper {
    /// Whether it must be loaded before any code that could change its building blocks. The other
    /// is loaded when it is first needed, which nobody waits for.
    pub fn comes_first(self) -> bool {
        self == Self::Node
    }
}

impl Orders<'_> {
    /// Whether the interpreter is the one that has the notebook's variables.
    pub async fn is_ours(&self) -> Result<bool, NotebookError> {
        let token = quoted(self.token);
        let code = match self.keeper {
            Keeper::Python => {
                format!(
                    "answer('{{\"ours\": true}}' if globals().get('token') == {token} else '{{\"ours\": false}}')"
                )
            }
            Keeper::Node => {
                format!(
                    "answer(aside.kept.token === {token} ? '{{\"ours\":true}}' : '{{\"ours\":false}}')"
                )
            }
        };
        let answer: TokenReply = self.ask(code, ORDER_DEADLINE).await?;
        Ok(answer.ours)
    }

    /// Makes the interpreter ours.
    pub async fn claim(&self) -> Result<(), NotebookError> {
        let token = quoted(self.token);
        let code = match self.keeper {
            Keeper::Python => format!("token = {token}"),
            Keeper::Node => format!("aside.kept.token = {token}"),
        };
        self.order(code, ORDER_DEADLINE).await.map(drop)
    }

    /// Puts the keeper into the interpreter.
    pub async fn install(&self) -> Result<(), NotebookError> {
        let code = match self.keeper {
            Keeper::Python => PYTHON,
            Keeper::Node => NODE,
        };
        self.order(code.to_owned(), ORDER_DEADLINE).await.map(drop)
    }

    /// `mark` identifies this save's manifest.
    pub async fn save(&self, directory: &str, mark: &str) -> Result<SaveState, NotebookError> {
        let (directory, token, mark) = (quoted(directory), quoted(self.token), quoted(mark));
        let (bytes, value) = (STATE_BYTES_MAX, VALUE_BYTES_MAX);
        let code = match self.keeper {
            Keeper::Python => {
                let seconds = SAVE_TIME.as_secs();
                format!(
                    "answer('{{\"state\": \"foreign\"}}' if globals().get('token') != {token} else \
                     '{{\"state\": \"bare\"}}' if 'save' not in globals() else dump_json(save(space, \
                     {directory}, time_max_s={seconds}, bytes_max={bytes}, value_bytes_max={value}, mark={mark})))"
                )
            }
            Keeper::Node => {
                let ms = SAVE_TIME.as_millis();
                format!(
                    "answer(aside.kept.token !== {token} ? '{{\"state\":\"foreign\"}}' : \
                     !aside.kept.keeper ? '{{\"state\":\"bare\"}}' : \
                     aside.kept.keeper.stringify(aside.kept.keeper.save({directory}, \
                     {{time_max_ms: {ms}, bytes_max: {bytes}, value_bytes_max: {value}, mark: {mark}}})))"
                )
            }
        };
        // Without a child process, the order itself is the whole save.
        let begun: SaveReply = self.ask(code, ORDER_DEADLINE + SAVE_TIME).await?;
        Ok(begun.state)
    }

    pub async fn restore(&self, directory: &str) -> Result<Restored, NotebookError> {
        let directory = quoted(directory);
        let code = match self.keeper {
            Keeper::Python => format!("answer(dump_json(restore(space, {directory})))"),
            Keeper::Node => format!(
                "const k = aside.kept.keeper; answer(k.stringify(await k.restore({directory})))"
            ),
        };
        self.ask(code, RESTORE_DEADLINE).await
    }

    /// Deletes names that are kept and cannot be loaded.
    pub async fn forget(&self, directory: &str, names: &[String]) -> Result<(), NotebookError> {
        let (directory, names) = (quoted(directory), json!(names).to_string());
        let code = match self.keeper {
            // Without a keeper nothing was restored, so nothing failed.
            Keeper::Python => format!("'forget' in globals() and forget({directory}, {names})"),
            Keeper::Node => format!("aside.kept.keeper?.forget({directory}, {names})"),
        };
        self.order(code, ORDER_DEADLINE).await.map(drop)
    }

    /// Compiled forms that the interpreter caches; `clear` drops them.
    pub async fn compiled(&self, clear: bool) -> Result<u64, NotebookError> {
        let code = match self.keeper {
            // Only Python's driver caches any.
            Keeper::Node => return Ok(0),
            Keeper::Python if clear => "answer('{\"count\": %d}' % len(codes))\ncodes.clear()",
            Keeper::Python => "answer('{\"count\": %d}' % len(codes))",
        };
        let answer: Count = self.ask(code.to_owned(), ORDER_DEADLINE).await?;
        Ok(answer.count)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        code: String,
        deadline: Duration,
    ) -> Result<T, NotebookError> {
        let code = match self.keeper {
            Keeper::Python => format!("answer = lambda text: say(chr(0) + text + chr(0))\n{code}"),
            Keeper::Node => {
                format!("const answer = (text) => aside.say('\\0' + text + '\\0');\n{code}")
            }
        };
        let answer = self.order(code, deadline).await?;
        serde_json::from_slice(&mended(framed(&answer))).map_err(|error| NotebookError::Keeper {
            what: format!("its answer cannot be read: {error}"),
        })
    }

    async fn order(&self, code: String, deadline: Duration) -> Result<Vec<u8>, NotebookError> {
        let mut ask = RunCode::new(self.context.clone(), code);
        ask.name = Some(NAME.to_owned());
        ask.deadline = Some(deadline);
        ask.aside = true;
        let run = self.guest.run_code_now(ask)?;
        let collecting = run.collect(ANSWER_BYTES_MAX);
        // The deadline is the guest's to keep; one that does not must not hold up its notebook.
        let ran = timeout(deadline + ORDER_MARGIN, collecting).await.map_err(|_| {
            NotebookError::Keeper { what: "its agent does not answer".to_owned() }
        })??;
        if let Some(error) = ran.error() {
            let what = format!("{}: {}", error.kind, error.message);
            return Err(NotebookError::Keeper { what: what.chars().take(WORDS_MAX).collect() });
        }
        if ran.is_truncated() || !matches!(ran.finished.end, protocol::repl::RunEnd::Ok {}) {
            return Err(NotebookError::Keeper { what: format!("{:?}", ran.finished.end) });
        }
        Ok(ran.stdout())
    }
}

/// The answer within all output: loaded modules may print, and so may threads.
fn framed(answer: &[u8]) -> &[u8] {
    let frames = answer.split(|byte| *byte == FRAME);
    frames.rev().nth(1).unwrap_or_default()
}

/// Stands on both sides of an answer.
const FRAME: u8 = 0;

/// How much of a keeper's failure is shown.
const WORDS_MAX: usize = 1000;

/// A text as both languages write it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

//! The request for a run, and a client's messages while it runs.

use std::time::Duration;

use protocol::ContextName;
use protocol::limits::INTERRUPT_GRACE;
use protocol::repl::{self, OpenContext};
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::limits::{GRACE_MAX, TIMEOUT_MAX};
use crate::call::Inside;
use crate::v1::contexts::{find, unknown};
use crate::v1::exec::OnDisconnect;
use crate::v1::exec::limits::{OUTPUT_BYTES_DEFAULT, OUTPUT_BYTES_MAX};
use agent_client::guest::contexts::language;
use agent_client::guest::contexts::open;
use sandbox::refusal::Refusal;

/// What the name of a language looks like: it may be that of a context.
const LANGUAGE: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$";

/// Code to run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// At most 16 MiB.
    #[schemars(length(max = 16_777_216))]
    pub code: String,
    /// `python`, `node`, `bash`, or an alias of one of them. Needed if the context is not open and
    /// is not named like a language. A run without a context uses Python by default.
    #[serde(default)]
    #[schemars(regex(pattern = LANGUAGE))]
    pub language: Option<String>,
    /// A name for the code, stored in the history; only for runs in notebooks. Reuse of compiled
    /// code depends on the code alone.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub cache_key: Option<String>,
    /// The name of the code in tracebacks.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub name: Option<String>,
    /// The time limit of the run from its start, without waiting. A run that takes longer is
    /// interrupted, and its result says so. By default only the deadline of the call applies.
    #[serde(default)]
    #[schemars(range(min = 1, max = 86_400_000))]
    pub timeout_ms: Option<u64>,
    #[serde(default, deserialize_with = "object")]
    pub grace: Grace,
    /// The code's input, which it reads line by line.
    #[serde(default)]
    pub stdin: Option<String>,
    /// Whether a client answers the code's requests for input when `stdin` is used up. If not, the
    /// code reads the end of the input.
    #[serde(default)]
    pub input: bool,
    /// How many bytes of stdout and stderr a buffered run keeps, and as many of everything else
    /// together; 8 MiB by default.
    #[serde(default)]
    #[schemars(range(max = 67_108_864))]
    pub output_bytes_max: Option<u64>,
    /// What happens when its client disconnects: the run is interrupted, or it continues and its
    /// output goes to the followers of the context.
    #[serde(default)]
    pub on_disconnect: OnDisconnect,
    /// Keep its artifacts: pictures and documents that it displays, files that it offers, and new
    /// and changed files in the directory of its context and in `/artifacts`.
    #[serde(default)]
    pub artifacts: bool,
}

/// How long each step of an interrupt may take before the next step; 2 s by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grace {
    /// An interrupt, like ctrl-c.
    #[serde(default)]
    #[schemars(range(max = 3_600_000))]
    pub polite_ms: Option<u64>,
    /// An interrupt that code cannot catch. After it, the interpreter is killed.
    #[serde(default)]
    #[schemars(range(max = 3_600_000))]
    pub firm_ms: Option<u64>,
}

/// An object and nothing else: a list of values would do, too, without the names that say what they are.
fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    let fields = Map::<String, Value>::deserialize(deserializer)?;
    serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom)
}

/// Which run to interrupt.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterruptRequest {
    /// The number of the run; by default the current or the next one.
    #[serde(default)]
    #[schemars(range(max = u64::MAX))]
    pub run: Option<u64>,
    #[serde(default, deserialize_with = "object")]
    pub grace: Grace,
}

/// The run that is being interrupted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interrupted {
    /// Its number; absent if there was no run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub run: Option<u64>,
}

/// The answer to an `input_request`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputAnswer {
    #[schemars(range(max = u64::MAX))]
    pub run: u64,
    #[schemars(range(max = u64::MAX))]
    pub request: u64,
    /// The line, with or without its newline; without it, the input ends.
    #[serde(default)]
    #[schemars(length(max = 1_044_480))]
    pub line: Option<String>,
}

/// A client's message on the WebSocket of a run, after the first one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum RunOrder {
    /// Answers an `input_request`.
    Input {
        request: u64,
        /// The line; without it, the input ends.
        #[serde(default)]
        line: Option<String>,
    },
    Interrupt {
        #[serde(default)]
        grace: Grace,
    },
}

impl RunRequest {
    /// Refuses what the numbers of this request must not be.
    pub fn check(&self) -> Result<(), Refusal> {
        within("timeout_ms", self.timeout_ms, 1, TIMEOUT_MAX.as_millis() as u64)?;
        within("output_bytes_max", self.output_bytes_max, 0, OUTPUT_BYTES_MAX)?;
        self.grace.check()
    }

    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }

    pub fn output_bytes_max(&self) -> u64 {
        self.output_bytes_max.unwrap_or(OUTPUT_BYTES_DEFAULT)
    }

    /// The context that a run is of which names none: the one that is called like its language.
    pub fn usual_context(&self) -> Result<ContextName, Refusal> {
        let name = self.language.as_deref().unwrap_or(language::DEFAULT);
        let own = language::called(name).unwrap_or(name);
        own.parse().map_err(|error| Refusal::invalid(format!("language: {error}")))
    }

    /// The context to run in, with the options to open it. The guest is asked for what is open
    /// only where the request leaves something to that.
    pub async fn open(
        &self,
        inside: &Inside,
        context: ContextName,
    ) -> Result<OpenContext, Refusal> {
        let workdir = inside.workdir.clone();
        let implied = || language::called(context.as_str()).map(str::to_owned);
        let named = self.language.clone();
        if let (Some(language), None) = (named.clone().or_else(implied), &workdir) {
            let mut request = open(context, language);
            inside.guest.settle(&mut request).await?;
            return Ok(request);
        }
        match (find(inside, &context).await?, named) {
            (Some(known), named) => Ok(open(context, named.unwrap_or(known.language))),
            (None, named) => {
                let language = named.or_else(implied).ok_or_else(|| unknown(&context))?;
                let cwd = workdir.map(Into::into);
                let user = inside.user.clone();
                Ok(OpenContext { cwd, user, ..open(context, language) })
            }
        }
    }
}

impl Grace {
    pub fn check(&self) -> Result<(), Refusal> {
        let max = GRACE_MAX.as_millis() as u64;
        within("grace.polite_ms", self.polite_ms, 0, max)?;
        within("grace.firm_ms", self.firm_ms, 0, max)
    }
}

impl From<Grace> for repl::Grace {
    fn from(grace: Grace) -> Self {
        Self { polite_ms: grace.polite_ms, firm_ms: grace.firm_ms }
    }
}

/// Refuses a number outside of its bounds.
fn within(what: &str, value: Option<u64>, min: u64, max: u64) -> Result<(), Refusal> {
    match value {
        Some(value) if !(min..=max).contains(&value) => {
            let message = format!("{what} must be from {min} to {max}, not {value}");
            Err(Refusal::invalid(message).details(serde_json::json!({ "limit": max })))
        }
        _ => Ok(()),
    }
}

const _: () = assert!(INTERRUPT_GRACE.as_secs() == 2, "see the schema");

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> RunRequest {
        serde_json::from_str(text).expect(text)
    }

    #[test]
    fn a_run_without_a_context_is_in_that_of_its_language() {
        for (text, context) in [
            (r#"{"code":""}"#, "python"),
            (r#"{"code":"","language":"py"}"#, "python"),
            (r#"{"code":"","language":"javascript"}"#, "node"),
            (r#"{"code":"","language":"ruby"}"#, "ruby"),
        ] {
            assert_eq!(request(text).usual_context().expect("a name").as_str(), context);
        }
        assert!(request(r#"{"code":"","language":"a b"}"#).usual_context().is_err());
    }

    #[test]
    fn numbers_outside_of_their_bounds_are_refused() {
        for (text, is_fine) in [
            (r#"{"code":"","timeout_ms":1}"#, true),
            (r#"{"code":"","timeout_ms":0}"#, false),
            (r#"{"code":"","timeout_ms":86400001}"#, false),
            (r#"{"code":"","output_bytes_max":67108864}"#, true),
            (r#"{"code":"","output_bytes_max":67108865}"#, false),
            (r#"{"code":"","grace":{"polite_ms":0,"firm_ms":3600000}}"#, true),
            (r#"{"code":"","grace":{"firm_ms":3600001}}"#, false),
        ] {
            assert_eq!(request(text).check().is_ok(), is_fine, "{text}");
        }
    }
}

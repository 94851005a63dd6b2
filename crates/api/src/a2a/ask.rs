//! The bodies that this client sends, and the sandboxes and programs that they describe.

use std::collections::BTreeMap;
use std::iter;

use protocol::requests::Program;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use crate::forms::ranges::{CPUS_MAX, cpu_millis};
use crate::forms::sandboxes::{LABEL_KEY, NAME};
use crate::limits::TIMEOUT_MS_MAX;
use sandbox::limits::{LABELS_MAX, MEMORY_MIB_MAX, MEMORY_MIB_MIN};
use sandbox::refusal::Refusal;
use sandbox::{Name, SandboxRef, Spec};

/// The client's name for the workspace of a caller who has not chosen one: this, or this prefix
/// and the name of the sandbox.
const BUCKET_OF_ONE_SHOTS: &str = "agent-workspace";
const BUCKET_PREFIX: &str = "agent-";
/// [`TIMEOUT_MS_MAX`] as the client says it.
const TIMEOUT_SECONDS_MAX: f64 = (TIMEOUT_MS_MAX / 1000) as f64;
const TIMEOUT_SECONDS_MIN: f64 = 0.001;

/// Declares the body of a call with a sandbox: fields of its own, and the options of the
/// sandbox. Not flattened, for the reason that `exec` gives.
macro_rules! call_body {
    ($(#[$about:meta])* $name:ident { $($(#[$own:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$own])* pub $field: $kind,)*
            /// The workspace.
            #[serde(default)]
            pub bucket: Option<String>,
            #[serde(default)]
            pub image: Option<String>,
            #[serde(default)]
            #[schemars(range(min = MEMORY_MIB_MIN, max = MEMORY_MIB_MAX))]
            pub memory_mib: Option<u64>,
            #[serde(default)]
            #[schemars(range(min = 0, max = CPUS_MAX))]
            pub cpus: Option<f64>,
            #[serde(default)]
            #[schemars(extend("propertyNames" = { "pattern": LABEL_KEY }, "maxProperties" = LABELS_MAX))]
            pub labels: BTreeMap<String, String>,
            #[serde(default)]
            pub egress: Option<Vec<String>>,
            #[serde(default)]
            pub secrets: Vec<String>,
        }

        impl $name {
            /// The options of the sandbox.
            pub fn spec(self, which: SandboxRef) -> Result<Spec, Refusal> {
                Ok(Spec {
                    workspace: self.bucket.filter(|bucket| is_meant(bucket, &which.name)),
                    image: self.image,
                    memory_mib: self.memory_mib,
                    cpu_millis: self.cpus.map(cpu_millis).transpose()?,
                    labels: self.labels,
                    egress: self.egress,
                    secrets: self.secrets,
                    ..Spec::new(which)
                })
            }
        }
    };
}

call_body! {
    /// A sandbox to make.
    Make {
        #[schemars(with = "String", regex(pattern = NAME))]
        name: Name,
    }
}

call_body! {
    /// Python to run in a sandbox of its own.
    RunPython {
        code: String,
        #[serde(default)]
        #[schemars(range(min = TIMEOUT_SECONDS_MIN, max = TIMEOUT_SECONDS_MAX))]
        timeout_seconds: Option<f64>,
    }
}

call_body! {
    /// A script to run in a sandbox of its own.
    RunShell {
        script: String,
        #[serde(default)]
        #[schemars(range(min = TIMEOUT_SECONDS_MIN, max = TIMEOUT_SECONDS_MAX))]
        timeout_seconds: Option<f64>,
    }
}

/// What to run: a program with its arguments, or a script.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{ "required": ["cmd"] }, { "required": ["script"] }]))]
pub struct Execute {
    #[serde(default, deserialize_with = "text")]
    #[schemars(with = "String", length(min = 1))]
    pub cmd: Option<String>,
    /// The program's arguments.
    #[serde(default)]
    #[schemars(length(max = 16383))]
    pub args: Vec<String>,
    #[serde(default, deserialize_with = "text")]
    #[schemars(with = "String")]
    pub script: Option<String>,
    #[serde(default)]
    #[schemars(range(min = TIMEOUT_SECONDS_MIN, max = TIMEOUT_SECONDS_MAX))]
    pub timeout_seconds: Option<f64>,
}

/// A field that may be left out, but not be `null`: one of the two must be there.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    String::deserialize(from).map(Some)
}

impl RunPython {
    pub fn timeout_ms(&self) -> Result<Option<u64>, Refusal> {
        milliseconds(self.timeout_seconds)
    }
}

impl RunShell {
    pub fn timeout_ms(&self) -> Result<Option<u64>, Refusal> {
        milliseconds(self.timeout_seconds)
    }
}

impl Execute {
    pub fn timeout_ms(&self) -> Result<Option<u64>, Refusal> {
        milliseconds(self.timeout_seconds)
    }

    pub fn what(self) -> Result<Program, Refusal> {
        match (self.cmd, self.script) {
            (Some(cmd), None) => Ok(Program::argv(iter::once(cmd).chain(self.args))),
            (None, Some(script)) => Ok(Program::script(script)),
            _ => Err(Refusal::invalid("give exactly one of `cmd` and `script`")),
        }
    }
}

/// Whether a caller has asked for that workspace.
fn is_meant(bucket: &str, sandbox: &Name) -> bool {
    let is_drawn = bucket.strip_prefix(BUCKET_PREFIX) == Some(sandbox.as_str());
    !is_drawn && bucket != BUCKET_OF_ONE_SHOTS
}

fn milliseconds(seconds: Option<f64>) -> Result<Option<u64>, Refusal> {
    let Some(seconds) = seconds else { return Ok(None) };
    if !(TIMEOUT_SECONDS_MIN..=TIMEOUT_SECONDS_MAX).contains(&seconds) {
        return Err(Refusal::invalid(format!(
            "timeout_seconds must be from {TIMEOUT_SECONDS_MIN} to {TIMEOUT_SECONDS_MAX}, not {seconds}"
        )));
    }
    Ok(Some((seconds * 1000.0).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    #[test]
    fn a_bucket_that_nobody_has_asked_for_is_no_workspace() {
        for (bucket, is_asked_for) in
            [("agent-work", false), ("agent-workspace", false), ("agent-other", true), ("w", true)]
        {
            assert_eq!(is_meant(bucket, &name("work")), is_asked_for, "{bucket}");
        }
    }

    #[test]
    fn a_length_that_is_none_is_refused() {
        assert_eq!(milliseconds(None).expect("none"), None);
        assert_eq!(milliseconds(Some(0.5)).expect("a length"), Some(500));
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, TIMEOUT_SECONDS_MAX * 2.0] {
            assert!(milliseconds(Some(seconds)).is_err(), "{seconds}");
        }
    }

    #[test]
    fn a_program_or_a_script_is_run_and_never_both() {
        let parsed = |text: &str| serde_json::from_str::<Execute>(text).expect(text).what();
        assert!(
            matches!(parsed(r#"{"cmd":"ls","args":["-l"]}"#), Ok(program) if program == Program::argv(["ls", "-l"]))
        );
        assert!(matches!(parsed(r#"{"script":"ls"}"#), Ok(Program::Script { .. })));
        assert!(parsed(r#"{"script":"ls","cmd":"ls"}"#).is_err());
        assert!(parsed("{}").is_err());
    }
}

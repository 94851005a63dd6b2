//! What that client asks for, and what it is in the words of the native API.

use std::collections::BTreeMap;
use std::iter;

use protocol::requests::Program;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::limits::TIMEOUT_MS_MAX;
use crate::problem::Problem;
use crate::v1::{CPUS_MAX, CreateSandbox, LABEL_KEY, NAME};
use sandbox::Name;
use sandbox::limits::{LABELS_MAX, MEMORY_MIB_MAX, MEMORY_MIB_MIN};

/// What the client calls the workspace of a caller who has not asked for one: this, or this prefix
/// and the name of the sandbox.
const BUCKET_OF_ONE_SHOTS: &str = "agent-workspace";
const BUCKET_PREFIX: &str = "agent-";
/// [`TIMEOUT_MS_MAX`] as the client says it.
const TIMEOUT_SECONDS_MAX: f64 = (TIMEOUT_MS_MAX / 1000) as f64;
const TIMEOUT_SECONDS_MIN: f64 = 0.001;

/// Declares what is asked for with a sandbox: fields of its own, and those that say what the sandbox
/// shall be. Not flattened, for the reason that `exec` gives.
macro_rules! asked {
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
            fn sandbox(self, name: Name) -> CreateSandbox {
                CreateSandbox {
                    workspace: self.bucket.filter(|bucket| is_meant(bucket, &name)),
                    image: self.image,
                    memory_mib: self.memory_mib,
                    cpus: self.cpus,
                    labels: self.labels,
                    egress: self.egress,
                    secrets: self.secrets,
                    ..CreateSandbox::named(name)
                }
            }
        }
    };
}

asked! {
    /// A sandbox to make.
    Make {
        #[schemars(with = "String", regex(pattern = NAME))]
        name: Name,
    }
}

asked! {
    /// Python to run in a sandbox of its own.
    RunPython {
        code: String,
        #[serde(default)]
        #[schemars(range(min = TIMEOUT_SECONDS_MIN, max = TIMEOUT_SECONDS_MAX))]
        timeout_seconds: Option<f64>,
    }
}

asked! {
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
    #[serde(default)]
    #[schemars(with = "String", length(min = 1))]
    pub cmd: Option<String>,
    /// The program's arguments.
    #[serde(default)]
    #[schemars(length(max = 16383))]
    pub args: Vec<String>,
    #[serde(default)]
    #[schemars(with = "String")]
    pub script: Option<String>,
    #[serde(default)]
    #[schemars(range(min = TIMEOUT_SECONDS_MIN, max = TIMEOUT_SECONDS_MAX))]
    pub timeout_seconds: Option<f64>,
}

impl From<Make> for CreateSandbox {
    fn from(asked: Make) -> Self {
        let name = asked.name.clone();
        asked.sandbox(name)
    }
}

impl RunPython {
    pub fn timeout_ms(&self) -> Result<Option<u64>, Problem> {
        milliseconds(self.timeout_seconds)
    }

    pub fn named(self, name: Name) -> CreateSandbox {
        self.sandbox(name)
    }
}

impl RunShell {
    pub fn timeout_ms(&self) -> Result<Option<u64>, Problem> {
        milliseconds(self.timeout_seconds)
    }

    pub fn named(self, name: Name) -> CreateSandbox {
        self.sandbox(name)
    }
}

impl Execute {
    pub fn timeout_ms(&self) -> Result<Option<u64>, Problem> {
        milliseconds(self.timeout_seconds)
    }

    pub fn what(self) -> Result<Program, Problem> {
        match (self.cmd, self.script) {
            (Some(cmd), None) => Ok(Program::argv(iter::once(cmd).chain(self.args))),
            (None, Some(script)) => Ok(Program::script(script)),
            _ => Err(Problem::invalid("give exactly one of `cmd` and `script`")),
        }
    }
}

/// Whether a caller has asked for that workspace.
fn is_meant(bucket: &str, sandbox: &Name) -> bool {
    let is_drawn = bucket.strip_prefix(BUCKET_PREFIX) == Some(sandbox.as_str());
    !is_drawn && bucket != BUCKET_OF_ONE_SHOTS
}

fn milliseconds(seconds: Option<f64>) -> Result<Option<u64>, Problem> {
    let Some(seconds) = seconds else { return Ok(None) };
    if !(TIMEOUT_SECONDS_MIN..=TIMEOUT_SECONDS_MAX).contains(&seconds) {
        return Err(Problem::invalid(format!(
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
        let asked = |text: &str| serde_json::from_str::<Execute>(text).expect(text).what();
        assert!(
            matches!(asked(r#"{"cmd":"ls","args":["-l"]}"#), Ok(program) if program == Program::argv(["ls", "-l"]))
        );
        assert!(matches!(asked(r#"{"script":"ls"}"#), Ok(Program::Script { .. })));
        assert!(asked(r#"{"script":"ls","cmd":"ls"}"#).is_err());
        assert!(asked("{}").is_err());
    }
}

//! Templates: what sandboxes are made of under one name, with the commands that make them ready.
//!
//! ```text
//!  options ─put─▶ <state>/templates/<namespace>/<name>[@<tag>].json ─create─▶ boot ▶ start ▶ ready ▶ running
//!                        │ warm > 0                                    ▲
//!                        └─▶ a shelf of the pool: boot ▶ start ▶ ready ┘ claim
//! ```
//!
//! A template has options of sandboxes, a start command that runs as a session, and a ready command that is run
//! until it exits with 0. A put replaces the template as a whole, under a new revision; machines of the pool belong
//! to one revision. [`crate::Registry`] is the only caller; this knows nothing of who asks.

mod name;
mod store;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use name::{InvalidTemplateName, TemplateName, TemplateRef};
pub(super) use store::{Templates, stored};

use crate::label::Labels;
use crate::limits::{
    READY_TIMEOUT_MAX, TEMPLATE_COMMAND_BYTES_MAX, TEMPLATE_ENV_MAX, TEMPLATE_WARM_MAX,
};
use crate::{Name, OnIdle, SandboxError, SandboxRef, Spec};
use host::id::random_bytes;
use host::instant::now_ms;
use machine::MachineKind;

/// What a template says. Options that a creation gives take precedence over these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_idle: Option<OnIdle>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_stopped_ms: Option<u64>,
    /// A script for `/bin/sh`, which runs as a session from the start of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// A script for `/bin/sh`, which is run until it exits with 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// How long that may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_timeout_ms: Option<u64>,
    /// How many sandboxes are kept started and ready.
    #[serde(default)]
    pub warm: usize,
}

/// A template as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    pub namespace: Name,
    pub name: TemplateName,
    /// Another for each put, as 32 hexadecimal digits. Tags of one build have the same.
    pub revision: String,
    pub created_at_ms: u64,
    /// The fleet that keeps it too, once it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
    #[serde(flatten)]
    pub options: TemplateOptions,
}

impl TemplateOptions {
    /// Refuses commands and numbers that no template can have. Options of sandboxes are checked with a sandbox's.
    fn check(&self) -> Result<(), SandboxError> {
        for (what, command) in [("start", &self.start), ("ready", &self.ready)] {
            let Some(command) = command else { continue };
            let is_good = !command.trim().is_empty()
                && command.len() <= TEMPLATE_COMMAND_BYTES_MAX
                && !command.contains('\0');
            if !is_good {
                return Err(SandboxError::TemplateCommand { what });
            }
        }
        let range = |what, value: u64, min: u64, max: u64| {
            let is_within = (min..=max).contains(&value);
            is_within.then_some(()).ok_or(SandboxError::OutOfRange { what, value, min, max })
        };
        let timeout_max = READY_TIMEOUT_MAX.as_millis() as u64;
        range("ready_timeout_ms", self.ready_timeout_ms.unwrap_or(timeout_max), 1, timeout_max)?;
        range("warm", self.warm as u64, 0, TEMPLATE_WARM_MAX as u64)?;
        range("the number of variables in env", self.env.len() as u64, 0, TEMPLATE_ENV_MAX as u64)
    }
}

impl Template {
    pub fn new(which: TemplateRef, options: TemplateOptions) -> Result<Self, SandboxError> {
        let drawn = random_bytes::<16>().map_err(SandboxError::Draw)?;
        Ok(Self {
            namespace: which.namespace,
            name: which.name,
            revision: host::hex::digits(&drawn),
            created_at_ms: now_ms(),
            fleet: None,
            options,
        })
    }

    pub fn which(&self) -> TemplateRef {
        TemplateRef { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// Refuses what no sandbox of it could have.
    pub fn check(&self) -> Result<(), SandboxError> {
        self.options.check()?;
        let mut spec = Spec::new(SandboxRef {
            namespace: self.namespace.clone(),
            name: self.name.base.clone(),
        });
        self.fill(&mut spec);
        // The memory bounds a writable layer in memory, and whether it is there is not known here.
        Spec { memory_mib: None, ..spec.clone() }.check()?;
        Spec { scratch_bytes: None, ..spec }.check()
    }

    /// Sets the options that a request leaves out.
    pub(super) fn fill(&self, spec: &mut Spec) {
        let own = &self.options;
        spec.machine = spec.machine.or(own.machine);
        spec.image = spec.image.take().or_else(|| own.image.clone());
        spec.memory_mib = spec.memory_mib.or(own.memory_mib);
        spec.cpu_millis = spec.cpu_millis.or(own.cpu_millis);
        spec.scratch_bytes = spec.scratch_bytes.or(own.scratch_bytes);
        spec.workdir = spec.workdir.take().or_else(|| own.workdir.clone());
        spec.user = spec.user.take().or_else(|| own.user.clone());
        spec.egress = spec.egress.take().or_else(|| own.egress.clone());
        spec.ttl_ms = spec.ttl_ms.or(own.ttl_ms);
        spec.idle_ttl_ms = spec.idle_ttl_ms.or(own.idle_ttl_ms);
        spec.on_idle = spec.on_idle.or(own.on_idle);
        spec.keep_stopped_ms = spec.keep_stopped_ms.or(own.keep_stopped_ms);
        let given: Vec<_> = spec.env.drain(..).collect();
        let is_given = |name: &String| given.iter().any(|(known, _)| known == name);
        let usual = own.env.iter().filter(|(name, _)| !is_given(name));
        spec.env = usual.map(|(name, value)| (name.clone(), value.clone())).collect();
        spec.env.extend(given);
        for (key, value) in &own.labels {
            spec.labels.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(options: TemplateOptions) -> Template {
        Template::new("ci/app".parse().unwrap(), options).unwrap()
    }

    #[test]
    fn what_a_request_gives_takes_precedence_over_its_template() {
        let variables = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let template = template(TemplateOptions {
            image: Some("python:3.12".to_owned()),
            memory_mib: Some(256),
            workdir: Some("/srv".to_owned()),
            ttl_ms: Some(9000),
            idle_ttl_ms: Some(60),
            on_idle: Some(OnIdle::Pause),
            keep_stopped_ms: Some(0),
            env: variables(&[("A", "1"), ("B", "2")]),
            labels: variables(&[("team", "a")]),
            ..TemplateOptions::default()
        });
        let mut spec = Spec::new("ci/web".parse().unwrap());
        (spec.memory_mib, spec.ttl_ms) = (Some(512), Some(5));
        spec.env = vec![("B".to_owned(), "3".to_owned())];
        template.fill(&mut spec);
        assert_eq!((spec.memory_mib, spec.workdir.as_deref()), (Some(512), Some("/srv")));
        assert_eq!(spec.image.as_deref(), Some("python:3.12"));
        let lives = (spec.ttl_ms, spec.idle_ttl_ms, spec.keep_stopped_ms);
        assert_eq!((lives, spec.on_idle), ((Some(5), Some(60), Some(0)), Some(OnIdle::Pause)));
        let env = [("A", "1"), ("B", "3")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(spec.env, env);
        assert_eq!(spec.labels["team"], "a");
        let once = spec.clone();
        template.fill(&mut spec);
        assert_eq!(spec, once, "filled twice");
    }

    #[test]
    fn commands_and_numbers_beyond_reason_are_refused() {
        let refused = |change: fn(&mut TemplateOptions)| {
            let mut options = TemplateOptions::default();
            change(&mut options);
            template(options).check().unwrap_err().to_string()
        };
        for (message, word) in [
            (refused(|options| options.start = Some("  ".to_owned())), "start"),
            (refused(|options| options.ready = Some("a\0b".to_owned())), "ready"),
            (
                refused(|options| options.start = Some("x".repeat(TEMPLATE_COMMAND_BYTES_MAX + 1))),
                "start",
            ),
            (refused(|options| options.ready_timeout_ms = Some(0)), "ready_timeout_ms"),
            (refused(|options| options.warm = TEMPLATE_WARM_MAX + 1), "warm"),
            (refused(|options| options.memory_mib = Some(1)), "memory_mib"),
            (refused(|options| options.ttl_ms = Some(0)), "ttl_ms"),
            (refused(|options| options.on_idle = Some(OnIdle::Pause)), "idle"),
            (refused(|options| options.egress = Some(vec!["not a host".to_owned()])), "egress"),
        ] {
            assert!(message.contains(word), "{message:?} does not say {word:?}");
        }
    }
}

//! An image's configuration, changed by instructions about programs. Pure.

use serde_json::{Map, Value, json};

use super::StepError;
use image::dockerfile::Command;
use sandbox::host_packages::DEFAULT_PATH;

/// The shell of an image that names none.
const SHELL: [&str; 2] = ["/bin/sh", "-c"];
/// The field of a configuration with `ONBUILD` instructions.
const TRIGGERS: &str = "OnBuild";
/// How much of an instruction the history keeps.
const HISTORY_CHARS_MAX: usize = 4096;

/// The configuration of an image that is being made.
#[derive(Clone, Debug)]
pub struct ImageConfig(pub Value);

impl ImageConfig {
    pub fn empty(architecture: &str, os: &str) -> Self {
        let mut config = Self(json!({
            "architecture": architecture, "os": os, "config": {},
            "rootfs": { "type": "layers", "diff_ids": [] }, "history": [],
        }));
        // As in other builders.
        config.set_env("PATH", DEFAULT_PATH);
        config
    }

    /// The configuration of the image that a stage continues from, without the time at which that was made: the
    /// same recipe makes the same image.
    pub fn of(mut document: Value, layers: usize) -> Self {
        if let Some(document) = document.as_object_mut() {
            document.remove("created");
            let history = document.entry("history").or_insert(Value::Null);
            if !history.is_array() {
                // Every layer needs a history entry, also those of other builders.
                *history = vec![json!({ "created_by": "a layer of the base" }); layers].into();
            }
        }
        Self(document)
    }

    fn config(&mut self) -> &mut Map<String, Value> {
        if !self.0["config"].is_object() {
            self.0["config"] = json!({});
        }
        self.0["config"].as_object_mut().expect("it was made one")
    }

    fn texts(&self, name: &str) -> Vec<String> {
        let all = self.0["config"][name].as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Takes the `ONBUILD` instructions for a direct child of this image; grandchildren do not get
    /// them.
    pub fn take_triggers(&mut self) -> Vec<String> {
        let triggers = self.texts(TRIGGERS);
        self.config().remove(TRIGGERS);
        triggers
    }

    pub fn env(&self) -> Vec<(String, String)> {
        let pair = |one: String| {
            let (name, value) = one.split_once('=').unwrap_or((&one, ""));
            (name.to_owned(), value.to_owned())
        };
        self.texts("Env").into_iter().map(pair).collect()
    }

    pub fn set_env(&mut self, name: &str, value: &str) {
        let mut env = self.texts("Env");
        let begin = format!("{name}=");
        let text = format!("{begin}{value}");
        match env.iter_mut().find(|one| one.starts_with(&begin)) {
            Some(one) => *one = text,
            None => env.push(text),
        }
        self.config().insert("Env".to_owned(), env.into());
    }

    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.config().insert(name.to_owned(), value.into());
    }

    /// Puts something under a name of a table.
    pub fn insert(&mut self, table: &str, name: &str, value: Value) {
        let table = self.config().entry(table).or_insert(Value::Null);
        if !table.is_object() {
            *table = json!({});
        }
        table[name] = value;
    }

    pub fn workdir(&self) -> String {
        let own = self.0["config"]["WorkingDir"].as_str().filter(|own| !own.is_empty());
        format!("/{}", own.unwrap_or("/").trim_start_matches('/'))
    }

    pub fn user(&self) -> Option<String> {
        self.0["config"]["User"].as_str().filter(|user| !user.is_empty()).map(str::to_owned)
    }

    /// The arguments of a command, with the shell first if it needs one.
    pub fn argv(&self, command: &Command) -> Vec<String> {
        match command {
            Command::Exec(words) => words.clone(),
            Command::Shell(text) => {
                let own = self.texts("Shell");
                let shell = if own.is_empty() { SHELL.map(str::to_owned).into() } else { own };
                [shell, vec![text.clone()]].concat()
            }
        }
    }

    /// Adds an instruction to the history, and whether it made a layer.
    pub fn add_history(&mut self, text: &str, is_layer: bool) {
        let text: String = text.chars().take(HISTORY_CHARS_MAX).collect();
        let mut line = json!({ "created_by": text });
        if !is_layer {
            line["empty_layer"] = Value::Bool(true);
        }
        if let Some(history) = self.0["history"].as_array_mut() {
            history.push(line);
        }
    }

    /// Exposes a port or a range of ports.
    pub fn expose(&mut self, text: &str) -> Result<(), StepError> {
        let bad = || StepError::Value { what: "port", value: text.to_owned() };
        let (ports, kind) = text.split_once('/').unwrap_or((text, "tcp"));
        let kind = kind.to_ascii_lowercase();
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        let (first, last) = (number(first).ok_or_else(bad)?, number(last).ok_or_else(bad)?);
        if !matches!(kind.as_str(), "tcp" | "udp" | "sctp") || first > last {
            return Err(bad());
        }
        for port in first..=last {
            self.insert("ExposedPorts", &format!("{port}/{kind}"), json!({}));
        }
        Ok(())
    }
}

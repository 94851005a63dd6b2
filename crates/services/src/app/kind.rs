//! The types of apps: what each needs from an image, and how it is started.

use serde::{Deserialize, Serialize};

/// Our half of an app in Python: finds it in its file, and serves it.
pub const LAUNCHER: &str = include_str!("launcher.py");

/// How an app is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Flask,
    /// Any ASGI app, by uvicorn.
    Fastapi,
    Streamlit,
    /// A program that listens by itself.
    Command,
}

impl Kind {
    /// The word in records and replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flask => "flask",
            Self::Fastapi => "fastapi",
            Self::Streamlit => "streamlit",
            Self::Command => "command",
        }
    }

    /// The conventional port of such apps; each gets the next free one from there.
    pub fn usual_port(self) -> u16 {
        match self {
            Self::Flask => 5000,
            Self::Fastapi | Self::Command => 8000,
            Self::Streamlit => 8501,
        }
    }

    /// The modules that such an app needs. Of the code's own imports only the framework is
    /// included: the app may do without the others.
    pub fn modules(self, code: &str) -> Vec<&'static str> {
        match self {
            Self::Flask => vec!["flask"],
            Self::Streamlit => vec!["streamlit"],
            Self::Command => Vec::new(),
            Self::Fastapi => {
                let imports = |line: &str| {
                    let line = line.trim_start();
                    line.starts_with("import fastapi") || line.starts_with("from fastapi")
                };
                let framework = code.lines().any(imports).then_some("fastapi");
                ["uvicorn"].into_iter().chain(framework).collect()
            }
        }
    }

    /// The program for code in `file`, which our half of it is in `launcher`.
    pub fn argv(self, python: &str, launcher: &str, file: &str, port: u16) -> Vec<String> {
        let port = port.to_string();
        let arguments: Vec<&str> = match self {
            Self::Flask | Self::Fastapi => vec!["-u", launcher, self.name(), file],
            Self::Command => vec!["-u", file],
            Self::Streamlit => vec![
                "-u",
                "-m",
                "streamlit",
                "run",
                file,
                "--server.port",
                &port,
                "--server.address",
                "127.0.0.1",
                "--server.headless",
                "true",
                "--browser.gatherUsageStats",
                "false",
            ],
        };
        [python].into_iter().chain(arguments).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_framework_is_needed_by_code_that_imports_it() {
        let starlette = "from starlette.applications import Starlette\napp = Starlette()";
        assert_eq!(Kind::Fastapi.modules(starlette), ["uvicorn"]);
        assert_eq!(Kind::Fastapi.modules("from fastapi import FastAPI"), ["uvicorn", "fastapi"]);
        assert_eq!(Kind::Flask.modules(""), ["flask"]);
        assert!(Kind::Command.modules("import flask").is_empty());
    }
}

//! Commands and code that run to their end: the output of both channels as one text, and the exit code.

use std::collections::BTreeMap;

use hyper::{Method, StatusCode};
use protocol::message::Channel;
use protocol::requests::Program;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{TOOLBOX, lacking};
use super::limits::OUTPUT_BYTES_MAX;
use super::run::{Asked, run_into};
use super::seat::{self, path, seconds, variables};
use crate::body::json_response;
use crate::budget::Share;
use crate::call::{Call, Inside};
use crate::forms::exit::add_met_limit;
use crate::route::{Operation, operation};
use crate::shape::{Json, Nothing, Raw};
use agent_client::guest::contexts::language;
use agent_client::program::{Head, Sink};
use sandbox::refusal::Refusal;

/// The shell of commands where there is one; where not, the one that every image has.
const BASH: &str = "/bin/bash";

pub fn operations() -> Vec<Operation> {
    [
        operation(
            Method::POST,
            "/daytona/toolbox/{sandbox}/process/execute",
            "daytona_exec",
            "Run a command to its end.",
            execute,
        ),
        operation(
            Method::POST,
            "/daytona/toolbox/{sandbox}/process/code-run",
            "daytona_code_run",
            "Run code in a program of its own.",
            code_run,
        ),
    ]
    .map(|operation| operation.counted().refusing(TOOLBOX))
    .to_vec()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Execute {
    command: String,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    envs: Option<BTreeMap<String, String>>,
    #[serde(default)]
    timeout: Option<i64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct CodeRun {
    code: String,
    language: String,
    #[serde(default)]
    argv: Option<Vec<String>>,
    #[serde(default)]
    envs: Option<BTreeMap<String, String>>,
    #[serde(default)]
    timeout: Option<i64>,
}

/// The output of both channels in the order in which it comes.
struct Together {
    head: Head,
    memory: Share,
}

impl Sink for Together {
    fn add(&mut self, _: Channel, bytes: &[u8]) {
        self.head.add(bytes, &self.memory);
    }

    fn lose(&mut self, _: Channel, bytes: u64) {
        self.head.lose(bytes);
    }
}

/// Whether commands have bash.
pub async fn shell(inside: &Inside) -> Option<&'static str> {
    inside.guest.stat(BASH, true).await.is_ok().then_some(BASH)
}

async fn execute(call: Call, _: Nothing, Json(ask): Json<Execute>) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let shell = shell(&inside).await.map(Into::into);
    let cwd = match ask.cwd.as_deref().filter(|cwd| !cwd.is_empty()) {
        Some(cwd) => Some(path(&call, &inside, cwd).await?),
        None => None,
    };
    let program = Program::Script { script: ask.command.into(), shell };
    let (env, limit) = (variables(ask.envs), seconds(ask.timeout));
    let asked = Asked { cwd, env, limit, ..Asked::of(program) };
    let (code, text) = together(&call, &inside, asked).await?;
    Ok(Raw(json_response(StatusCode::OK, &json!({ "exitCode": code, "result": text }))))
}

async fn code_run(call: Call, _: Nothing, Json(ask): Json<CodeRun>) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    // The code comes by its input: an argument may not be as long.
    let words: &[&str] = match language::called(&ask.language) {
        Some(name) if name == language::PYTHON.name => &["python3", "-u", "-"],
        Some(name) if name == language::NODE.name => &[name, "-"],
        _ => return Err(lacking(&format!("code_run in {:?}", ask.language))),
    };
    let argv = ask.argv.unwrap_or_default();
    let program = Program::argv(words.iter().copied().chain(argv.iter().map(String::as_str)));
    let (env, limit) = (variables(ask.envs), seconds(ask.timeout));
    // Without any input the program would have none, and wait for nothing.
    let input = format!("{}\n", ask.code).into_bytes();
    let asked = Asked { env, input, limit, ..Asked::of(program) };
    let (code, text) = together(&call, &inside, asked).await?;
    let answer = json!({ "exitCode": code, "result": text, "artifacts": { "charts": [] } });
    Ok(Raw(json_response(StatusCode::OK, &answer)))
}

async fn together(call: &Call, inside: &Inside, asked: Asked) -> Result<(i32, Value), Refusal> {
    let mut sink = Together { head: Head::new(OUTPUT_BYTES_MAX), memory: call.memory.clone() };
    let ended = run_into(call, inside, asked, &mut sink).await?;
    let mut text = sink.head.into_text();
    add_met_limit(&mut text, &ended.record.cause);
    Ok((ended.shell_code(), text.into()))
}

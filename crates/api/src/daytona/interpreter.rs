//! The code interpreter: contexts of Python, and runs in them, each over a WebSocket. A client that leaves has
//! its run interrupted; the context keeps its state.
//!
//! ```text
//!  client ─ {code, contextId, envs, timeout} ─▶     stdout, stderr, error ─▶ client     then the end, 1000
//!                                                                 too long: 4008
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::{Method, StatusCode};
use protocol::ContextName;
use protocol::repl::{ContextInfo, Happening, OpenContext, RunEnd};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::answer::{TOOLBOX, coded, lacking};
use super::limits::FIRST_MESSAGE_MAX;
use super::seat::{self, path, seconds};
use crate::body::{Gone, json_response};
use crate::call::{Call, Inside};
use crate::environment::of_one_run;
use crate::forms::exit::ended;
use crate::route::{Operation, operation};
use crate::shape::{Json, Nothing, Raw};
use crate::websocket::{
    self, CLOSE_FAILED, CLOSE_NORMAL, CLOSE_POLICY, ClientMessage, Reader, Socket, Writer,
    ping_clock,
};
use agent_client::guest::Run;
use agent_client::guest::contexts::{RunCode, language, open};
use agent_client::program::Characters;
use host::id::RandomId;
use host::instant::format;
use sandbox::refusal::{Code, Refusal};

/// What a socket is closed with whose run has taken too long.
const CLOSE_TIMEOUT: u16 = 4008;
/// The reason of a close has few bytes.
const REASON_BYTES_MAX: usize = 120;

pub fn operations() -> Vec<Operation> {
    let contexts = "/daytona/toolbox/{sandbox}/process/interpreter/context";
    [
        operation(Method::GET, contexts, "daytona_contexts", "List contexts.", list),
        operation(Method::POST, contexts, "daytona_make_context", "Make a context.", create).run(),
        operation(
            Method::DELETE,
            "/daytona/toolbox/{sandbox}/process/interpreter/context/{context}",
            "daytona_end_context",
            "End a context.",
            remove,
        )
        .run(),
        operation(
            Method::GET,
            "/daytona/toolbox/{sandbox}/process/interpreter/execute",
            "daytona_run_code",
            "Run code in a context.",
            execute,
        )
        .counted(),
    ]
    .map(|operation| operation.refusing(TOOLBOX))
    .to_vec()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Make {
    #[serde(default)]
    language: Option<String>,
    #[serde(default)]
    cwd: Option<String>,
}

/// What a client says first.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Execute {
    code: String,
    context_id: Option<String>,
    envs: Option<BTreeMap<String, String>>,
    timeout: Option<i64>,
}

fn missing(id: &str) -> Refusal {
    coded(Refusal::not_found(format!("there is no context {id:?}")), "PROCESS_NOT_FOUND")
}

fn shown(info: &ContextInfo) -> Value {
    json!({
        "id": info.context,
        "language": info.language,
        "cwd": info.cwd.as_ref().map_or_else(String::new, ToString::to_string),
        "active": info.interpreter.is_some(),
        "createdAt": format(info.opened_at_ms),
    })
}

async fn create(call: Call, _: Nothing, Json(ask): Json<Make>) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let asked = ask.language.as_deref().filter(|language| !language.is_empty());
    let asked = asked.unwrap_or(language::DEFAULT);
    let language = language::called(asked);
    let language = language.ok_or_else(|| lacking(&format!("an interpreter for {asked:?}")))?;
    let drawn = RandomId::draw().map_err(|error| Refusal::of(Code::Internal, &error))?;
    let name = format!("daytona-{}", drawn.as_str());
    let context = name.parse().expect("hexadecimal digits behind letters are a name");
    let cwd = match ask.cwd.as_deref().filter(|cwd| !cwd.is_empty()) {
        Some(cwd) => Some(path(&call, &inside, cwd).await?.into()),
        None => None,
    };
    let info = inside.guest.open_context(&OpenContext { cwd, ..open(context, language) }).await?;
    Ok(Raw(json_response(StatusCode::OK, &shown(&info))))
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let contexts: Vec<Value> = inside.guest.contexts().await?.iter().map(shown).collect();
    Ok(Raw(json_response(StatusCode::OK, &json!({ "contexts": contexts }))))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let id: String = call.parameter("context")?;
    let known = inside.guest.contexts().await?;
    let found = known.iter().find(|info| info.context.as_str() == id);
    let context = &found.ok_or_else(|| missing(&id))?.context;
    inside.guest.close_context(context).await?;
    Ok(Raw(json_response(StatusCode::OK, &json!({ "message": "the context was ended" }))))
}

async fn execute(mut call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let permit = call.permit.take();
    let attended = websocket::accept(&mut call, move |socket| async move {
        let _permit = permit;
        attend(socket, inside).await;
    });
    attended.map(Raw)
}

async fn attend(socket: Socket, inside: Inside) {
    let Socket { mut reader, writer } = socket;
    let Ok(first) = timeout(FIRST_MESSAGE_MAX, reader.next()).await else {
        return writer.close(CLOSE_POLICY, "the first message did not come in time").await;
    };
    let bytes = match &first {
        None => return,
        Some(ClientMessage::Text(text)) => text.as_bytes(),
        Some(ClientMessage::Binary(bytes)) => &bytes[..],
    };
    let runs = match serde_json::from_slice::<Execute>(bytes) {
        Ok(ask) => begin(&inside, ask).await,
        Err(error) => {
            Err(Refusal::invalid(format!("the first message is not understood: {error}")))
        }
    };
    match runs {
        Err(refusal) => writer.close(CLOSE_POLICY, within(&refusal.message)).await,
        Ok((run, beside)) => {
            for mut run in beside {
                // What it says is for nobody.
                tokio::spawn(async move { while let Ok(Some(_)) = run.next().await {} });
            }
            let outputs = [Characters::default(), Characters::default()];
            tokio::select! {
                // The run is dropped then, which interrupts it.
                () = until_gone(reader) => {}
                _ = Listener { writer, outputs }.follow(run) => {}
            }
        }
    }
}

async fn until_gone(mut reader: Reader) {
    while reader.next().await.is_some() {}
}

/// A text that fits the reason of a close.
fn within(text: &str) -> &str {
    let mut end = text.len().min(REASON_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The run, and those beside it that set and unset its variables.
async fn begin(inside: &Inside, ask: Execute) -> Result<(Run, Vec<Run>), Refusal> {
    let guest = &inside.guest;
    let asked = ask.context_id.as_deref().filter(|id| !id.is_empty());
    let mut context = match asked {
        // The one that the other doors have, too.
        None => {
            let name: ContextName = language::DEFAULT.parse().expect("languages are names");
            open(name, language::DEFAULT)
        }
        Some(id) => {
            let known = guest.contexts().await?;
            let found = known.into_iter().find(|info| info.context.as_str() == id);
            let found = found.ok_or_else(|| missing(id))?;
            open(found.context, found.language)
        }
    };
    guest.settle(&mut context).await?;
    let around = of_one_run(&context.language, &ask.envs.unwrap_or_default())?;
    let aside = |code: String| {
        let request = RunCode { aside: true, ..RunCode::new(context.clone(), code) };
        guest.run_code_now(request)
    };
    // One after the other in the context's queue.
    let (before, after) = around.unzip();
    let before = before.map(aside).transpose()?;
    let deadline: Option<Duration> = seconds(ask.timeout);
    let code = RunCode { deadline, ..RunCode::new(context.clone(), ask.code) };
    let run = guest.run_code_now(code)?;
    let after = after.map(aside).transpose()?;
    Ok((run, before.into_iter().chain(after).collect()))
}

/// A client that hears what its run says.
struct Listener {
    writer: Writer,
    /// Of stdout and of stderr.
    outputs: [Characters; 2],
}

impl Listener {
    async fn follow(mut self, mut run: Run) -> Result<(), Gone> {
        let mut pings = ping_clock();
        let (code, reason) = loop {
            let event = tokio::select! {
                event = run.next() => event,
                _ = pings.tick() => {
                    self.writer.ping().await?;
                    continue;
                }
            };
            match event {
                Ok(Some(event)) => {
                    if let Some(end) = self.tell(event.what).await? {
                        break end;
                    }
                }
                Ok(None) => break (CLOSE_NORMAL, ""),
                Err(error) => {
                    self.error("UnexpectedEndOfExecution", &error.to_string(), "").await?;
                    break (CLOSE_FAILED, "the run could not go on");
                }
            }
        };
        self.writer.close(code, reason).await;
        Ok(())
    }

    /// Tells one event; returns how the socket is closed after the last.
    async fn tell(&mut self, what: Happening) -> Result<Option<(u16, &'static str)>, Gone> {
        match what {
            Happening::Stdout { bytes } => self.output(0, bytes.into_bytes()).await?,
            Happening::Stderr { bytes } => self.output(1, bytes.into_bytes()).await?,
            Happening::Error(report) => {
                self.error(&report.kind, &report.message, &report.traceback).await?;
            }
            Happening::Finished(finished) => {
                for stream in 0..2 {
                    let rest = self.outputs[stream].finish();
                    self.piece(stream, &rest).await?;
                }
                return self.end(&finished.end).await.map(Some);
            }
            // Input ends at once; Daytona's clients have nothing for what is shown, and the rest is of no run of
            // this client.
            _ => {}
        }
        Ok(None)
    }

    async fn output(&mut self, stream: usize, bytes: Vec<u8>) -> Result<(), Gone> {
        let whole = self.outputs[stream].take(bytes);
        self.piece(stream, &whole).await
    }

    async fn piece(&mut self, stream: usize, bytes: &[u8]) -> Result<(), Gone> {
        if bytes.is_empty() {
            return Ok(());
        }
        let kind = ["stdout", "stderr"][stream];
        let text = String::from_utf8_lossy(bytes);
        self.writer.tell(&json!({ "type": kind, "text": text })).await
    }

    async fn error(&mut self, name: &str, value: &str, traceback: &str) -> Result<(), Gone> {
        let message =
            json!({ "type": "error", "name": name, "value": value, "traceback": traceback });
        self.writer.tell(&message).await
    }

    /// The error of an end that no event has reported, and how the socket is closed.
    async fn end(&mut self, end: &RunEnd) -> Result<(u16, &'static str), Gone> {
        match end {
            RunEnd::Ok {} | RunEnd::Error {} => {}
            RunEnd::TimedOut { .. } => {
                return Ok((CLOSE_TIMEOUT, "the run took longer than its timeout"));
            }
            RunEnd::Exited { code } => self.error("SystemExit", &code.to_string(), "").await?,
            RunEnd::Interrupted { by } => {
                self.error("KeyboardInterrupt", &format!("interrupted by {by}"), "").await?;
            }
            RunEnd::Died { cause } => {
                let words = format!("the interpreter {}; its state is lost", ended(cause));
                self.error("UnexpectedEndOfExecution", &words, "").await?;
            }
            RunEnd::Cancelled { reason } => self.error("ContextRestarting", reason, "").await?,
        }
        Ok((CLOSE_NORMAL, ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_close_is_short_and_whole_characters() {
        assert_eq!(within("short"), "short");
        let long = "é".repeat(100);
        assert_eq!(within(&long).len(), REASON_BYTES_MAX);
        let shifted = format!("a{long}");
        assert_eq!(within(&shifted).len(), REASON_BYTES_MAX - 1);
    }
}

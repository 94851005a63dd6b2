//! A cell: a run in the kernel's context, and what all clients of the kernel see of it.
//!
//! It goes on when its client is gone, as cells of a notebook do.

use protocol::repl::{Display, DisplayRole, Event, Finished, Happening};
use serde_json::{Value, json};

use super::content::{Failure, display, failure, stream};
use super::kernel::{Job, Kernel};
use agent_client::guest::{Guest, Run, RunCode};
use agent_client::program::Characters;
use protocol::message::Channel as Output;
use sandbox::refusal::Refusal;

use access::audit::Door;

/// What came of a cell.
pub struct Executed {
    pub reply: Value,
    /// Whether its client's cells that wait are not run.
    pub stops: bool,
}

/// Runs the code of a request to its end.
pub async fn execute(kernel: &Kernel, job: &Job) -> Result<Executed, Refusal> {
    let seat = &job.seat;
    let trail = seat.trail.within(Door::Rest, "jupyter_execute", false);
    trail.sandbox(&kernel.which);
    trail.fact("kernel", kernel.id.as_str());
    let ran = async {
        trail.admit()?;
        let _permit = seat.api.admission().admit(&seat.caller.label())?;
        let inside = seat.api.inside(kernel.which.clone()).await?.on(&trail);
        let ask = &job.request.content;
        let code = RunCode {
            input: ask.allow_stdin,
            tied: false,
            ..RunCode::new(kernel.context.clone(), ask.code.clone())
        };
        let mut run = inside.guest.run_code(code).await?;
        kernel.set_run(run.number());
        let executed = Cell::new(kernel, job, inside.guest.clone()).follow(&mut run).await;
        kernel.set_run(None);
        executed
    };
    let ran = match ran.await {
        Err(refusal) => Err(seat.api.explained(&kernel.which, refusal).await),
        ran => ran,
    };
    if let Err(refusal) = &ran {
        trail.ended(Some(refusal.code));
    }
    ran
}

/// A run on its way to the clients.
struct Cell<'a> {
    kernel: &'a Kernel,
    job: &'a Job,
    guest: Guest,
    stdout: Characters,
    stderr: Characters,
    failure: Option<Failure>,
}

impl<'a> Cell<'a> {
    fn new(kernel: &'a Kernel, job: &'a Job, guest: Guest) -> Self {
        let (stdout, stderr) = (Characters::default(), Characters::default());
        Self { kernel, job, guest, stdout, stderr, failure: None }
    }

    async fn follow(mut self, run: &mut Run) -> Result<Executed, Refusal> {
        while let Some(Event { run, what, .. }) = run.next().await? {
            if let Happening::Finished(finished) = what {
                return Ok(self.finish(&finished).await);
            }
            self.tell(run, what).await;
        }
        Err(Refusal::new(sandbox::refusal::Code::GuestUnreachable, "the run has no end"))
    }

    async fn tell(&mut self, run: u64, what: Happening) {
        match what {
            Happening::Started(started) => {
                self.start(started.count).await;
                if let Some(lost) = started.lost {
                    self.note(&format!("the interpreter is a new one: {lost}")).await;
                }
            }
            Happening::Stdout { bytes } => {
                let whole = self.stdout.take(bytes.into_bytes());
                self.output("stdout", &whole).await;
            }
            Happening::Stderr { bytes } => {
                let whole = self.stderr.take(bytes.into_bytes());
                self.output("stderr", &whole).await;
            }
            Happening::Late(late) => {
                let name = if late.channel == Output::Stderr { "stderr" } else { "stdout" };
                self.output(name, late.bytes.as_bytes()).await;
            }
            Happening::Display(shown) => self.display(shown).await,
            Happening::Error(report) => self.fail(report.into()),
            Happening::InputRequest { request, prompt, secret } => {
                let content = json!({ "prompt": prompt, "password": secret });
                self.kernel.ask(self.job, &self.guest, (run, request), &content).await;
            }
            Happening::Lost { reason } => self.note(&reason).await,
            Happening::Gap { events, bytes } => {
                self.note(&format!("{events} events of {bytes} bytes are missing here")).await;
            }
            // A file is read as a file; the end is the caller's.
            Happening::Artifact(_) | Happening::Finished(_) => {}
        }
    }

    async fn start(&self, count: u64) {
        let ask = &self.job.request.content;
        let is_kept = !ask.silent && ask.store_history.unwrap_or(true);
        self.kernel.begin(count, is_kept.then_some(&ask.code));
        if !ask.silent {
            let content = json!({ "code": ask.code, "execution_count": count });
            self.publish("execute_input", &content).await;
        }
    }

    async fn publish(&self, kind: &str, content: &Value) {
        self.kernel.publish(kind, &self.job.request.parent, content).await;
    }

    async fn output(&self, name: &str, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.publish("stream", &stream(name, &String::from_utf8_lossy(bytes))).await;
        }
    }

    /// A word of ours in the output.
    async fn note(&self, text: &str) {
        self.publish("stream", &stream("stderr", &format!("[{text}]\n"))).await;
    }

    async fn display(&self, shown: Display) {
        let bytes = shown.data.iter().map(|datum| datum.data.as_bytes().len()).sum::<usize>();
        // As it came, as a value, and as JSON.
        let Some(_portion) = self.job.seat.memory.try_portion(bytes.saturating_mul(3)) else {
            let why = "the calls of this key use all the memory that they may";
            return self.note(&format!("a display of {bytes} bytes is missing here: {why}")).await;
        };
        match shown.role {
            DisplayRole::Value if self.job.request.content.silent => {}
            DisplayRole::Value => {
                let mut content = display(shown);
                content["execution_count"] = self.kernel.count().into();
                self.publish("execute_result", &content).await;
            }
            DisplayRole::Shown => self.publish("display_data", &display(shown)).await,
            DisplayRole::Update => self.publish("update_display_data", &display(shown)).await,
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.kernel.announce("error", &self.job.request.parent, &failure.content());
        self.failure = Some(failure);
    }

    async fn finish(mut self, finished: &Finished) -> Executed {
        let (stdout, stderr) = (self.stdout.finish(), self.stderr.finish());
        self.output("stdout", &stdout).await;
        self.output("stderr", &stderr).await;
        if self.failure.is_none()
            && let Some(failure) = failure(finished, &self.kernel.spec.language)
        {
            self.fail(failure);
        }
        let ask = &self.job.request.content;
        let count = self.kernel.count();
        let Some(failure) = self.failure else {
            // Expressions of the client's own are not evaluated.
            let reply = json!({
                "status": "ok", "execution_count": count, "user_expressions": {}, "payload": [],
            });
            return Executed { reply, stops: false };
        };
        Executed { reply: failure.reply(count), stops: ask.stop_on_error.unwrap_or(true) }
    }
}

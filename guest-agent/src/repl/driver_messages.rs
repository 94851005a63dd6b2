//! Handles a driver's messages. Each may be false about its own context, so each is bounded here, and none is
//! trusted about anything else.

use protocol::fault::clip_to;
use protocol::limits::{EVENT_BYTES_MAX, PATH_BYTES_MAX, TEXT_BYTES_MAX};
use protocol::message::{Channel as Output, Reply};
use protocol::repl::{
    Artifact, CodeState, Completeness, Completions, Display, DisplayRole, ErrorReport, Happening,
    Interpreter, RunEnd,
};
use tokio::time::Instant;

use super::actor::{Actor, Phase};
use super::channel::Received;
use super::interpreter;
use super::limits::{
    ERROR_BYTES_MAX, FORMS_MAX, FRAMES_MAX, PACKETS_PER_TURN, POLL_BRIEFLY, READ_BYTES,
    SILENT_GRACE, WORD_BYTES_MAX,
};
use super::message::{DriverMessage, FromDriver, Status, ToDriver};

/// Requests for input of one run that may wait for their answers.
const INPUTS_MAX: usize = 64;
/// The size of a display with all its forms: an event without its other fields.
const DISPLAY_BYTES_MAX: usize = EVENT_BYTES_MAX - 64 * 1024;
/// Matches of a completion.
const MATCHES_MAX: usize = 512;

impl Actor {
    /// Handles the messages that the driver has sent.
    pub fn receive(&mut self) {
        let was_on = self.current.is_some();
        for _ in 0..PACKETS_PER_TURN {
            let may_go_on = self.receive_one()
                // The end of a run is sent before anything else is read.
                && match &self.current {
                    Some(current) => current.may_read(),
                    None => !was_on,
                };
            if !may_go_on {
                return;
            }
        }
    }

    /// Polls for the end of a run that may be over in a moment, because sleeping and waking takes longer
    /// than most runs. Other processes get the processor in between.
    pub fn poll_briefly(&mut self) {
        let until = Instant::now() + POLL_BRIEFLY;
        while self.current.is_some() && Instant::now() < until {
            self.receive_one();
            let _ = nix::sched::sched_yield();
        }
    }

    /// Handles one packet. Returns false if there is none at the moment.
    pub fn receive_one(&mut self) -> bool {
        let Some(interpreter) = &mut self.interpreter else { return false };
        match interpreter.channel.receive() {
            Received::Message(message) => {
                self.take(*message);
                self.check_listening();
            }
            Received::Nothing => {}
            Received::Drained => return false,
            Received::Closed => {
                if !matches!(self.phase, Phase::Killed | Phase::Silent(_)) {
                    self.phase = Phase::Silent(Instant::now() + SILENT_GRACE);
                }
                return false;
            }
            Received::Broken => {
                self.kill("because its control channel was abused");
                return false;
            }
        }
        true
    }

    /// Kills an interpreter whose driver sends requests and does not read the answers.
    fn check_listening(&mut self) {
        let is_deaf = |interpreter: &interpreter::Interpreter| interpreter.channel.is_deaf();
        if self.interpreter.as_ref().is_some_and(is_deaf) {
            self.kill("because its driver does not listen");
        }
    }

    fn take(&mut self, message: FromDriver) {
        match message {
            FromDriver::Ready(content) => self.on_ready(content),
            FromDriver::Display(content) => self.show(content),
            FromDriver::Artifact(content) => self.offer(content),
            FromDriver::Error(content) => self.report(content),
            FromDriver::Input(content) => self.on_input_request(&content),
            FromDriver::Late(content) => {
                let channel = if content.stderr { Output::Stderr } else { Output::Stdout };
                for bytes in content.bytes.as_bytes().chunks(READ_BYTES) {
                    self.emit_output(content.run, channel, bytes);
                }
            }
            FromDriver::Done(content) => self.on_done(&content),
            FromDriver::Completions(DriverMessage { ask, start, end, mut matches, .. }) => {
                matches.truncate(MATCHES_MAX);
                self.answered(ask, Reply::Completions(Completions { start, end, matches }));
            }
            FromDriver::Checked(DriverMessage { ask, state, indent, .. }) => {
                let state = state.unwrap_or(CodeState::Complete);
                let indent = clip_to(indent, WORD_BYTES_MAX);
                self.answered(ask, Reply::Completeness(Completeness { state, indent }));
            }
        }
    }

    fn on_ready(&mut self, message: DriverMessage) {
        let Some(interpreter) = &mut self.interpreter else { return };
        if !matches!(self.phase, Phase::Starting(_)) {
            return;
        }
        self.phase = Phase::Ready;
        self.was_ready = true;
        self.startup_words = Vec::new();
        let own = Interpreter {
            pid: interpreter.pid.as_raw() as u32,
            program: clip_to(message.program, TEXT_BYTES_MAX),
            version: clip_to(message.version, WORD_BYTES_MAX),
        };
        self.context.publish(|view| view.interpreter = Some(own));
    }

    fn show(&mut self, message: DriverMessage) {
        let DriverMessage { run, role, id, mut data, metadata, sync, .. } = message;
        self.drain_current();
        data.truncate(FORMS_MAX);
        for datum in &mut data {
            datum.mime = clip_to(std::mem::take(&mut datum.mime), WORD_BYTES_MAX);
        }
        let bytes: usize = data.iter().map(|datum| datum.data.as_bytes().len()).sum();
        if bytes + metadata.as_ref().map_or(0, String::len) > DISPLAY_BYTES_MAX {
            let words = format!("[a display of {bytes} bytes is too large to be shown]\n");
            self.emit_output(run, Output::Stderr, words.as_bytes());
        } else {
            let id = id.map(|id| clip_to(id, WORD_BYTES_MAX));
            let role = role.unwrap_or(DisplayRole::Shown);
            self.emit(run, Happening::Display(Display { role, id, data, metadata }));
        }
        self.acknowledge(sync);
    }

    fn offer(&mut self, message: DriverMessage) {
        let DriverMessage { run, path, name, mime, size, sync, .. } = message;
        self.drain_current();
        let last = path.to_string_lossy().rsplit('/').next().unwrap_or_default().to_owned();
        let name = clip_to(name.unwrap_or(last), WORD_BYTES_MAX);
        let mime = mime.unwrap_or_else(|| "application/octet-stream".to_owned());
        let mime = clip_to(mime, WORD_BYTES_MAX);
        if path.as_bytes().len() <= PATH_BYTES_MAX {
            self.emit(run, Happening::Artifact(Artifact { path, name, mime, bytes: size }));
        }
        self.acknowledge(sync);
    }

    fn report(&mut self, content: DriverMessage) {
        let DriverMessage { run, kind, message, traceback, mut frames, sync, .. } = content;
        self.drain_current();
        frames.truncate(FRAMES_MAX);
        for frame in &mut frames {
            for text in [&mut frame.file, &mut frame.function, &mut frame.source] {
                *text = clip_to(std::mem::take(text), TEXT_BYTES_MAX);
            }
        }
        let report = ErrorReport {
            kind: clip_to(kind, WORD_BYTES_MAX),
            message: clip_to(message, ERROR_BYTES_MAX),
            traceback: clip_to(traceback, ERROR_BYTES_MAX),
            frames,
        };
        self.emit(run, Happening::Error(report));
        self.acknowledge(sync);
    }

    fn acknowledge(&mut self, sync: bool) {
        if let Some(interpreter) = &mut self.interpreter
            && sync
        {
            interpreter.channel.send(&ToDriver::Seen {});
        }
    }

    fn on_input_request(&mut self, message: &DriverMessage) {
        self.drain_current();
        let &DriverMessage { run, request, secret, .. } = message;
        if let Some(current) = &mut self.current
            && current.number == run
            && current.input
            && current.inputs.len() < INPUTS_MAX
        {
            current.inputs.push(request);
            let prompt = clip_to(message.prompt.to_string_lossy().into_owned(), TEXT_BYTES_MAX);
            self.emit(run, Happening::InputRequest { request, prompt, secret });
        } else if let Some(interpreter) = &mut self.interpreter {
            interpreter.channel.send(&ToDriver::Input { request, line: None });
        }
    }

    fn on_done(&mut self, message: &DriverMessage) {
        let Some(current) = &self.current else { return };
        // A shell does not know the number of its run.
        if message.run != 0 && message.run != current.number {
            return;
        }
        let end = match (&current.ladder, message.status) {
            // It may have ended by itself at the same moment. The interrupt has been promised to the client,
            // and nobody can know whether it had an effect.
            (Some(ladder), _) => ladder.end.clone(),
            (None, Status::Ok) => RunEnd::Ok {},
            (None, Status::Error) => RunEnd::Error {},
            (None, Status::Exit) => RunEnd::Exited { code: message.code.unwrap_or(0) },
        };
        self.finish(end, true, Some(message));
    }
}

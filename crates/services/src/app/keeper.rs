//! The life of one app: the task that starts it, watches it, and removes everything of it.

mod end;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use protocol::requests::{self, GroupLimits, SpoolSpec, Start, Stdio};
use protocol::{Cause, ExitRecord, SessionId, Text};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::following::{HOLDER, LogFollower};
use super::kind::LAUNCHER;
use super::limits::{LOG_TOLD_BYTES, PORTS_TOLD_MAX, WARNINGS_MAX};
use super::listening::Listening;
use super::note::Note;
use super::python::{self, MissingParts};
use super::ready::{self, NotReadyReason};
use super::seat::AppSlot;
use super::{App, AppError, AppSpec, Apps, Program, State};
use agent_client::guest::{FileTarget, Guest, GuestError, Upload};
use sandbox::{RECORDED_HOLDER, Record, Registry, Until};

/// The parent of apps' directories in a sandbox, which every sandbox has.
const DIRECTORY: &str = "/tmp/burrow-apps";
/// The file of the code, whose name other files of it may import it by.
const CODE_FILE: &str = "main.py";
const LAUNCHER_FILE: &str = "launcher.py";

/// See the module's description.
pub struct Keeper {
    apps: Apps,
    registry: Registry,
    record: Record,
    guest: Guest,
    /// The directory of the sandbox's record, on this host.
    state: PathBuf,
    seat: AppSlot,
}

/// Why nothing more is done for an app.
enum Interrupted {
    Stopped,
    SandboxGone,
    /// The next bridge finds it.
    BridgeEnds,
}

impl Keeper {
    pub fn new(
        apps: Apps,
        registry: Registry,
        record: Record,
        guest: Guest,
        seat: AppSlot,
    ) -> Result<Self, AppError> {
        let state = registry.state_directory(&record.which())?;
        Ok(Self { apps, registry, record, guest, state, seat })
    }

    /// Starts the app, reports when it answers or why it does not, and stays with it.
    pub async fn start(self, spec: AppSpec, mut reply: oneshot::Sender<Result<App, AppError>>) {
        let brought_up = tokio::select! {
            brought_up = self.bring_up(&spec) => brought_up,
            interrupted = self.interrupted() => Err(match interrupted {
                Interrupted::Stopped => AppError::Stopped,
                Interrupted::SandboxGone => AppError::SandboxGone,
                Interrupted::BridgeEnds => AppError::Ending,
            }),
            () = reply.closed() => Err(AppError::Abandoned),
        };
        match brought_up {
            Ok(following) => match reply.send(Ok(self.app())) {
                Ok(()) => self.keep(following).await,
                Err(_) => self.end().await,
            },
            Err(error) => {
                self.end().await;
                // By now nothing is left. A caller that is gone needs no reason.
                let _ = reply.send(Err(error));
            }
        }
    }

    /// Takes up an app that an earlier bridge had started.
    pub async fn take_up(self, note: Note) {
        let finding = async { if note.is_ready { self.find(&note).await } else { None } };
        let found = tokio::select! {
            found = finding => found,
            interrupted = self.interrupted() => return self.finish(interrupted).await,
        };
        match found {
            Some(following) => self.keep(following).await,
            None => self.end().await,
        }
    }

    /// Finds an app that an earlier bridge left, and forwards its port again.
    async fn find(&self, note: &Note) -> Option<LogFollower> {
        let sessions = self.guest.sessions(0).await.ok()?.sessions;
        let info = sessions.into_iter().find(|info| info.session == note.session)?;
        let following = LogFollower::begin(&self.guest, &note.session, self.seat.tail.clone());
        let following = following.await.ok()?;
        // The port that clients know, unless it is taken meanwhile.
        let host_port = match self.forward(note.port, note.host_port).await {
            Ok(host_port) => Some(host_port),
            Err(_) => self.forward(note.port, 0).await.ok(),
        };
        self.seat.shown.send_modify(|app| {
            (app.state, app.pid, app.host_port) = (State::Running, Some(info.pid), host_port);
        });
        if let Some(host_port) = host_port {
            // Without it the next bridge chooses another.
            let _ = Note { host_port, ..note.clone() }.write(&self.state);
        }
        Some(following)
    }

    async fn bring_up(&self, spec: &AppSpec) -> Result<LogFollower, AppError> {
        let deadline = Instant::now() + spec.ready_timeout;
        let before = Listening::read(&self.guest).await?;
        let port = self.seat.take_port(spec.port, &before)?;
        let host_port = self.forward(port, spec.host_port).await?;
        self.seat.shown.send_modify(|app| app.host_port = Some(host_port));
        let mut note = self.note(port, host_port);
        note.write(&self.state)?;
        let env = environment(spec, port);
        let cwd = spec.workdir.clone().or_else(|| self.record.workdir.clone()).map(Text::from);
        let program = self.prepare(spec, port, cwd.clone(), env.clone()).await?;
        let started = self.guest.start(&self.start_of(program, cwd, env)).await?;
        let warnings = started.warnings.into_iter().take(WARNINGS_MAX);
        self.seat.shown.send_modify(|app| {
            (app.pid, app.warnings) = (Some(started.pid), warnings.collect());
        });
        let (session, tail) = (&self.seat.session, self.seat.tail.clone());
        let mut following = LogFollower::begin(&self.guest, session, tail).await?;
        let mut silence = NotReadyReason::Refused;
        let is_late = tokio::select! {
            // A server at the port of an ended app is not the app.
            biased;
            ended = following.ended() => {
                let (record, log) = (Box::new(ended?), self.log());
                return Err(AppError::Failed { record, log });
            }
            answered = ready::answers(&self.guest, port, &spec.ready_path, &mut silence) => {
                answered?;
                false
            }
            () = sleep_until(deadline) => true,
        };
        if is_late {
            return Err(self.late(spec, port, silence, &before).await);
        }
        note.is_ready = true;
        note.write(&self.state)?;
        self.seat.shown.send_modify(|app| app.state = State::Running);
        Ok(following)
    }

    /// Writes the files of an app, checks its interpreter, and returns the command.
    async fn prepare(
        &self,
        spec: &AppSpec,
        port: u16,
        cwd: Option<Text>,
        env: Vec<(Text, Text)>,
    ) -> Result<requests::Program, AppError> {
        let (kind, code) = match &spec.program {
            Program::Line(line) => {
                return Ok(requests::Program::Script { script: line.as_str().into(), shell: None });
            }
            Program::Argv(argv) => {
                let argv = argv.iter().map(|word| word.as_str().into()).collect();
                return Ok(requests::Program::Argv { argv });
            }
            Program::Code { kind, code } => (*kind, code),
        };
        let modules = kind.modules(code);
        let asking = python::ask(&self.guest, self.asking(), &spec.python, &modules, cwd, env);
        let (which, python) = (self.record.which(), spec.python.clone());
        match asking.await? {
            MissingParts::Nothing => {}
            MissingParts::Modules(modules) => {
                return Err(AppError::Missing { which, python, modules });
            }
            MissingParts::Itself => return Err(AppError::NoInterpreter { which, python }),
            MissingParts::Sense(message) => {
                return Err(AppError::Interpreter { which, python, message });
            }
        }
        let directory = self.directory();
        let file = format!("{directory}/{CODE_FILE}");
        let launcher = format!("{directory}/{LAUNCHER_FILE}");
        self.write(self.file(&file)?, code).await?;
        self.write(self.file(&launcher)?.of_the_bridge(), LAUNCHER).await?;
        let argv = kind.argv(&spec.python, &launcher, &file, port);
        Ok(requests::Program::Argv { argv: argv.into_iter().map(Text::from).collect() })
    }

    fn file(&self, path: &str) -> Result<Upload, GuestError> {
        self.guest.write_file(FileTarget { parents: true, ..FileTarget::replace(path) })
    }

    async fn write(&self, mut upload: Upload, text: &str) -> Result<(), GuestError> {
        upload.write(text.as_bytes()).await?;
        upload.finish().await?;
        Ok(())
    }

    fn start_of(
        &self,
        program: requests::Program,
        cwd: Option<Text>,
        env: Vec<(Text, Text)>,
    ) -> Start {
        Start {
            session: self.seat.session.clone(),
            program,
            cwd,
            env,
            user: None,
            stdio: Stdio::Pipes { stdin: false },
            deadline_ms: None,
            spool: SpoolSpec::default(),
            // The log has all that it says, and we its newest and its end.
            holders: vec![RECORDED_HOLDER.to_owned(), HOLDER.to_owned()],
            tied: false,
            limits: GroupLimits::default(),
        }
    }

    async fn forward(&self, port: u16, host_port: u16) -> Result<u16, AppError> {
        let host = IpAddr::from(Ipv4Addr::LOCALHOST);
        let forwards = self.apps.forwards();
        let open = forwards.open(&self.registry, &self.record, port, host, host_port).await?;
        Ok(open.address.port())
    }

    /// Why it did not answer in time.
    async fn late(
        &self,
        spec: &AppSpec,
        port: u16,
        silence: NotReadyReason,
        before: &Listening,
    ) -> AppError {
        let others = self.apps.of(&self.record.which());
        let is_others = |port: u16| others.iter().any(|app| app.port == Some(port));
        let listening = Listening::read(&self.guest).await.unwrap_or_default();
        let found = listening.since(before).filter(|found| !is_others(*found));
        let elsewhere = found.take(PORTS_TOLD_MAX).collect();
        let is_aside = listening.has(port) && !listening.is_reached(port);
        let silence = if is_aside { NotReadyReason::Aside } else { silence };
        let waited = spec.ready_timeout;
        AppError::NotReady { waited, port, silence, elsewhere, log: self.log() }
    }

    /// Stays with an app that runs until nothing is left of it.
    async fn keep(self, mut following: LogFollower) {
        let ended = tokio::select! {
            // The link ends with the sandbox and with the bridge, so its error is not the one to
            // report.
            biased;
            interrupted = self.interrupted() => return self.finish(interrupted).await,
            ended = following.ended() => ended,
        };
        drop(following);
        let (state, exit) = judge(ended);
        self.clear().await;
        // Published last, so that an observer of the end finds nothing left.
        self.seat.shown.send_modify(|app| {
            (app.state, app.exit, app.host_port) = (state, exit, None);
        });
        let interrupted = self.interrupted().await;
        self.finish(interrupted).await;
    }

    async fn finish(self, interrupted: Interrupted) {
        match interrupted {
            Interrupted::Stopped => self.end().await,
            Interrupted::SandboxGone => self.forget(),
            Interrupted::BridgeEnds => {}
        }
    }

    async fn interrupted(&self) -> Interrupted {
        let which = self.record.which();
        tokio::select! {
            biased;
            () = self.apps.ended() => Interrupted::BridgeEnds,
            () = self.seat.stop.notified() => Interrupted::Stopped,
            waited = self.registry.wait(&which, Until::Stopped) => match waited {
                // Its owner has released it, which is how a bridge ends.
                Ok(record) if !record.state.is_over() => Interrupted::BridgeEnds,
                // An unknown sandbox is gone, too.
                Ok(_) | Err(_) => Interrupted::SandboxGone,
            },
        }
    }

    fn app(&self) -> App {
        self.seat.shown.borrow().clone()
    }

    fn note(&self, port: u16, host_port: u16) -> Note {
        let App { name, kind, session, started_at_ms, .. } = self.app();
        Note { name, kind, session, port, host_port, started_at_ms, is_ready: false }
    }

    fn log(&self) -> String {
        self.seat.tail.show(LOG_TOLD_BYTES).text
    }

    fn directory(&self) -> String {
        format!("{DIRECTORY}/{}", self.seat.session)
    }

    /// The session of the question to the interpreter.
    fn asking(&self) -> SessionId {
        let name = format!("{}.ask", self.seat.session);
        name.parse().expect("the limits leave room for it")
    }
}

/// The state of an app after its end.
fn judge(ended: Result<ExitRecord, GuestError>) -> (State, Option<ExitRecord>) {
    match ended {
        Ok(record) if record.cause == (Cause::Exited { code: 0 }) => (State::Exited, Some(record)),
        Ok(record) => (State::Failed, Some(record)),
        // The agent no longer answers, and the app's state is unknown.
        Err(_) => (State::Failed, None),
    }
}

/// Ours take precedence: an app that does not listen at its port is not found.
fn environment(spec: &AppSpec, port: u16) -> Vec<(Text, Text)> {
    let ours = [("PORT", port.to_string()), ("PYTHONUNBUFFERED", "1".to_owned())];
    let theirs = spec.env.iter().filter(|(name, _)| ours.iter().all(|(own, _)| own != name));
    let theirs = theirs.map(|(name, value)| (name.as_str().into(), value.as_str().into()));
    let ours = ours.iter().map(|(name, value)| ((*name).into(), value.as_str().into()));
    theirs.chain(ours).collect()
}

//! Output that outlives this node: the fleet's logs, as the sandboxes of this node write them.
//!
//! A sandbox's log is written by the node that has its name, as long as it has it; the store refuses what another would
//! put between. `lost` reads the logs of nodes that are gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use fleet::ids::Incarnation;
use fleet::log::{AppendError, Writer};
use fleet::nats::{Keeping, Link};
use fleet::track::{LogId, Track};
use machine::BoxFuture;
use protocol::SessionId;
use sandbox::SandboxRef;
use sandbox::durable::{DurableLog, DurableLogs, Line, NotAppended, OutputId, OutputPart};
use sandbox::log::Run;

use crate::{Node, incarnation, lock, name_of};

impl Node {
    /// The connection, as soon as NATS has answered once.
    async fn link(&self) -> Result<Link, NotAppended> {
        let mut handle = self.0.handle.subscribe();
        let ended = || NotAppended { why: "this bridge ends".to_owned() };
        let joined = handle.wait_for(Option::is_some).await.map_err(|_| ended())?;
        joined.as_ref().map(|handle| handle.link.clone()).ok_or_else(ended)
    }

    /// Opens the streams of the logs, once.
    async fn open_logs(&self) -> Result<(), String> {
        self.standing()?;
        let handle = self.handle().ok_or("this node is joining its fleet")?;
        let mut are_open = self.0.has_logs.lock().await;
        if !*are_open {
            let keeping = Keeping {
                age_max: self.0.settings.log_age,
                bytes_max: self.0.settings.log_bytes,
                waits: self.0.settings.log_full == settings::WAIT,
            };
            let opened = handle.link.open_logs(&self.0.place, keeping).await;
            opened.map_err(|error| error.to_string())?;
            *are_open = true;
        }
        Ok(())
    }
}

impl DurableLogs for Node {
    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.open_logs())
    }

    fn open(&self, which: &SandboxRef, life: &str) -> Arc<dyn DurableLog> {
        let id = incarnation(life).zip(name_of(which).ok());
        let id = id.map(|(incarnation, name)| LogId { name, incarnation });
        Arc::new(OwnLog(Arc::new(OwnLogInner {
            node: self.clone(),
            id,
            writers: Mutex::default(),
        })))
    }
}

/// The log of a sandbox of this node.
struct OwnLog(Arc<OwnLogInner>);

struct OwnLogInner {
    node: Node,
    /// Absent for a life that the fleet has not given, which has no log.
    id: Option<LogId>,
    writers: Mutex<HashMap<Track, SharedWriter>>,
}

type SharedWriter = Arc<tokio::sync::Mutex<Writer>>;

impl OwnLogInner {
    async fn writer(&self, track: Track) -> Result<SharedWriter, NotAppended> {
        let link = self.node.link().await?;
        let none = || NotAppended { why: "it has no life in the fleet".to_owned() };
        let id = self.id.clone().ok_or_else(none)?;
        let (node, life) = (self.node.clone(), id.incarnation);
        let mut writers = lock(&self.writers);
        let writer = writers.entry(track.clone()).or_insert_with(|| {
            let name = node.id().clone();
            let is_ours = move || Node::holds(&node, life);
            Arc::new(tokio::sync::Mutex::new(Writer::new(link, id, track, name, is_ours)))
        });
        Ok(Arc::clone(writer))
    }
}

impl DurableLog for OwnLog {
    fn note(&self, line: Line) -> BoxFuture<'static, Result<(), NotAppended>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let json = serde_json::to_vec(&line).expect("a line is JSON");
            let writer = inner.writer(Track::Lines).await?;
            let mut writer = writer.lock().await;
            writer.note(json.into()).await.map_err(|error| not_appended(&error))
        })
    }

    fn append(
        &self,
        output: OutputId,
        part: OutputPart,
    ) -> BoxFuture<'static, Result<(), NotAppended>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let writer = inner.writer(track_of(&output)).await?;
            let mut writer = writer.lock().await;
            let appended = writer.append(part.offset, part.to, part.bytes.into()).await;
            appended.map_err(|error| not_appended(&error))
        })
    }

    fn end(&self, output: OutputId) -> BoxFuture<'static, Result<u64, NotAppended>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let writer = inner.writer(track_of(&output)).await?;
            let mut writer = writer.lock().await;
            writer.end().await.map_err(|error| not_appended(&error))
        })
    }

    fn finished(&self, session: &SessionId, run: Run) {
        let (wanted, wanted_run) = (session.as_str(), run_text(run));
        lock(&self.0.writers).retain(|track, _| match track {
            Track::Lines => true,
            Track::Output { session, run, .. } => **session != *wanted || **run != *wanted_run,
        });
    }

    fn remove(&self) -> BoxFuture<'static, ()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let Some(id) = inner.id.clone().filter(|id| Node::holds(&inner.node, id.incarnation))
            else {
                return;
            };
            let Some(handle) = inner.node.handle() else { return };
            if let Err(error) = handle.link.remove_log(&id).await {
                tracing::warn!(log = %id, %error, "its log stays until it is too old");
            }
        })
    }
}

fn not_appended(error: &AppendError) -> NotAppended {
    NotAppended { why: error.to_string() }
}

pub(crate) fn track_of(output: &OutputId) -> Track {
    Track::Output {
        session: output.session.as_str().into(),
        run: run_text(output.run).into(),
        channel: output.channel.name().into(),
    }
}

/// A run as one token.
pub(crate) fn run_text(run: Run) -> String {
    format!("{}-{}", run.started_at_ms, run.pid)
}

/// Whether a text is a life.
pub(crate) fn life_of(text: &str) -> Option<Incarnation> {
    incarnation(text)
}

//! `inspect`: show a sandbox and its sessions.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use protocol::hello::AgentInfo;
use protocol::message::SessionInfo;
use serde::Serialize;
use tokio::time::timeout;

use super::context::Context;
use super::exit::Exit;
use super::output::printable;
use super::ps::root_of;
use super::values::{human_bytes, human_cpus, human_duration, human_labels};
use super::{instant, output, table};
use control::{List, Request};
use machine::MachineKind;
use sandbox::host_files::HOST_ROOT;
use sandbox::{Name, OnIdle, RECORDED_HOLDER, Record, SandboxRef, ScratchPlace, State};

/// How long the agent may take to answer. One that is paused in this moment answers when it goes on.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Show a sandbox and its sessions
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge inspect work
  host-bridge inspect --json work | jq '.sessions[] | select(.exit == null) | .session'")]
pub struct Inspect {
    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(value_name = "SANDBOX")]
    which: SandboxRef,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Inspection {
    #[serde(flatten)]
    record: Record,
    /// The agent's information; absent if the sandbox has stopped or does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<AgentInfo>,
    sessions: Vec<SessionInfo>,
    /// The sandboxes that were forked from it, and from those, and are still there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    descendants: Vec<Name>,
}

impl Inspect {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let inspected = context.daemon().await?.inspect(&self.which).await;
        let record = match inspected {
            Ok(record) => record,
            Err(error) => return Err(context.explain(&self.which, error).await),
        };
        let mut inspection = Inspection {
            descendants: descendants(context, &record).await?,
            record,
            agent: None,
            sessions: Vec::new(),
        };
        if matches!(inspection.record.state, State::Running)
            && let Err(trouble) = inspection.ask_in_time(context, &self.which).await
        {
            // The daemon's record is worth showing without it, and says whether it was paused or ended meanwhile.
            output::note(&printable(&trouble));
            if let Ok(record) = context.daemon().await?.inspect(&self.which).await {
                inspection.record = record;
            }
        }
        if self.json {
            output::print_json(&inspection)?;
        } else {
            output::print(&inspection.describe())?;
        }
        Ok(Exit::SUCCESS)
    }
}

async fn descendants(context: &Context, record: &Record) -> Result<Vec<Name>> {
    let (namespace, labels) = (Some(record.namespace.clone()), Vec::new());
    let list = Request::List(List { namespace, all: true, labels });
    let all: Vec<Record> = context.daemon().await?.ask(&list).await?;
    let is_of = |other: &Record| other.ancestors.iter().any(|one| one.id == record.id);
    Ok(all.into_iter().filter(is_of).map(|other| other.name).collect())
}

impl Inspection {
    /// Asks the agent, or says why it has not answered.
    async fn ask_in_time(&mut self, context: &Context, which: &SandboxRef) -> Result<(), String> {
        let Ok(asked) = timeout(ANSWER_MAX, self.ask(context, which)).await else {
            let seconds = ANSWER_MAX.as_secs();
            return Err(format!("the agent of {which} has not answered within {seconds} s"));
        };
        asked.map_err(|error| format!("{error:#}"))
    }

    async fn ask(&mut self, context: &Context, which: &SandboxRef) -> Result<()> {
        let guest = context.look(which, "inspect").await?;
        self.agent = Some(guest.refresh_info().await?);
        self.sessions = guest.sessions(0).await?.sessions;
        guest.close().await;
        Ok(())
    }

    fn describe(&self) -> String {
        let record = &self.record;
        let mut facts = vec![
            ("name", record.which().to_string()),
            ("id", record.id.to_string()),
            ("state", record.state.to_string()),
            ("machine", record.machine.to_string()),
            ("image", image(record)),
            ("host name", record.hostname.clone()),
            ("created", instant::format(record.created_at_ms)),
        ];
        if record.scratch_bytes > 0 {
            let place = match record.scratch_place {
                Some(ScratchPlace::Memory) => ", in memory",
                Some(ScratchPlace::Disk) => ", on disk",
                None => "",
            };
            let bytes = human_bytes(record.scratch_bytes);
            facts.push(("writable layer", format!("{bytes}{place}")));
        }
        facts.extend(describe_asked(record));
        if !record.ancestors.is_empty() {
            let ancestors: Vec<_> = record.ancestors.iter().map(|one| one.name.as_str()).collect();
            facts.push(("forked from", ancestors.join(", before that ")));
        }
        if !self.descendants.is_empty() {
            let forks: Vec<_> = self.descendants.iter().map(Name::as_str).collect();
            facts.push(("forks", forks.join(" ")));
        }
        if !record.env_names.is_empty() {
            facts.push(("environment", record.env_names.join(" ")));
        }
        if !record.secrets.is_empty() {
            facts.push(("secrets", record.secrets.join(" ")));
        }
        if let Some(workspace) = &record.workspace {
            let how = if record.mounted { " (mounted)" } else { "" };
            facts.push(("workspace", format!("{workspace}{how}")));
        }
        if let Some(pid) = record.pid {
            facts.push(("process", pid.to_string()));
        }
        if let Some(address) = &record.address {
            facts.push(("agent address", address.to_string()));
        }
        if let Some(agent) = &self.agent {
            facts.extend(describe_agent(agent, record.machine));
        }
        let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let mut text = String::new();
        for (name, value) in facts {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name:width$}  {}", printable(&value));
        }
        if !self.sessions.is_empty() {
            let rows: Vec<_> = self.sessions.iter().map(row).collect();
            text.push('\n');
            let head = ["SESSION", "PID", "KIND", "STATE", "VIEWERS", "KEYBOARD", "COMMAND"];
            text.push_str(&table::align(head, &rows));
        }
        text
    }
}

/// The root, and its details if an image has any.
fn image(record: &Record) -> String {
    let root = root_of(record);
    let is_host = root == HOST_ROOT && record.machine.sees_host();
    if is_host { format!("{root} (the host's own root)") } else { root }
}

/// The options that differ from the defaults, and warnings.
fn describe_asked(record: &Record) -> Vec<(&'static str, String)> {
    let after = |ms: u64| human_duration(Duration::from_millis(ms));
    let mut facts = Vec::new();
    if let Some(mib) = record.memory_mib {
        facts.push(("memory limit", human_bytes(mib * 1024 * 1024)));
    }
    if let Some(millis) = record.cpu_millis {
        facts.push(("CPU limit", human_cpus(millis)));
    }
    if let Some(digest) = &record.image_digest {
        facts.push(("image digest", digest.to_string()));
    }
    if let Some(workdir) = &record.workdir {
        facts.push(("working directory", workdir.clone()));
    }
    if let Some(user) = &record.user {
        facts.push(("user", user.clone()));
    }
    if !record.labels.is_empty() {
        facts.push(("labels", human_labels(&record.labels)));
    }
    if !record.egress.is_empty() {
        facts.push(("egress", record.egress.join(", ")));
    }
    if let Some(at_ms) = record.expires_at_ms {
        facts.push(("expires", instant::format(at_ms)));
    }
    if let Some(idle_ms) = record.idle_ttl_ms {
        let idle = match record.idle_expires_at_ms {
            Some(at_ms) => format!("after {}, at {}", after(idle_ms), instant::format(at_ms)),
            None => format!("after {}", after(idle_ms)),
        };
        let what = match record.on_idle {
            OnIdle::Stop => "expires if idle",
            OnIdle::Pause => "pauses if idle",
            OnIdle::Snapshot => "goes to disk if idle",
        };
        facts.push((what, idle));
    }
    if !record.durability.is_off() {
        facts.push(("durability", record.durability.to_string()));
    }
    if !record.record.is_on() {
        facts.push(("record", record.record.to_string()));
    }
    if !record.on_lost.is_lose() {
        facts.push(("if lost", record.on_lost.to_string()));
    }
    if let Some(lost) = &record.follows {
        facts.push(("follows", format!("{}, which was lost with the node {}", lost.id, lost.node)));
    }
    if let Some(keep_ms) = record.keep_stopped_ms {
        facts.push(("removed after", after(keep_ms)));
    }
    facts.extend(record.warnings.iter().map(|warning| ("warning", warning.clone())));
    facts
}

fn describe_agent(agent: &AgentInfo, kind: MachineKind) -> Vec<(&'static str, String)> {
    // Without a kernel of its own the agent sees the host's resources, and not the sandbox's limits.
    let (memory, cpus) =
        if kind.sees_host() { ("memory of host", "CPUs of host") } else { ("memory", "CPUs") };
    let mut facts = vec![
        ("agent", agent.release.clone()),
        ("uptime", human_duration(Duration::from_millis(agent.uptime_ms))),
        (memory, human_bytes(agent.memory_bytes)),
        (cpus, agent.cpus.to_string()),
    ];
    if let Some(reason) = &agent.cgroup_missing {
        facts.push(("no control groups", reason.clone()));
    }
    for step in &agent.boot {
        if let Some(problem) = &step.problem {
            facts.push(("left out at boot", format!("{}: {problem}", step.name)));
        }
    }
    facts
}

/// The observers, without the daemon's own recorder.
fn viewers(session: &SessionInfo) -> u32 {
    let is_recorded = session.holders.iter().any(|holder| holder == RECORDED_HOLDER);
    session.viewers.saturating_sub(u32::from(is_recorded))
}

fn row(session: &SessionInfo) -> [String; 7] {
    let state = match &session.exit {
        None if session.starting => "starting".to_owned(),
        None => "running".to_owned(),
        Some(record) => format!("ended ({})", Exit::of(record).0),
    };
    [
        session.session.to_string(),
        session.pid.to_string(),
        if session.terminal { "terminal" } else { "pipes" }.to_owned(),
        state,
        viewers(session).to_string(),
        session.keyboard.as_deref().map_or_else(|| "-".to_owned(), printable),
        printable(&session.command),
    ]
}

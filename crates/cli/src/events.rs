//! `events`: print what has happened to sandboxes from the logs on disk, and follow them. Needs no
//! daemon; the daemon that runs is what adds to them. Those of all nodes of a fleet come through it.

mod nodes;

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::context::Context;
use super::exit::Exit;
use super::failure::CliError;
use super::output::{self, Sink};
use super::values::{Since, ValueError};
use super::{all_nodes, instant, table};
use crate::following::until_ended;
use control::EventsQuery;
use sandbox::event::Kind;
use sandbox::{Name, SandboxRef};
use services::events::limits::TURN_MAX;
use services::events::{Entry, EntryJson, Filter, From, Reader, namespaces};
use services::webhooks::{DeadLetter, dead_letters};

use nodes::NodeEvents;

/// How often a follower checks for more.
const FOLLOW_PAUSE: Duration = Duration::from_millis(200);
/// The same where each look is a call to every node.
const NODES_PAUSE: Duration = Duration::from_secs(1);

/// Show what has happened to sandboxes
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge events
  host-bridge events -f work
  host-bridge events --since 1h --kind exited --kind out_of_memory
  host-bridge events --namespace ci --since 1200 --json
  host-bridge events --all-nodes --namespace ci -f
  host-bridge events --dead-letters

Each event has an offset, which only grows in its namespace: what has read up to 1199 goes on with --since 1200. Events that are no \
longer kept are shown as a gap. Works without the daemon, except for --all-nodes, which shows one namespace: each node of the fleet \
has its own offsets, and is named beside them.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct Events {
    /// Keep printing new events until ctrl-c
    #[arg(short, long)]
    follow: bool,

    /// Print only events since this: an offset of one namespace, an age as in 10m, or a date
    #[arg(long, value_name = "OFFSET|TIME")]
    since: Option<Start>,

    /// Print only events of this namespace (default: all)
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "which")]
    namespace: Option<Name>,

    /// Print only this kind of event; repeatable
    #[arg(long, value_name = "KIND")]
    kind: Vec<Kind>,

    /// Print the events of one namespace at all nodes of the fleet (default: the namespace default)
    #[arg(long)]
    all_nodes: bool,

    /// Print the events that no webhook could deliver, and why
    #[arg(long, conflicts_with_all = ["follow", "since", "namespace", "kind", "which", "all_nodes"])]
    dead_letters: bool,

    /// Print every event as a line of JSON
    #[arg(long)]
    json: bool,

    /// The sandboxes: NAME or NAMESPACE/NAME (default: all)
    #[arg(value_name = "SANDBOX")]
    which: Vec<SandboxRef>,
}

/// Where to begin: digits are an offset, all else is a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Offset(u64),
    Time(Since),
}

impl FromStr for Start {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.parse() {
            Ok(offset) => Ok(Self::Offset(offset)),
            Err(_) => text.parse().map(Self::Time),
        }
    }
}

impl Events {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        if self.dead_letters {
            return self.print_dead_letters(&context.paths.webhooks());
        }
        if self.all_nodes {
            return self.run_for_all(context).await;
        }
        let chosen = self.chosen();
        let from = match self.since {
            None => From::Oldest,
            Some(Start::Time(since)) => From::Time(since.resolve(instant::now_ms())),
            Some(Start::Offset(offset)) if chosen.len() == 1 => From::Offset(offset),
            Some(Start::Offset(_)) => {
                output::note(
                    "an offset is one of a single namespace; give --namespace, or sandboxes of one",
                );
                return Ok(Exit::FAILED_ITSELF);
            }
        };
        let mut merged = Merged {
            directory: context.paths.events(),
            is_all: chosen.is_empty(),
            sources: Vec::new(),
            from,
        };
        for namespace in chosen {
            merged.add(namespace);
        }
        let printing = self.print(Feed::Disk(merged));
        if self.follow { until_ended(printing).await } else { printing.await }
    }

    async fn run_for_all(&self, context: &Context) -> Result<Exit> {
        let mut chosen = self.chosen();
        if chosen.len() > 1 {
            output::note("--all-nodes shows one namespace; name sandboxes of one");
            return Ok(Exit::FAILED_ITSELF);
        }
        let since_ms = match self.since {
            None => None,
            Some(Start::Time(since)) => Some(since.resolve(instant::now_ms())),
            Some(Start::Offset(_)) => {
                output::note("an offset is one of a single node; with --all-nodes give a time");
                return Ok(Exit::FAILED_ITSELF);
            }
        };
        let Filter { sandboxes, kinds } = self.filter();
        let namespace = chosen.pop().unwrap_or_else(Name::default_namespace);
        let places = BTreeMap::new();
        let query = EventsQuery { namespace, places, since_ms, sandboxes, kinds };
        let namespace = query.namespace.clone();
        let events = NodeEvents::new(query);
        let printing = self.print(Feed::Nodes { context, namespace, events });
        if self.follow { until_ended(printing).await } else { printing.await }
    }

    fn print_dead_letters(&self, directory: &Path) -> Result<Exit> {
        let unreadable = |source| CliError::Unreadable { path: directory.to_owned(), source };
        let letters = dead_letters(directory).map_err(unreadable)?;
        if self.json {
            for letter in &letters {
                output::print_line(&serde_json::to_string(letter)?)?;
            }
            return Ok(Exit::SUCCESS);
        }
        let rows: Vec<_> = letters.iter().map(dead_row).collect();
        output::print(&table::align(DEAD_HEAD, &rows))?;
        Ok(Exit::SUCCESS)
    }

    /// The namespaces that are wanted; none for all.
    fn chosen(&self) -> Vec<Name> {
        let of_sandboxes = self.which.iter().map(|which| which.namespace.clone());
        let mut chosen: Vec<_> = of_sandboxes.chain(self.namespace.clone()).collect();
        chosen.sort();
        chosen.dedup();
        chosen
    }

    fn filter(&self) -> Filter {
        let sandboxes = self.which.iter().map(|which| which.name.to_string()).collect();
        Filter { sandboxes, kinds: self.kind.clone() }
    }

    async fn print(&self, mut feed: Feed<'_>) -> Result<Exit> {
        let stdout = Sink::stdout()?;
        let mut is_first = !self.json;
        let mut is_silent = true;
        let mut exit = Exit::SUCCESS;
        loop {
            if let Some(reported) = feed.fill(&self.filter()).await? {
                exit = reported;
            }
            let Some((node, namespace, entry)) = feed.take() else {
                if !self.follow {
                    if is_silent && !self.which.is_empty() {
                        let names: Vec<_> = self.which.iter().map(ToString::to_string).collect();
                        output::note(&format!(
                            "there are no matching events of {}",
                            names.join(", ")
                        ));
                    }
                    return Ok(exit);
                }
                tokio::time::sleep(feed.pause()).await;
                continue;
            };
            if !self.is_meant(&namespace, &entry) {
                continue;
            }
            is_silent = false;
            let mut text = String::new();
            if std::mem::take(&mut is_first) {
                text = line(node.as_ref().map(|_| "NODE"), &HEAD.map(str::to_owned));
            }
            if self.json {
                let entry = EntryJson { namespace: &namespace, entry: &entry };
                text.push_str(&serde_json::to_string(&NodeEntry { node: node.as_deref(), entry })?);
                text.push('\n');
            } else {
                text.push_str(&line(node.as_deref(), &row(&namespace, &entry)));
            }
            match stdout.write(text.into_bytes()).await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Exit::SUCCESS),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether a sandbox is one of those, where some of several namespaces are named.
    fn is_meant(&self, namespace: &Name, entry: &Entry) -> bool {
        let is_it = |which: &SandboxRef| {
            which.namespace == *namespace
                && (entry.sandbox.as_ref() == Some(&which.name)
                    || entry.id.as_ref().is_some_and(|id| id.as_str() == which.name.as_str()))
        };
        self.which.is_empty() || entry.sandbox.is_none() || self.which.iter().any(is_it)
    }
}

/// Where events come from.
enum Feed<'c> {
    Disk(Merged),
    Nodes { context: &'c Context, namespace: Name, events: NodeEvents },
}

impl Feed<'_> {
    /// Reads on where nothing waits. Returns how the verb ends if nodes have begun or ceased to answer.
    async fn fill(&mut self, filter: &Filter) -> Result<Option<Exit>> {
        match self {
            Self::Disk(merged) => merged.fill(filter)?,
            Self::Nodes { context, events, .. } => {
                let before = events.unanswered.clone();
                events.fill(context).await?;
                if events.unanswered != before {
                    return Ok(Some(all_nodes::report("events", &events.unanswered)));
                }
            }
        }
        Ok(None)
    }

    fn take(&mut self) -> Option<(Option<String>, Name, Entry)> {
        match self {
            Self::Disk(merged) => merged.take().map(|(namespace, entry)| (None, namespace, entry)),
            Self::Nodes { namespace, events, .. } => {
                events.take().map(|(node, entry)| (Some(node), namespace.clone(), entry))
            }
        }
    }

    fn pause(&self) -> Duration {
        match self {
            Self::Disk(_) => FOLLOW_PAUSE,
            Self::Nodes { .. } => NODES_PAUSE,
        }
    }
}

/// An entry with its node, if that is shown.
#[derive(Serialize)]
struct NodeEntry<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    #[serde(flatten)]
    entry: EntryJson<'a>,
}

/// The logs of several namespaces in the order of time.
struct Merged {
    directory: PathBuf,
    is_all: bool,
    sources: Vec<Source>,
    from: From,
}

struct Source {
    namespace: Name,
    reader: Reader,
    waiting: VecDeque<Entry>,
}

impl Merged {
    fn add(&mut self, namespace: Name) {
        let reader = Reader::new(&self.directory, &namespace, self.from);
        self.sources.push(Source { namespace, reader, waiting: VecDeque::new() });
    }

    /// Reads on where nothing waits.
    fn fill(&mut self, filter: &Filter) -> Result<(), CliError> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |source| CliError::Unreadable { path, source }
        };
        if self.is_all && self.sources.iter().all(|source| source.waiting.is_empty()) {
            for namespace in namespaces(&self.directory).map_err(unreadable(&self.directory))? {
                if !self.sources.iter().any(|source| source.namespace == namespace) {
                    self.add(namespace);
                }
            }
        }
        for source in &mut self.sources {
            while source.waiting.is_empty() {
                let batch = source.reader.read(filter, TURN_MAX);
                let batch = batch.map_err(unreadable(&self.directory))?;
                source.waiting.extend(batch.entries);
                if batch.is_at_end {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The oldest entry that waits.
    fn take(&mut self) -> Option<(Name, Entry)> {
        let waiting = self.sources.iter_mut().filter(|source| !source.waiting.is_empty());
        let oldest =
            waiting.min_by_key(|source| source.waiting.front().map(|entry| entry.at_ms))?;
        Some((oldest.namespace.clone(), oldest.waiting.pop_front()?))
    }
}

const HEAD: [&str; 5] = ["OFFSET", "TIME", "SANDBOX", "EVENT", "WHAT"];
const DEAD_HEAD: [&str; 5] = ["HOOK", "TIME", "EVENT", "TRIES", "ERROR"];

fn dead_row(letter: &DeadLetter) -> [String; 5] {
    let text = |field: &str| letter.event[field].as_str().unwrap_or_default().to_owned();
    let event = format!(
        "{}/{} {} {}",
        text("namespace"),
        letter.event["offset"],
        text("kind"),
        text("sandbox")
    );
    let (time, tries) = (instant::format(letter.at_ms), letter.attempts.to_string());
    [letter.hook.clone(), time, event, tries, letter.error.clone()]
        .map(|cell| output::printable(&cell))
}

/// A column has at least this width, so that lines that come later stand below each other.
const WIDTHS: [usize; 5] = [6, 24, 16, 13, 0];
const NODE_WIDTH: usize = 12;

fn line(node: Option<&str>, row: &[String; 5]) -> String {
    let mut line = String::new();
    let cells = row.iter().map(String::as_str).zip(WIDTHS);
    for (cell, width) in node.map(|node| (node, NODE_WIDTH)).into_iter().chain(cells) {
        line.push_str(cell);
        line.push_str(&" ".repeat(width.saturating_sub(cell.chars().count()) + 2));
    }
    format!("{}\n", line.trim_end())
}

fn row(namespace: &Name, entry: &Entry) -> [String; 5] {
    let name = entry.sandbox.clone();
    let sandbox = match name {
        Some(name) => SandboxRef { namespace: namespace.clone(), name }.to_string(),
        None => format!("{namespace}/"),
    };
    let facts = serde_json::to_value(&entry.facts).unwrap_or_default();
    let facts = facts.as_object().into_iter().flatten();
    let mut what: Vec<_> = entry.late.then(|| "(found later)".to_owned()).into_iter().collect();
    what.extend(facts.map(|(name, value)| match value.as_str() {
        Some(text) if name == "cause" => text.to_owned(),
        Some(text) => format!("{name}={text}"),
        None => format!("{name}={value}"),
    }));
    let time = instant::format(entry.at_ms);
    let row = [entry.offset.to_string(), time, sandbox, entry.kind.to_string(), what.join(" ")];
    row.map(|cell| output::printable(&cell))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_an_offset_and_all_else_is_a_time() {
        assert_eq!("1200".parse(), Ok(Start::Offset(1200)));
        assert_eq!("10m".parse(), Ok(Start::Time(Since::Age(Duration::from_secs(600)))));
        assert!(matches!("2026-01-31".parse(), Ok(Start::Time(Since::At(_)))));
        "soon".parse::<Start>().unwrap_err();
    }
}

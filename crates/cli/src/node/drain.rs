//! `node drain`: mark a node as about to go, wait until it has no sandbox, and end what is left then.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use futures_util::future::join_all;
use protocol::exit::EXIT_TIMED_OUT;
use tokio::time::{Instant, sleep};

use crate::context::Context;
use crate::exit::Exit;
use crate::output;
use crate::values::{human_duration, parse_duration};
use control::{Client, ClientError, ErrorCode, List, NodeRow, Readiness, Request};
use sandbox::{Name, Record, SandboxRef};

/// How often the node is asked what it has.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Sandboxes that are ended at once.
const ENDED_AT_ONCE: usize = 8;
/// How often what is left is ended again: one that was still being made could not be.
const ROUNDS: usize = 3;

/// See the module's description.
#[derive(Debug, Args)]
pub(super) struct Drain {
    /// Name the node
    name: String,

    /// Wait until it has no sandbox
    #[arg(long)]
    wait: bool,

    /// Wait, but not longer than this, as in 90s or 5m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,

    /// Stop and remove what is left at the deadline, with its logs; what is made again when it is lost moves
    #[arg(long, requires = "deadline")]
    end: bool,
}

/// What a node has.
enum Look {
    Has(Vec<Record>),
    Silent { why: String },
    Gone,
}

/// What has become of one that was ended.
enum Ended {
    InOrder,
    /// It is made again at another node.
    Moved,
    Killed {
        why: String,
    },
    Before,
    Left {
        why: String,
    },
}

impl Drain {
    pub(super) async fn run(&self, context: &Context) -> Result<Exit> {
        let request = Request::MarkNode { node: self.name.clone(), readiness: Readiness::Draining };
        let _: Vec<NodeRow> = context.daemon().await?.ask(&request).await?;
        if !self.wait && self.deadline.is_none() {
            return Ok(Exit::SUCCESS);
        }
        let deadline = self.deadline.map(|limit| Instant::now() + limit);
        loop {
            let look = self.look(context).await?;
            match &look {
                Look::Has(left) if left.is_empty() => return Ok(Exit::SUCCESS),
                Look::Gone => bail!(
                    "the node {:?} has left the fleet before it was empty; what it had is lost",
                    self.name
                ),
                Look::Has(_) | Look::Silent { .. } => {}
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match (left, look) {
                (Some(Duration::ZERO), Look::Has(left)) if self.end => {
                    return self.end_all(context, left).await;
                }
                (Some(Duration::ZERO), look) => return self.give_up(&look),
                (left, _) => sleep(left.unwrap_or(LOOK_PAUSE).min(LOOK_PAUSE)).await,
            }
        }
    }

    async fn look(&self, context: &Context) -> Result<Look> {
        let request = Request::List(List { all: true, ..List::default() });
        let all = context.daemon().await?.ask_all::<Vec<Record>>(request).await?;
        if let Some(node) = all.nodes.into_iter().find(|node| node.node == self.name) {
            return Ok(Look::Has(node.answer));
        }
        let silent = all.unanswered.into_iter().find(|silent| silent.node == self.name);
        Ok(silent.map_or(Look::Gone, |silent| Look::Silent { why: silent.why }))
    }

    /// Says what is left.
    fn give_up(&self, look: &Look) -> Result<Exit> {
        let after = human_duration(self.deadline.unwrap_or_default());
        match look {
            Look::Has(left) => {
                for record in left {
                    let line = format!("{}  {}", record.which(), record.state);
                    output::print_line(&output::printable(&line))?;
                }
                output::note(&format!(
                    "{} has {} left after {after}, and stays draining",
                    self.name,
                    count(left.len())
                ));
            }
            Look::Silent { why } => output::note(&output::printable(&format!(
                "{} does not say what it has after {after}: {why}; it stays draining",
                self.name
            ))),
            Look::Gone => {}
        }
        Ok(Exit(EXIT_TIMED_OUT as u8))
    }

    async fn end_all(&self, context: &Context, mut left: Vec<Record>) -> Result<Exit> {
        for round in 1..=ROUNDS {
            for some in left.chunks(ENDED_AT_ONCE) {
                let ending = some.iter().map(|record| end(context, record));
                for (record, ended) in some.iter().zip(join_all(ending).await) {
                    report(record, &ended)?;
                }
            }
            left = match self.look(context).await? {
                Look::Has(left) if left.is_empty() => return Ok(Exit::SUCCESS),
                Look::Has(left) => left,
                look => return self.give_up(&look),
            };
            if round < ROUNDS {
                sleep(LOOK_PAUSE).await;
            }
        }
        self.give_up(&Look::Has(left))
    }
}

/// In order, so that its programs may end and its workspace comes back; at once where it cannot be stopped.
async fn end(context: &Context, record: &Record) -> Ended {
    let left = |error: &dyn std::fmt::Display| Ended::Left { why: error.to_string() };
    let mut daemon = match context.daemon().await {
        Ok(daemon) => daemon,
        Err(error) => return left(&error),
    };
    // By its id: another may have its name by now, at another node.
    let id = match record.id.as_str().parse::<Name>() {
        Ok(name) => SandboxRef { namespace: record.namespace.clone(), name },
        Err(error) => return left(&error),
    };
    if !record.on_lost.is_lose() && !record.state.is_over() {
        return remove(&mut daemon, id, true, true).await.unwrap_or(Ended::Moved);
    }
    let stop = Request::Stop { sandbox: id.clone(), grace_ms: None };
    match daemon.ask::<Record>(&stop).await {
        Ok(_) => remove(&mut daemon, id, false, false).await.unwrap_or(Ended::InOrder),
        Err(error) if is_unknown(&error) => Ended::Before,
        Err(error) => {
            let why = error.to_string();
            remove(&mut daemon, id, true, false).await.unwrap_or(Ended::Killed { why })
        }
    }
}

/// `None`: it is gone.
async fn remove(
    daemon: &mut Client,
    sandbox: SandboxRef,
    force: bool,
    moves: bool,
) -> Option<Ended> {
    match daemon.ask::<Record>(&Request::Remove { sandbox, force, moves }).await {
        Err(error) if !is_unknown(&error) => Some(Ended::Left { why: error.to_string() }),
        _ => None,
    }
}

fn is_unknown(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refusal) if refusal.code == ErrorCode::NotFound)
}

fn report(record: &Record, ended: &Ended) -> Result<()> {
    let which = record.which();
    let line = match ended {
        Ended::InOrder if record.state.is_over() => format!("{which}  removed"),
        Ended::InOrder => format!("{which}  stopped and removed"),
        Ended::Moved => format!("{which}  removed, and made again at another node"),
        Ended::Killed { why } => format!("{which}  killed and removed: {why}"),
        Ended::Before => format!("{which}  was gone before"),
        Ended::Left { why } => {
            output::note(&output::printable(&format!("{which} could not be removed: {why}")));
            return Ok(());
        }
    };
    output::print_line(&output::printable(&line))?;
    Ok(())
}

fn count(sandboxes: usize) -> String {
    if sandboxes == 1 { "1 sandbox".to_owned() } else { format!("{sandboxes} sandboxes") }
}

//! `audit`: read and verify the audit log on disk. Needs no daemon.

use std::path::Path;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::context::Context;
use super::exit::Exit;
use super::failure::CliError;
use super::values::Since;
use super::{instant, output, table};
use access::audit::limits::FOLLOW_PAUSE;
use access::audit::{Filter, Outcome, Record, Who, follow, read, verify};

/// The default number of records.
const LIMIT_DEFAULT: usize = 100;

/// Show the audit log, newest last
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  host-bridge audit
  host-bridge audit --since 1h --outcome refused
  host-bridge audit --namespace ci --operation create_sandbox --json
  host-bridge audit --who deploy-key --follow
  host-bridge audit verify

Works without the daemon. [audit] in the configuration sets what is recorded."
)]
pub struct Audit {
    #[command(subcommand)]
    verb: Option<Verb>,

    /// Print only records since this time: an age as in 10m, or a date
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,

    /// Print only records before this time: an age as in 10m, or a date
    #[arg(long, value_name = "TIME")]
    until: Option<Since>,

    /// Print only records of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Print only records of this sandbox, by name or id
    #[arg(long, value_name = "NAME")]
    sandbox: Option<String>,

    /// Print only records by this caller: a key's id or label, a user's name or id, or key, user, local,
    /// anybody or bridge
    #[arg(long, value_name = "WHO")]
    who: Option<String>,

    /// Print only this operation, as in `create_sandbox`
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,

    /// Print only this outcome: ok, refused or failed
    #[arg(long, value_name = "OUTCOME")]
    outcome: Option<Outcome>,

    /// Print at most this many records, the newest
    #[arg(short = 'n', long, value_name = "N", default_value_t = LIMIT_DEFAULT)]
    limit: usize,

    /// Keep printing new records
    #[arg(short, long)]
    follow: bool,

    /// Print every record as a line of JSON, as in the log
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check for missing or changed records
    Verify {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl Audit {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let directory = context.paths.audit();
        if let Some(Verb::Verify { json }) = &self.verb {
            return check(&directory, *json);
        }
        let now_ms = instant::now_ms();
        let mut filter = Filter {
            since_ms: self.since.map(|since| since.resolve(now_ms)),
            until_ms: self.until.map(|until| until.resolve(now_ms)),
            namespace: self.namespace.clone(),
            sandbox: self.sandbox.clone(),
            who: self.who.clone(),
            operation: self.operation.clone(),
            outcome: self.outcome,
            after: None,
        };
        let unreadable = |source| CliError::Unreadable { path: directory.clone(), source };
        // Records between the two are shown once.
        let last = read(&directory, &Filter::default(), 1, true).map_err(unreadable)?;
        let found = read(&directory, &filter, self.limit, true).map_err(unreadable)?;
        filter.after = last.first().or(found.last()).map(|record| record.seq);
        let shown: Vec<_> =
            found.into_iter().filter(|record| Some(record.seq) <= filter.after).collect();
        self.show(&shown, true)?;
        if !self.follow {
            return Ok(Exit::SUCCESS);
        }
        loop {
            tokio::time::sleep(FOLLOW_PAUSE).await;
            let new = follow(&directory, &mut filter).map_err(unreadable)?;
            self.show(&new, false)?;
        }
    }

    fn show(&self, records: &[Record], is_first: bool) -> Result<()> {
        if self.json {
            for record in records {
                output::print_line(&serde_json::to_string(record)?)?;
            }
            return Ok(());
        }
        let rows: Vec<_> = records.iter().map(row).collect();
        let text = table::align(HEAD, &rows);
        let from = if is_first { 0 } else { text.find('\n').map_or(0, |end| end + 1) };
        output::print(&text[from..])?;
        Ok(())
    }
}

const HEAD: [&str; 7] = ["TIME", "WHO", "DOOR", "OPERATION", "SANDBOX", "OUTCOME", "WHAT"];

fn row(record: &Record) -> [String; 7] {
    let entry = &record.entry;
    let who = match &entry.who {
        Who::Key { id, name } => name.clone().unwrap_or_else(|| id.clone()),
        Who::User { uid, name } => name.clone().unwrap_or_else(|| uid.to_string()),
        Who::Local => "local".to_owned(),
        Who::Anybody => "anybody".to_owned(),
        Who::Bridge => "bridge".to_owned(),
    };
    let sandbox = match (&entry.namespace, &entry.sandbox) {
        (Some(namespace), Some(name)) if namespace != "default" => format!("{namespace}/{name}"),
        (_, name) => name.clone().or_else(|| entry.id.clone()).unwrap_or_default(),
    };
    let word = |value: &serde_json::Value| match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    };
    let mut what: Vec<_> = entry.code.iter().chain(&entry.program).cloned().collect();
    what.extend(entry.arguments.iter().cloned());
    what.extend(entry.facts.iter().map(|(name, value)| format!("{name}={}", word(value))));
    [
        record.time.clone(),
        who,
        entry.door.name().to_owned(),
        entry.operation.clone(),
        sandbox,
        entry.outcome.name().to_owned(),
        what.join(" "),
    ]
    .map(|cell| output::printable(&cell))
}

fn check(directory: &Path, json: bool) -> Result<Exit> {
    let unreadable = |source| CliError::Unreadable { path: directory.to_owned(), source };
    let verified = verify(directory).map_err(unreadable)?;
    let fault = verified.fault.as_ref().map(ToString::to_string);
    if json {
        output::print_json(&serde_json::json!({
            "records": verified.records, "chained": verified.chained, "first": verified.first,
            "last": verified.last, "digest": verified.digest, "fault": fault,
        }))?;
    } else if let (Some(first), Some(last)) = (verified.first, verified.last) {
        let (records, chained) = (verified.records, verified.chained);
        let digest = verified.digest.unwrap_or_default();
        output::print_line(&format!(
            "{records} records ({first} to {last}), {chained} of them chained; digest of the last: {digest}"
        ))?;
    } else {
        output::print_line("no records")?;
    }
    if let Some(fault) = fault {
        output::note(&output::printable(&fault));
        return Ok(Exit(1));
    }
    Ok(Exit::SUCCESS)
}

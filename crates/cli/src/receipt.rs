//! `receipt`: a signed record of what ran in a session or a context, and the check of one. Needs no daemon for a sandbox of this host; that of another
//! node is signed there. A check needs nothing of this host.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};

use super::context::{Context, LogPlace};
use super::exit::Exit;
use super::failure::CliError;
use super::{output, session};
use access::receipt::{Ledger, Ran, Receipt, ReceiptError};
use control::Request;
use protocol::ContextName;
use sandbox::log::ProvenanceLog;
use sandbox::{SandboxRef, find_record};

/// A receipt that is not to be believed.
const REFUSED: Exit = Exit(1);

/// Print a signed receipt of what ran
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  host-bridge receipt work build > build.receipt
  host-bridge receipt work --context main > run.receipt
  host-bridge receipt key
  host-bridge receipt verify build.receipt --key \"$(host-bridge receipt key)\"

A receipt says what ran: the sandbox and its image's digest, the command, the limits, the egress rules and
decisions, what was put in, how it ended, and length and SHA-256 of each output. With --context it is of
a run, and has the SHA-256 of its code. It is signed with the Ed25519 key of this
state directory, has the digest of the receipt before it, and stays valid after the sandbox is removed.
The session or the run must have ended. A second request gets the same receipt. In a fleet the node of the sandbox
signs it: `receipt key` on that host prints the key."
)]
pub struct ReceiptVerb {
    #[command(subcommand)]
    verb: Option<Verb>,

    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "SANDBOX")]
    which: Option<SandboxRef>,

    /// The session: its id or a prefix of it
    #[arg(required_unless_present = "context", value_name = "SESSION")]
    session: Option<String>,

    /// Print the receipt of a run of this context
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    context: Option<ContextName>,

    /// Set the number of the run (default: the last that has ended)
    #[arg(long, value_name = "NUMBER", requires = "context")]
    run: Option<u64>,
}

/// Whose receipt.
enum Wanted<'a> {
    Session(&'a str),
    Run(&'a ContextName, Option<u64>),
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check receipts, without a server
    Verify {
        /// Print JSON
        #[arg(long)]
        json: bool,

        /// Set the public key of the bridge, as `receipt key` prints it there
        // One key of 64 begins with a dash.
        #[arg(long, value_name = "PUBKEY", allow_hyphen_values = true)]
        key: String,

        /// The receipts; of several, each but the first must be the next after the one before it
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Print the public key of this bridge
    Key,
}

impl ReceiptVerb {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let ledger = Ledger::new(context.paths.receipts());
        match (&self.verb, &self.which) {
            (Some(Verb::Verify { json, key, files }), _) => check(files, key, *json),
            (Some(Verb::Key), _) => {
                output::print_line(&ledger.public_key()?)?;
                Ok(Exit::SUCCESS)
            }
            (None, Some(which)) => {
                let wanted = match (&self.session, &self.context) {
                    (Some(session), _) => Wanted::Session(session),
                    (None, Some(context)) => Wanted::Run(context, self.run),
                    (None, None) => unreachable!("clap requires one of them"),
                };
                let receipt = issue(context, &ledger, which, wanted).await?;
                output::print_json(&receipt)?;
                Ok(Exit::SUCCESS)
            }
            (None, None) => unreachable!("clap requires it"),
        }
    }
}

async fn issue(
    context: &Context,
    ledger: &Ledger,
    which: &SandboxRef,
    wanted: Wanted<'_>,
) -> Result<Receipt> {
    match context.log_place(which).await? {
        LogPlace::Here(log) => {
            let (record, _) = find_record(&context.paths, which)?;
            let audit = context.audit()?;
            let receipt = match wanted {
                Wanted::Session(wanted) => {
                    let recorded = session::find_recorded(log.clone(), wanted).await?;
                    ledger.issue(&record, &log, Ran::Session(&recorded), &audit)?
                }
                Wanted::Run(context, run) => {
                    let found = ProvenanceLog::run(&log, context, run)?;
                    let found = found.ok_or_else(|| ReceiptError::no_run(context, run))?;
                    ledger.issue(&record, &log, Ran::Run(&found), &audit)?
                }
            };
            audit.close().await;
            Ok(receipt)
        }
        LogPlace::Elsewhere(mut daemon) => {
            let sandbox = which.clone();
            let request = match wanted {
                Wanted::Session(wanted) => {
                    let session = context.session_elsewhere(&mut daemon, which, wanted).await?;
                    Request::Receipt { sandbox, session }
                }
                Wanted::Run(context, run) => {
                    Request::RunReceipt { sandbox, context: context.clone(), run }
                }
            };
            context.ask(&mut daemon, which, &request).await
        }
    }
}

/// Checks each file, and that each follows the one before it.
fn check(files: &[PathBuf], key: &str, json: bool) -> Result<Exit> {
    let mut exit = Exit::SUCCESS;
    let mut before: Option<Receipt> = None;
    for file in files {
        let problem = match read(file, key)? {
            Err(problem) => Some(problem),
            Ok(receipt) => {
                let previous = before.as_ref().map(Receipt::digest);
                let follows = previous.is_none() || receipt.statement.previous == previous;
                let problem =
                    (!follows).then(|| "it does not follow the receipt before it".to_owned());
                before = Some(receipt);
                problem
            }
        };
        let shown = output::printable(&file.display().to_string());
        if json {
            output::print_json(
                &serde_json::json!({ "file": shown, "valid": problem.is_none(), "problem": problem }),
            )?;
        } else if problem.is_none() {
            output::print_line(&format!("{shown}: valid"))?;
        }
        if let Some(problem) = problem {
            output::note(&output::printable(&format!("{shown}: {problem}")));
            exit = REFUSED;
        }
    }
    Ok(exit)
}

fn read(file: &Path, key: &str) -> Result<Result<Receipt, String>> {
    let text = std::fs::read(file)
        .map_err(|source| CliError::Unreadable { path: file.to_owned(), source })?;
    Ok(Receipt::verify(&text, key).map_err(|invalid| invalid.to_string()))
}

//! `verify`: compare the log of a sandbox with the digests that its agent has given. Needs no daemon for a sandbox of this
//! host; that of another node compares its own.

use anyhow::Result;
use clap::Args;

use super::context::{Context, LogPlace};
use super::exit::Exit;
use super::{output, session, table};
use control::Request;
use sandbox::SandboxRef;
use sandbox::log::{Comparison, Finding, MissingBecause, OutputComparison, verify};

/// Something was changed or is damaged.
const WRONG: Exit = Exit(1);
/// Nothing is wrong, and not everything was kept or has a digest.
const INCOMPLETE: Exit = Exit(2);

const HEAD: [&str; 6] = ["SESSION", "OUTPUT", "BYTES", "KEPT", "RESULT", "MISSING"];

/// Compare kept output with the agent's digests
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge verify work
  host-bridge verify work build
  host-bridge verify --json work | jq -r '.[].outputs[].finding'

The agent digests what a program writes; the end of a session has the digests, and this compares them
with what the log on disk has. The result is one of: equal, partial (the rest was rotated away or never
recorded), damaged (files of the log were changed or cut), differs, unknown (there is no digest: it runs,
or its sandbox ended with it). The exit code is 0 if all that has ended is equal, 1 if something is
damaged or differs, and 2 if nothing is wrong but something is partial or unknown. Works without the
daemon, and after the sandbox has stopped. In a fleet the node of the sandbox compares its own log.")]
pub struct Verify {
    /// Print JSON
    #[arg(long)]
    json: bool,

    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(value_name = "SANDBOX")]
    which: SandboxRef,

    /// Compare only this session: its id or a prefix of it (default: all)
    #[arg(value_name = "SESSION")]
    session: Option<String>,
}

impl Verify {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let compared = match context.log_place(&self.which).await? {
            LogPlace::Here(log) => {
                let only = match &self.session {
                    Some(wanted) => {
                        Some(session::find_recorded(log.clone(), wanted).await?.session)
                    }
                    None => None,
                };
                tokio::task::spawn_blocking(move || verify(&log, only.as_ref())).await??
            }
            LogPlace::Elsewhere(mut daemon) => {
                let (daemon, which) = (&mut daemon, &self.which);
                let session = match &self.session {
                    Some(wanted) => Some(context.session_elsewhere(daemon, which, wanted).await?),
                    None => None,
                };
                let request = Request::Verify { sandbox: which.clone(), session };
                context.ask(daemon, which, &request).await?
            }
        };
        if self.json {
            output::print_json(&compared)?;
        } else {
            let rows: Vec<_> = compared
                .iter()
                .flat_map(|one| one.outputs.iter().map(|out| row(one, out)))
                .collect();
            output::print(&table::align(HEAD, &rows))?;
        }
        Ok(exit(&compared))
    }
}

fn exit(compared: &[Comparison]) -> Exit {
    let ended = compared.iter().filter(|one| one.ended);
    let findings = ended.flat_map(|one| &one.outputs).map(|output| output.finding);
    let mut exit = Exit::SUCCESS;
    for finding in findings {
        match finding {
            Finding::Damaged | Finding::Differs => return WRONG,
            Finding::Partial | Finding::Unknown => exit = INCOMPLETE,
            Finding::Equal => {}
        }
    }
    exit
}

fn row(of: &Comparison, compared: &OutputComparison) -> [String; 6] {
    let result = match compared.finding {
        Finding::Equal => "equal",
        Finding::Partial => "partial",
        Finding::Damaged => "damaged",
        Finding::Differs => "differs",
        Finding::Unknown if of.ended => "unknown: no digest",
        Finding::Unknown => "unknown: no end",
    };
    let missing = compared.missing.iter().map(|missing| {
        let because = match missing.because {
            MissingBecause::Rotated => "rotated away",
            MissingBecause::NotRecorded => "not recorded",
            MissingBecause::Damaged => "damaged",
        };
        format!("{}-{} {because}", missing.from, missing.to)
    });
    [
        output::printable(&of.session),
        compared.output.clone(),
        compared.bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
        compared.kept_bytes.to_string(),
        result.to_owned(),
        missing.collect::<Vec<_>>().join(", "),
    ]
}

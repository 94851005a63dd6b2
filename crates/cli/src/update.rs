//! `update`: change how long running sandboxes live, and what they may reach.

use std::time::Duration;

use anyhow::Result;
use clap::{ArgGroup, Args};

use super::context::Context;
use super::exit::Exit;
use super::values::{ValueError, parse_duration};
use control::Request;
use sandbox::SandboxRef;

/// The word for a time without limit.
const NO_LIMIT: &str = "none";

/// Change lifetimes and network access of running sandboxes
#[derive(Debug, Args)]
#[command(
    override_usage = "host-bridge update [OPTIONS] <SANDBOX>...",
    group = ArgGroup::new("change").required(true).multiple(true),
    after_help = "Examples:
  host-bridge update work --ttl 2h --idle-ttl none
  host-bridge update work --egress @pypi --egress example.org
  host-bridge update work --no-egress

What is left out stays as it is. The rules of --egress replace those that the sandbox has, at once, and end connections that they \
do not allow. A sandbox that sleeps is woken for them. `host-bridge inspect` shows what it has."
)]
pub struct Update {
    /// Stop the sandbox after this time from now on; none: never
    #[arg(long, value_name = "DURATION", value_parser = parse_lifetime, group = "change")]
    ttl: Option<Duration>,

    /// Stop or pause the sandbox when nothing has run in it for this time; none: never
    #[arg(long, alias = "idle", value_name = "DURATION", value_parser = parse_lifetime, group = "change")]
    idle_ttl: Option<Duration>,

    /// Allow connections to these hosts alone: HOST, *.HOST for its subdomains, HOST:PORT, @pypi, @npm, @crates or
    /// @debian for a registry, public for the whole internet, or none; repeatable
    #[arg(long, value_name = "HOST", group = "change")]
    egress: Vec<String>,

    /// Allow no connections
    #[arg(long, group = "change", conflicts_with = "egress")]
    no_egress: bool,

    /// The sandboxes: NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "SANDBOX")]
    which: Vec<SandboxRef>,
}

impl Update {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        context.for_each(&self.which, |sandbox| self.request(sandbox)).await
    }

    fn request(&self, sandbox: SandboxRef) -> Request {
        let rules = self.egress.clone();
        Request::Update {
            sandbox,
            ttl_ms: self.ttl.map(limit_ms),
            idle_ttl_ms: self.idle_ttl.map(limit_ms),
            egress: (self.no_egress || !rules.is_empty()).then_some(rules),
        }
    }
}

/// `none`, or a time. 0 is no limit, as for the API.
fn parse_lifetime(text: &str) -> Result<Duration, ValueError> {
    if text == NO_LIMIT { Ok(Duration::ZERO) } else { parse_duration(text) }
}

/// A time that is too short for a millisecond is no absent limit.
fn limit_ms(time: Duration) -> u64 {
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    if time.is_zero() { 0 } else { ms.max(1) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        update: Update,
    }

    fn asked(line: &str) -> Request {
        let parsed = Line::try_parse_from(line.split(' ')).unwrap_or_else(|_| panic!("{line}"));
        parsed.update.request("work".parse().expect("a name"))
    }

    #[test]
    fn what_is_left_out_stays_and_no_limit_is_zero() {
        let update = |ttl_ms, idle_ttl_ms, egress: Option<&[&str]>| Request::Update {
            sandbox: "work".parse().expect("a name"),
            ttl_ms,
            idle_ttl_ms,
            egress: egress.map(|rules| rules.iter().map(|rule| (*rule).to_owned()).collect()),
        };
        for (line, expected) in [
            ("update work --ttl 2h", update(Some(7_200_000), None, None)),
            ("update work --ttl none --idle-ttl 5m", update(Some(0), Some(300_000), None)),
            ("update work --idle 0", update(None, Some(0), None)),
            ("update work --ttl 1us", update(Some(1), None, None)),
            ("update work --no-egress", update(None, None, Some(&[]))),
            (
                "update work --egress a.org --egress @npm",
                update(None, None, Some(&["a.org", "@npm"])),
            ),
        ] {
            assert_eq!(asked(line), expected, "{line}");
        }
    }
}

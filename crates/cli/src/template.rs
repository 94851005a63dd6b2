//! `template`: keep what sandboxes are made of under one name, and list, show and remove templates.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::context::Context;
use super::exit::Exit;
use super::sandbox_options::BaseOptions;
use super::session::read_environment;
use super::values::parse_duration;
use super::{failure, output, table};
use control::{ClientError, Request};
use sandbox::{OnIdle, TemplateInfo, TemplateRef, label};

/// Keep templates of sandboxes, with start commands
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge template create shop --start 'python3 -m http.server 8000' \\
    --ready 'test -n \"$(ss -ltn sport = :8000 | tail -n +2)\"' --warm 2
  host-bridge start --template shop        ready when this returns
  host-bridge template ls
  host-bridge template show shop
  host-bridge template rm shop

A sandbox of a template is handed out when its ready command has exited with 0. The start command runs as the
session `template-start`: `inspect` and `logs` show it. Options of `start` take precedence over the
template's. With --warm, sandboxes are kept started and ready, and `pool` shows them.")]
pub struct Template {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List templates
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a template, without values of its environment
    Show {
        /// The template: NAME, NAME:TAG or NAMESPACE/NAME
        #[arg(value_name = "TEMPLATE")]
        which: TemplateRef,
    },
    /// Create or replace a template
    Create(Box<Create>),
    /// Remove templates, but no sandboxes
    Rm {
        /// The templates: NAME, NAME:TAG or NAMESPACE/NAME
        #[arg(required = true, value_name = "TEMPLATE")]
        which: Vec<TemplateRef>,
    },
}

#[derive(Debug, Args)]
struct Create {
    /// The name: NAME, NAME:TAG or NAMESPACE/NAME
    #[arg(value_name = "NAME")]
    which: TemplateRef,

    /// Run this script with /bin/sh when a sandbox starts, as a session
    #[arg(long, value_name = "SCRIPT")]
    start: Option<String>,

    /// Run this script again and again until it exits with 0, before a sandbox is handed out
    #[arg(long, value_name = "SCRIPT")]
    ready: Option<String>,

    /// Give up a sandbox that is not ready after this time (default: 1m)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    ready_timeout: Option<Duration>,

    /// Keep this number of sandboxes started and ready (default: 0)
    #[arg(long, value_name = "NUMBER")]
    warm: Option<usize>,

    /// Set an environment variable for all programs; NAME alone passes the current value
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Read environment variables from a file, one per line; repeatable
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,

    /// Set the default working directory of programs (default: the image's, or /sandbox)
    #[arg(short = 'w', long, value_name = "DIR")]
    workdir: Option<String>,

    /// Set the default user: NAME, NAME:GROUP, UID or UID:GID (default: the image's user)
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,

    /// Add a label; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = label::parse)]
    label: Vec<(String, String)>,

    /// Stop its sandboxes after this time (default: never)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    ttl: Option<Duration>,

    /// Stop or pause its sandboxes when nothing has run in them for this time (default: never)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    idle: Option<Duration>,

    /// Set what --idle does: stop, or pause until the next request (default: stop)
    #[arg(long, value_name = "ACTION")]
    on_idle: Option<OnIdle>,

    /// Remove its sandboxes this long after they stopped (default: never)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    keep: Option<Duration>,

    #[command(flatten)]
    base: BaseOptions,
}

impl Create {
    fn request(&self) -> Result<Request> {
        let mut options = self.base.template()?;
        options.env = read_environment(&self.env_file, &self.env)?.into_iter().collect();
        options.workdir.clone_from(&self.workdir);
        options.user.clone_from(&self.user);
        options.labels.extend(self.label.iter().cloned());
        options.start.clone_from(&self.start);
        options.ready.clone_from(&self.ready);
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        options.ready_timeout_ms = self.ready_timeout.map(ms);
        (options.ttl_ms, options.idle_ttl_ms) = (self.ttl.map(ms), self.idle.map(ms));
        (options.on_idle, options.keep_stopped_ms) = (self.on_idle, self.keep.map(ms));
        options.warm = self.warm.unwrap_or_default();
        Ok(Request::PutTemplate { template: self.which.clone(), options: Box::new(options) })
    }
}

impl Template {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let mut daemon = context.daemon().await?;
        match &self.verb {
            Verb::Ls { json } => {
                let templates: Vec<TemplateInfo> = daemon.ask(&Request::Templates {}).await?;
                if *json {
                    output::print_json(&templates)?;
                } else {
                    output::print(&table::align(
                        HEAD,
                        &templates.iter().map(row).collect::<Vec<_>>(),
                    ))?;
                }
            }
            Verb::Show { which } => {
                let request = Request::GetTemplate { template: which.clone() };
                output::print_json(&daemon.ask::<TemplateInfo>(&request).await?)?;
            }
            Verb::Create(create) => {
                let kept: TemplateInfo = daemon.ask(&create.request()?).await?;
                output::print_line(&kept.which().to_string())?;
            }
            Verb::Rm { which } => {
                let mut exit = Exit::SUCCESS;
                for which in which {
                    let request = Request::RemoveTemplate { template: which.clone() };
                    match daemon.ask::<TemplateInfo>(&request).await {
                        Ok(_) => output::print_line(&which.to_string())?,
                        // A refusal of one does not concern the next; a lost bridge does.
                        Err(error @ ClientError::Refused(_)) => {
                            exit = failure::report(&error.into());
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                return Ok(exit);
            }
        }
        Ok(Exit::SUCCESS)
    }
}

const HEAD: [&str; 6] = ["NAME", "IMAGE", "START", "READY", "WARM", "FROM"];

fn row(template: &TemplateInfo) -> [String; 6] {
    let shown = |text: &Option<String>| {
        text.as_deref().map_or_else(|| "-".to_owned(), |text| output::printable(&cut(text)))
    };
    let options = &template.options;
    let warm = match &template.stock {
        Some(stock) => format!("{}/{}", stock.ready, stock.wanted),
        None => options.warm.to_string(),
    };
    let from = if template.configured { "configuration" } else { "call" };
    [
        template.which().to_string(),
        shown(&options.image),
        shown(&options.start),
        shown(&options.ready),
        warm,
        from.to_owned(),
    ]
}

/// A command as a table shows it.
fn cut(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= CHARS_MAX && line.len() == text.trim_end().len() {
        return line.to_owned();
    }
    line.chars().take(CHARS_MAX - 1).chain(['…']).collect()
}

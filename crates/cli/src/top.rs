//! `top`: a picture of all sandboxes that renews itself, and of the sessions and contexts of one.
//!
//! [`watch`] asks the daemon and the agents, [`model`] decides what is shown and what a key means, and
//! [`draw`] puts it on the screen. Only this file has the terminal.

mod draw;
mod keys;
mod model;
mod news;
mod watch;

use std::env;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::context::Context;
use super::exit::Exit;
use super::terminal::{Notice, Notices, RawMode, Size};
use super::{all_nodes, instant, output, ps, table};
use control::Request;
use draw::Painter;
use keys::Keyboard;
use model::{Action, Model, Sort};
use sandbox::{Name, Record, SandboxRef};
use watch::{Scope, Watcher};

/// How often the screen is drawn when nothing happens: as often as there are samples.
const DRAW_PAUSE: Duration = Duration::from_secs(1);
/// The shortest time between two drawings because of what came from hundreds of agents, each at its own moment.
const NEWS_PAUSE: Duration = Duration::from_millis(200);
/// How long `--once` waits for agents that do not answer.
const ONCE_MAX: Duration = Duration::from_secs(3);
/// Enters the alternate screen, hides the cursor, and has long lines cut. The end of raw mode undoes the first two.
const SCREEN_OF_ITS_OWN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LONG_LINES_AS_USUAL: &str = "\x1b[?7h";

/// Watch what sandboxes use
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge top                          leave it with q
  host-bridge top --sort memory --namespace ci
  host-bridge top --all-nodes              of the whole fleet, with their nodes
  host-bridge top --once                   print it once, without a terminal
  host-bridge top --once --json | jq '.[] | {sandbox, state}'

Keys: arrows select, enter shows the sessions and contexts of a sandbox, esc goes back, s and r sort, / filters,
k kills what is selected, a attaches to it, l follows its logs, q leaves. A sandbox that sleeps is not woken.
Nothing depends on colours.")]
pub struct Top {
    /// Print the sandboxes once, and end
    #[arg(long)]
    once: bool,

    /// Print JSON
    #[arg(long, requires = "once")]
    json: bool,

    /// Sort by this column first
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t = Sort::Cpu)]
    sort: Sort,

    /// Show only sandboxes of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<Name>,

    /// Show the sandboxes of all nodes of the fleet
    #[arg(long)]
    all_nodes: bool,
}

impl Top {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        // The first question starts the daemon, whose errors are shown as everywhere.
        context.daemon().await?;
        let scope = Scope { namespace: self.namespace.clone(), all_nodes: self.all_nodes };
        let mut watcher = Watcher::new(context, scope);
        let mut model = Model::new(self.sort);
        if self.once {
            model.take_all(watcher.once(ONCE_MAX).await?);
            return self.print(&model);
        }
        Screen::open(model)?.run(context, &mut watcher).await
    }

    fn print(&self, model: &Model) -> Result<Exit> {
        if self.json {
            output::print_json(&model.rows().collect::<Vec<_>>())?;
        } else {
            let now_ms = instant::now_ms();
            let rows = model.rows().map(|row| (row.node.clone(), row.cells(now_ms)));
            let text = if self.all_nodes {
                let with_node =
                    |(node, row): (Option<String>, _)| ps::with_node(node.unwrap_or_default(), row);
                let rows: Vec<_> = rows.map(with_node).collect();
                table::align::<8>(ps::with_node("NODE", model::HEAD), &rows)
            } else {
                table::align(model::HEAD, &rows.map(|(_, row)| row).collect::<Vec<_>>())
            };
            output::print(&text)?;
        }
        Ok(all_nodes::report("sandboxes", model.unanswered()))
    }
}

/// The person's terminal while it shows the picture.
struct Screen {
    model: Model,
    keyboard: Keyboard,
    notices: Notices,
    /// `None` while another verb has the terminal.
    shown: Option<(Painter, RawMode)>,
}

impl Screen {
    fn open(model: Model) -> Result<Self> {
        let keyboard = Keyboard::open().context("cannot read keys; --once needs no terminal")?;
        let mut screen = Self { model, keyboard, notices: Notices::watch()?, shown: None };
        screen.enter()?;
        Ok(screen)
    }

    fn enter(&mut self) -> Result<()> {
        let mut raw = RawMode::enter()?;
        raw.tidy_at_end();
        output::print(SCREEN_OF_ITS_OWN)?;
        self.shown = Some((Painter::default(), raw));
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        output::print(LONG_LINES_AS_USUAL)?;
        self.shown = None;
        Ok(())
    }

    fn draw(&mut self) -> Result<()> {
        let Some((painter, _)) = &mut self.shown else { return Ok(()) };
        let size = Size::read().unwrap_or(Size::DEFAULT);
        let picture = draw::picture(&self.model, size, instant::now_ms());
        Ok(output::print(&painter.paint(picture, size))?)
    }

    async fn run(mut self, context: &Context, watcher: &mut Watcher<'_>) -> Result<Exit> {
        let exit = self.show(context, watcher).await;
        self.leave()?;
        exit
    }

    async fn show(&mut self, context: &Context, watcher: &mut Watcher<'_>) -> Result<Exit> {
        let mut clock = interval(DRAW_PAUSE);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut drawn, mut is_due, mut has_news) = (Instant::now(), true, false);
        loop {
            if is_due {
                self.draw()?;
                (drawn, has_news) = (Instant::now(), false);
            }
            is_due = true;
            let action = tokio::select! {
                _ = clock.tick() => {
                    watcher.ask_inside(self.model.entered());
                    None
                }
                news = watcher.next() => {
                    self.model.take_all(news);
                    has_news = true;
                    is_due = drawn.elapsed() >= NEWS_PAUSE;
                    None
                }
                () = sleep_until(drawn + NEWS_PAUSE), if has_news => None,
                keys = self.keyboard.next() => {
                    let Some(keys) = keys? else { return Ok(Exit::SUCCESS) };
                    keys.into_iter().find_map(|key| self.model.press(key))
                }
                notice = self.notices.next() => match notice {
                    Notice::Resized => None,
                    Notice::Continued => {
                        self.leave()?;
                        self.enter()?;
                        None
                    }
                    Notice::End(signal) => return Ok(Exit::signalled(signal)),
                },
            };
            match action {
                None => {}
                Some(Action::Leave) => return Ok(Exit::SUCCESS),
                Some(Action::Kill { which, session }) => {
                    let result = kill(context, &which, session).await;
                    self.model.tell(result.err().map(|error| format!("{error:#}")));
                }
                Some(Action::Verb(arguments)) => self.hand_over(&arguments)?,
            }
        }
    }

    /// Gives the terminal to another verb until that ends.
    fn hand_over(&mut self, arguments: &[String]) -> Result<()> {
        self.leave()?;
        let program = env::current_exe().context("cannot find this program")?;
        let ended = Command::new(program).args(arguments).status();
        self.enter()?;
        self.model.tell(match ended {
            Ok(status) if status.success() => None,
            Ok(status) => Some(format!("{} ended with {status}", arguments[0])),
            Err(error) => Some(format!("{} did not start: {error}", arguments[0])),
        });
        Ok(())
    }
}

/// Kills a sandbox, or one of its sessions.
async fn kill(
    context: &Context,
    which: &SandboxRef,
    session: Option<protocol::SessionId>,
) -> Result<()> {
    let Some(session) = session else {
        let request = Request::Kill { sandbox: which.clone() };
        context.daemon().await?.ask::<Record>(&request).await?;
        return Ok(());
    };
    let guest = context.look(which, "top").await?;
    let sent = super::kill::kill_session(&guest, &session).await;
    guest.close().await;
    Ok(sent?)
}

//! `completions`: print the completion script for a shell.

use anyhow::Result;
use clap::{Args, Command};
use clap_complete::Shell;

use super::exit::Exit;
use super::output;

/// Print shell completions
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  source <(host-bridge completions bash)
  host-bridge completions zsh > ~/.zfunc/_host-bridge
  host-bridge completions fish > ~/.config/fish/completions/host-bridge.fish")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub fn run(&self, command: &Command) -> Result<Exit> {
        let mut script = Vec::new();
        let mut shown = without_hidden(command);
        clap_complete::generate(self.shell, &mut shown, command.get_name(), &mut script);
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(Exit::SUCCESS)
    }
}

/// The command without hidden verbs, which the generators would offer.
fn without_hidden(command: &Command) -> Command {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    Command::new("host-bridge")
        .about(command.get_about().cloned().unwrap_or_default())
        .version(env!("CARGO_PKG_VERSION"))
        .subcommands(verbs)
}

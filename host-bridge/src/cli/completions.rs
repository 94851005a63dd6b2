//! `completions`: what a shell needs to complete our verbs and options.

use anyhow::Result;
use clap::Args;
use clap_complete::Shell;

use super::exit::Exit;
use super::output;

/// Print the completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  source <(host-bridge completions bash)
  host-bridge completions zsh > ~/.zfunc/_host-bridge
  host-bridge completions fish > ~/.config/fish/completions/host-bridge.fish")]
pub struct Completions {
    /// bash, zsh, fish, elvish or powershell
    shell: Shell,
}

impl Completions {
    pub fn run(&self, command: &mut clap::Command) -> Result<Exit> {
        let mut script = Vec::new();
        let name = command.get_name().to_owned();
        clap_complete::generate(self.shell, command, name, &mut script);
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(Exit::SUCCESS)
    }
}

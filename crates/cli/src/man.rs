//! `man`: write the manual pages, made from the definition of the verbs.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Arg, Args, Command};

use super::exit::Exit;
use super::failure::CliError;
use super::output;

/// The section of commands.
const SECTION: u8 = 1;
/// Every command has these, so only the program's own page lists them.
const EVERYWHERE: [&str; 3] = ["help", "version", "no_daemon"];

/// Write manual pages
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge man ~/.local/share/man/man1
  host-bridge man man1 && man ./man1/host-bridge-run.1

Writes one page for the program and one for each command.")]
pub struct Man {
    /// The directory; it is created if needed
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Man {
    pub fn run(&self, command: Command) -> Result<Exit> {
        let unwritable = |path: PathBuf| |source| CliError::Unwritable { path, source };
        fs::create_dir_all(&self.directory).map_err(unwritable(self.directory.clone()))?;
        for (name, page) in pages(command) {
            let path = self.directory.join(format!("{name}.{SECTION}"));
            fs::write(&path, page).map_err(unwritable(path.clone()))?;
        }
        output::print_line(&self.directory.display().to_string())?;
        Ok(Exit::SUCCESS)
    }
}

/// All pages by their names.
fn pages(mut command: Command) -> Vec<(String, String)> {
    command.build();
    let mut found = Vec::new();
    collect(&command, "", &mut found);
    found
}

fn collect(command: &Command, above: &str, found: &mut Vec<(String, String)>) {
    let name = if above.is_empty() {
        command.get_name().to_owned()
    } else {
        format!("{above}-{}", command.get_name())
    };
    let below: Vec<&Command> = children(command).collect();
    found.push((name.clone(), page(command, &name, above, &below)));
    for verb in below {
        collect(verb, &name, found);
    }
}

fn children(command: &Command) -> impl Iterator<Item = &Command> {
    let children = command.get_subcommands();
    children.filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

fn page(command: &Command, name: &str, above: &str, below: &[&Command]) -> String {
    let mut text = String::new();
    let title = name.to_uppercase();
    let release = env!("CARGO_PKG_VERSION");
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    push(&mut text, format_args!(".TH \"{title}\" \"{SECTION}\" \"\" \"host-bridge {release}\"\n"));
    push(&mut text, format_args!(".SH NAME\n{} \\- {}\n", escaped(name), escaped(&about)));
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    push(&mut text, format_args!(".SH SYNOPSIS\n{}", block(usage)));
    if let Some(long) = command.get_long_about() {
        push(&mut text, format_args!(".SH DESCRIPTION\n{}\n", escaped(&long.to_string())));
    }
    let is_shown = |argument: &&Arg| {
        let is_everywhere = EVERYWHERE.contains(&argument.get_id().as_str());
        !argument.is_hide_set() && (above.is_empty() || !is_everywhere)
    };
    let mut arguments = command.get_arguments().filter(is_shown).peekable();
    if arguments.peek().is_some() {
        text.push_str(".SH OPTIONS\n");
        text.extend(arguments.map(option));
    }
    if let Some(after) = command.get_after_help() {
        text.push_str(".SH NOTES\n");
        text.push_str(&notes(&after.to_string()));
    }
    let related = below.iter().map(|verb| format!("{name}-{}", verb.get_name()));
    let related = related.chain((!above.is_empty()).then(|| above.to_owned()));
    let related: Vec<String> =
        related.map(|name| format!(".BR {} ({SECTION})", escaped(&name))).collect();
    if !related.is_empty() {
        push(&mut text, format_args!(".SH SEE ALSO\n{}\n", related.join(",\n")));
    }
    text
}

fn option(argument: &Arg) -> String {
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let flags: Vec<String> = short.into_iter().chain(long).collect();
    let values = argument.get_value_names().unwrap_or_default();
    let values: Vec<String> =
        values.iter().map(|name| format!("\\fI{}\\fR", escaped(name))).collect();
    let values =
        if argument.get_action().takes_values() { values.join(" ") } else { String::new() };
    let flags = escaped(&flags.join(", "));
    let head = if flags.is_empty() { values } else { format!("\\fB{flags}\\fR {values}") };
    let help = argument.get_long_help().or(argument.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    format!(".TP\n{}\n{}\n", head.trim_end(), escaped(help.trim()))
}

/// The reader's program fills prose; indented lines stay as written.
fn notes(text: &str) -> String {
    let mut notes = String::new();
    let mut examples: Vec<&str> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with(' ') {
            examples.push(line);
            continue;
        }
        if !examples.is_empty() {
            notes.push_str(&block(&examples.join("\n")));
            examples.clear();
        }
        match line {
            "" => notes.push_str(".PP\n"),
            line => push(&mut notes, format_args!("{}\n", escaped(line))),
        }
    }
    notes
}

/// Lines that stay as they are.
fn block(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(escaped).collect();
    format!(".nf\n{}\n.fi\n", lines.join("\n"))
}

/// Text that means nothing to the formatter: no line of it is a request.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text.lines().map(|line| {
        if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn push(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("a string takes all");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    const REQUESTS: [&str; 8] = [".TH", ".SH", ".TP", ".PP", ".nf", ".fi", ".BR", "\\&."];

    #[test]
    fn every_verb_has_a_page_and_no_text_is_a_request() {
        let pages = pages(super::super::Arguments::command());
        let page = |name: &str| pages.iter().find(|(known, _)| known == name).map(|(_, page)| page);
        assert!(page("host-bridge-image-build").is_some_and(|page| page.contains("\\-\\-egress")));
        assert!(page("host-bridge").is_some_and(|page| page.contains("host\\-bridge\\-run")));
        assert!(page("host-bridge-__probe").is_none());
        for (name, text) in &pages {
            for line in text.lines().filter(|line| line.starts_with(['.', '\''])) {
                assert!(REQUESTS.iter().any(|known| line.starts_with(known)), "{name}: {line}");
            }
        }
    }
}

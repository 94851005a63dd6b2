//! Generates docs/reference/cli.md from the definition of the verbs, and tests that the page is up
//! to date. Only tests use this module; the program never reads the page.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};

use super::{Arguments, help};

/// The path of the page in the repository.
const PAGE: &str = "docs/reference/cli.md";
/// Set to write the page instead of comparing it.
const WRITE_VARIABLE: &str = "BURROW_WRITE_CLI";
/// Every command has these, so no table repeats them.
const EVERYWHERE: [&str; 3] = ["help", "version", "no_daemon"];

const HEAD: &str = "\
# Commands

`host-bridge COMMAND --help` prints the same as this page, which is made from the program's own definition
(`just cli`); a test compares them.

A command that needs the daemon starts it. `--no-daemon`, which every command takes, and the variable
`BURROW_NO_DAEMON` make it fail instead. [`daemon`](#daemon) shows and stops the daemon.

Exit codes are docker's: the command's own; 124 after a deadline; 125 when the bridge itself failed; 126 and 127
when the program could not be executed or found; 128+n for signal n.
";

/// The whole page.
fn page() -> String {
    let mut root = help::command(Arguments::command(), usize::MAX);
    root.build();
    let mut text = HEAD.to_owned();
    for (command, depth) in shown(&root, 2) {
        section(&mut text, command, depth);
    }
    text
}

/// The public commands, each before its subcommands, with the depth of its heading.
fn shown(parent: &Command, depth: usize) -> Vec<(&Command, usize)> {
    let children = parent.get_subcommands();
    let children = children.filter(|child| !child.is_hide_set() && child.get_name() != "help");
    children.flat_map(|child| [vec![(child, depth)], shown(child, depth + 1)].concat()).collect()
}

fn section(text: &mut String, command: &Command, depth: usize) {
    let name = command.get_bin_name().unwrap_or_default();
    let name = name.strip_prefix("host-bridge ").unwrap_or(name);
    push(text, format_args!("\n{} {name}\n", "#".repeat(depth)));
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        push(text, format_args!("\n{}\n", sentence(&about.to_string())));
    }
    let usage = command.clone().render_usage().to_string();
    push(text, format_args!("\n```text\n{}\n```\n", trimmed(&usage)));
    table(text, command);
    if let Some(after) = command.get_after_help() {
        push(text, format_args!("\n```text\n{}\n```\n", trimmed(&after.to_string())));
    }
}

fn table(text: &mut String, command: &Command) {
    let arguments = command.get_arguments();
    let is_shown = |argument: &&Arg| {
        !argument.is_hide_set() && !EVERYWHERE.contains(&argument.get_id().as_str())
    };
    let mut rows = arguments.filter(is_shown).map(row).peekable();
    if rows.peek().is_none() {
        return;
    }
    text.push_str("\n| argument | |\n|---|---|\n");
    rows.for_each(|row| text.push_str(&row));
}

fn row(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let names: Vec<_> = names.iter().map(|name| format!(" {name}")).collect();
    let value = if argument.get_action().takes_values() { names.concat() } else { String::new() };
    let short = argument.get_short().map(|short| format!("-{short}"));
    let longs = argument.get_long().into_iter().map(str::to_owned);
    let aliases = argument.get_visible_aliases().unwrap_or_default();
    let longs = longs.chain(aliases.into_iter().map(str::to_owned));
    let flags: Vec<_> = short.into_iter().chain(longs.map(|long| format!("--{long}"))).collect();
    let name = format!("{}{value}", flags.join(", "));
    let help = argument.get_long_help().or(argument.get_help());
    let mut help = sentence(&help.map(ToString::to_string).unwrap_or_default());
    let possible = argument.get_possible_values();
    let possible: Vec<_> = possible
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !possible.is_empty()
        && argument.get_action().takes_values()
        && !argument.is_hide_possible_values_set()
    {
        push(&mut help, format_args!(" One of {}.", possible.join(", ")));
    }
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && argument.get_action().takes_values() {
        push(&mut help, format_args!(" Default: `{}`.", defaults.join(",")));
    }
    if let Some(variable) = argument.get_env() {
        push(&mut help, format_args!(" Variable: `{}`.", variable.to_string_lossy()));
    }
    format!("| `{}` | {} |\n", name.trim().replace('|', "\\|"), cell(&help))
}

/// Escapes text for a table cell: one line, without characters that end the cell or begin a tag.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|").replace('<', "&lt;")
}

/// A text with the full stop that clap leaves out.
fn sentence(text: &str) -> String {
    let text = text.trim();
    let ends = text.is_empty() || text.ends_with(['.', ':', '!', '?']);
    if ends { text.to_owned() } else { format!("{text}.") }
}

/// Lines without trailing spaces.
fn trimmed(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_owned()
}

fn push(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("a string takes all");
}

#[test]
fn the_page_of_commands_is_what_the_program_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let expected = page();
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        std::fs::write(&path, &expected).expect("the page is ours");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == expected, "{PAGE} is not what `just cli` writes");
}

#[test]
fn every_verb_has_a_heading_and_no_hidden_one_has() {
    let page = page();
    for verb in Arguments::command().get_subcommands() {
        let heading = format!("\n## {}\n", verb.get_name());
        assert_eq!(page.contains(&heading), !verb.is_hide_set(), "{}", verb.get_name());
    }
    assert!(page.contains("\n### image build\n") && page.contains("--timeout"));
}

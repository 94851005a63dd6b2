//! The layout of help: verbs in groups, and text that is wrapped once, for the reader's terminal.
//!
//! The texts are written in the verbs, in lines of any length. Here they become the definition that
//! parses, completes and documents: [`command`] is the only one that others see. Pure, but for the width.

use std::fmt::Write as _;

use super::GROUPS;
use clap::Command;

/// The widest text: longer lines are hard to read.
const WIDTH_MAX: usize = 100;
/// The narrowest: words are as long as they are.
const WIDTH_MIN: usize = 40;
/// The width of an unknown terminal.
const WIDTH_USUAL: usize = 100;
/// Before an example, and before its continuation.
const EXAMPLE: &str = "  ";
const CONTINUED: &str = "      ";

/// The definition of the verbs, with help for a terminal of this width.
pub fn command(parsed: Command, width: usize) -> Command {
    let width = width.clamp(WIDTH_MIN, WIDTH_MAX);
    let command = shaped(parsed, width);
    let template = template(&command, width);
    command.help_template(template)
}

/// The width of the reader's terminal.
pub fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let columns = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    let terminal = || std::env::var("COLUMNS").ok()?.parse().ok();
    columns.or_else(terminal).unwrap_or(WIDTH_USUAL)
}

fn shaped(command: Command, width: usize) -> Command {
    let after = command.get_after_help().map(|text| reflowed(&text.to_string(), width));
    let command = command.term_width(width);
    let command = if let Some(after) = after { command.after_help(after) } else { command };
    command.mut_subcommands(|verb| shaped(verb, width))
}

/// The help of the whole program: its verbs in their groups, in the place of one long list.
fn template(command: &Command, width: usize) -> String {
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    let mut verbs = command.get_subcommands();
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let column = shown.map(|verb| verb.get_name().len()).max().unwrap_or_default();
    let indent = " ".repeat(column + 4);
    for (title, count) in GROUPS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{title}:");
        for verb in verbs.by_ref().take(*count) {
            let name = verb.get_name();
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let lines = wrapped(&about, width, &format!("  {name:column$}  "), &indent);
            for line in lines {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    text.push_str("\nOptions:\n{options}{after-help}");
    text
}

/// Wraps prose that was written in lines of another width; indented lines are examples, and stay.
fn reflowed(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut paragraph: Vec<&str> = Vec::new();
    for line in text.lines().chain([""]) {
        let is_prose = !line.is_empty() && !line.starts_with(' ');
        if is_prose {
            paragraph.push(line);
        }
        // A line that announces something stands for itself.
        if !is_prose || line.ends_with(':') {
            lines.extend(wrapped(&paragraph.join(" "), width, "", ""));
            paragraph.clear();
        }
        if !is_prose {
            lines.extend(example(line, width));
        }
    }
    lines.join("\n").trim_end().to_owned()
}

/// An indented line: whole if it fits, otherwise as a command that can still be pasted and, below it, its
/// purpose.
fn example(line: &str, width: usize) -> Vec<String> {
    if chars(line) <= width {
        return vec![line.to_owned()];
    }
    let content = line.trim_start();
    let (command, comment) = content.split_once("  ").unwrap_or((content, ""));
    let goes_on = if command.contains("host-bridge") { " \\" } else { "" };
    let mut lines = broken(command, width, goes_on);
    lines.extend(wrapped(comment.trim(), width, CONTINUED, ""));
    lines
}

/// A command in lines, broken between its words and never within quotes.
fn broken(command: &str, width: usize, goes_on: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut quote, mut depth) = (None, 0_usize);
    let mut is_new = true;
    for letter in command.chars() {
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (letter, Some(open)) if letter == open => quote = None,
            ('(', None) => depth += 1,
            (')', None) => depth = depth.saturating_sub(1),
            (' ', None) if depth == 0 => {
                is_new = true;
                continue;
            }
            _ => {}
        }
        match words.last_mut().filter(|_| !is_new) {
            Some(word) => word.push(letter),
            None => words.push(letter.to_string()),
        }
        is_new = false;
    }
    // An option is kept with its value.
    let mut pieces: Vec<String> = Vec::new();
    for word in words {
        let has_value = |piece: &String| piece.starts_with("--") && !piece.contains([' ', '=']);
        match pieces.last_mut() {
            Some(piece) if has_value(piece) && !word.starts_with('-') => {
                *piece = format!("{piece} {word}");
            }
            _ => pieces.push(word),
        }
    }
    fill(pieces.iter().map(String::as_str), width.saturating_sub(goes_on.len()), EXAMPLE, CONTINUED)
        .into_iter()
        .rev()
        .enumerate()
        .map(|(at, line)| if at == 0 { line } else { line + goes_on })
        .rev()
        .collect()
}

/// A paragraph in lines of at most this width, with a beginning for the first and one for the rest.
pub fn wrapped(text: &str, width: usize, first: &str, rest: &str) -> Vec<String> {
    let rest = if rest.is_empty() { first } else { rest };
    fill(text.split_whitespace(), width, first, rest)
}

/// As many words on each line as fit.
fn fill<'a>(
    words: impl Iterator<Item = &'a str>,
    width: usize,
    first: &str,
    rest: &str,
) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if chars(line) + 1 + chars(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("{rest}{word}")),
            None => lines.push(format!("{first}{word}")),
        }
    }
    lines
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::Arguments;
    use super::*;

    /// The columns of a usual terminal.
    const USAGE_MAX: usize = 80;

    /// Every command that people see.
    fn all(command: &Command) -> Vec<Command> {
        let below = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let below = below.filter(|verb| verb.get_name() != "help").flat_map(all);
        [command.clone()].into_iter().chain(below).collect()
    }

    #[test]
    fn the_help_lists_every_verb_once_and_no_hidden_one() {
        let verbs = Arguments::command();
        let help = command(verbs.clone(), WIDTH_MAX).render_help().to_string();
        for verb in verbs.get_subcommands() {
            let row = format!("\n  {} ", verb.get_name());
            let count = help.matches(&row).count();
            assert_eq!(count, usize::from(!verb.is_hide_set()), "{}", verb.get_name());
        }
    }

    #[test]
    fn help_is_wrapped_once_at_every_width() {
        let mut wrong = Vec::new();
        // From WIDTH_MAX on all are the same.
        for width in (60..=WIDTH_MAX + 1).chain([150, 200]) {
            for mut verb in all(&command(Arguments::command(), width)) {
                let name = verb.get_name().to_owned();
                let after = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
                let help = verb.render_help().to_string();
                // If clap had wrapped it again, the lines would differ.
                if !help.contains(&after) {
                    wrong.push(format!("{name} at {width} is wrapped again"));
                }
                let wide = help.lines().filter(|line| chars(line) > width.min(WIDTH_MAX));
                // clap wraps no usage; a terminal of the usual width does not, either.
                let is_usage = |line: &&str| line.starts_with("Usage:") && chars(line) <= USAGE_MAX;
                let wide = wide.filter(|line| !is_usage(line));
                let wide = wide.filter(|line| line.split_whitespace().count() > 1);
                wrong.extend(wide.map(|line| format!("{name} at {width} is too wide: {line}")));
            }
        }
        assert!(wrong.is_empty(), "{} lines: {:#?}", wrong.len(), &wrong[..wrong.len().min(30)]);
    }

    #[test]
    fn no_text_of_an_option_has_lines_of_its_own() {
        for verb in all(&Arguments::command()) {
            for argument in verb.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.contains('\n'), "{} {}", verb.get_name(), argument.get_id());
            }
        }
    }

    #[test]
    fn prose_is_joined_and_examples_stay_commands() {
        let text =
            "Examples:\n  host-bridge a --long-option 'b c' --other x   says\n\nOne\ntwo three.";
        assert_eq!(reflowed(text, 60), text.replace("One\ntwo", "One two"));
        assert_eq!(
            reflowed(text, 40),
            "Examples:\n  host-bridge a --long-option 'b c' \\\n      --other x\n      says\n\nOne two three."
        );
        assert_eq!(reflowed("a bb ccc dddd", 8), "a bb ccc\ndddd");
    }
}

//! Generates text from the options: the effective configuration as TOML, the example file, and the
//! reference page. Pure.

use std::fmt::Write as _;

use super::defaults::IMAGES_DEFAULT;
use super::load::variable_of;
use super::registries::{Field, KEYS, REGISTRIES, REGISTRIES_ABOUT};
use super::shown::quote;
use super::table::{
    CAPS, CAPS_ABOUT, IMAGES, NAMESPACES, NAMESPACES_ABOUT, SECRETS, SECRETS_ABOUT, SECTIONS,
    TEMPLATES, TEMPLATES_ABOUT, WEBHOOKS, WEBHOOKS_ABOUT, WORKSPACES, WORKSPACES_ABOUT,
};
use super::{Origin, Settings, namespaces, secrets, templates, webhooks, workspaces};
use host::paths::{self, Variable};

/// Characters of a line of comment.
const COMMENT_CHARS_MAX: usize = 90;

impl Settings {
    /// The effective configuration as a file, with the origin of each value.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        comment(
            &mut text,
            &match &self.file {
                Some(file) => format!("The effective configuration, with {}.", file.display()),
                None => "The effective configuration, without a configuration file.".to_owned(),
            },
        );
        self.write_sections(&mut text, |text, line, origin| {
            // A path may have a line break in its name.
            push(text, format_args!("{line} # {}", origin.to_string().replace('\n', " ")));
        });
        text
    }

    fn write_sections(&self, text: &mut String, write: impl Fn(&mut String, &str, &Origin)) {
        for section in SECTIONS {
            push(text, format_args!(""));
            comment(text, section.about);
            push(text, format_args!("[{}]", section.name));
            for option in section.options {
                comment(text, &format!("{} ({})", option.about, option.values));
                let line = format!("{} = {}", option.key, (option.show)(self));
                write(text, &line, &self.origin(&format!("{}.{}", section.name, option.key)));
            }
        }
        for (name, directory) in &self.images {
            let line = format!("{} = {}", quote(name), quote(directory.to_string_lossy()));
            write(text, &line, &self.origin(&format!("{IMAGES}.{name}")));
        }
        push(text, format_args!(""));
        comment(text, CAPS_ABOUT);
        for (heading, key, lines) in super::caps::show(&self.caps) {
            push(text, format_args!("[{CAPS}.{heading}]"));
            for line in lines {
                write(text, &line, &self.origin(&format!("{CAPS}.{key}")));
            }
        }
        push(text, format_args!(""));
        comment(text, SECRETS_ABOUT);
        for (name, entry) in &self.secrets {
            push(text, format_args!("[{SECRETS}.{}]", quote(name)));
            for line in secrets::show(entry) {
                write(text, &line, &self.origin(&format!("{SECRETS}.{name}")));
            }
        }
        push(text, format_args!(""));
        comment(text, NAMESPACES_ABOUT);
        for (name, namespace) in &self.namespaces {
            push(text, format_args!("[{NAMESPACES}.{}]", quote(name)));
            for line in namespaces::show(namespace) {
                write(text, &line, &self.origin(&format!("{NAMESPACES}.{name}")));
            }
        }
        push(text, format_args!(""));
        comment(text, WORKSPACES_ABOUT);
        for (name, entry) in &self.workspaces {
            push(text, format_args!("[{WORKSPACES}.{}]", quote(name)));
            for line in workspaces::show(entry) {
                write(text, &line, &self.origin(&format!("{WORKSPACES}.{name}")));
            }
        }
        push(text, format_args!(""));
        comment(text, WEBHOOKS_ABOUT);
        for (name, hook) in &self.webhooks {
            push(text, format_args!("[{WEBHOOKS}.{}]", quote(name)));
            for line in webhooks::show(hook) {
                write(text, &line, &self.origin(&format!("{WEBHOOKS}.{name}")));
            }
        }
        push(text, format_args!(""));
        comment(text, TEMPLATES_ABOUT);
        for (name, template) in &self.templates {
            push(text, format_args!("[{TEMPLATES}.{}]", quote(name)));
            for line in templates::show(template) {
                write(text, &line, &self.origin(&format!("{TEMPLATES}.{name}")));
            }
        }
        push(text, format_args!(""));
        comment(text, REGISTRIES_ABOUT);
        for key in &KEYS {
            comment(text, &format!("{}: {} ({}): {}", key.key, key.about, key.values, key.example));
        }
        for (host, registry) in &self.registries {
            push(text, format_args!("[{REGISTRIES}.{}]", quote(host)));
            for (key, value) in super::registries::lines(registry) {
                let origin = self.origin(&format!("{REGISTRIES}.{host}.{key}"));
                write(text, &format!("{key} = {value}"), &origin);
            }
        }
    }
}

/// The example file: every option with its default, commented out.
pub fn example() -> String {
    let mut text = String::new();
    comment(
        &mut text,
        "The configuration of `host-bridge serve`. Every option is listed with its default; remove \
         the # to change one. `host-bridge serve --check-config` checks a file, `--print-config` \
         prints the effective values. The file is read at the start: restart to apply changes.",
    );
    Settings::default().write_sections(&mut text, |text, line, _| {
        push(text, format_args!("#{line}"));
    });
    text
}

/// The reference page.
pub fn reference() -> String {
    let mut text = String::from(INTRODUCTION);
    push(&mut text, format_args!("{PLACES}"));
    for Variable { name, about, usual: [of_root, of_others] } in paths::VARIABLES {
        push(&mut text, format_args!("| `{name}` | {about} | {of_root} | {of_others} |"));
    }
    let defaults = Settings::default();
    for section in SECTIONS {
        push(&mut text, format_args!("\n## [{}]\n\n{}\n", section.name, section.about));
        push(&mut text, format_args!("| key | meaning | value | default | variable |"));
        push(&mut text, format_args!("|---|---|---|---|---|"));
        for option in section.options {
            push(
                &mut text,
                format_args!(
                    "| `{}` | {} | {} | `{}` | `{}` |",
                    option.key,
                    option.about,
                    option.values,
                    (option.show)(&defaults),
                    variable_of(section.name, option.key)
                ),
            );
        }
    }
    let names = IMAGES_DEFAULT.map(|name| format!("`{name}`")).join(", ");
    push(&mut text, format_args!("\nPublished clients send {names}."));
    let about = format_args!("\n## [{NAMESPACES}]\n\n{NAMESPACES_ABOUT} See [egress](egress.md).");
    push(&mut text, about);
    push(&mut text, format_args!("\n## [{CAPS}]\n\n{CAPS_ABOUT} See [caps](caps.md)."));
    push(&mut text, format_args!("\n## [{SECRETS}]\n\n{SECRETS_ABOUT} See [secrets](secrets.md)."));
    let about =
        format_args!("\n## [{WORKSPACES}]\n\n{WORKSPACES_ABOUT} See [workspaces](workspace.md).");
    push(&mut text, about);
    push(
        &mut text,
        format_args!("\n## [{WEBHOOKS}]\n\n{WEBHOOKS_ABOUT} See [events](events.md#webhooks)."),
    );
    let about = format_args!(
        "\n## [{TEMPLATES}]\n\n{TEMPLATES_ABOUT} See [templates](../howto/templates.md)."
    );
    push(&mut text, about);
    push(&mut text, format_args!("\n## [{REGISTRIES}.\"HOST\"]\n\n{REGISTRIES_ABOUT}\n"));
    push(&mut text, format_args!("| key | meaning | value | as in |\n|---|---|---|---|"));
    for Field { key, values, about, example } in &KEYS {
        push(&mut text, format_args!("| `{key}` | {about} | {values} | `{example}` |"));
    }
    text
}

const INTRODUCTION: &str = "\
# Configuration

`host-bridge serve` takes each option from the first of these that sets it: a flag, an environment
variable, a TOML file, the default. The file is the one given by `--config`, otherwise by
`BURROW_CONFIG`, otherwise `/etc/burrow/burrow.toml` for root and
`$XDG_CONFIG_HOME/burrow/burrow.toml` (`~/.config/burrow/burrow.toml`) for other users, if it exists.
It is read at the start. A restart applies changes and leaves the sandboxes running. Creating, revoking
and rotating keys needs no restart: see `host-bridge keys --help`.

```
host-bridge serve --check-config                 show errors with file, line, column and key
host-bridge serve --print-config                 print all values and where each comes from
host-bridge serve --set server.runs_max=16       set any option for this run
```

Durations are whole seconds or strings like `\"30s\"`, `\"5m\"`, `\"1h30m\"`, `\"7d\"`; sizes are bytes or
strings like `\"64MiB\"`. `\"off\"` means none. In a variable, commas separate the entries of a list. A
complete file with all defaults is [dist/burrow.toml](../../dist/burrow.toml).

This page is generated from the program's table of options (`just configuration`), and a test compares
the two.
";

const PLACES: &str = "
## Places

Environment variables set the paths for every verb of `host-bridge`: a verb finds the sandboxes of a daemon
that uses the same two directories. Only their owner can open them. `serve` and `--check-config` warn about
a variable that begins with `BURROW_` and that nothing reads.

| variable | what is there | for root | for other users |
|---|---|---|---|
| `BURROW_CONFIG` | the configuration, unless `--config` names one | /etc/burrow/burrow.toml | $XDG_CONFIG_HOME/burrow/burrow.toml, otherwise ~/.config/burrow/burrow.toml |";

/// Adds a line. Writing to a String cannot fail.
fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = writeln!(text, "{line}");
}

/// Adds lines of comment, broken between words.
fn comment(text: &mut String, words: &str) {
    let mut line = String::from("#");
    for word in words.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > COMMENT_CHARS_MAX {
            push(text, format_args!("{line}"));
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    push(text, format_args!("{line}"));
}

//! `[log]`: the log on stderr.

use super::{ConfigOption, Section};
use crate::shown::quote;
use crate::{LogFormat, LogLevel};

pub const SECTION: Section = Section {
    name: "log",
    about: "What the bridge logs to stderr.",
    options: &[
        ConfigOption {
            key: "format",
            values: "`\"text\"` or `\"json\"`",
            about: "Lines of text for people, or one JSON object per line.",
            set: |settings, given| {
                settings.log.format = match given.choice(&["text", "json"])? {
                    "json" => LogFormat::Json,
                    _ => LogFormat::Text,
                };
                Ok(())
            },
            show: |settings| {
                quote(match settings.log.format {
                    LogFormat::Text => "text",
                    LogFormat::Json => "json",
                })
            },
        },
        ConfigOption {
            key: "level",
            values: "`\"error\"`, `\"warn\"`, `\"info\"`, `\"debug\"` or `\"trace\"`",
            about: "The least important level that is logged.",
            set: |settings, given| {
                let name = given.choice(&LogLevel::NAMES)?;
                let found = LogLevel::ALL.into_iter().find(|level| level.as_str() == name);
                settings.log.level = found.unwrap_or(LogLevel::Info);
                Ok(())
            },
            show: |settings| quote(settings.log.level.as_str()),
        },
    ],
};

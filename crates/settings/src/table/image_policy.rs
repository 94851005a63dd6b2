//! `[image_policy]`: the images that may be used.

use super::{ConfigOption, Section, put};
use crate::shown::{quote, quote_all};
use crate::value::OFF;
use image::Pull;

pub const SECTION: Section = Section {
    name: "image_policy",
    about: "Which stored images sandboxes may use. Images named in `[images]` and images of the \
            kit belong to the operator and are always allowed.",
    options: &[
        ConfigOption {
            key: "allow",
            values: "a list of names, in which `*` stands for any characters, optionally \
                     followed by `@` and a digest; or `\"off\"` for all",
            about: "The images that may be used: `\"docker.io/library/*\"`, \
                    `\"team/app@sha256:…\"`. A pattern with a digest allows that content under \
                    any name.",
            set: |settings, given| {
                let texts = given.texts()?.into_iter().map(str::to_owned).collect();
                settings.image_policy.allow = texts;
                Ok(())
            },
            show: |settings| {
                let allow = &settings.image_policy.allow;
                if allow.is_empty() { quote(OFF) } else { quote_all(allow) }
            },
        },
        ConfigOption {
            key: "require_digest",
            values: "`true` or `false`",
            about: "Refuse an image that is not given by its digest, because a name may point \
                    to other content tomorrow.",
            set: |settings, given| put(&mut settings.image_policy.require_digest, given.truth()),
            show: |settings| settings.image_policy.require_digest.to_string(),
        },
        ConfigOption {
            key: "pins",
            values: "a list of names, each with its tag and its digest; or `\"off\"`",
            about: "Tags with one fixed content: `\"python:3.12@sha256:…\"`. Under such a name \
                    only this content is allowed, also when `require_digest` is set, whatever \
                    the tag points to now.",
            set: |settings, given| {
                let texts = given.texts()?.into_iter().map(str::to_owned).collect();
                settings.image_policy.pins = texts;
                Ok(())
            },
            show: |settings| {
                let pins = &settings.image_policy.pins;
                if pins.is_empty() { quote(OFF) } else { quote_all(pins) }
            },
        },
        ConfigOption {
            key: "pull",
            values: "`\"never\"`, `\"missing\"` or `\"always\"`",
            about: "When to pull an image that a sandbox asks for: never; if it is not stored \
                    here; or always, to follow its tag. Only images that `allow` and \
                    `require_digest` permit are pulled. A client may ask for less, and with the \
                    scope `admin` for more.",
            set: |settings, given| {
                let name = given.choice(&Pull::NAMES)?;
                let found = Pull::ALL.into_iter().find(|pull| pull.name() == name);
                settings.image_policy.pull = found.unwrap_or_default();
                Ok(())
            },
            show: |settings| quote(settings.image_policy.pull.name()),
        },
    ],
};

//! `[image_policy]`: which images may be used.

use super::{Choice, Section, put};
use crate::shown::{quote, quote_all};
use crate::value::OFF;
use image::Pull;

pub const SECTION: Section = Section {
    name: "image_policy",
    about: "Which images of this host's store sandboxes may have. What `[images]` names, and the \
            images of the kit, are the operator's own and always allowed.",
    options: &[
        Choice {
            key: "allow",
            values: "a list of names, in which `*` stands for any characters, with a digest \
                     behind an `@` or without; or `\"off\"` for all",
            about: "The images that may be used: `\"docker.io/library/*\"`, \
                    `\"team/app@sha256:…\"`. A pattern with a digest allows that content, \
                    whatever it is called here.",
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
        Choice {
            key: "require_digest",
            values: "`true` or `false`",
            about: "Refuse an image that is not asked for by its digest: a name may mean \
                    another content tomorrow.",
            set: |settings, given| put(&mut settings.image_policy.require_digest, given.truth()),
            show: |settings| settings.image_policy.require_digest.to_string(),
        },
        Choice {
            key: "pins",
            values: "a list of names, each with its tag and its digest; or `\"off\"`",
            about: "Tags that mean one content alone: `\"python:3.12@sha256:…\"`. Asked for by such a \
                    name, that content is allowed, also where a digest is required, and any other is \
                    refused, whatever the tag means here by now.",
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
        Choice {
            key: "pull",
            values: "`\"never\"`, `\"missing\"` or `\"always\"`",
            about: "Whether an image is pulled from its registry because a sandbox asks for it: not at \
                    all; when it is not here; or to learn what its name means by now. Only what `allow` \
                    and `require_digest` let through is pulled. A client may ask for less than this, and \
                    with the scope `admin` for more.",
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

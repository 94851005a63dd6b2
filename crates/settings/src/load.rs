//! Combines file, environment and flags into [`Settings`].

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::error::SettingsError;
use super::limits::{ENTRIES_MAX, FILE_BYTES_MAX};
use super::registries::{self, REGISTRIES};
use super::table::{
    CAPS, ConfigOption, IMAGES, NAMESPACES, SECRETS, SECTIONS, TEMPLATES, WEBHOOKS, WORKSPACES,
};
use super::value::{InvalidValue, RawValue};
use super::{
    Origin, Settings, file, namespaces, secrets, telemetry, templates, webhooks, workspaces,
};
use host::secret;
use host::similar::nearest;

/// Names the file, when no flag does.
pub(super) const FILE_VARIABLE: &str = "BURROW_CONFIG";
/// The flag that sets any option.
const SET: &str = "--set";
/// The longest name of an image: registries allow as much.
const IMAGE_NAME_CHARS_MAX: usize = 255;

/// The options set by flags. The later of two for one option wins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    given: Vec<Override>,
}

#[derive(Clone, Debug, PartialEq)]
struct Override {
    flag: String,
    name: String,
    given: RawValue,
}

impl Overrides {
    /// Sets the option `section.key` from a flag.
    pub fn text(&mut self, flag: &str, name: &str, text: impl Into<String>) {
        self.push(flag, name, RawValue::Bare(text.into()));
    }

    /// Sets a list option from a repeatable flag; does nothing if the flag was not given.
    pub fn list(&mut self, flag: &str, name: &str, texts: &[String]) {
        match texts {
            [] => {}
            [one] => self.text(flag, name, one),
            several => {
                let several = several.iter().map(|text| RawValue::Text(text.clone()));
                self.push(flag, name, RawValue::List(several.collect()));
            }
        }
    }

    /// The text of `--set SECTION.KEY=VALUE`.
    pub fn set(&mut self, assignment: &str) -> Result<(), SettingsError> {
        let (name, value) = assignment.split_once('=').ok_or_else(|| {
            SettingsError::NotAnAssignment { flag: SET, text: assignment.to_owned() }
        })?;
        self.push(&format!("{SET} {name}"), name.trim(), RawValue::Bare(value.trim().to_owned()));
        Ok(())
    }

    fn push(&mut self, flag: &str, name: &str, given: RawValue) {
        self.given.push(Override { flag: flag.to_owned(), name: name.to_owned(), given });
    }
}

/// Looks up an environment variable.
type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl Settings {
    /// The settings of this process. `explicit` is the file that a flag names.
    pub fn load(explicit: Option<&Path>, overrides: &Overrides) -> Result<Self, SettingsError> {
        let uid = nix::unistd::geteuid().as_raw();
        Self::load_from(explicit, overrides, &|name| std::env::var_os(name), uid)
    }

    /// The same with an environment and a user of the caller's choice.
    pub fn load_from(
        explicit: Option<&Path>,
        overrides: &Overrides,
        variable: Variables<'_>,
        uid: u32,
    ) -> Result<Self, SettingsError> {
        let content = match find(explicit, variable, uid) {
            Some(ConfigFile { path, must_exist }) => {
                read(&path, must_exist)?.map(|content| (path, content))
            }
            None => None,
        };
        let file = content.as_ref().map(|(path, content)| (path.as_path(), content.as_str()));
        Self::resolve(file, variable, overrides)
    }

    /// Combines a file's content, an environment and flags.
    pub fn resolve(
        file: Option<(&Path, &str)>,
        variable: Variables<'_>,
        overrides: &Overrides,
    ) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        if let Some((path, text)) = file {
            settings.file = Some(path.to_owned());
            for entry in file::parse(path, text)? {
                let name = format!("{}.{}", entry.section, entry.key);
                settings.set(&name, &entry.given, Origin::File(entry.place))?;
            }
        }
        for (section, option) in options() {
            let variable_name = variable_of(section, option.key);
            if let Some(value) = variable(&variable_name).filter(|value| !value.is_empty()) {
                let text = value.into_string();
                let text =
                    text.map_err(|_| SettingsError::NotText { variable: variable_name.clone() })?;
                let origin = Origin::Environment { variable: variable_name };
                settings.set(
                    &format!("{section}.{}", option.key),
                    &RawValue::Bare(text),
                    origin,
                )?;
            }
        }
        for Override { flag, name, given } in &overrides.given {
            settings.set(name, given, Origin::Flag { flag: flag.clone() })?;
        }
        settings.heed_standard(variable)?;
        settings.check()?;
        settings.settle_images();
        Ok(settings)
    }

    /// Telemetry that is on heeds the variables that all programs with OpenTelemetry do, behind our own.
    fn heed_standard(&mut self, variable: Variables<'_>) -> Result<(), SettingsError> {
        for (standard, key) in telemetry::STANDARD {
            let name = format!("otel.{key}");
            if !self.otel.enabled || self.origin(&name) != Origin::Default {
                continue;
            }
            let Some(value) = variable(standard).filter(|value| !value.is_empty()) else {
                continue;
            };
            let variable = standard.to_owned();
            let text = value.into_string();
            let text = text.map_err(|_| SettingsError::NotText { variable: variable.clone() })?;
            let origin = Origin::Environment { variable };
            self.set(&name, &telemetry::of_standard(key, &text), origin)?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, given: &RawValue, origin: Origin) -> Result<(), SettingsError> {
        let option = options().find(|(section, key)| is_named(name, section, key.key));
        let registry = name.strip_prefix(REGISTRIES).and_then(|name| name.strip_prefix('.'));
        let registry = registry.and_then(registries::split_name);
        let done = match (name.split_once('.'), registry, option) {
            (Some((IMAGES, image)), _, None) => self.set_image(image, given),
            (Some((SECRETS, secret)), ..) => self.set_secret(secret, given),
            (Some((CAPS, table)), ..) => super::caps::set(&mut self.caps, table, given),
            (Some((NAMESPACES, namespace)), ..) => self.set_namespace(namespace, given),
            (Some((WORKSPACES, workspace)), ..) => self.set_workspace(workspace, given),
            (Some((WEBHOOKS, hook)), ..) => self.set_webhook(hook, given),
            (Some((TEMPLATES, template)), ..) => self.set_template(template, given),
            (_, Some((host, key)), _) => self.set_registry(host, key, given),
            (_, None, Some((_, option))) => (option.set)(self, given),
            (_, None, None) => {
                let meant = nearest(name, NAMES.iter().map(String::as_str));
                return Err(SettingsError::UnknownOption { origin, name: name.to_owned(), meant });
            }
        };
        if let Err(wrong) = done {
            let (name, wrong) = (name.to_owned(), Box::new(wrong));
            return Err(SettingsError::Value { origin, name, wrong });
        }
        self.origins.insert(name.to_owned(), origin);
        Ok(())
    }

    fn set_image(&mut self, image: &str, given: &RawValue) -> Result<(), InvalidValue> {
        let bad = |c: char| c.is_control() || c.is_whitespace();
        let count = image.chars().count();
        if image.chars().any(bad) || !(1..=IMAGE_NAME_CHARS_MAX).contains(&count) {
            return Err(InvalidValue::ImageName(
                image.chars().take(IMAGE_NAME_CHARS_MAX).collect(),
            ));
        }
        match given.place_or_off()? {
            Some(_) if self.images.len() >= ENTRIES_MAX => {
                return Err(InvalidValue::TooMany { entries_max: ENTRIES_MAX });
            }
            Some(directory) => self.images.insert(image.to_owned(), directory),
            None => self.images.remove(image),
        };
        Ok(())
    }

    fn set_secret(&mut self, name: &str, given: &RawValue) -> Result<(), InvalidValue> {
        if !secret::is_name(name) {
            return Err(InvalidValue::SecretName(
                name.chars().take(IMAGE_NAME_CHARS_MAX).collect(),
            ));
        }
        if self.secrets.len() >= ENTRIES_MAX {
            return Err(InvalidValue::TooMany { entries_max: ENTRIES_MAX });
        }
        self.secrets.insert(name.to_owned(), secrets::read(name, given)?);
        Ok(())
    }

    fn set_namespace(&mut self, name: &str, given: &RawValue) -> Result<(), InvalidValue> {
        if self.namespaces.len() >= ENTRIES_MAX {
            return Err(InvalidValue::TooMany { entries_max: ENTRIES_MAX });
        }
        self.namespaces.insert(name.to_owned(), namespaces::read(name, given)?);
        Ok(())
    }

    fn set_workspace(&mut self, name: &str, given: &RawValue) -> Result<(), InvalidValue> {
        if !workspace::is_name(name) {
            return Err(InvalidValue::WorkspaceName(
                name.chars().take(IMAGE_NAME_CHARS_MAX).collect(),
            ));
        }
        if self.workspaces.len() >= ENTRIES_MAX {
            return Err(InvalidValue::TooMany { entries_max: ENTRIES_MAX });
        }
        self.workspaces.insert(name.to_owned(), workspaces::read(given)?);
        Ok(())
    }

    fn set_webhook(&mut self, name: &str, given: &RawValue) -> Result<(), InvalidValue> {
        if !secret::is_name(name) {
            return Err(InvalidValue::WebhookName(
                name.chars().take(IMAGE_NAME_CHARS_MAX).collect(),
            ));
        }
        if self.webhooks.len() >= ENTRIES_MAX {
            return Err(InvalidValue::TooMany { entries_max: ENTRIES_MAX });
        }
        self.webhooks.insert(name.to_owned(), webhooks::read(given)?);
        Ok(())
    }

    fn set_template(&mut self, name: &str, given: &RawValue) -> Result<(), InvalidValue> {
        if self.templates.len() >= ENTRIES_MAX {
            return Err(InvalidValue::TooMany { entries_max: ENTRIES_MAX });
        }
        self.templates.insert(name.to_owned(), templates::read(name, given)?);
        Ok(())
    }

    /// Checks that involve several options.
    fn check(&self) -> Result<(), SettingsError> {
        let (certificate, key) = ("server.tls_certificate", "server.tls_key");
        let half = |has, lacks| SettingsError::Half { origin: self.origin(has), has, lacks };
        match (&self.server.tls_certificate, &self.server.tls_key) {
            (Some(_), None) => return Err(half(certificate, key)),
            (None, Some(_)) => return Err(half(key, certificate)),
            _ => {}
        }
        let (certificate, key) = ("fleet.certificate", "fleet.key");
        match (&self.fleet.certificate, &self.fleet.key) {
            (Some(_), None) => return Err(half(certificate, key)),
            (None, Some(_)) => return Err(half(key, certificate)),
            _ => {}
        }
        let needed = [
            ("fleet.ca", self.fleet.ca.is_some()),
            ("fleet.certificate", self.fleet.certificate.is_some()),
            ("server.tls_certificate", self.server.tls_certificate.is_some()),
        ];
        let lacks = needed.into_iter().find(|(_, is_set)| !is_set && self.fleet.mutual_tls);
        if let Some((lacks, _)) = lacks {
            return Err(half("fleet.mutual_tls", lacks));
        }
        for (name, entry) in &self.workspaces {
            let keys = entry.bucket.iter().filter_map(|bucket| bucket.keys.as_ref());
            let mut names = keys.flat_map(workspace::s3::KeyNames::all);
            if let Some(secret) = names.find(|secret| !self.secrets.contains_key(*secret)) {
                let wrong = Box::new(InvalidValue::NoSecret(secret.to_owned()));
                let name = format!("{WORKSPACES}.{name}");
                return Err(SettingsError::Value { origin: self.origin(&name), name, wrong });
            }
        }
        for (name, hook) in &self.webhooks {
            if !self.secrets.contains_key(&hook.secret) {
                let wrong = Box::new(InvalidValue::NoWebhookSecret(hook.secret.clone()));
                let name = format!("{WEBHOOKS}.{name}");
                return Err(SettingsError::Value { origin: self.origin(&name), name, wrong });
            }
        }
        if let Some(name) = self.otel.secrets().find(|name| !self.secrets.contains_key(*name)) {
            let wrong = Box::new(InvalidValue::NoHeaderSecret(name.to_owned()));
            let name = "otel.headers".to_owned();
            return Err(SettingsError::Value { origin: self.origin(&name), name, wrong });
        }
        match self.server.listen.iter().find(|address| !address.is_local()) {
            Some(address) if self.server.dev => {
                let (origin, address) = (self.origin("server.dev"), address.to_string());
                Err(SettingsError::OpenDoor { origin, address })
            }
            _ => Ok(()),
        }
    }
}

/// All names of options, for hints.
static NAMES: std::sync::LazyLock<Vec<String>> = std::sync::LazyLock::new(|| {
    options().map(|(section, option)| format!("{section}.{}", option.key)).collect()
});

pub(super) fn options() -> impl Iterator<Item = (&'static str, &'static ConfigOption)> {
    SECTIONS.iter().flat_map(|section| section.options.iter().map(|option| (section.name, option)))
}

fn is_named(name: &str, section: &str, key: &str) -> bool {
    name.split_once('.') == Some((section, key))
}

/// The variable that sets an option.
pub fn variable_of(section: &str, key: &str) -> String {
    format!("BURROW_{section}_{key}").to_ascii_uppercase()
}

/// A configuration file to read.
struct ConfigFile {
    path: PathBuf,
    /// Whether it was named explicitly.
    must_exist: bool,
}

/// Finds the file: as named by the flag or `BURROW_CONFIG`, or in the usual places.
fn find(explicit: Option<&Path>, variable: Variables<'_>, uid: u32) -> Option<ConfigFile> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = explicit.map(Path::to_owned).or_else(|| set(FILE_VARIABLE)) {
        return Some(ConfigFile { path, must_exist: true });
    }
    let path = if uid == 0 {
        PathBuf::from("/etc/burrow/burrow.toml")
    } else {
        let directory = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
        directory.join("burrow/burrow.toml")
    };
    Some(ConfigFile { path, must_exist: false })
}

/// `None` if there is no such file and it is optional.
fn read(path: &Path, must_exist: bool) -> Result<Option<String>, SettingsError> {
    let unreadable = |source| SettingsError::Unreadable { path: path.to_owned(), source };
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && !must_exist => return Ok(None),
        opened => opened.map_err(unreadable)?,
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(SettingsError::TooLarge { path: path.to_owned(), bytes_max: FILE_BYTES_MAX });
    }
    Ok(Some(text))
}

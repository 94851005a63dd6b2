//! Parses a configuration file into values with their positions. Pure.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{FilePosition, SettingsError};
use super::registries::{self, REGISTRIES};
use super::table::{IMAGES, NAMED, SECTIONS, Section};
use super::value::RawValue;
use host::similar::nearest;

/// A value in the file.
pub struct Entry {
    pub section: &'static str,
    pub key: String,
    pub given: RawValue,
    /// The position of the value.
    pub place: FilePosition,
}

/// All values of a file in order, or the first error.
pub fn parse(file: &Path, text: &str) -> Result<Vec<Entry>, SettingsError> {
    let root = DeTable::parse(text).map_err(|error| syntax(file, text, &error))?;
    let mut found: Vec<(usize, Result<Entry, SettingsError>)> = Vec::new();
    for (name, value) in root.get_ref() {
        let at = Cursor { file, text, offset: name.span().start };
        let Some(section) = known_section(name.get_ref()) else {
            found.push((at.offset, Err(at.unknown_section(name.get_ref()))));
            continue;
        };
        let DeValue::Table(table) = value.get_ref() else {
            let place = at.place();
            found.push((at.offset, Err(SettingsError::NotASection { place, section })));
            continue;
        };
        for (key, value) in table {
            let at = Cursor { file, text, offset: key.span().start };
            match value.get_ref() {
                DeValue::Table(inner) if section == REGISTRIES => {
                    found.extend(at.registry(key.get_ref(), inner));
                }
                _ => found.push((at.offset, at.entry(section, key.get_ref(), value))),
            }
        }
    }
    found.sort_by_key(|(offset, _)| *offset);
    found.into_iter().map(|(_, entry)| entry).collect()
}

/// A position while walking through a file.
struct Cursor<'a> {
    file: &'a Path,
    text: &'a str,
    offset: usize,
}

impl Cursor<'_> {
    fn place(&self) -> FilePosition {
        FilePosition::of(self.file, self.text, self.offset)
    }

    fn entry(
        &self,
        section: &'static str,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Entry, SettingsError> {
        let key = current_key(section, key);
        if let Some(options) = options_of(section)
            && !options.iter().any(|option| option.key == key)
        {
            return Err(self.unknown_key(section, key));
        }
        let place = FilePosition::of(self.file, self.text, value.span().start);
        Ok(Entry { section, key: key.to_owned(), given: given(value.get_ref()), place })
    }

    /// The entries of a section within the section of registries.
    fn registry(
        &self,
        host: &str,
        table: &DeTable<'_>,
    ) -> Vec<(usize, Result<Entry, SettingsError>)> {
        let entry = |(offset, key, value): (usize, &str, &Spanned<DeValue<'_>>)| {
            let name = format!("{host}.{key}");
            if registries::split_name(&name).is_none() {
                let place = FilePosition::of(self.file, self.text, offset);
                return (offset, Err(registries::unknown_key(place, key)));
            }
            (offset, self.entry(REGISTRIES, &name, value))
        };
        let entries = table.iter().map(|(key, value)| (key.span().start, &**key.get_ref(), value));
        entries.map(entry).collect()
    }

    fn unknown_section(&self, name: &str) -> SettingsError {
        // Who forgets the section's line writes its keys at the top.
        if let Some(section) = section_with(name) {
            let (place, key) = (self.place(), name.to_owned());
            return SettingsError::WrongSection { place, key, section };
        }
        let meant = nearest(name, section_names());
        SettingsError::UnknownSection { place: self.place(), section: name.to_owned(), meant }
    }

    fn unknown_key(&self, section: &'static str, key: &str) -> SettingsError {
        let (place, key) = (self.place(), key.to_owned());
        if let Some(section) = section_with(&key) {
            return SettingsError::WrongSection { place, key, section };
        }
        let here = options_of(section).unwrap_or_default();
        let meant = nearest(&key, here.iter().map(|option| option.key)).map(str::to_owned);
        SettingsError::UnknownKey { place, section, key, meant }
    }
}

fn section_names() -> impl Iterator<Item = &'static str> {
    SECTIONS.iter().map(|section| section.name).chain(NAMED)
}

fn known_section(name: &str) -> Option<&'static str> {
    section_names().find(|known| *known == name)
}

/// What a key is called now that files of before may have by another name.
fn current_key<'a>(section: &str, key: &'a str) -> &'a str {
    match (section, key) {
        ("egress", "authorities") => "ca",
        _ => key,
    }
}

/// None for the sections that have names of the user's choice.
fn options_of(name: &str) -> Option<&'static [super::table::ConfigOption]> {
    let has_options = |section: &&Section| section.name == name && name != IMAGES;
    SECTIONS.iter().find(has_options).map(|section| section.options)
}

/// The section that has this key.
fn section_with(key: &str) -> Option<&'static str> {
    let has = |section: &&Section| section.options.iter().any(|option| option.key == key);
    SECTIONS.iter().find(has).map(|section| section.name)
}

fn given(value: &DeValue<'_>) -> RawValue {
    match value {
        DeValue::String(text) => RawValue::Text(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => RawValue::Whole(number),
            Err(_) => RawValue::Other("so large a number"),
        },
        DeValue::Float(number) => {
            number.as_str().parse().map_or(RawValue::Other("such a number"), RawValue::Real)
        }
        DeValue::Boolean(truth) => RawValue::Truth(*truth),
        DeValue::Datetime(_) => RawValue::Other("a date"),
        DeValue::Array(list) => {
            RawValue::List(list.iter().map(|entry| given(entry.get_ref())).collect())
        }
        DeValue::Table(table) => {
            let entries = table.iter().map(|(key, value)| (key.span().start, key, value));
            let mut entries: Vec<_> = entries.collect();
            entries.sort_by_key(|(offset, ..)| *offset);
            let entry = |(_, key, value): (usize, &Spanned<_>, &Spanned<_>)| {
                (ToString::to_string(key.get_ref()), given(value.get_ref()))
            };
            RawValue::Table(entries.into_iter().map(entry).collect())
        }
    }
}

fn syntax(file: &Path, text: &str, error: &toml::de::Error) -> SettingsError {
    /// Limits the part of a line in a message.
    const CHARS_SHOWN_MAX: usize = 80;
    let offset = error.span().map_or(0, |span| span.start);
    let place = FilePosition::of(file, text, offset);
    let line = text.lines().nth(place.line - 1).unwrap_or_default().trim();
    SettingsError::Syntax {
        line: line.chars().take(CHARS_SHOWN_MAX).collect(),
        message: error.message().replace('\n', ", "),
        place,
    }
}

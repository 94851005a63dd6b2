//! `[secrets.NAME]`: the source of a secret and the namespaces that may use it. Pure.

use std::path::PathBuf;

use super::limits::ENTRIES_MAX;
use super::shown::{quote, quote_all};
use super::value::{InvalidValue, RawValue};
use egress::{Host, SECRET_HOSTS_MAX};
use host::secret::{self, Entry, Reach, Source};
use host::similar::nearest;

/// All keys of such a table.
const KEYS: [&str; 8] =
    ["env", "file", "credential", "command", "as", "namespaces", "hosts", "fields"];
/// The sign for all namespaces.
const ALL: &str = "*";

/// Reads the table of one secret.
pub fn read(name: &str, given: &RawValue) -> Result<Entry, InvalidValue> {
    let (mut source, mut reach, mut hosts) = (None, None, Vec::new());
    let mut fields = secret::FIELDS_USUAL.map(str::to_owned).to_vec();
    let mut variable = secret::usual_variable(name);
    for (key, value) in given.table()? {
        let inside = |wrong| InvalidValue::Inside { key: key.clone(), wrong: Box::new(wrong) };
        let read = match key.as_str() {
            "as" => {
                variable = read_variable(value).map_err(inside)?;
                continue;
            }
            "namespaces" => {
                reach = Some(read_reach(value).map_err(inside)?);
                continue;
            }
            "hosts" => {
                hosts = read_hosts(value).map_err(inside)?;
                continue;
            }
            "fields" => {
                fields = read_fields(value).map_err(inside)?;
                continue;
            }
            "env" => read_variable(value).map(Source::Environment),
            "file" => read_path(value).map(Source::File),
            "credential" => read_credential(value).map(Source::Credential),
            "command" => read_command(value).map(Source::Command),
            _ => {
                let meant = nearest(key, KEYS);
                return Err(InvalidValue::Key { key: key.clone(), known: &KEYS, meant });
            }
        };
        let read = read.map_err(inside)?;
        if let Some((first, _)) = source.replace((key.clone(), read)) {
            return Err(InvalidValue::SecretSources { first, second: key.clone() });
        }
    }
    let (_, source) = source.ok_or(InvalidValue::SecretSource)?;
    let reach = reach.ok_or(InvalidValue::Namespaces)?;
    Ok(Entry { source, variable, reach, hosts, fields })
}

/// The lines of such a table.
pub fn show(entry: &Entry) -> Vec<String> {
    let source = match &entry.source {
        Source::Environment(variable) => format!("env = {}", quote(variable)),
        Source::File(path) => format!("file = {}", quote(path.to_string_lossy())),
        Source::Credential(name) => format!("credential = {}", quote(name)),
        Source::Command(words) => format!("command = {}", quote_all(words)),
    };
    let reach = show_reach(&entry.reach);
    let variable = format!("as = {}", quote(&entry.variable));
    let mut lines = vec![source, variable, format!("namespaces = {reach}")];
    if !entry.hosts.is_empty() {
        lines.push(format!("hosts = {}", quote_all(&entry.hosts)));
        lines.push(format!("fields = {}", quote_all(&entry.fields)));
    }
    lines
}

/// The users of something, as the file lists them.
pub(super) fn show_reach(reach: &Reach) -> String {
    match reach {
        Reach::All => quote(ALL),
        Reach::These(names) => quote_all(names),
    }
}

fn read_variable(value: &RawValue) -> Result<String, InvalidValue> {
    let text = value.text()?;
    let is_good = secret::is_variable(text);
    is_good.then(|| text.to_owned()).ok_or_else(|| InvalidValue::Variable(text.to_owned()))
}

pub(super) fn read_path(value: &RawValue) -> Result<PathBuf, InvalidValue> {
    let path = PathBuf::from(value.text()?);
    if path.is_absolute() { Ok(path) } else { Err(InvalidValue::Path(path.display().to_string())) }
}

fn read_credential(value: &RawValue) -> Result<String, InvalidValue> {
    let text = value.text()?;
    let is_good = !text.is_empty() && !text.contains(['/', '\0']) && text != "." && text != "..";
    is_good.then(|| text.to_owned()).ok_or_else(|| InvalidValue::Credential(text.to_owned()))
}

/// Only a list: a string would need a shell.
fn read_command(value: &RawValue) -> Result<Vec<String>, InvalidValue> {
    let RawValue::List(words) = value else { return Err(InvalidValue::Command) };
    let words: Vec<_> = words.iter().map(RawValue::text).collect::<Result<_, _>>()?;
    let is_good = words.first().is_some_and(|program| program.starts_with('/'))
        && words.len() <= ENTRIES_MAX
        && !words.iter().any(|word| word.contains('\0'));
    is_good.then(|| words.into_iter().map(str::to_owned).collect()).ok_or(InvalidValue::Command)
}

/// Only full names: with a pattern, any host below a name could receive the secret.
fn read_hosts(value: &RawValue) -> Result<Vec<String>, InvalidValue> {
    let hosts = value.texts()?;
    if hosts.is_empty() || hosts.len() > SECRET_HOSTS_MAX {
        return Err(InvalidValue::SecretHosts { max: SECRET_HOSTS_MAX });
    }
    let read = |text: &str| match text.parse::<Host>() {
        Ok(host) if host.is_qualified() => Ok(host.to_string()),
        _ => Err(InvalidValue::SecretHost(text.to_owned())),
    };
    hosts.into_iter().map(read).collect()
}

/// Names of header fields.
fn read_fields(value: &RawValue) -> Result<Vec<String>, InvalidValue> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let fields = value.texts()?;
    match fields.iter().find(|name| name.is_empty() || !name.chars().all(good)) {
        Some(bad) => Err(InvalidValue::Field((*bad).to_owned())),
        None => Ok(fields.into_iter().map(str::to_ascii_lowercase).collect()),
    }
}

pub(super) fn read_reach(value: &RawValue) -> Result<Reach, InvalidValue> {
    let names = value.texts()?;
    if names == [ALL] {
        return Ok(Reach::All);
    }
    names.iter().try_for_each(|name| read_namespace(name))?;
    Ok(Reach::These(names.into_iter().map(str::to_owned).collect()))
}

pub(super) fn read_namespace(name: &str) -> Result<(), InvalidValue> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || !name.chars().all(good) {
        return Err(InvalidValue::Namespace(name.to_owned()));
    }
    Ok(())
}

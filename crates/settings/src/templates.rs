//! `[templates.NAME]`: what sandboxes are made of under one name. Pure.

use std::time::Duration;

use super::limits::MEMORY_MIB_MAX;
use super::namespaces::read_egress;
use super::secrets::read_namespace;
use super::shown::{quote, quote_all, show_cpus};
use super::table::SECOND;
use super::value::{InvalidValue, RawValue, show_duration, show_size};
use host::similar::nearest;
use sandbox::limits::{READY_TIMEOUT_MAX, TEMPLATE_WARM_MAX};
use sandbox::{MachineKind, OnIdle, TemplateName, TemplateOptions};

/// A template, and the namespaces that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateTable {
    pub namespaces: Vec<String>,
    /// Its image as it is written.
    pub options: TemplateOptions,
}

/// The namespace of who names none.
const NAMESPACE_DEFAULT: &str = "default";

/// All keys of such a table.
const KEYS: [&str; 19] = [
    "namespaces",
    "image",
    "machine",
    "memory_mib",
    "cpus",
    "scratch",
    "env",
    "workdir",
    "user",
    "egress",
    "labels",
    "ttl",
    "idle_ttl",
    "on_idle",
    "keep_stopped",
    "start",
    "ready",
    "ready_timeout",
    "warm",
];

/// Reads the table of one template.
pub fn read(name: &str, given: &RawValue) -> Result<TemplateTable, InvalidValue> {
    let parsed = name.parse::<TemplateName>();
    parsed.map_err(|error| InvalidValue::Template(error.to_string()))?;
    let mut table = TemplateTable {
        namespaces: vec![NAMESPACE_DEFAULT.to_owned()],
        options: TemplateOptions::default(),
    };
    for (key, value) in given.table()? {
        if !KEYS.contains(&key.as_str()) {
            let meant = nearest(key, KEYS);
            return Err(InvalidValue::Key { key: key.clone(), known: &KEYS, meant });
        }
        let inside = |wrong| InvalidValue::Inside { key: key.clone(), wrong: Box::new(wrong) };
        set(&mut table, key, value).map_err(inside)?;
    }
    Ok(table)
}

fn ms(time: Duration) -> Option<u64> {
    u64::try_from(time.as_millis()).ok()
}

fn set(table: &mut TemplateTable, key: &str, value: &RawValue) -> Result<(), InvalidValue> {
    let options = &mut table.options;
    let text = || value.text().map(|text| Some(text.to_owned()));
    match key {
        "namespaces" => {
            let names = value.texts()?;
            names.iter().try_for_each(|name| read_namespace(name))?;
            table.namespaces = names.into_iter().map(str::to_owned).collect();
        }
        "image" => options.image = text()?,
        "machine" => {
            let kind = value.text()?.parse::<MachineKind>();
            options.machine =
                Some(kind.map_err(|error| InvalidValue::Template(error.to_string()))?);
        }
        "memory_mib" => options.memory_mib = Some(value.whole(1, MEMORY_MIB_MAX)?),
        "cpus" => options.cpu_millis = Some(value.cpu_millis()?),
        "scratch" => options.scratch_bytes = Some(value.bytes(1, u64::MAX)?),
        "env" => {
            for (name, value) in value.table()? {
                options.env.insert(name.clone(), value.text()?.to_owned());
            }
        }
        "workdir" => options.workdir = text()?,
        "user" => options.user = text()?,
        "egress" => options.egress = Some(read_egress(value)?),
        "labels" => {
            for (key, value) in value.table()? {
                options.labels.insert(key.clone(), value.text()?.to_owned());
            }
        }
        "ttl" => options.ttl_ms = ms(value.duration(SECOND)?),
        "idle_ttl" => options.idle_ttl_ms = ms(value.duration(SECOND)?),
        "on_idle" => options.on_idle = value.choice(&OnIdle::NAMES)?.parse().ok(),
        "keep_stopped" => options.keep_stopped_ms = ms(value.duration(Duration::ZERO)?),
        "start" => options.start = text()?,
        "ready" => options.ready = text()?,
        "ready_timeout" => {
            let timeout = value.duration(Duration::from_millis(1))?.min(READY_TIMEOUT_MAX);
            options.ready_timeout_ms = Some(timeout.as_millis() as u64);
        }
        _ => options.warm = value.whole(0, TEMPLATE_WARM_MAX as u64)? as usize,
    }
    Ok(())
}

/// The lines of such a table. Values of the environment may be secrets, and are not shown.
pub fn show(table: &TemplateTable) -> Vec<String> {
    let options = &table.options;
    let mut lines = vec![format!("namespaces = {}", quote_all(&table.namespaces))];
    let machine = options.machine.map(|kind| kind.to_string());
    let texts = [
        ("image", &options.image),
        ("machine", &machine),
        ("workdir", &options.workdir),
        ("user", &options.user),
        ("start", &options.start),
        ("ready", &options.ready),
    ];
    let given = texts.into_iter().filter_map(|(key, text)| Some((key, text.as_ref()?)));
    lines.extend(given.map(|(key, text)| format!("{key} = {}", quote(text))));
    lines.extend(options.memory_mib.map(|mib| format!("memory_mib = {mib}")));
    lines.extend(options.cpu_millis.map(|millis| format!("cpus = {}", show_cpus(millis))));
    lines.extend(
        options.scratch_bytes.map(|bytes| format!("scratch = {}", quote(show_size(bytes)))),
    );
    lines.extend(options.egress.iter().map(|rules| format!("egress = {}", quote_all(rules))));
    let lives = [
        ("ttl", options.ttl_ms),
        ("idle_ttl", options.idle_ttl_ms),
        ("keep_stopped", options.keep_stopped_ms),
    ];
    let given = lives.into_iter().filter_map(|(key, ms)| Some((key, Duration::from_millis(ms?))));
    lines.extend(given.map(|(key, time)| format!("{key} = {}", quote(show_duration(time)))));
    lines.extend(options.on_idle.map(|what| format!("on_idle = {}", quote(what.to_string()))));
    if !options.labels.is_empty() {
        let pairs = options.labels.iter();
        let pairs: Vec<_> =
            pairs.map(|(key, value)| format!("{} = {}", quote(key), quote(value))).collect();
        lines.push(format!("labels = {{ {} }}", pairs.join(", ")));
    }
    if !options.env.is_empty() {
        let names: Vec<_> = options.env.keys().map(String::as_str).collect();
        lines.push(format!("# env has {}", names.join(", ")));
    }
    let timeout = options.ready_timeout_ms.map(Duration::from_millis);
    lines.extend(timeout.map(|time| format!("ready_timeout = {}", quote(show_duration(time)))));
    lines.push(format!("warm = {}", options.warm));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(&str, RawValue)]) -> RawValue {
        let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        RawValue::Table(entries.collect())
    }

    fn text(text: &str) -> RawValue {
        RawValue::Text(text.to_owned())
    }

    #[test]
    fn a_template_is_read_with_its_commands_and_shown_without_values() {
        let read = read(
            "app",
            &table(&[
                ("start", text("serve \"x\"")),
                ("ready", text("curl -f localhost")),
                ("ready_timeout", text("30s")),
                ("warm", RawValue::Whole(2)),
                ("env", table(&[("TOKEN", text("hunter2"))])),
                ("labels", table(&[("team/x", text("a"))])),
                ("ttl", text("1h")),
                ("idle_ttl", text("5m")),
                ("on_idle", text("pause")),
                ("keep_stopped", text("0s")),
            ]),
        );
        let read = read.unwrap();
        assert_eq!((read.options.warm, read.options.ready_timeout_ms), (2, Some(30_000)));
        assert_eq!(read.options.env["TOKEN"], "hunter2");
        assert_eq!(read.namespaces, ["default"]);
        let lives = (read.options.ttl_ms, read.options.idle_ttl_ms, read.options.keep_stopped_ms);
        assert_eq!(lives, (Some(3_600_000), Some(300_000), Some(0)));
        let shown = show(&read).join("\n");
        for line in ["labels = { \"team/x\" = \"a\" }", "ttl = \"1h\"", "on_idle = \"pause\""] {
            assert!(shown.contains(line), "{shown}");
        }
        assert!(shown.contains("TOKEN") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn the_keys_are_what_the_table_of_options_says() {
        use sandbox::options::{Door, names_at};
        let own = ["namespaces", "start", "ready", "ready_timeout", "warm"];
        let mut keys: Vec<_> = KEYS.into_iter().filter(|key| !own.contains(key)).collect();
        let mut named: Vec<_> = names_at(Door::TemplateTable).collect();
        keys.sort_unstable();
        named.sort_unstable();
        assert_eq!(keys, named);
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for (name, given) in [
            ("<b>", table(&[])),
            ("a/b", table(&[])),
            ("app", table(&[("strat", text("x"))])),
            ("app", table(&[("warm", RawValue::Whole(33))])),
            ("app", table(&[("machine", text("vax"))])),
            ("app", table(&[("on_idle", text("sleep"))])),
            ("app", table(&[("ttl", text("0s"))])),
            ("app", text("x")),
        ] {
            assert!(read(name, &given).is_err(), "{name}: {given:?}");
        }
    }
}

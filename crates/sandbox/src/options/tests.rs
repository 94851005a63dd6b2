use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::{MachineKind, OnIdle, Preset, Spec};

/// The page in the repository, and the variable that makes the test write it instead of comparing
/// it.
const PAGE: &str = "docs/reference/options.md";
const WRITE_VARIABLE: &str = "BURROW_WRITE_OPTIONS";

const HEAD: &str = "\
# Options of a sandbox

Each option of a sandbox, and what it is called wherever somebody makes one. This page is made from the table
that the program has (`just options`); tests compare the table with every verb, API, client and configuration.

`[defaults]` of the [configuration](configuration.md) sets what nobody gives. What is written there reaches every
sandbox, of `run` and `repl` too. Its built-in limits, 512 MiB and one CPU, are only for sandboxes that are made
through the API: a person's own have none. Where a [cap](caps.md) counts something, each sandbox must have a limit
on it.
";

const OTHERS: &str = "
A template keeps options for sandboxes that are made of it later. E2B, Daytona and Jupyter are protocols of other
servers, whose words these are. A fork has the options of its original.
";

fn page() -> String {
    let mut text = HEAD.to_owned();
    let (direct, others) = Door::ALL.split_at(Door::DIRECT);
    columns(&mut text, direct);
    text.push_str(OTHERS);
    columns(&mut text, others);
    text.push_str("\n## What each is, and why a door does not have it\n");
    for option in all() {
        push(&mut text, format_args!("\n`{}`: {}\n", option.name, option.about));
        for (doors, why) in option.lacks {
            let doors: Vec<_> = doors.iter().map(|door| door.title()).collect();
            push(&mut text, format_args!("\n- not {}: {why}", doors.join(", ")));
        }
        if !option.lacks.is_empty() {
            text.push('\n');
        }
    }
    text
}

/// The table of some doors.
fn columns(text: &mut String, doors: &[Door]) {
    let titles =
        doors.iter().map(|door| format!(" {} |", door.title())).collect::<Vec<_>>().concat();
    let rules = "---|".repeat(doors.len() + 1);
    push(text, format_args!("\n| option |{titles}\n|{rules}\n"));
    for option in all() {
        let cell = |door: &Door| match option.at(*door) {
            Some(called) => format!(" `{called}` |"),
            None => " – |".to_owned(),
        };
        let cells: String = doors.iter().map(cell).collect();
        push(text, format_args!("| `{}` |{cells}\n", option.name));
    }
}

fn push(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("a string takes all");
}

#[test]
fn the_page_of_options_is_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let expected = page();
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        std::fs::write(&path, &expected).expect("the page is ours");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == expected, "{PAGE} is not what `just options` writes");
}

#[test]
fn every_row_has_every_door_once() {
    for option in all() {
        for door in Door::ALL {
            let has = option.has.iter().filter(|(own, _)| *own == door).count();
            let lacks = option.lacks.iter().flat_map(|(doors, _)| *doors);
            let lacks = lacks.filter(|own| **own == door).count();
            assert_eq!(has + lacks, 1, "{} at {door:?}", option.name);
        }
    }
}

/// The fields that a type takes, which serde lists for one that it does not know.
fn fields<T: serde::de::DeserializeOwned>() -> Vec<String> {
    let refused = serde_json::from_str::<T>(r#"{"-":1}"#).err().expect("no field is called so");
    let text = refused.to_string();
    let fields = text.split('`').skip(3).step_by(2).map(str::to_owned);
    let mut fields: Vec<_> = fields.collect();
    fields.sort();
    fields
}

#[test]
fn a_specification_has_what_the_table_says() {
    let mut named: Vec<_> = names_at(Door::Library).map(str::to_owned).collect();
    named.sort();
    let mut own = fields::<Spec>();
    // The installation of `packages` sets it; no caller does.
    own.retain(|field| !["base", "packages"].contains(&field.as_str()));
    assert_eq!(own, named);
}

#[test]
fn a_preset_has_what_the_verb_that_fills_it_has() {
    // The control socket's words for the flags.
    let with_flags = all().filter(|option| option.at(Door::Mcp).is_some());
    // Packages are no field of a specification, and have the flags' names.
    let fields_of = |option: &'static SandboxOption| {
        let names = option.at(Door::Library).or(option.at(Door::Mcp)).unwrap_or_default();
        names.split(", ").map(|name| name.trim_start_matches("--").to_owned())
    };
    let mut named: Vec<_> = with_flags.flat_map(fields_of).collect();
    named.sort();
    assert_eq!(fields::<Preset>(), named);
}

#[test]
fn a_default_reaches_what_nobody_has_set_and_nothing_else() {
    let defaults = Defaults {
        machine: MachineKind::Qemu,
        memory_mib: Some(300),
        cpu_millis: Some(700),
        ttl_ms: Some(1),
        idle_ttl_ms: Some(2),
        on_idle: Some(OnIdle::Pause),
        keep_stopped_ms: Some(3),
        durability: None,
        record: None,
    };
    let filled = |change: fn(&mut Spec)| {
        let mut spec = Spec::new("a".parse().unwrap());
        change(&mut spec);
        defaults.fill(&mut spec);
        let lives = (spec.ttl_ms, spec.idle_ttl_ms, spec.keep_stopped_ms);
        (spec.machine, spec.memory_mib, spec.cpu_millis, lives)
    };
    let lives = (Some(1), Some(2), Some(3));
    assert_eq!(filled(|_| {}), (Some(MachineKind::Qemu), Some(300), Some(700), lives));
    let own = |spec: &mut Spec| {
        spec.machine = Some(MachineKind::Process);
        (spec.memory_mib, spec.cpu_millis, spec.ttl_ms) = (Some(1), Some(2), Some(4));
    };
    let own_lives = (Some(4), Some(2), Some(3));
    assert_eq!(filled(own), (Some(MachineKind::Process), Some(1), Some(2), own_lives));
    // An option that the snapshot decides, or that no machine can do.
    let restored = |spec: &mut Spec| spec.snapshot = Some("s".parse().unwrap());
    assert_eq!(filled(restored), (None, None, None, lives));
    let external = |spec: &mut Spec| spec.machine = Some(MachineKind::External);
    assert_eq!(filled(external), (Some(MachineKind::External), None, None, lives));
}

//! Kinds of machine on the command line: help, completion and the parser, all from the table of kinds.
//! The options of a new sandbox use this.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use machine::MachineKind;

/// The variable of `--machine`, at every verb that has it.
pub const VARIABLE: &str = "BURROW_MACHINE";

/// Reads a kind by its name, and offers the names for completion.
#[derive(Clone, Copy, Debug)]
pub struct KindParser;

impl TypedValueParser for KindParser {
    type Value = MachineKind;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<MachineKind, Error> {
        let parser = |text: &str| text.parse::<MachineKind>();
        TypedValueParser::parse_ref(&parser, command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let kinds = MachineKind::ALL.map(MachineKind::profile).into_iter();
        Some(Box::new(kinds.map(|kind| PossibleValue::new(kind.name).help(kind.about))))
    }
}

/// The help of the option.
pub fn help() -> String {
    let others = MachineKind::ALL.into_iter().filter(|kind| !kind.is_started());
    let others: Vec<_> = others.map(MachineKind::name).collect();
    format!(
        "Set the machine: {}, or {} for an agent that is already running (default: {})",
        MachineKind::STARTED_NAMES.join(", "),
        others.join(", "),
        MachineKind::default(),
    )
}

//! `[namespaces.NAME]`: settings for the sandboxes of one namespace. Pure.

use super::secrets::read_namespace;
use super::shown::quote_all;
use super::value::{InvalidValue, RawValue};
use egress::Rules;
use host::similar::nearest;

/// What the sandboxes of a namespace have whose maker does not say otherwise; the rest is as in
/// `[defaults]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// The default egress rules of the namespace.
    pub egress: Option<Vec<String>>,
}

/// All keys of such a table.
const KEYS: [&str; 1] = [EGRESS];
const EGRESS: &str = "egress";

/// Reads the table of one namespace.
pub fn read(name: &str, given: &RawValue) -> Result<Namespace, InvalidValue> {
    read_namespace(name)?;
    let mut namespace = Namespace::default();
    for (key, value) in given.table()? {
        if key != EGRESS {
            let meant = nearest(key, KEYS);
            return Err(InvalidValue::Key { key: key.clone(), known: &KEYS, meant });
        }
        let inside = |wrong| InvalidValue::Inside { key: key.clone(), wrong: Box::new(wrong) };
        namespace.egress = Some(read_egress(value).map_err(inside)?);
    }
    Ok(namespace)
}

/// The lines of such a table.
pub fn show(namespace: &Namespace) -> Vec<String> {
    let egress = namespace.egress.iter();
    egress.map(|rules| format!("egress = {}", quote_all(rules))).collect()
}

/// Rules for what may be reached. `none` is written as what it means.
pub fn read_egress(given: &RawValue) -> Result<Vec<String>, InvalidValue> {
    let rules: Vec<_> = given.texts()?.into_iter().map(str::to_owned).collect();
    let is_empty = Rules::parse(&rules)?.is_empty();
    Ok(if is_empty { Vec::new() } else { rules })
}

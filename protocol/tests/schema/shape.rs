//! The shape of a message, found by asking its decoder.

use rmpv::Value;
use serde_json::{Map, Value as Json, json};

use crate::samples::Sample;

/// A name that no version will ever use.
const UNKNOWN: &str = "a field of the future";

/// A place within a message: the entries or elements on the way to it.
type Path = Vec<usize>;

/// Structs become objects, whose optional fields end in `?`; a variant with fields becomes an
/// object whose one name begins with `=`; a list becomes a list of the shapes of its elements.
pub fn describe(sample: &Sample) -> Json {
    describe_at(sample, &sample.value(), &Path::new())
}

fn describe_at(sample: &Sample, value: &Value, path: &Path) -> Json {
    match value {
        Value::Map(entries) => {
            let is_struct = ignores_unknown(sample, path);
            let mut fields = Map::new();
            for (at, (name, inner)) in entries.iter().enumerate() {
                let name = name.as_str().expect("fields have names");
                let name = match is_struct {
                    false => format!("={name}"),
                    true if is_optional(sample, path, at) => format!("{name}?"),
                    true => name.to_owned(),
                };
                fields.insert(name, describe_at(sample, inner, &step(path, at)));
            }
            Json::Object(fields)
        }
        // An id of 16 bytes.
        Value::Array(elements) if elements.len() == 16 => json!("16 bytes"),
        Value::Array(elements) => {
            let elements = elements.iter().enumerate();
            elements.map(|(at, inner)| describe_at(sample, inner, &step(path, at))).collect()
        }
        Value::Integer(number) => json!(width(number)),
        Value::Boolean(_) => json!("bool"),
        Value::String(text) => {
            let text = text.as_str().expect("texts are UTF-8");
            // Samples of meaningful words are in the schema as they are.
            json!(if text.starts_with("sample") { "text" } else { text })
        }
        Value::Binary(_) => json!("text or binary"),
        other => panic!("no sample has {other:?}"),
    }
}

/// Samples hold the largest value of each type, so that the width shows.
fn width(number: &rmpv::Integer) -> &'static str {
    match (number.as_u64(), number.as_i64()) {
        (Some(0xff), _) => "u8",
        (Some(0xffff), _) => "u16",
        (Some(0xffff_ffff), _) => "u32",
        (Some(u64::MAX), _) => "u64",
        (_, Some(value)) if value == i64::from(i32::MIN) => "i32",
        (_, Some(i64::MIN)) => "i64",
        _ => panic!("samples hold the largest value of each type, not {number}"),
    }
}

fn step(path: &Path, at: usize) -> Path {
    let mut path = path.clone();
    path.push(at);
    path
}

fn at_mut<'a>(value: &'a mut Value, path: &[usize]) -> &'a mut Value {
    let Some((first, rest)) = path.split_first() else { return value };
    match value {
        Value::Map(entries) => at_mut(&mut entries[*first].1, rest),
        Value::Array(elements) => at_mut(&mut elements[*first], rest),
        other => panic!("{other:?} has nothing in it"),
    }
}

fn entries_mut<'a>(value: &'a mut Value, path: &[usize]) -> &'a mut Vec<(Value, Value)> {
    match at_mut(value, path) {
        Value::Map(entries) => entries,
        other => panic!("{other:?} is no map"),
    }
}

fn encode(value: &Value) -> Vec<u8> {
    let mut body = Vec::new();
    rmpv::encode::write_value(&mut body, value).expect("to memory");
    body
}

fn ignores_unknown(sample: &Sample, path: &Path) -> bool {
    let mut value = sample.value();
    entries_mut(&mut value, path).push((UNKNOWN.into(), Value::Nil));
    (sample.recode)(&encode(&value)).is_ok()
}

fn is_optional(sample: &Sample, path: &Path, at: usize) -> bool {
    let mut value = sample.value();
    entries_mut(&mut value, path).remove(at);
    (sample.recode)(&encode(&value)).is_ok()
}

fn maps(value: &Value, path: &Path, found: &mut Vec<Path>) {
    match value {
        Value::Map(entries) => {
            found.push(path.clone());
            let entries = entries.iter().enumerate();
            entries.for_each(|(at, (_, inner))| maps(inner, &step(path, at), found));
        }
        Value::Array(elements) => {
            let elements = elements.iter().enumerate();
            elements.for_each(|(at, inner)| maps(inner, &step(path, at), found));
        }
        _ => {}
    }
}

/// The sample with unknown fields of all shapes in every struct, and how many structs that was.
pub fn with_unknown_fields(sample: &Sample) -> (Vec<u8>, usize) {
    let mut value = sample.value();
    let mut found = Vec::new();
    maps(&value, &Path::new(), &mut found);
    found.retain(|path| ignores_unknown(sample, path));
    for path in &found {
        let nested = Value::Map(vec![("x".into(), Value::Array(vec![Value::Nil, 7.into()]))]);
        let entries = entries_mut(&mut value, path);
        entries.push((UNKNOWN.into(), nested));
        entries.push((format!("{UNKNOWN} too").into(), Value::Binary(vec![1, 2, 3])));
    }
    (encode(&value), found.len())
}

/// The sample without its optional fields.
pub fn without_optional_fields(sample: &Sample) -> Vec<u8> {
    let mut value = sample.value();
    let mut found = Vec::new();
    maps(&value, &Path::new(), &mut found);
    // Inner maps first, from the last entry to the first, so that paths stay true.
    for path in found.iter().rev() {
        if ignores_unknown(sample, path) {
            let count = entries_mut(&mut value, path).len();
            for at in (0..count).rev() {
                if is_optional(sample, path, at) {
                    entries_mut(&mut value, path).remove(at);
                }
            }
        }
    }
    encode(&value)
}

/// Containers within containers.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Map(entries) => 1 + entries.iter().map(|(_, inner)| depth(inner)).max().unwrap_or(0),
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

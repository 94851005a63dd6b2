//! The message surface, frozen per version: a guest in a snapshot meets hosts that are years newer.
//!
//! Every message is described by its encoded sample, and by what its decoder does without each
//! field, so that the description cannot differ from the code. It is compared with
//! `protocol/schema/v1.json`. Within a version only optional fields may be added.

mod samples;
mod shape;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use protocol::frame::Kind;
use protocol::hello::VERSION_MAX;
use protocol::limits::BODY_DEPTH_MAX;
use serde_json::{Value as Json, json};

use samples::{Sample, all_samples};
use shape::{depth, describe, with_unknown_fields, without_optional_fields};

const RULES: &str = "\
A field, a word or a message that others may already send or expect must not vanish, change its \
type or its name within a version, and an old peer refuses words that it does not know. Such a \
change needs a new version: raise VERSION_MAX, freeze it beside the old one in protocol/schema/, \
and keep speaking the old one. A new *optional* field (`#[serde(default)]`), a new request, which an \
older agent answers with `unsupported`, and a new reply to a new request are fine: accept them with `BURROW_WRITE_SCHEMA=1 cargo test -p protocol --test schema`. Before the \
first release, BURROW_WRITE_SCHEMA=force accepts anything.";

#[test]
fn the_message_surface_is_the_frozen_one() {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("schema/v{VERSION_MAX}.json"));
    let now = surface();
    let wish = std::env::var("BURROW_WRITE_SCHEMA").ok();
    let frozen = match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).expect("the frozen schema is JSON"),
        Err(_) => json!({}),
    };
    let changes = Changes::between(&frozen, &now);
    if changes.lines.is_empty() {
        return;
    }
    let may_write = match wish.as_deref() {
        Some("force") => true,
        Some(_) => changes.are_compatible,
        None => false,
    };
    let diff = &changes.lines;
    assert!(may_write, "the messages differ from {}:\n\n{diff}\n{RULES}", path.display());
    let text = serde_json::to_string_pretty(&now).expect("JSON") + "\n";
    std::fs::write(&path, text).expect("the schema can be written");
    println!("wrote {}:\n\n{diff}", path.display());
}

#[test]
fn every_message_is_decoded_as_it_was_encoded() {
    for sample in all_samples() {
        let again = (sample.recode)(&sample.body);
        assert_eq!(again.as_ref(), Ok(&sample.body), "{} {}", sample.group, sample.name);
    }
}

#[test]
fn unknown_fields_are_ignored_wherever_they_stand() {
    for sample in all_samples() {
        let (richer, added) = with_unknown_fields(&sample);
        let again = (sample.recode)(&richer);
        assert_eq!(again.as_ref(), Ok(&sample.body), "{} {}", sample.group, sample.name);
        let is_word = matches!(sample.value(), rmpv::Value::String(_));
        assert!(added > 0 || is_word || sample.is_empty_variant(), "{} is a map", sample.name);
    }
}

#[test]
fn absent_optional_fields_take_their_defaults() {
    for sample in all_samples() {
        let poorer = without_optional_fields(&sample);
        let again = (sample.recode)(&poorer);
        assert!(again.is_ok(), "{} {}: {again:?}", sample.group, sample.name);
    }
}

#[test]
fn the_deepest_message_is_well_below_the_depth_limit() {
    let deepest = all_samples()
        .into_iter()
        .map(|sample| match sample.group {
            // They are in a body, an answer or an event, which is another level.
            "requests" | "replies" | "happenings" => 1 + depth(&sample.value()),
            _ => depth(&sample.value()),
        })
        .max();
    assert_eq!(deepest, Some(9), "limits.rs and PROTOCOL.md name the number");
    const { assert!(9 + 4 < BODY_DEPTH_MAX, "there is room for fields to come") };
}

/// Everything of this version that a peer can see.
fn surface() -> Json {
    let kinds: BTreeMap<String, Json> =
        Kind::ALL.into_iter().map(|kind| (kind.name().to_owned(), json!(kind as u8))).collect();
    let mut groups: BTreeMap<&str, serde_json::Map<String, Json>> = BTreeMap::new();
    for sample in all_samples() {
        let group = groups.entry(sample.group).or_default();
        let before = group.insert(sample.name.clone(), describe(&sample));
        assert!(before.is_none(), "{} {} has one sample", sample.group, sample.name);
    }
    json!({ "version": VERSION_MAX, "kinds": kinds, "messages": groups })
}

/// The differences of two surfaces, as lines for people.
struct Changes {
    lines: String,
    are_compatible: bool,
}

impl Changes {
    fn between(frozen: &Json, now: &Json) -> Self {
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        flatten(frozen, String::new(), &mut before);
        flatten(now, String::new(), &mut after);
        let mut changes = Self { lines: String::new(), are_compatible: true };
        for (path, was) in &before {
            if after.get(path) != Some(was) {
                changes.are_compatible = false;
                changes.tell('-', path, was);
            }
        }
        for (path, is) in &after {
            if before.get(path) != Some(is) {
                // Everything within a new optional field is as optional as the field.
                changes.are_compatible &= path.contains('?') || is_in_new_call(path, &before);
                changes.tell('+', path, is);
            }
        }
        changes
    }

    fn tell(&mut self, sign: char, path: &str, shape: &str) {
        writeln!(self.lines, "  {sign} {path}: {shape}").expect("to memory");
    }
}

/// Whether `path` is within a request or a reply of which nothing is frozen yet. Only a client that has asked
/// for it gets such a reply.
fn is_in_new_call(path: &str, frozen: &BTreeMap<String, String>) -> bool {
    let mut names = path.splitn(4, '.');
    let is_call = names.next() == Some("messages")
        && names.next().is_some_and(|group| group == "requests" || group == "replies");
    let Some(name) = names.next().filter(|_| is_call) else { return false };
    let end = path.find(name).map_or(path.len(), |at| at + name.len());
    let is_of_it = |known: &&String| {
        known
            .strip_prefix(&path[..end])
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    !frozen.keys().any(|known| is_of_it(&known))
}

fn flatten(json: &Json, path: String, lines: &mut BTreeMap<String, String>) {
    let mut descend = |name: &str, inner: &Json| {
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        flatten(inner, path, lines);
    };
    match json {
        Json::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(name, inner)| descend(name, inner));
        }
        Json::Array(elements) => elements.iter().for_each(|inner| descend("[]", inner)),
        leaf => {
            lines.insert(path, leaf.to_string());
        }
    }
}

#[test]
fn a_change_is_distinguished_from_an_addition() {
    let frozen = json!({ "fin": { "offset": "u64", "why?": "text" } });
    let is_compatible = |now: Json| Changes::between(&frozen, &now).are_compatible;
    assert!(is_compatible(json!({ "fin": { "offset": "u64", "why?": "text", "more?": "u8" } })));
    assert!(is_compatible(
        json!({ "fin": { "offset": "u64", "why?": "text", "more?": { "deep": "u8" } } })
    ));
    assert!(!is_compatible(json!({ "fin": { "offset": "u64", "why?": "text", "more": "u8" } })));
    assert!(!is_compatible(json!({ "fin": { "offset": "u32", "why?": "text" } })));
    assert!(!is_compatible(json!({ "fin": { "offset": "u64" } })));
    let renamed = Changes::between(&frozen, &json!({ "fin": { "at": "u64", "why?": "text" } }));
    assert_eq!(renamed.lines, "  - fin.offset: \"u64\"\n  + fin.at: \"u64\"\n");
}

#[test]
fn a_new_request_is_an_addition_and_a_new_field_of_a_known_one_is_not() {
    let of = |requests: Json, words: Json| json!({ "messages": { "requests": requests, "words": words } });
    let known = json!({ "=info": {} });
    let frozen = of(json!({ "info": known }), json!({}));
    let is_compatible = |now: Json| Changes::between(&frozen, &now).are_compatible;
    let newer = json!({ "info": known, "informed": { "=informed": { "by": "text" } } });
    assert!(is_compatible(of(newer, json!({}))));
    let richer = json!({ "info": { "=info": { "of": "text" } } });
    assert!(!is_compatible(of(richer, json!({}))));
    assert!(!is_compatible(of(json!({ "info": known }), json!({ "word": "word" }))));
}

impl Sample {
    fn value(&self) -> rmpv::Value {
        rmpv::decode::read_value(&mut &self.body[..]).expect("a sample is MessagePack")
    }

    /// A variant without fields accepts unknown ones anyway, but its tag does not.
    fn is_empty_variant(&self) -> bool {
        self.value().as_map().is_some_and(|map| map.len() == 1)
    }
}

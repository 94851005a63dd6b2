//! The schemas of tools, as the clients of models understand them: whole in themselves, without
//! references, and an optional field is one that may be left out.
//!
//! A model reads all of them before it does anything. So results are described in outline: the
//! fields of the result and their types, but not what they mean nor what is in them.

use std::sync::Arc;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// What is taken.
pub fn input<T: JsonSchema>() -> Arc<JsonObject> {
    schema::<T>(SchemaSettings::draft2020_12())
}

/// What is given back, in outline.
pub fn output<T: JsonSchema>() -> Arc<JsonObject> {
    let whole = schema::<T>(SchemaSettings::draft2020_12().for_serialize());
    let fields = whole.get("properties").and_then(Value::as_object);
    let fields = fields.into_iter().flatten();
    let fields = fields.map(|(name, schema)| (name.clone(), kind_of(schema))).collect();
    let mut outline = JsonObject::new();
    outline.insert("type".to_owned(), Value::from("object"));
    outline.insert("properties".to_owned(), Value::Object(fields));
    if let Some(required) = whole.get("required") {
        outline.insert("required".to_owned(), required.clone());
    }
    Arc::new(outline)
}

/// The type of a field, and the type of the items of a list.
fn kind_of(schema: &Value) -> Value {
    let mut kind = JsonObject::new();
    let words = schema.get("oneOf").or_else(|| schema.get("enum")).is_some();
    match schema.get("type") {
        Some(known) => drop(kind.insert("type".to_owned(), known.clone())),
        // Only words are distinguishable without a type.
        None if words => {
            let is_text = |one: &Value| one.get("type").is_none_or(|kind| kind == "string");
            let all = schema.get("oneOf").and_then(Value::as_array);
            if all.is_none_or(|all| all.iter().all(is_text)) {
                kind.insert("type".to_owned(), Value::from("string"));
            }
        }
        None => {}
    }
    if let Some(items) = schema.get("items").map(kind_of)
        && items.get("type").is_some_and(|kind| kind != "object")
    {
        kind.insert("items".to_owned(), items);
    }
    Value::Object(kind)
}

fn schema<T: JsonSchema>(settings: SchemaSettings) -> Arc<JsonObject> {
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    let Value::Object(mut schema) = schema else { return Arc::default() };
    schema.remove("title");
    // A type without fields has no `properties`.
    schema.entry("properties").or_insert_with(|| Value::Object(JsonObject::new()));
    Arc::new(schema)
}

/// Bounds of texts and lists that no sensible call meets; a call beyond one is refused with its number.
const BOUNDS: [&str; 4] = ["pattern", "minLength", "maxLength", "maxItems"];

/// Takes away what only our language says (widths of numbers, that what may be left out may also be null,
/// and that it is then empty), and what a model needs only once it is refused.
fn simplify(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // A field of such a name has an object there.
            fields.retain(|name, value| value.is_object() || !BOUNDS.contains(&name.as_str()));
            if fields.get("default").is_some_and(is_nothing) {
                fields.remove("default");
            }
            if let Some(Value::Array(words)) = fields.get_mut("enum") {
                words.retain(|word| !word.is_null());
            }
            if fields.get("format").is_some_and(Value::is_string) {
                fields.remove("format");
                // Nobody counts below nothing.
                if fields.get("minimum").is_some_and(|least| *least == 0) {
                    fields.remove("minimum");
                }
            }
            // Lines end where the source's do, which means nothing to a model.
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|one| one != "null");
                if let [one] = types.as_slice() {
                    let one = one.clone();
                    fields.insert("type".to_owned(), one);
                }
            }
            if let Some(Value::Array(any)) = fields.get_mut("anyOf") {
                any.retain(|one| one.get("type").is_none_or(|kind| kind != "null"));
                if let [Value::Object(_)] = any.as_slice()
                    && let Some(Value::Object(only)) = any.pop()
                {
                    fields.remove("anyOf");
                    for (name, value) in only {
                        fields.entry(name).or_insert(value);
                    }
                }
            }
            fields.values_mut().for_each(simplify);
            list_words(fields);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// What a field has that is left out.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Makes one `enum` of words that are listed in `oneOf`. The description of each word is added to the
/// description.
fn list_words(fields: &mut JsonObject) {
    let Some(Value::Array(all)) = fields.get("oneOf") else { return };
    let mut words = Vec::new();
    let mut about =
        fields.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    for one in all {
        if one.get("type").is_none_or(|kind| kind != "string") {
            return;
        }
        match (one.get("const"), one.get("enum").and_then(Value::as_array)) {
            (Some(word), None) => {
                words.push(word.clone());
                if let (Some(word), Some(description)) =
                    (word.as_str(), one["description"].as_str())
                {
                    about.extend([" `", word, "`: ", description]);
                }
            }
            (None, Some(listed)) => words.extend(listed.iter().cloned()),
            _ => return,
        }
    }
    fields.remove("oneOf");
    fields.insert("type".to_owned(), Value::from("string"));
    fields.insert("enum".to_owned(), Value::Array(words));
    if !about.is_empty() {
        fields.insert("description".to_owned(), Value::from(about.trim_start()));
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Inner {
        count: u64,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[schemars(length(min = 1, max = 63))]
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inner: Option<Inner>,
    }

    #[test]
    fn a_schema_has_no_references_and_no_nulls() {
        let expected = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["name"],
            "properties": {
                "name": { "type": "string" },
                "size": { "type": "integer", "maximum": 4_294_967_295_u32 },
                "inner": {
                    "type": "object",
                    "required": ["count"],
                    "properties": { "count": { "type": "integer" } }
                }
            }
        });
        let mut shown = Value::Object((*input::<Outer>()).clone());
        // Older versions say no maximum of what has a width.
        shown["properties"]["size"]["maximum"] = json!(4_294_967_295_u32);
        assert_eq!(shown, expected);
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        Plain,
        Other,
        /// With a reason.
        Special,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Worded {
        /// Which one.
        #[serde(default)]
        word: Option<Word>,
        #[serde(default)]
        list: Vec<String>,
        #[serde(default)]
        all: bool,
    }

    #[test]
    fn words_are_one_list_and_empty_defaults_are_left_out() {
        let expected = json!({
            "type": "object",
            "properties": {
                "word": {
                    "type": "string",
                    "enum": ["plain", "other", "special"],
                    "description": "Which one. `special`: With a reason."
                },
                "list": { "type": "array", "items": { "type": "string" } },
                "all": { "type": "boolean" }
            }
        });
        assert_eq!(Value::Object((*input::<Worded>()).clone()), expected);
    }

    #[test]
    fn results_are_described_in_outline() {
        let expected = json!({
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": { "type": "string" },
                "size": { "type": "integer" },
                "inner": { "type": "object" }
            }
        });
        assert_eq!(Value::Object((*output::<Outer>()).clone()), expected);
    }
}

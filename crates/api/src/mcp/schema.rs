//! The schemas of tools, as the clients of models understand them: whole in themselves, without
//! references, and an optional field is one that may be left out.

use std::sync::Arc;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// What is taken.
pub fn input<T: JsonSchema>() -> Arc<JsonObject> {
    schema::<T>(SchemaSettings::draft2020_12())
}

/// What is given back.
pub fn output<T: JsonSchema>() -> Arc<JsonObject> {
    schema::<T>(SchemaSettings::draft2020_12().for_serialize())
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
    // A type without fields says nothing of them.
    schema.entry("properties").or_insert_with(|| Value::Object(JsonObject::new()));
    Arc::new(schema)
}

/// Takes away what only our language says: widths of numbers, and that what may be left out may also
/// be null.
fn simplify(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("default").is_some_and(Value::is_null) {
                fields.remove("default");
            }
            if fields.get("format").is_some_and(Value::is_string) {
                fields.remove("format");
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
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
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
                "size": { "type": "integer", "minimum": 0, "maximum": 4_294_967_295_u32 },
                "inner": {
                    "type": "object",
                    "required": ["count"],
                    "properties": { "count": { "type": "integer", "minimum": 0 } }
                }
            }
        });
        let mut shown = Value::Object((*input::<Outer>()).clone());
        // Older versions say no maximum of what has a width.
        shown["properties"]["size"]["maximum"] = json!(4_294_967_295_u32);
        assert_eq!(shown, expected);
        let mut shown = Value::Object((*output::<Outer>()).clone());
        shown["properties"]["size"]["maximum"] = json!(4_294_967_295_u32);
        assert_eq!(shown, expected);
    }
}

//! A structure as lines that a model reads: what it says, without the quotes and brackets of JSON, which
//! its programs get beside it. Pure.

use serde_json::Value;

/// What a level of the structure is moved in by.
const INDENT: &str = "  ";

/// See the module's description.
pub fn outline(value: &Value) -> String {
    let mut lines = Vec::new();
    add(value, "", &mut lines);
    lines.join("\n")
}

fn add(value: &Value, indent: &str, lines: &mut Vec<String>) {
    match value {
        Value::Object(fields) if fields.is_empty() => lines.push(format!("{indent}none")),
        Value::Object(fields) => {
            for (name, value) in fields {
                add_field(name, value, indent, lines);
            }
        }
        Value::Array(items) => {
            for item in items {
                add_item(item, indent, lines);
            }
        }
        scalar => lines.push(format!("{indent}{}", word(scalar))),
    }
}

fn add_field(name: &str, value: &Value, indent: &str, lines: &mut Vec<String>) {
    let inner = format!("{indent}{INDENT}");
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            lines.push(format!("{indent}{name}:"));
            add(value, &inner, lines);
        }
        Value::Array(items) if items.iter().any(|item| !is_word(item)) => {
            lines.push(format!("{indent}{name}:"));
            add(value, &inner, lines);
        }
        Value::Array(items) if !items.is_empty() => {
            let words: Vec<_> = items.iter().map(word).collect();
            lines.push(format!("{indent}{name}: {}", words.join(", ")));
        }
        Value::Array(_) | Value::Object(_) => lines.push(format!("{indent}{name}: none")),
        Value::String(text) if text.contains('\n') => {
            lines.push(format!("{indent}{name}:"));
            lines.extend(text.lines().map(|line| format!("{inner}{line}")));
        }
        scalar => lines.push(format!("{indent}{name}: {}", word(scalar))),
    }
}

/// An item's first line has the mark, and the others are indented below it.
fn add_item(item: &Value, indent: &str, lines: &mut Vec<String>) {
    let (mark, first) = (format!("{indent}- "), lines.len());
    add(item, &format!("{indent}{INDENT}"), lines);
    if let Some(line) = lines.get_mut(first) {
        line.replace_range(..mark.len(), &mark);
    }
}

/// Whether a value is on its own line.
fn is_word(value: &Value) -> bool {
    match value {
        Value::Object(_) | Value::Array(_) => false,
        Value::String(text) => !text.contains('\n'),
        _ => true,
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_structure_is_lines_without_quotes_and_brackets() {
        let value = json!({
            "sandboxes": [
                { "sandbox": "a", "labels": { "team": "x" }, "ports": [80, 443] },
                { "sandbox": "b", "labels": {}, "ports": [] },
            ],
            "code": "x = 1\nx",
            "truncated": false,
        });
        let expected = "\
code:
  x = 1
  x
sandboxes:
  - labels:
      team: x
    ports: 80, 443
    sandbox: a
  - labels: none
    ports: none
    sandbox: b
truncated: false";
        let sorted = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let shown = outline(&value);
        // Fields are in the order in which they were written, or by name, as the parser was built.
        assert_eq!(sorted(&shown.replace("- ", "  ")), sorted(&expected.replace("- ", "  ")));
        assert!(!shown.contains(['"', '{', '[']), "{shown}");
    }

    #[test]
    fn an_empty_structure_is_shown_as_none() {
        assert_eq!(outline(&json!({})), "none");
        assert_eq!(outline(&json!({ "apps": [] })), "apps: none");
    }
}

//! The reference for people: the OpenAPI document as one page, which loads nothing from anywhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

const STYLE: &str = include_str!("reference/style.css");

/// The page.
pub fn page(document: &Value) -> String {
    let mut html = String::new();
    let title = text(&document["info"]["title"]);
    let version = text(&document["info"]["version"]);
    push(&mut html, format_args!("<!doctype html><html lang=en><meta charset=utf-8>"));
    push(&mut html, format_args!("<meta name=viewport content=\"width=device-width\">"));
    push(&mut html, format_args!("<title>{title} {version}</title><style>{STYLE}</style>"));
    push(&mut html, format_args!("<main><h1>{title} <small>{version}</small></h1>"));
    paragraphs(&mut html, document["info"]["description"].as_str().unwrap_or_default());
    push(
        &mut html,
        format_args!("<p>For programs: <a href=\"/openapi.json\">openapi.json</a>.</p>"),
    );
    let tags = by_tag(document);
    push(&mut html, format_args!("<nav>"));
    for tag in tags.keys() {
        push(&mut html, format_args!("<a href=\"#{tag}\">{tag}</a> "));
    }
    push(&mut html, format_args!("<a href=\"#schemas\">schemas</a></nav>"));
    for (tag, operations) in &tags {
        push(&mut html, format_args!("<h2 id=\"{tag}\">{tag}</h2>"));
        for (method, path, operation) in operations {
            describe(&mut html, method, path, operation);
        }
    }
    push(&mut html, format_args!("<h2 id=schemas>schemas</h2>"));
    let schemas = document["components"]["schemas"].as_object();
    for (name, schema) in schemas.into_iter().flatten() {
        let name = escape(name);
        let pretty = escape(&serde_json::to_string_pretty(schema).unwrap_or_default());
        push(
            &mut html,
            format_args!(
                "<details id=\"{name}\"><summary>{name}</summary><pre>{pretty}</pre></details>"
            ),
        );
    }
    push(&mut html, format_args!("</main></html>"));
    html
}

type Operations<'a> = Vec<(&'a str, &'a str, &'a Value)>;

fn by_tag(document: &Value) -> BTreeMap<String, Operations<'_>> {
    let mut tags: BTreeMap<String, Operations<'_>> = BTreeMap::new();
    for (path, methods) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let tag = text(&operation["tags"][0]);
            tags.entry(tag).or_default().push((method, path, operation));
        }
    }
    tags
}

fn describe(html: &mut String, method: &str, path: &str, operation: &Value) {
    let (id, path) = (text(&operation["operationId"]), escape(path));
    let method = method.to_ascii_uppercase();
    push(html, format_args!("<article id=\"{id}\"><h3><b>{method}</b> <code>{path}</code></h3>"));
    push(html, format_args!("<p>{}</p>", text(&operation["summary"])));
    paragraphs(html, operation["description"].as_str().unwrap_or_default());
    let parameters = operation["parameters"].as_array();
    if parameters.is_some_and(|parameters| !parameters.is_empty()) {
        push(html, format_args!("<table>"));
        for parameter in parameters.into_iter().flatten() {
            let star = if parameter["required"] == true { "*" } else { "" };
            push(
                html,
                format_args!(
                    "<tr><td><code>{}</code>{star}<td>{}<td>{}<td><code>{}</code>",
                    text(&parameter["name"]),
                    text(&parameter["in"]),
                    text(&parameter["description"]),
                    kind(&parameter["schema"]),
                ),
            );
        }
        push(html, format_args!("</table>"));
    }
    for (mime, content) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
        push(html, format_args!("<p>Takes {mime}: {}</p>", kind(&content["schema"])));
    }
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let contents = response["content"].as_object();
        let kinds: Vec<String> = contents
            .into_iter()
            .flatten()
            .map(|(mime, content)| format!("{mime}: {}", kind(&content["schema"])))
            .collect();
        let about = text(&response["description"]);
        push(html, format_args!("<p><b>{status}</b> {about} {}</p>", kinds.join(", ")));
    }
    push(html, format_args!("</article>"));
}

/// A schema in a word or two, with a link where it has a name.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        let name = escape(name);
        return format!("<a href=\"#{name}\">{name}</a>");
    }
    let mut kind = match &schema["type"] {
        Value::Array(kinds) => {
            let kinds: Vec<_> = kinds.iter().filter_map(Value::as_str).collect();
            kinds.join(" or ")
        }
        one => text(one),
    };
    for bound in ["pattern", "minimum", "maximum", "enum"] {
        if let Some(value) = schema.get(bound) {
            kind.extend([" ", bound, " ", &escape(&value.to_string())]);
        }
    }
    kind
}

/// Paragraphs with `code` in them; all the markup that the document has.
fn paragraphs(html: &mut String, source: &str) {
    for paragraph in source.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let mut marked = String::new();
        for (at, part) in escape(paragraph).replace("**", "").split('`').enumerate() {
            match at % 2 {
                0 => marked.push_str(part),
                _ => marked.extend(["<code>", part, "</code>"]),
            }
        }
        push(html, format_args!("<p>{marked}</p>"));
    }
}

fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn push(html: &mut String, part: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = html.write_fmt(part);
}

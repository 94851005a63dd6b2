//! The reference for people: the OpenAPI document as one page with a search and a form for each call.
//! It loads nothing from elsewhere, and may talk only to its own server.

use std::fmt::Write as _;

use serde_json::Value;

use super::document::OpenApi;

const STYLE: &str = include_str!("reference/style.css");
const SCRIPT: &str = include_str!("reference/page.js");
/// What the page may do, as browsers enforce it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'";

/// The page.
pub fn page(document: &OpenApi) -> String {
    let mut html = String::new();
    let title = text(&document.about["info"]["title"]);
    let version = text(&document.about["info"]["version"]);
    push(&mut html, format_args!("<!doctype html><html lang=en><meta charset=utf-8>"));
    push(&mut html, format_args!("<meta name=viewport content=\"width=device-width\">"));
    push(&mut html, format_args!("<meta http-equiv=Content-Security-Policy content=\"{POLICY}\">"));
    push(&mut html, format_args!("<title>{title} {version}</title><style>{STYLE}</style>"));
    push(&mut html, format_args!("<main><h1>{title} <small>{version}</small></h1>"));
    paragraphs(&mut html, document.about["info"]["description"].as_str().unwrap_or_default());
    push(
        &mut html,
        format_args!("<p>For programs: <a href=\"/openapi.json\">openapi.json</a>.</p>"),
    );
    push(
        &mut html,
        format_args!(
            "<header><input id=search type=search placeholder=\"Search ( / )\" \
             aria-label=Search><span id=found></span><input id=key type=password \
             autocomplete=off placeholder=\"Key for calls\" aria-label=Key></header>"
        ),
    );
    push(&mut html, format_args!("<nav>"));
    let tags: Vec<_> = document.about["tags"].as_array().into_iter().flatten().collect();
    for tag in &tags {
        let tag = text(&tag["name"]);
        push(&mut html, format_args!("<a href=\"#{tag}\">{tag}</a> "));
    }
    push(&mut html, format_args!("<a href=\"#schemas\">schemas</a></nav>"));
    for tag in tags {
        let (name, about) = (text(&tag["name"]), text(&tag["description"]));
        push(&mut html, format_args!("<section><h2 id=\"{name}\">{name}</h2><p>{about}</p>"));
        for (method, path, operation) in operations_of(document, &tag["name"]) {
            describe(&mut html, method, path, operation);
        }
        push(&mut html, format_args!("</section>"));
    }
    push(&mut html, format_args!("<h2 id=schemas>schemas</h2>"));
    for (name, schema) in &document.schemas {
        let name = escape(name);
        let pretty = escape(&serde_json::to_string_pretty(schema).unwrap_or_default());
        push(
            &mut html,
            format_args!(
                "<details id=\"{name}\"><summary>{name}</summary><pre>{pretty}</pre></details>"
            ),
        );
    }
    push(&mut html, format_args!("</main><script>{SCRIPT}</script></html>"));
    html
}

/// The operations of a tag, in their order.
fn operations_of<'a>(
    document: &'a OpenApi,
    tag: &'a Value,
) -> impl Iterator<Item = (&'a str, &'a str, &'a Value)> {
    let all = document.paths.iter().flat_map(|(path, methods)| {
        methods.iter().map(move |(method, operation)| (method.as_str(), *path, operation))
    });
    all.filter(move |(_, _, operation)| operation["tags"][0] == *tag)
}

fn describe(html: &mut String, method: &str, path: &str, operation: &Value) {
    let (id, path) = (text(&operation["operationId"]), escape(path));
    let method = method.to_ascii_uppercase();
    let words = format!("{method} {path} {id} {}", text(&operation["summary"])).to_lowercase();
    push(
        html,
        format_args!(
            "<article id=\"{id}\" data-words=\"{words}\"><h3><b>{method}</b> <code>{path}</code></h3>"
        ),
    );
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
    // Refusals all look the same, so they share a line.
    let mut refusals: Vec<(String, String)> = Vec::new();
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let (kinds, about) = (kinds_of(response), text(&response["description"]));
        if !status.starts_with(['4', '5']) {
            push(html, format_args!("<p><b>{status}</b> {about} {kinds}</p>"));
            continue;
        }
        let short = format!("<b title=\"{about}\">{status}</b> ");
        match refusals.iter_mut().find(|(known, _)| *known == kinds) {
            Some((_, statuses)) => statuses.push_str(&short),
            None => refusals.push((kinds, short)),
        }
    }
    for (kinds, statuses) in refusals {
        push(html, format_args!("<p>{statuses}{kinds}</p>"));
    }
    attempt(html, &method, &path, operation);
    push(html, format_args!("</article>"));
}

/// What an answer carries.
fn kinds_of(response: &Value) -> String {
    let contents = response["content"].as_object().into_iter().flatten();
    let kinds: Vec<_> =
        contents.map(|(mime, content)| format!("{mime}: {}", kind(&content["schema"]))).collect();
    kinds.join(", ")
}

/// The form that makes a call.
fn attempt(html: &mut String, method: &str, path: &str, operation: &Value) {
    push(
        html,
        format_args!(
            "<details><summary>Try it</summary><form data-method=\"{method}\" data-path=\"{path}\">"
        ),
    );
    let parameters = operation["parameters"].as_array();
    for parameter in parameters.into_iter().flatten() {
        let (name, place) = (text(&parameter["name"]), text(&parameter["in"]));
        let required = if parameter["required"] == true { " required" } else { "" };
        // Most sandboxes are there.
        let value = if name == "namespace" && place == "path" { "default" } else { "" };
        push(
            html,
            format_args!(
                "<p><label><code>{name}</code> <input name=\"{name}\" data-in=\"{place}\" \
                 value=\"{value}\"{required}></label>"
            ),
        );
    }
    for (mime, content) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
        let example = content.get("example").map(Value::to_string).unwrap_or_default();
        push(
            html,
            format_args!(
                "<p><textarea rows=4 data-mime=\"{}\" aria-label=Body>{}</textarea>",
                escape(mime),
                escape(&example)
            ),
        );
    }
    push(html, format_args!("<p><button>Send</button><pre></pre></form></details>"));
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

//! A recording as one HTML page that needs nothing else: the console's terminal and player, and the recording.
//!
//! What a sandbox wrote is in the page as base64 within JSON, and becomes text nodes when it is shown. The page's
//! policy lets the browser run this script and use this style alone, by their digests, and load nothing.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::recording::{Recording, Step};
use super::typing::TypedLines;
use services::timeline::{Moment, What};

macro_rules! modules {
    ($($path:literal)*) => {
        [$(($path, include_str!(concat!("../../../../console/", $path)))),*]
    };
}

/// The modules that the player is made of, each after those that it imports.
const MODULES: [(&str, &str); 9] = modules! {
    "dom.js"
    "terminal/width.js"
    "terminal/style.js"
    "terminal/parser.js"
    "terminal/screen.js"
    "terminal/keys.js"
    "terminal/view.js"
    "player.js"
    "page.js"
};
const STYLES: [&str; 2] = [
    include_str!("../../../../console/terminal.css"),
    include_str!("../../../../console/player.css"),
];

/// The whole page.
pub fn write(recording: &Recording) -> String {
    let (script, style) = (script(), STYLES.concat());
    let sum = |text: &str| STANDARD.encode(digest(&SHA256, text.as_bytes()));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        sum(&script),
        sum(&style)
    );
    let title = escaped(&recording.title);
    // Nothing in it can end the element that it is in.
    let data = data(recording).to_string().replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n<main></main>\n\
         <script type=\"application/json\" id=\"recording\">{data}</script>\n\
         <script>{script}</script>\n</body>\n</html>\n"
    )
}

fn data(recording: &Recording) -> Value {
    let (columns, rows) = recording.size;
    let mut typing = TypedLines::default();
    let mark =
        |at: u64, moment: Moment| json!({ "at": at, "mark": moment.summary(), "failed": false });
    let mut last = 0;
    let steps = recording.steps.iter().filter_map(|(at, step)| {
        let at = at.as_millis() as u64;
        last = at;
        Some(match step {
            Step::Input(typed) => {
                let mut typed = typed.clone();
                let is_line = typing.join(&mut typed);
                let what = What::Input { typed, output_offset: 0 };
                return is_line.then(|| mark(at, Moment { at_ms: 0, what }));
            }
            Step::Output { bytes, .. } => json!({ "at": at, "output": STANDARD.encode(bytes) }),
            Step::Resized(columns, rows) => json!({ "at": at, "columns": columns, "rows": rows }),
            Step::Note { text, failed } => json!({ "at": at, "note": text, "failed": failed }),
            Step::Mark { text, failed } => json!({ "at": at, "mark": text, "failed": failed }),
        })
    });
    let mut steps: Vec<_> = steps.collect();
    steps.extend(typing.rest(0).map(|moment| mark(last, moment)));
    json!({
        "title": recording.title, "command": recording.command,
        "started_at_ms": recording.started_at_ms, "columns": columns, "rows": rows,
        "steps": steps,
    })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// All modules as one script: each is a function whose result has what it exports.
fn script() -> String {
    let mut script = "\"use strict\";\nconst modules = {};\n".to_owned();
    for (path, text) in MODULES {
        let (mut body, mut exported) = (String::new(), Vec::new());
        for line in text.lines() {
            if let Some(import) = line.strip_prefix("import ") {
                let (names, from) = import.split_once(" from ").expect("modules import names");
                let import = format!("const {names} = modules[\"{}\"];\n", module_of(from));
                body.push_str(&import);
                continue;
            }
            let declared = line.strip_prefix("export ");
            if let Some(declared) = declared {
                let name = declared.split_once(' ').map_or("", |(_, name)| name);
                let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
                exported.push(&name[..end.unwrap_or(name.len())]);
            }
            body.push_str(declared.unwrap_or(line));
            body.push('\n');
        }
        let exported = exported.join(", ");
        let module = format!(
            "modules[\"{}\"] = (() => {{\n{body}return {{ {exported} }};\n}})();\n",
            module_of(path)
        );
        script.push_str(&module);
    }
    script
}

/// The name of a module, which no two of them share: its file's.
fn module_of(path: &str) -> &str {
    let path = path.trim_matches(|c| matches!(c, '"' | ';' | ' '));
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn nothing_of_a_sandbox_is_markup() {
        let attack = "</script><script>alert(1)</script><img src=x onerror=alert(1)>";
        let output = |bytes: &[u8]| Step::Output {
            channel: protocol::message::Channel::Terminal,
            bytes: bytes.to_vec(),
        };
        let recording = Recording {
            title: attack.to_owned(),
            command: attack.to_owned(),
            started_at_ms: 0,
            size: (80, 24),
            steps: vec![
                (Duration::ZERO, output(attack.as_bytes())),
                (Duration::ZERO, Step::Note { text: attack.to_owned(), failed: true }),
                (Duration::ZERO, Step::Mark { text: attack.to_owned(), failed: false }),
            ],
        };
        let page = write(&recording);
        assert_eq!(page.matches("<script").count(), 2, "the recording and the player");
        assert_eq!(page.matches("</script").count(), 2);
        assert!(!page.contains("<img"));
        let is_module = |line: &str| line.starts_with("import ") || line.starts_with("export ");
        assert!(!page.lines().any(is_module), "one script");
    }
}

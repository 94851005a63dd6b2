//! Variables that an interpreter has for one run: code that sets them before it, and code that takes them
//! back. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use agent_client::guest::contexts::language;
use sandbox::refusal::{Code, Refusal};

const PYTHON: &str = language::PYTHON.name;
const NODE: &str = language::NODE.name;

/// Code that sets variables of an interpreter's environment for one run, and code that takes it back.
pub fn of_one_run(
    language: &str,
    env: &BTreeMap<String, String>,
) -> Result<Option<(String, String)>, Refusal> {
    if env.is_empty() {
        return Ok(None);
    }
    // A string of JSON in ASCII is one of Python and of JavaScript, too.
    let quoted = ascii(&json!(env).to_string().into());
    match language {
        PYTHON => Ok(Some((
            format!(
                "import json, os\n\
                 _new = json.loads({quoted})\n\
                 os._burrow_env = {{name: os.environ.get(name) for name in _new}}\n\
                 os.environ.update(_new)\n"
            ),
            "import os\n\
             for _name, _value in os.__dict__.pop('_burrow_env', {}).items():\n    \
             os.environ.pop(_name, None) if _value is None else os.environ.update({_name: _value})\n"
                .to_owned(),
        ))),
        NODE => Ok(Some((
            format!(
                "{{ const next = JSON.parse({quoted}); const old = {{}};\n\
                 for (const name in next) {{ old[name] = process.env[name]; \
                 process.env[name] = next[name]; }}\n\
                 process._burrowEnv = old; }}"
            ),
            "{ const old = process._burrowEnv ?? {}; delete process._burrowEnv;\n\
             for (const name in old) { if (old[name] === undefined) delete process.env[name]; \
             else process.env[name] = old[name]; } }"
                .to_owned(),
        ))),
        other => {
            let message =
                format!("not supported by this server: variables of one run in {other}");
            Err(Refusal::new(Code::Unsupported, message))
        },
    }
}

fn hex_digit(number: u16) -> char {
    char::from_digit(u32::from(number & 0xF), 16).unwrap_or('0')
}

/// A value as JSON with nothing but ASCII in it.
pub fn ascii(value: &Value) -> String {
    let text = value.to_string();
    let mut ascii = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        if character.is_ascii() && character != '\u{7f}' {
            ascii.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                ascii.push_str("\\u");
                ascii.extend([12, 8, 4, 0].map(|shift| hex_digit(*unit >> shift)));
            }
        }
    }
    ascii
}

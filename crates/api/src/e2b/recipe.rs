//! The steps of an E2B template as a recipe of this server. Pure.
//!
//! Each upload is a stage of its own, in which its archive is unpacked with the bounds and checks of `ADD`; a step
//! that copies takes its files from there. Commands are lists of words, so that nothing in them is an instruction.

use serde::Deserialize;
use serde_json::{Value, json};

use sandbox::refusal::Refusal;

/// What is built, as clients write it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StartBuild {
    pub from_image: Option<String>,
    pub from_template: Option<String>,
    pub from_image_registry: Option<Value>,
    pub steps: Vec<Step>,
    pub start_cmd: Option<String>,
    pub ready_cmd: Option<String>,
    pub force: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Step {
    #[serde(rename = "type")]
    pub kind: String,
    pub args: Vec<String>,
    pub files_hash: Option<String>,
    pub force: bool,
}

/// A recipe, with the line of each step.
#[derive(Debug, PartialEq, Eq)]
pub struct Recipe {
    pub text: String,
    /// The last line of each step, in their order.
    lines: Vec<usize>,
    /// The uploads that it copies from.
    pub uploads: Vec<String>,
}

impl Recipe {
    /// The step that a line belongs to, counted from 1; `None` for the base.
    pub fn step_at(&self, line: usize) -> Option<usize> {
        let first = self.lines.first()?;
        let step = self.lines.iter().position(|last| line <= *last)?;
        (line + 1 >= *first).then_some(step + 1)
    }
}

/// The name of an upload's file in the context.
pub fn upload_file(hash: &str) -> String {
    format!("{hash}.upload")
}

/// Whether a text is a digest in hexadecimal digits, as clients name what they upload.
pub fn is_hash(text: &str) -> bool {
    text.len() == 64
        && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Writes the recipe of these steps on a base, whose programs run as `user`.
pub fn write(base: &str, user: &str, steps: &[Step]) -> Result<Recipe, Refusal> {
    let (mut head, mut body) = (Vec::new(), vec![format!("FROM {base}")]);
    let (mut uploads, mut ends): (Vec<String>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut current = user.to_owned();
    for (number, step) in steps.iter().enumerate() {
        let wrong =
            |what: &str| Refusal::invalid(format!("step {} ({}): {what}", number + 1, step.kind));
        let argument =
            |at: usize| step.args.get(at).map(String::as_str).filter(|text| !text.is_empty());
        let needed = |at: usize| argument(at).ok_or_else(|| wrong("an argument is missing"));
        match step.kind.as_str() {
            "ENV" => {
                let pairs = step.args.chunks(2).map(|pair| match pair {
                    [name, value] if is_variable(name) => {
                        Some(format!("ENV {name}={}", quoted(value)?))
                    }
                    _ => None,
                });
                let lines = pairs.collect::<Option<Vec<_>>>();
                body.extend(lines.ok_or_else(|| wrong("it needs names and values of one line"))?);
            }
            "RUN" => {
                let run = format!("RUN {}", json!(["/bin/sh", "-c", needed(0)?]));
                match argument(1).filter(|user| *user != current) {
                    Some(user) => {
                        let user =
                            checked_user(user).ok_or_else(|| wrong("its user is no user"))?;
                        body.extend([format!("USER {user}"), run, format!("USER {current}")]);
                    }
                    None => body.push(run),
                }
            }
            "WORKDIR" => {
                let to = quoted(needed(0)?).ok_or_else(|| wrong("it has more than one line"))?;
                body.push(format!("WORKDIR {to}"));
            }
            "USER" => {
                let user = checked_user(needed(0)?).ok_or_else(|| wrong("it is no user"))?;
                user.clone_into(&mut current);
                body.push(format!("USER {user}"));
            }
            "COPY" => {
                let hash = step.files_hash.as_deref().filter(|hash| is_hash(hash));
                let hash = hash.ok_or_else(|| wrong("filesHash is no digest"))?;
                if !uploads.iter().any(|known| known == hash) {
                    let file = upload_file(hash);
                    head.extend([
                        format!("FROM scratch AS u{}", uploads.len()),
                        format!("ADD {file} /"),
                    ]);
                    uploads.push(hash.to_owned());
                }
                let stage = uploads.iter().position(|known| known == hash).unwrap_or_default();
                let mut flags = format!("--from=u{stage}");
                if let Some(user) = argument(2) {
                    let user = checked_user(user).ok_or_else(|| wrong("its user is no user"))?;
                    flags = format!("{flags} --chown={user}");
                }
                if let Some(mode) = argument(3) {
                    let is_mode =
                        mode.len() <= 5 && mode.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
                    if !is_mode {
                        return Err(wrong("its mode is not octal"));
                    }
                    flags = format!("{flags} --chmod={mode}");
                }
                let source = format!("/{}", needed(0)?.trim_start_matches("./"));
                let source = if source == "/." { "/".to_owned() } else { source };
                let words = [source.as_str(), needed(1)?].map(escaped);
                body.push(format!("COPY {flags} {}", json!(words)));
            }
            _ => return Err(wrong("this server does not know steps of this type")),
        }
        ends.push(body.len());
    }
    let lines = ends.iter().map(|end| head.len() + end).collect();
    let text = head.into_iter().chain(body).fold(String::new(), |text, line| text + &line + "\n");
    Ok(Recipe { text, lines, uploads })
}

fn is_variable(name: &str) -> bool {
    let is_first = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    is_first && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A user as a recipe takes it without quotes.
fn checked_user(user: &str) -> Option<&str> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-:".contains(&byte);
    (user.bytes().all(is_good) && !user.starts_with('-')).then_some(user)
}

/// A text that means itself in a recipe; `None` for one of several lines.
fn quoted(text: &str) -> Option<String> {
    let is_line = !text.contains(['\n', '\r', '\0']);
    is_line.then(|| format!("\"{}\"", escaped(text)))
}

fn escaped(text: &str) -> String {
    let special = |c: char| matches!(c, '\\' | '"' | '$' | '\'');
    text.chars().fold(String::new(), |mut out, c| {
        // Within quotes only these are escaped.
        if special(c) && c != '\'' {
            out.push('\\');
        }
        out.push(c);
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn step(kind: &str, args: &[&str]) -> Step {
        let files_hash = (kind == "COPY").then(|| HASH.to_owned());
        let args = args.iter().map(|text| (*text).to_owned()).collect();
        Step { kind: kind.to_owned(), args, files_hash, force: false }
    }

    #[test]
    fn steps_become_instructions_that_mean_what_they_say() {
        let steps = [
            step("COPY", &["./src", "/app", "app:staff", "0755"]),
            step("ENV", &["A", "x $B \"q\" \\", "C", "1"]),
            step("RUN", &["echo one\nRUN two", "root"]),
            step("USER", &["app"]),
            step("WORKDIR", &["/srv/a b"]),
            step("RUN", &["true", ""]),
        ];
        let recipe = write("sha256:x", "7", &steps).unwrap();
        let expected = format!(
            "FROM scratch AS u0\nADD {HASH}.upload /\nFROM sha256:x\n\
             COPY --from=u0 --chown=app:staff --chmod=0755 [\"/src\",\"/app\"]\n\
             ENV A=\"x \\$B \\\"q\\\" \\\\\"\nENV C=\"1\"\n\
             USER root\nRUN [\"/bin/sh\",\"-c\",\"echo one\\nRUN two\"]\nUSER 7\n\
             USER app\nWORKDIR \"/srv/a b\"\nRUN [\"/bin/sh\",\"-c\",\"true\"]\n"
        );
        assert_eq!(recipe.text, expected);
        assert_eq!(recipe.uploads, [HASH]);
        let steps: Vec<_> = [3, 4, 5, 6, 8, 9, 10, 12].map(|line| recipe.step_at(line)).into();
        assert_eq!(steps[1..], [Some(1), Some(2), Some(2), Some(3), Some(3), Some(4), Some(6)]);
    }

    #[test]
    fn what_could_be_another_instruction_is_refused() {
        for wrong in [
            step("ENV", &["A", "1\nRUN evil"]),
            step("ENV", &["A B", "1"]),
            step("ENV", &["A"]),
            step("USER", &["a\nRUN evil"]),
            step("USER", &["a b"]),
            step("WORKDIR", &["/a\nRUN evil"]),
            step("RUN", &[]),
            step("RUN", &["true", "a\nb"]),
            step("COPY", &["a", "b", "", "0999"]),
            step("COPY", &["a"]),
            step("ONBUILD", &["RUN evil"]),
            Step { files_hash: Some("../../etc".to_owned()), ..step("COPY", &["a", "b"]) },
        ] {
            assert!(write("x", "root", std::slice::from_ref(&wrong)).is_err(), "{wrong:?}");
        }
    }
}

//! Phrases that comments, documents, help and messages avoid, because readers stumble over them. A ceiling
//! may only be lowered.

use std::fs;
use std::path::{Path, PathBuf};

use super::{is_test, root, sources};

/// A phrase in lower case, and how many lines may still have it: in quoted data, or where no plainer word is.
const PHRASES: &[(&str, usize)] = &[
    ("a box", 0),
    ("all the same", 0),
    ("anew", 0),
    ("are said", 0),
    ("are to be", 0),
    ("as it stands", 0),
    ("as whom", 0),
    ("behind its end", 0),
    ("behind the last", 0),
    ("came of it", 0),
    ("come to nothing", 0),
    ("for ever", 1),
    ("has come to", 0),
    ("has said", 0),
    ("heard", 0),
    ("in vain", 0),
    ("is none of", 0),
    ("is said", 0),
    ("is to be", 0),
    ("lets go of", 0),
    ("nobody says", 1),
    ("not any more", 0),
    ("said all", 0),
    ("sees to it", 0),
    ("shall", 0),
    ("stand still", 0),
    ("standing still", 0),
    ("stands still", 0),
    ("stands there", 0),
    ("stood still", 0),
    ("the box", 0),
    ("told", 4),
    ("unless said", 0),
    ("was said", 0),
    ("what it said", 0),
    ("whoever", 0),
    ("writes down", 0),
    ("written down", 0),
];

/// Every page that a person reads, except the decisions, which keep the words of their time.
fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut ahead =
        vec![root().join("docs"), root().join("clients/python/src"), root().join("examples")];
    let top = fs::read_dir(root()).expect("a tree").flatten().map(|entry| entry.path());
    found.extend(top.filter(|path| is_page(path)));
    while let Some(directory) = ahead.pop() {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("docs/decisions") {
                ahead.push(path);
            } else if is_page(&path) {
                found.push(path);
            }
        }
    }
    found
}

fn is_page(path: &Path) -> bool {
    // Older entries of the changelog, and the list of decisions, quote what was said then.
    !path.ends_with("CHANGELOG.md")
        && !path.ends_with("docs/SUMMARY.md")
        && path.extension().is_some_and(|extension| extension == "md" || extension == "py")
}

/// The text of a line of Rust that a person reads: a comment, the words of a function's name, or what is
/// in quotes outside of tests, without the names of values.
fn prose(line: &str, has_messages: bool) -> String {
    let line = line.trim_start();
    if line.starts_with("//") {
        return line.to_lowercase();
    }
    if let Some((_, name)) = line.split_once("fn ") {
        return name.split('(').next().unwrap_or_default().replace('_', " ");
    }
    if !has_messages {
        return String::new();
    }
    let quoted: String = line.split('"').skip(1).step_by(2).collect();
    let parts = quoted.split(['{', '}']).step_by(2);
    parts.collect::<Vec<_>>().join(" ").to_lowercase()
}

/// Whether the phrase is in the text, as words of its own.
fn has(text: &str, phrase: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(phrase).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + phrase.len()..].starts_with(is_part)
    })
}

#[test]
fn readers_find_plain_words() {
    let parts =
        ["crates", "guest-agent", "host-bridge", "protocol", "rootfs", "tests", "fuzz", "examples"];
    let mut lines = Vec::new();
    let of_rust = parts.iter().flat_map(|part| sources(&root().join(part)));
    for path in of_rust.filter(|path| !path.ends_with("tidy/phrases.rs")) {
        let text = fs::read_to_string(&path).expect("a source");
        let has_messages =
            !path.components().any(|part| part.as_os_str() == "tests") && !is_test(&path);
        let numbered = text.lines().enumerate();
        lines.extend(numbered.map(|(at, line)| (path.clone(), at + 1, prose(line, has_messages))));
    }
    for path in pages() {
        let text = fs::read_to_string(&path).expect("a page");
        let numbered = text.lines().enumerate();
        lines.extend(numbered.map(|(at, line)| (path.clone(), at + 1, line.to_lowercase())));
    }
    let mut wrong = Vec::new();
    for (phrase, ceiling) in PHRASES {
        let found: Vec<_> = lines.iter().filter(|(_, _, text)| has(text, phrase)).collect();
        if found.len() > *ceiling {
            wrong.push(format!("{phrase:?} is in {} lines, and may be in {ceiling}:", found.len()));
            let shown = found.iter().take(20);
            wrong.extend(shown.map(|(path, at, text)| format!("{}:{at}: {text}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

//! Checks the documents: every link and anchor resolves, every page is in the book, and every document that
//! a source names is there. What the pages' blocks do is checked in `pages`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Directories without documents or sources of ours.
const PASSED_OVER: &[&str] = &["target", ".git", "node_modules", "__pycache__"];
/// Files that may name documents.
const SOURCES: &[&str] =
    &["rs", "py", "js", "mjs", "sh", "toml", "service", "md", "justfile", "do"];

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_owned()
}

/// Every file of the tree, relative to it.
fn files() -> Vec<PathBuf> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).expect("a directory").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() && !PASSED_OVER.iter().any(|passed| name == *passed) {
                walk(&path, found);
            } else if kind.is_file() {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    found.sort();
    found.iter().map(|path| path.strip_prefix(root()).expect("below").to_owned()).collect()
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "md")
}

pub(super) fn pages() -> Vec<PathBuf> {
    files().into_iter().filter(|path| is_page(path)).collect()
}

pub(super) fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text without fenced blocks; with what is in backticks, because headings have that in them.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What is left when the code within lines is taken away.
fn without_code(prose: &str) -> String {
    let lines = prose.lines().map(|line| {
        let even = line.matches('`').count() % 2 == 0;
        let pieces = line.split('`').enumerate();
        let pieces_left = pieces.filter(|(at, _)| !even || at % 2 == 0).map(|(_, piece)| piece);
        pieces_left.collect::<Vec<_>>().join("")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The targets of the links of a page.
fn links(text: &str) -> Vec<String> {
    let text = without_code(&prose(text));
    let inline = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    let referred = text.lines().filter_map(|line| {
        line.strip_prefix('[')?.split_once("]: ").map(|(_, target)| target.trim())
    });
    inline.chain(referred).map(str::to_owned).collect()
}

/// The anchors of a page, as GitHub and mdBook make them of headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose(text).lines().filter(|line| line.starts_with('#')) {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let pieces_left = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let slug: String = pieces_left.map(|c| if c == ' ' { '-' } else { c }).collect();
        let taken = (0..).map(|n| if n == 0 { slug.clone() } else { format!("{slug}-{n}") });
        let free = taken.into_iter().find(|slug| !anchors.contains(slug)).expect("endless");
        anchors.insert(free);
    }
    anchors
}

/// `path` without `.` and `..`; nothing when it leads out of the tree.
fn resolved(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                clean.pop().then_some(())?;
            }
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(clean)
}

/// What is wrong with a link of a page.
fn broken(page: &Path, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.to_owned(),
        path => match resolved(&page.parent().expect("a directory").join(path)) {
            Some(target) => target,
            None => return Some("leads out of the tree".to_owned()),
        },
    };
    if !root().join(&target).exists() {
        return Some(format!("{} does not exist", target.display()));
    }
    if root().join(&target).is_dir() {
        return Some("is a directory, which has no page in the book".to_owned());
    }
    let has_anchor = anchor.is_empty() || anchors(&read(&target)).contains(anchor);
    (!has_anchor).then(|| format!("{} has no heading for #{anchor}", target.display()))
}

#[test]
fn every_relative_link_and_anchor_resolves() {
    let mut checked = 0;
    let mut wrong = Vec::new();
    for page in pages() {
        for link in links(&read(&page)) {
            checked += 1;
            if let Some(why) = broken(&page, &link) {
                wrong.push(format!("{}: {link}: {why}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 100, "only {checked} links were found, so they are not found");
}

#[test]
fn the_check_of_links_finds_broken_ones() {
    let page = Path::new("docs/SUMMARY.md");
    for link in [
        "no-such-page.md",
        "../README.md#no-such-heading",
        "../../outside.md",
        "#nothing",
        "decisions/",
    ] {
        assert!(broken(page, link).is_some(), "{link}");
    }
    assert!(broken(page, "../README.md#try-it").is_none());
    assert_eq!(links("[a](b.md) `[c](d.md)`\n```\n[e](f.md)\n```\n[g]: h.md"), ["b.md", "h.md"]);
    let repeated = anchors("# `a.b` and _c_!\n## Once\n## Once\n```\n# no heading\n```");
    assert_eq!(repeated.into_iter().collect::<Vec<_>>(), ["ab-and-_c_", "once", "once-1"]);
}

#[test]
fn every_page_of_docs_is_in_the_summary() {
    let summary = Path::new("docs/SUMMARY.md");
    let listed = links(&read(summary)).into_iter();
    let listed: BTreeSet<_> =
        listed.filter_map(|link| resolved(&Path::new("docs").join(link))).collect();
    let missing: Vec<_> = pages()
        .into_iter()
        .filter(|page| page.starts_with("docs") && page != summary && !listed.contains(page))
        .collect();
    assert!(missing.is_empty(), "not in {}: {missing:?}", summary.display());
}

#[test]
fn every_document_that_a_source_names_exists() {
    let mut named = 0;
    for file in files() {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        let end = name.rsplit('.').next().unwrap_or_default();
        if !SOURCES.contains(&end) || file.ends_with("documents.rs") {
            continue;
        }
        let text = read(&file);
        for (at, _) in text.match_indices("docs/") {
            let rest = &text[at..];
            let is_path = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
            let path = rest.split(|c| !is_path(c)).next().unwrap_or_default();
            let path = path.trim_end_matches('.');
            let is_start =
                !text[..at].ends_with(|c: char| c.is_alphanumeric() || "./-_".contains(c));
            if is_start && is_page(Path::new(path)) {
                named += 1;
                assert!(root().join(path).exists(), "{} names {path}", file.display());
            }
        }
    }
    assert!(named > 10, "only {named} were found");
}

//! Checks the documents: every link and anchor resolves, every page is in the book, every document that
//! a source names is there, and the command blocks of the first pages do what they say.
//!
//! A block is run unless the line above it is `<!-- not run: REASON -->`; such blocks are counted and
//! printed. A `text` block after a `sh` block is what it prints, with `…` for what differs each time.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use tests::own_port::OwnPort;
use tests::{Burrow, agent_path, bridge_path, have_or_skip};

/// The pages whose blocks are run, each from its top to its end in one shell. In `docs/howto` all pages are
/// looked at.
const FIRST_PAGES: [&str; 2] = ["README.md", "docs/tutorial/first-figure.md"];
const HOWTO: &str = "docs/howto";
/// The port that the pages name; each run has another.
const WRITTEN_PORT: &str = "5555";
/// How long all blocks of a page may take.
const PAGE_SECONDS_MAX: &str = "120";
/// What the shell prints before each block.
const MARK: &str = "@@ block ";
const NOT_RUN: &str = "<!-- not run: ";
const ANYTHING: char = '…';

/// Directories without documents or sources of ours.
const PASSED_OVER: &[&str] = &["target", ".git", "node_modules", "__pycache__"];
/// Files that may name documents.
const SOURCES: &[&str] =
    &["rs", "py", "js", "mjs", "sh", "toml", "service", "md", "justfile", "do"];

fn root() -> PathBuf {
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

fn pages() -> Vec<PathBuf> {
    files().into_iter().filter(|path| is_page(path)).collect()
}

fn read(path: &Path) -> String {
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
        let kept = pieces.filter(|(at, _)| !even || at % 2 == 0).map(|(_, piece)| piece);
        kept.collect::<Vec<_>>().join("")
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
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
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
    for link in ["no-such-page.md", "../README.md#no-such-heading", "../../outside.md", "#nothing"]
    {
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

/// A block of commands, and what the page says that it prints.
#[derive(Debug, Default, PartialEq, Eq)]
struct Block {
    line: usize,
    commands: String,
    not_run: Option<String>,
    printed: Vec<String>,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    let mut before = "";
    // Whether the last thing on the page was a block of commands.
    let mut follows = false;
    while let Some((at, line)) = lines.next() {
        // A block within a list is further in.
        let line = line.trim_start();
        if let Some(language) = line.strip_prefix("```") {
            let body = lines.by_ref().take_while(|(_, line)| line.trim_start() != "```");
            let body: Vec<_> = body.map(|(_, line)| line).collect();
            if language == "sh" {
                let not_run = before.strip_prefix(NOT_RUN).map(|reason| {
                    reason.strip_suffix(" -->").expect("the comment ends").to_owned()
                });
                let commands = body.join("\n");
                blocks.push(Block { line: at + 1, commands, not_run, printed: Vec::new() });
            } else if language == "text" && follows {
                let block = blocks.last_mut().expect("one is before");
                block.printed = body.into_iter().map(str::to_owned).collect();
            }
            follows = language == "sh";
        } else if !line.trim().is_empty() {
            follows = false;
        }
        before = line;
    }
    blocks
}

/// Whether `line` is what `written` says, in which `…` is anything.
fn is_like(line: &str, written: &str) -> bool {
    let mut pieces = written.split(ANYTHING);
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let pieces: Vec<_> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// One shell that runs the blocks of a page as they would be pasted, and ends what it has left running.
fn script(blocks: &[&Block], port: u16) -> String {
    let mut script =
        "set -eo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n".to_owned();
    for block in blocks {
        let commands = block.commands.replace(WRITTEN_PORT, &port.to_string());
        script.extend([&*format!("echo '{MARK}{}'\n", block.line), &commands, "\n"]);
    }
    script + "exit 0\n"
}

/// Whether there is what the pages ask for; a test without says that it is skipped.
fn have_all() -> bool {
    ["bash", "curl", "python3"].into_iter().all(have_or_skip)
}

/// Runs the blocks of a page in a directory that looks like a clone after `./do build`. Returns how many
/// that were; nothing when the test is skipped.
#[expect(
    clippy::print_stdout,
    reason = "whoever reads the test's output sees what is not run, and why"
)]
fn run_page(page: &str) -> Option<usize> {
    if !have_all() {
        return None;
    }
    let blocks = blocks(&read(Path::new(page)));
    for block in blocks.iter().filter(|block| block.not_run.is_some()) {
        println!(
            "not run: {page}:{}: {}",
            block.line,
            block.not_run.as_deref().unwrap_or_default()
        );
    }
    let run: Vec<_> = blocks.iter().filter(|block| block.not_run.is_none()).collect();
    println!("{page}: {} blocks run, {} not", run.len(), blocks.len() - run.len());
    if run.is_empty() {
        return Some(0);
    }

    let burrow = Burrow::new();
    let port = OwnPort::claim();
    let (clone, home) = (burrow.scratch().join("clone"), burrow.scratch().join("home"));
    for dir in [&clone.join("target/release"), &home] {
        fs::create_dir_all(dir).expect("a directory");
    }
    symlink(bridge_path(), clone.join("target/release/host-bridge")).expect("a link");
    for part in ["examples", "clients"] {
        symlink(root().join(part), clone.join(part)).expect("a link");
    }
    // The first pages say how the program comes onto the path; the others assume it.
    let search = std::env::var("PATH").expect("a path");
    let search = if page.starts_with(HOWTO) {
        format!("{}:{search}", clone.join("target/release").display())
    } else {
        search
    };
    let output = Command::new("timeout")
        .args(["--kill-after=10", PAGE_SECONDS_MAX, "bash", "-c", "exec 2>&1; eval \"$SCRIPT\""])
        .env("SCRIPT", script(&run, port.number()))
        .current_dir(&clone)
        .env("HOME", &home)
        .env("PATH", search)
        .env("BURROW_RUNTIME_DIR", burrow.runtime())
        .env("BURROW_STATE_DIR", burrow.state())
        .env("BURROW_AGENT", agent_path())
        .env("BURROW_SERVER_LISTEN", format!("127.0.0.1:{}", port.number()))
        .env("BURROW_URL", format!("http://127.0.0.1:{}", port.number()))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("bash runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = fs::read_to_string(clone.join("serve.log")).unwrap_or_default();
    assert!(output.status.success(), "{page}: {}\n{said}\n{log}", output.status);
    for block in &run {
        let mark = format!("{MARK}{}\n", block.line);
        let own = said.split(&mark).nth(1).expect("the block began");
        let mut lines = own.split(MARK).next().unwrap_or_default().lines();
        for written in &block.printed {
            let found = lines.any(|line| is_like(line, written));
            assert!(found, "{page}:{}: {written:?} is not printed\n{said}", block.line);
        }
    }
    Some(run.len())
}

#[test]
fn the_commands_of_the_readme_work_in_their_order() {
    assert_ne!(run_page(FIRST_PAGES[0]), Some(0), "no block is run");
}

#[test]
fn the_commands_of_the_tutorial_work_in_their_order_and_print_what_it_says() {
    assert_ne!(run_page(FIRST_PAGES[1]), Some(0), "no block is run");
}

#[test]
fn the_commands_of_the_how_to_pages_work_in_their_order() {
    let pages = pages().into_iter().filter(|page| page.starts_with(HOWTO));
    let counts: Option<Vec<_>> =
        pages.map(|page| run_page(page.to_str().expect("UTF-8"))).collect();
    assert!(counts.is_none_or(|counts| counts.iter().sum::<usize>() > 0), "no block is run");
}

#[test]
fn blocks_are_read_as_they_are_written() {
    let text = "a\n```sh\nb\nc\n```\n```text\nd …\n```\n<!-- not run: e -->\n```sh\nf\n```\nx\n```text\ng\n```\n";
    let [first, second] = &blocks(text)[..] else { panic!("two blocks") };
    assert_eq!((first.line, first.commands.as_str(), &first.not_run), (2, "b\nc", &None));
    assert_eq!(first.printed, ["d …"]);
    assert_eq!((second.not_run.as_deref(), second.printed.len()), (Some("e"), 0));
    for (line, written, like) in [
        ("abc", "abc", true),
        ("abcd", "abc", false),
        ("abcd", "ab…", true),
        ("abcd", "a…c…", true),
        ("abcd", "…b…d", true),
        ("abcd", "…x…", false),
        ("xab", "ab…", false),
    ] {
        assert_eq!(is_like(line, written), like, "{line} {written}");
    }
}

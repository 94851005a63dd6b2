//! The rules of the tree that no compiler checks: imports, `unsafe`, the openings of files.

mod circles;
mod doors;
mod openings;
mod phrases;

use std::fs;
use std::path::{Path, PathBuf};

use agent_client::guest::contexts::language;
use machine::MachineKind;

/// A part, and the parts of its own crate that it may use.
type Row = (String, Vec<String>);

/// The rows of the table of ARCHITECTURE.md whose first line begins like this.
fn rows_of(head: &str) -> Vec<Row> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let table = text.lines().skip_while(|line| !line.starts_with(head));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = |cell: &str| cell.trim_matches('`').to_owned();
        let imports = cells[3].split(", ").filter(|cell| *cell != "–").map(name).collect();
        (name(cells[1]), imports)
    };
    table.skip(2).take_while(|line| line.starts_with("| ")).map(row).collect()
}

fn parts_of_the_agent() -> Vec<Row> {
    let rows = rows_of("| inside the agent | owns | may import |");
    assert!(rows.len() > 20, "the table of the agent's parts is found");
    rows
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_owned()
}

/// Every Rust file below `dir`.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
}

/// The first component of `path` below `src`, without its ending.
fn part(path: &Path, src: &Path) -> String {
    let below = path.strip_prefix(src).expect("below src");
    let first = below.components().next().expect("a file").as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// The modules of its own crate that a text names, outside of comments.
fn named(text: &str) -> Vec<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut parts = Vec::new();
    for line in code {
        for (at, _) in line.match_indices("crate::") {
            let rest = &line[at + "crate::".len()..];
            let names: Vec<&str> = match rest.strip_prefix('{') {
                Some(several) => several.split(", ").collect(),
                None => vec![rest],
            };
            for name in names {
                let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
                parts.push(name[..end.unwrap_or(name.len())].to_owned());
            }
        }
    }
    parts
}

fn check_imports(crate_dir: &str, table: &[Row]) {
    let src = root().join(crate_dir).join("src");
    for path in sources(&src).into_iter().filter(|path| !is_test(path)) {
        let own = part(&path, &src);
        let Some((_, allowed)) = table.iter().find(|(name, _)| *name == own) else {
            assert!(own == "main" || own == "lib", "{} belongs to no row", path.display());
            continue;
        };
        for other in named(&fs::read_to_string(&path).expect("a source")) {
            let known = table.iter().any(|(name, _)| *name == other);
            let fine = !known || other == own || allowed.contains(&other);
            assert!(fine, "{} uses {other}, which {own} may not", path.display());
        }
    }
}

#[test]
fn the_agents_parts_use_only_what_they_may() {
    check_imports("guest-agent", &parts_of_the_agent());
}

#[test]
fn the_agents_parts_use_only_parts_above_them() {
    let rows = parts_of_the_agent();
    for (row, (own, allowed)) in rows.iter().enumerate() {
        for other in allowed {
            let is_above = rows[..row].iter().any(|(name, _)| name == other);
            assert!(is_above, "{own} uses {other}, which is not above it");
        }
    }
}

/// The crates, and what each may import.
fn rows_of_crates() -> Vec<Row> {
    rows_of("| crate | owns | may import |")
}

/// The crates of this workspace that a `Cargo.toml` names as dependencies, those of tests aside.
fn imported_crates(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.join("Cargo.toml")).expect("a manifest");
    let section = text.split("[dependencies]").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    let name = |line: &str| line.split(['.', ' ']).next().unwrap_or_default().to_owned();
    let is_ours = |name: &String| {
        name == "protocol" || name == "rootfs" || root().join("crates").join(name).is_dir()
    };
    section.lines().map(name).filter(|name| !name.is_empty()).filter(is_ours).collect()
}

#[test]
fn each_crate_imports_what_its_row_in_the_architecture_says() {
    let rows = rows_of_crates();
    let mut crates: Vec<String> = fs::read_dir(root().join("crates"))
        .expect("the crates")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    crates.sort();
    let mut listed: Vec<String> = rows.iter().map(|(name, _)| name.clone()).collect();
    listed.sort();
    assert_eq!(crates, listed, "ARCHITECTURE.md has a row for each crate");
    for (name, allowed) in &rows {
        let mut allowed = allowed.clone();
        let mut imported = imported_crates(&root().join("crates").join(name));
        allowed.sort();
        imported.sort();
        assert_eq!(imported, allowed, "what {name} imports, and its row");
    }
}

#[test]
fn each_crate_imports_only_crates_above_it() {
    let rows = rows_of_crates();
    assert!(rows.len() > 10, "the table of crates is found");
    for (at, (name, allowed)) in rows.iter().enumerate() {
        for other in
            allowed.iter().filter(|other| !["protocol", "rootfs"].contains(&other.as_str()))
        {
            let is_above = rows[..at].iter().any(|(above, _)| above == other);
            assert!(is_above, "{name} imports {other}, which is not above it");
        }
    }
}

#[test]
fn a_crate_uses_every_crate_that_it_imports() {
    for (name, allowed) in rows_of_crates() {
        let dir = root().join("crates").join(&name);
        let texts: Vec<String> = sources(&dir.join("src"))
            .iter()
            .map(|path| fs::read_to_string(path).expect("a source"))
            .collect();
        for other in allowed {
            let path = format!("{}::", other.replace('-', "_"));
            assert!(texts.iter().any(|text| text.contains(&path)), "{name} does not use {other}");
        }
    }
}

/// Circles that stay, each for its reason.
const CIRCLES: &[(&str, &str)] = &[
    // A message names its answers and an answer its requests: they are one vocabulary.
    ("protocol", "exit fault hello message repl requests"),
];

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut dirs: Vec<String> =
        ["protocol", "guest-agent", "rootfs", "host-bridge"].map(str::to_owned).to_vec();
    dirs.extend(rows_of_crates().into_iter().map(|(name, _)| format!("crates/{name}")));
    let mut found = Vec::new();
    for dir in &dirs {
        for circle in circles::circles(&root().join(dir).join("src")) {
            found.push((dir.as_str(), circle.join(" ")));
        }
    }
    let stays = |(dir, circle): &(&str, String)| CIRCLES.contains(&(*dir, circle.as_str()));
    let known = found.iter().filter(|one| stays(one)).count();
    found.retain(|one| !stays(one));
    assert!(found.is_empty(), "files import each other in a circle: {found:#?}");
    assert_eq!(known, CIRCLES.len(), "a circle that is gone needs no row");
}

#[test]
fn every_crate_of_the_bridge_forbids_unsafe_and_says_what_it_owns() {
    for (name, _) in rows_of_crates() {
        let text = fs::read_to_string(root().join("crates").join(&name).join("src/lib.rs"));
        let text = text.expect("a library");
        assert!(text.starts_with("//!"), "{name} has no face");
        assert!(text.contains("#![forbid(unsafe_code)]"), "{name} must forbid unsafe");
    }
}

#[test]
fn unsafe_stays_where_it_is_reviewed() {
    for dir in ["protocol/src", "host-bridge/src", "guest-agent/src", "crates"] {
        for path in sources(&root().join(dir)) {
            let text = fs::read_to_string(&path).expect("a source");
            let has_unsafe = text.lines().any(|line| {
                let line = line.trim_start();
                let marks = ["unsafe {", "unsafe fn", "unsafe extern"];
                !line.starts_with("//") && marks.iter().any(|mark| line.contains(mark))
            });
            let reviewed = ["guest-agent/src/sys", "host-bridge/src/memory.rs"];
            let may = reviewed.iter().any(|place| path.starts_with(root().join(place)));
            assert!(may || !has_unsafe, "{} has unsafe", path.display());
        }
    }
    for lib in ["protocol/src/lib.rs", "host-bridge/src/lib.rs"] {
        let text = fs::read_to_string(root().join(lib)).expect("a source");
        assert!(text.contains("#![forbid(unsafe_code)]"), "{lib} must forbid unsafe");
    }
}

#[test]
fn every_file_says_what_it_is_and_stays_readable() {
    const LINES_MAX: usize = 600;
    for dir in ["protocol/src", "host-bridge/src", "guest-agent/src", "crates", "tests"] {
        for path in sources(&root().join(dir)) {
            let text = fs::read_to_string(&path).expect("a source");
            // Unit tests belong to the file that they sit beside.
            let unit_tests = is_test(&path) && !path.starts_with(root().join("tests"));
            assert!(unit_tests || text.starts_with("//!"), "{} has no `//!`", path.display());
            let lines = text.lines().count();
            assert!(is_test(&path) || lines <= LINES_MAX, "{}: {lines} lines", path.display());
        }
    }
}

/// Whether a line of Rust calls a function that sleeps.
fn sleeps(line: &str) -> bool {
    let code = line.trim_start();
    !code.starts_with("//") && (code.starts_with("sleep(") || code.contains("::sleep("))
}

/// Whether the sleep is the pause of a loop that gives up: a comparison with a deadline is just above.
fn polls_with_a_deadline(above: &[&str]) -> bool {
    const LINES_MAX: usize = 6;
    let near = &above[above.len().saturating_sub(LINES_MAX)..];
    near.iter().any(|line| line.contains("Instant::now() < ") || line.contains(".elapsed() < "))
}

#[test]
fn every_sleep_of_a_test_polls_with_a_deadline_or_says_why_it_waits() {
    let mut bare = Vec::new();
    let mut seen = 0;
    for dir in ["tests", "host-bridge/tests"] {
        for path in sources(&root().join(dir)).into_iter().filter(|path| !path.ends_with(file!())) {
            let text = fs::read_to_string(&path).expect("a source");
            let lines: Vec<&str> = text.lines().collect();
            for (at, _) in lines.iter().enumerate().filter(|(_, line)| sleeps(line)) {
                seen += 1;
                let above = &lines[..at];
                let says_why = above.last().is_some_and(|line| line.trim_start().starts_with("//"));
                if !says_why && !polls_with_a_deadline(above) {
                    bare.push(format!("{}:{}", path.display(), at + 1));
                }
            }
        }
    }
    assert!(bare.is_empty(), "poll with a deadline, or say above why time must pass: {bare:#?}");
    assert!(seen > 0, "no sleep was found in the tests: this test looks for the wrong words");
}

#[test]
fn the_protocol_does_no_input_or_output() {
    const FORBIDDEN: [&str; 7] = [
        "std::fs",
        "std::net",
        "std::time::Instant",
        "SystemTime",
        "std::process",
        "tokio",
        "nix::",
    ];
    let src = root().join("protocol/src");
    for path in sources(&src).into_iter().filter(|path| !is_test(path)) {
        let text = fs::read_to_string(&path).expect("a source");
        for word in FORBIDDEN {
            assert!(!text.contains(word), "{} uses {word}", path.display());
        }
    }
}

#[test]
fn the_readme_and_ci_run_the_same() {
    let readme = fs::read_to_string(root().join("README.md")).expect("a README");
    let ci = fs::read_to_string(root().join(".ci/run")).expect("a CI script");
    assert!(readme.contains("./do ci") && ci.contains("./do ci"));
}

/// A file that may name what otherwise stands in one table, and the reason.
type Exception = (&'static str, &'static str);

/// Files of the bridge that name a language.
const NAME_LANGUAGES: &[Exception] = &[
    ("crates/agent-client/src/guest/contexts/language.rs", "it is the table"),
    ("crates/api/src/a2a.rs", "a call of that protocol runs Python; these are its programs"),
    ("crates/sandbox/src/image.rs", "names of images of the kit"),
    ("crates/sandbox/src/host_packages.rs", "directories of packages"),
    ("crates/api/src/document.rs", "a host of a fleet"),
    ("crates/api/src/forward.rs", "a host of a fleet"),
    ("crates/api/src/mcp/carried.rs", "a host of a fleet"),
    ("crates/api/src/mcp/tools/sandboxes.rs", "a host of a fleet"),
    ("crates/api/src/rpc/start.rs", "a host of a fleet"),
    ("crates/node/src/placing.rs", "a label of each host of a fleet"),
    ("crates/api/src/sessions/lost.rs", "a host of a fleet"),
    ("crates/api/src/lost.rs", "a host of a fleet"),
    ("crates/api/src/whereabouts.rs", "a host of a fleet"),
    ("crates/api/src/v1/nodes.rs", "a host of a fleet"),
    ("crates/control/src/message/about.rs", "a host of a fleet"),
    ("crates/settings/src/table/fleet.rs", "a host of a fleet"),
    ("crates/ssh/src/trail.rs", "a host of a fleet"),
    ("crates/services/src/build/packages.rs", "the interpreter of each package manager"),
    ("crates/services/src/refusal.rs", "a detail of a refusal, with the path of an interpreter"),
    ("crates/settings/src/defaults.rs", "names of images"),
];

/// Files of the bridge that name a kind of machine.
const NAME_MACHINES: &[Exception] = &[
    ("crates/machine/src/kind/table.rs", "it is the table"),
    ("crates/machine/src/qemu.rs", "a label of doctor"),
    ("crates/machine/src/firecracker.rs", "a label of doctor, and the name of a program"),
    ("crates/machine/src/cloud_hypervisor.rs", "a label of doctor, and the name of a program"),
];

/// Texts that tell people or agents which languages there are.
const SHOW_LANGUAGES: &[&str] = &[
    "console/views/contexts.js",
    "crates/api/src/mcp/instructions.md",
    "crates/api/src/mcp/tools/code.rs",
    "crates/api/src/rpc/about.md",
    "crates/api/src/v1/contexts.rs",
    "crates/api/src/v1/runs/ask.rs",
    "docs/howto/jupyter.md",
    "docs/reference/drivers.md",
    "docs/reference/mcp.md",
];

/// Checks that each of these texts names all of a table.
fn check_shown(names: &[&str], texts: &[&str]) {
    for path in texts {
        let text = fs::read_to_string(root().join(path)).expect("a text").to_lowercase();
        let missing: Vec<_> = names.iter().filter(|name| !text.contains(**name)).collect();
        assert!(missing.is_empty(), "{path} does not name {missing:?}");
    }
}

/// Checks that no file of the bridge has one of these words as a literal, except where it may, and
/// that each exception is still needed.
fn check_words<'a>(words: impl Iterator<Item = &'a str>, exceptions: &[Exception]) {
    let literals: Vec<_> = words.map(|word| format!("\"{word}\"")).collect();
    let mut needed = Vec::new();
    for dir in ["crates", "host-bridge/src"] {
        for path in sources(&root().join(dir)).into_iter().filter(|path| !is_test(path)) {
            let text = fs::read_to_string(&path).expect("a source");
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let mut lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            let Some(line) = lines.find(|line| literals.iter().any(|word| line.contains(word)))
            else {
                continue;
            };
            let name = path.strip_prefix(root()).expect("below the root").display().to_string();
            let is_listed = exceptions.iter().any(|(file, _)| *file == name);
            assert!(is_listed, "{name} names what belongs into its table: {}", line.trim());
            needed.push(name);
        }
    }
    for (file, reason) in exceptions {
        assert!(needed.iter().any(|name| name == file), "{file} ({reason}) is no exception");
    }
}

#[test]
fn only_the_table_of_languages_names_a_language() {
    check_words(language::names(), NAME_LANGUAGES);
}

#[test]
fn only_the_table_of_machines_names_a_kind() {
    // The other two are words of much else.
    let names = MachineKind::NAMES.into_iter();
    check_words(names.filter(|name| !["process", "external"].contains(name)), NAME_MACHINES);
}

#[test]
fn what_people_and_agents_read_names_each_language() {
    check_shown(&language::names().collect::<Vec<_>>(), SHOW_LANGUAGES);
}

#[test]
fn the_console_offers_each_kind_of_machine_that_the_bridge_starts() {
    check_shown(&MachineKind::STARTED_NAMES, &["console/views/sandboxes.js"]);
}

//! The borders inside the doors: the parts of `api` by their table in ARCHITECTURE.md, and how little the
//! daemon knows of the requests on its socket.

use std::collections::BTreeSet;
use std::fs;

use super::{circles, is_test, root, sources};

/// A row of the table of the parts of `api`: its name, its parts, and the rows that it may import.
struct Layer {
    name: String,
    parts: Vec<String>,
    imports: Vec<String>,
}

fn layers_of_api() -> Vec<Layer> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let table = text.lines().skip_while(|line| !line.starts_with("| inside `api` |"));
    let rows = table.skip(2).take_while(|line| line.starts_with("| "));
    let list = |cell: &str| {
        let names = cell.split(", ").filter(|name| *name != "–");
        names.map(|name| name.trim_matches('`').to_owned()).collect()
    };
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        Layer { name: cells[1].to_owned(), parts: list(cells[2]), imports: list(cells[4]) }
    };
    rows.map(row).collect()
}

#[test]
fn the_parts_of_the_api_import_what_their_row_in_the_architecture_says() {
    let layers = layers_of_api();
    assert!(layers.len() > 4, "the table of the parts of api is found");
    let layer_of =
        |part: &str| layers.iter().find(|layer| layer.parts.iter().any(|one| one == part));
    let imports = circles::imports(&root().join("crates/api/src"));
    let mut used = BTreeSet::new();
    for (module, others) in &imports {
        let Some(part) = module.first() else { continue };
        let own = layer_of(part).unwrap_or_else(|| panic!("{part} is in no row"));
        for other in others.iter().filter_map(|other| other.first()) {
            let layer = layer_of(other).unwrap_or_else(|| panic!("{other} is in no row"));
            let is_allowed = layer.name == own.name || own.imports.contains(&layer.name);
            assert!(is_allowed, "{} uses {other}, which {:?} may not", module.join("/"), own.name);
            used.insert((own.name.as_str(), layer.name.as_str()));
        }
    }
    for (at, layer) in layers.iter().enumerate() {
        for part in &layer.parts {
            assert!(imports.keys().any(|module| module[..] == [part.clone()]), "api has no {part}");
        }
        for other in &layer.imports {
            let is_above = layers[..at].iter().any(|above| above.name == *other);
            assert!(is_above, "{:?} uses {other:?}, which is not above it", layer.name);
            let is_used = used.contains(&(layer.name.as_str(), other.as_str()));
            assert!(is_used, "{:?} uses nothing of {other:?}", layer.name);
        }
    }
}

/// The doors of `api`, which take nothing from each other, and what they share, which knows no door and
/// no answer of HTTP.
const APART_IN_API: &[(&str, &[&str])] = &[
    ("mcp", &["v1", "a2a", "rpc"]),
    ("a2a", &["v1", "mcp", "rpc"]),
    ("rpc", &["v1", "mcp", "a2a"]),
    ("v1", &["mcp", "a2a", "rpc"]),
    ("jupyter", &["v1", "mcp", "a2a", "rpc", "e2b", "daytona", "msb"]),
    ("e2b", &["v1", "mcp", "a2a", "rpc", "daytona", "msb", "jupyter"]),
    ("daytona", &["v1", "mcp", "a2a", "rpc", "e2b", "msb", "jupyter"]),
    ("msb", &["v1", "mcp", "a2a", "rpc", "e2b", "daytona", "jupyter"]),
    ("forms", &["v1", "mcp", "a2a", "rpc", "problem"]),
    ("creation", &["v1", "mcp", "a2a", "rpc", "problem"]),
    ("images", &["v1", "mcp", "a2a", "rpc", "problem"]),
    ("refusal", &["v1", "mcp", "a2a", "rpc", "problem"]),
];

#[test]
fn the_doors_of_the_api_take_nothing_from_each_other() {
    let imports = circles::imports(&root().join("crates/api/src"));
    let mut found = Vec::new();
    for (part, apart) in APART_IN_API {
        assert!(imports.keys().any(|module| module[..] == [*part]), "api has no part {part}");
        for (module, others) in &imports {
            if module.first().is_some_and(|first| first == part) {
                let wrong = others.iter().filter(|other| {
                    other.first().is_some_and(|first| apart.contains(&first.as_str()))
                });
                let row =
                    |other: &Vec<String>| format!("{} uses {}", module.join("/"), other.join("/"));
                found.extend(wrong.map(row));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn only_the_native_api_speaks_of_its_paths() {
    for door in ["mcp", "rpc", "forms", "creation.rs", "images.rs", "refusal.rs", "call.rs"] {
        let path = root().join("crates/api/src").join(door);
        let files = if path.is_dir() { sources(&path) } else { vec![path] };
        for file in files.into_iter().filter(|file| !is_test(file)) {
            let text = fs::read_to_string(&file).expect("a source");
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let mut lines = code.lines().filter(|line| !line.trim_start().starts_with("//!"));
            let wrong = lines.find(|line| line.contains("\"/v1") || line.contains(" /v1"));
            assert!(wrong.is_none(), "{} speaks of HTTP: {wrong:?}", file.display());
        }
    }
}

/// The requests and replies that the daemon names: of the connection, and of itself.
const OWN_OF_DAEMON: &[&str] = &[
    "Ending",
    "End",
    "ExportSnapshot",
    "Exported",
    "ImportSnapshot",
    "Importing",
    "Mcp",
    "Sandbox",
    "Snapshot",
    "Version",
    "Work",
];

#[test]
fn a_request_that_is_added_does_not_touch_the_daemon() {
    let src = root().join("crates/daemon/src");
    let mut named = BTreeSet::new();
    for path in sources(&src).into_iter().filter(|path| !is_test(path)) {
        let text = fs::read_to_string(&path).expect("a source");
        for message in ["Request::", "Reply::", "AppOrder::"] {
            for rest in text.split(message).skip(1) {
                let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
                // `ErrorReply::new` is no message.
                if rest.starts_with(char::is_uppercase) {
                    named.insert(rest[..end].to_owned());
                }
            }
        }
    }
    let own: BTreeSet<String> = OWN_OF_DAEMON.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(named, own, "the rows of a request are in crates/control/src/message");
}

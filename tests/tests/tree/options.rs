//! What the Python client takes for a new sandbox is what the table of options says.

use std::fs;
use std::path::Path;

use sandbox::options::{Door, names_at};

/// The words of a piece of Python between two marks, one line each.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("no {from:?}")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("no {to:?}")).0
}

/// The names that have a type, at one depth of indentation.
fn typed(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim);
    lines
        .filter_map(|line| line.split_once(": ").map(|(name, _)| name))
        .filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !name.is_empty())
}

#[test]
fn the_python_client_has_the_options_that_the_table_says() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/python/src/burrow");
    let surface = fs::read_to_string(source.join("surface.py")).unwrap();
    let client = fs::read_to_string(source.join("client.py")).unwrap();
    let spec = between(&surface, "class SandboxSpec:", "\nclass ");
    let create = between(&client, "async def create(", ") -> Sandbox:");
    let own = typed(create).filter(|name| !["spec", "idempotency_key"].contains(name));
    let mut taken: Vec<_> = typed(spec).chain(own).collect();
    // That call makes a sandbox of a snapshot, which `create` does not.
    taken.extend(client.contains("async def restore(").then_some("restore"));
    let mut named: Vec<_> = names_at(Door::Python).collect();
    taken.sort_unstable();
    named.sort_unstable();
    assert_eq!(taken, named);
}

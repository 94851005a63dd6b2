//! Checks that each test that SECURITY.md names exists.

use std::fs;
use std::path::{Path, PathBuf};

const PAGES: [&str; 2] = ["SECURITY.md", "docs/explanation/cve-classes.md"];
/// Fewer rows would mean that the tables were not found.
const ROWS_MIN: usize = 60;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_owned()
}

/// The last cells of the rows of all tables whose last column is the test.
fn cells(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_table = false;
    for line in page.lines() {
        let Some(row) = line.strip_prefix('|') else {
            in_table = false;
            continue;
        };
        let last = row.trim_end_matches('|').rsplit(" | ").next().unwrap_or_default().trim();
        if in_table && !row.starts_with("---") {
            found.push(last);
        }
        in_table |= last == "test";
    }
    found
}

/// Where a name's first part may lie: a group of tests, or a crate.
fn bases(first: &str) -> Vec<PathBuf> {
    let name = first.replace('_', "-");
    let places =
        [format!("tests/tests/{first}"), format!("crates/{name}/src"), format!("{name}/src")];
    places.into_iter().map(|place| root().join(place)).filter(|place| place.is_dir()).collect()
}

fn has_tests(text: &str) -> bool {
    text.contains("#[test]") || text.contains("#[tokio::test")
}

/// Whether a file, or one in the directory of its name, has a test.
fn is_module_with_tests(module: &Path) -> bool {
    let own = fs::read_to_string(module.with_extension("rs")).is_ok_and(|text| has_tests(&text));
    let below = fs::read_dir(module).into_iter().flatten().flatten();
    own || below
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "rs"))
        .any(|entry| fs::read_to_string(entry.path()).is_ok_and(|text| has_tests(&text)))
}

/// Whether there is a test of this name, or a module of it that has tests.
fn exists(name: &str) -> bool {
    let parts: Vec<&str> = name.split("::").collect();
    let [first, modules @ ..] = &parts[..] else { return false };
    let Some((last, above)) = modules.split_last() else { return false };
    bases(first).iter().any(|base| {
        let module = above.iter().fold(base.clone(), |path, part| path.join(part));
        // A small module's tests stand in its own file.
        let is_inline = above.last() == Some(&"tests");
        let file = if is_inline && !module.with_extension("rs").exists() {
            module.parent().expect("it is below the base").with_extension("rs")
        } else {
            module.with_extension("rs")
        };
        let text = fs::read_to_string(file).unwrap_or_default();
        let is_function = has_tests(&text) && text.contains(&format!("fn {last}("));
        is_function || is_module_with_tests(&module.join(last))
    })
}

#[test]
fn every_row_of_the_tables_of_defences_names_a_test_that_exists() {
    let mut missing = Vec::new();
    let mut rows = 0;
    for page in PAGES {
        let text = fs::read_to_string(root().join(page)).expect("a page");
        for cell in cells(&text) {
            rows += 1;
            let name = cell.trim_matches('`');
            // A claim that no test can check says so.
            let is_said = cell == "–" || cell.starts_with("none: ");
            if !is_said && !exists(name) {
                missing.push(format!("{page}: {cell}"));
            }
        }
    }
    assert!(rows >= ROWS_MIN, "{rows} rows");
    assert!(missing.is_empty(), "no such test:\n{}", missing.join("\n"));
}

#[test]
fn a_test_that_is_not_there_is_missed() {
    assert!(exists("tree::held::a_test_that_is_not_there_is_missed"));
    assert!(!exists("tree::held::a_test_of_another_name"));
    assert!(!exists("tree::nothing"));
    assert!(exists("image::tests::hostile::a_planted_link_leads_nowhere"));
}

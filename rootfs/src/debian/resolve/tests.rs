//! Closures over small indexes.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::*;

fn index(packages: &[(&str, &str, &str)]) -> String {
    packages.iter().fold(String::new(), |mut text, (name, version, more)| {
        let digest = "0".repeat(64);
        writeln!(
            text,
            "Package: {name}\nVersion: {version}\nFilename: pool/{name}.deb\nSize: 1\n\
             SHA256: {digest}\n{more}\n"
        )
        .expect("a string");
        text
    })
}

fn closure(text: &str, names: &[&str], without: &[&str]) -> Result<Vec<String>, ResolveError> {
    let mut universe = Universe::default();
    universe.add("main", text)?;
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let without: BTreeSet<String> = without.iter().map(|&name| name.to_owned()).collect();
    let chosen = universe.closure(&names, &without)?;
    Ok(chosen.into_iter().map(|package| format!("{}={}", package.name, package.version)).collect())
}

#[test]
fn dependencies_come_along_and_recommendations_do_not() {
    let text = index(&[
        ("a", "1", "Depends: b (>= 1)\nPre-Depends: c\nRecommends: d"),
        ("b", "1", "Depends: a"),
        ("c", "1", ""),
        ("d", "1", ""),
    ]);
    assert_eq!(closure(&text, &["a"], &[]).expect("a closure"), ["a=1", "b=1", "c=1"]);
    assert_eq!(closure(&text, &["a"], &["c"]).expect("a closure"), ["a=1", "b=1"]);
}

#[test]
fn the_newest_version_is_taken_whatever_the_order_of_the_indexes() {
    let old = index(&[("a", "1.9", "")]);
    let new = index(&[("a", "1.10", "")]);
    for text in [format!("{old}\n{new}"), format!("{new}\n{old}")] {
        assert_eq!(closure(&text, &["a"], &[]).expect("a closure"), ["a=1.10"]);
    }
}

#[test]
fn of_alternatives_one_that_is_there_is_taken_else_the_first_that_exists() {
    let text = index(&[("a", "1", "Depends: none | x | y"), ("x", "1", ""), ("y", "1", "")]);
    assert_eq!(closure(&text, &["a"], &[]).expect("a closure"), ["a=1", "x=1"]);
    assert_eq!(closure(&text, &["a", "y"], &[]).expect("a closure"), ["a=1", "y=1"]);
}

#[test]
fn provided_names_count_and_their_versions_only_if_stated() {
    let text = index(&[
        ("a", "1", "Depends: awk"),
        ("b", "1", "Depends: api (>= 2)"),
        ("c", "1", "Depends: awk (>= 1)"),
        ("gawk", "5", "Provides: awk, api (= 1)"),
        ("mawk", "1", "Provides: awk, api (= 2)"),
    ]);
    assert_eq!(closure(&text, &["a"], &[]).expect("a closure"), ["a=1", "gawk=5"]);
    assert_eq!(closure(&text, &["a", "mawk"], &[]).expect("a closure"), ["a=1", "mawk=1"]);
    assert_eq!(closure(&text, &["b"], &[]).expect("a closure"), ["b=1", "mawk=1"]);
    let unsatisfied = closure(&text, &["c"], &[]).expect_err("no version is provided");
    assert_eq!(unsatisfied.to_string(), "c depends on awk, which no package provides");
}

#[test]
fn an_unknown_name_and_a_broken_index_are_reported() {
    assert_eq!(closure("", &["a"], &[]), Err(ResolveError::Unknown("a".into())));
    let text = index(&[("a", "1", "")]).replace("Size: 1", "Size: many");
    assert!(matches!(closure(&text, &["a"], &[]), Err(ResolveError::Malformed { .. })));
}

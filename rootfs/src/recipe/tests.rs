//! Recipes in a directory of their own, and those that the project has.

use super::*;

fn book(recipes: &[(&str, &str)]) -> (tempfile::TempDir, Recipes) {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in recipes {
        std::fs::write(directory.path().join(format!("{name}.toml")), text).expect("a file");
    }
    let book = Recipes::new(directory.path());
    (directory, book)
}

#[test]
fn a_recipe_adds_to_what_it_extends() {
    let (_directory, book) = book(&[
        ("base", "suite = \"s\"\nsize_max_mib = 4\npackages = [\"a\"]\nexclude = [\"x\"]"),
        ("more", "extends = \"base\"\nsize_max_mib = 8\npackages = [\"b\"]"),
    ]);
    let recipe = book.get("more").expect("a recipe");
    assert_eq!(recipe.packages, ["a", "b"]);
    assert_eq!((recipe.suite.as_str(), recipe.size_max_mib), ("s", 8));
    assert!(recipe.excludes("x/y"));
}

#[test]
fn unknown_circular_and_misspelt_recipes_are_refused() {
    let (_directory, book) = book(&[
        ("a", "extends = \"b\""),
        ("b", "extends = \"a\""),
        ("c", "packges = []"),
        ("d", "size_max_mib = 1"),
    ]);
    assert!(matches!(book.get("none"), Err(RecipeError::Unknown { .. })));
    assert!(matches!(book.get("../c"), Err(RecipeError::Unknown { .. })));
    assert!(matches!(book.get("a"), Err(RecipeError::Chain(_))));
    assert!(matches!(book.get("c"), Err(RecipeError::Syntax { .. })));
    assert!(matches!(book.get("d"), Err(RecipeError::Missing { field: "suite", .. })));
}

#[test]
fn patterns_cover_paths_and_what_is_below_them() {
    for (pattern, path, expected) in [
        ("/usr/share/doc", "usr/share/doc", true),
        ("/usr/share/doc", "usr/share/doc/a/b", true),
        ("/usr/share/doc", "usr/share/doctor", false),
        ("/usr/share/doc", "usr/share", false),
        ("usr/lib/python3*/test", "usr/lib/python3.11/test/x", true),
        ("usr/lib/python3*/test", "usr/lib/python3.11/unittest", false),
        ("usr/*/x", "usr/a/b/x", false),
        ("usr/*.so", "usr/libc.so", true),
    ] {
        assert_eq!(covers(pattern, path), expected, "{pattern} and {path}");
    }
}

#[test]
fn every_recipe_of_the_project_is_whole() {
    let book = Recipes::new(&Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes"));
    let names = book.names().expect("recipes");
    for name in ["base", "full", "kernel", "node", "python", "science"] {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
    for name in names {
        let recipe = book.get(&name).expect("a recipe");
        assert!(!recipe.summary.is_empty(), "{name}");
    }
}

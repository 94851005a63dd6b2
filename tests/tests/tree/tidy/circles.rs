//! Which files of a crate import each other, directly or over others. A file and its parents do not count:
//! a part and its pieces belong together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module by the names on the way to it; the root is empty.
pub type Module = Vec<String>;
pub type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// The circles among the files of a crate, each sorted.
pub fn circles(src: &Path) -> Vec<Vec<String>> {
    let imports = imports(src);
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|module| (module, reached_from(module, &imports))).collect();
    let mut found = BTreeSet::new();
    for (module, others) in &reached {
        let circle: Vec<String> = others
            .iter()
            .filter(|other| reached[**other].contains(module))
            .map(|other| other.join("/"))
            .collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// All modules that one imports, directly or not; itself where it is in a circle.
fn reached_from<'a>(module: &Module, imports: &'a Imports) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Module> = imports[module].iter().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(&imports[module]);
        }
    }
    reached
}

/// What each module of a crate imports of the others.
pub fn imports(src: &Path) -> Imports {
    let files: BTreeMap<Module, String> = super::sources(src)
        .into_iter()
        .filter(|path| !super::is_test(path))
        .map(|path| (module_of(&path, src), fs::read_to_string(&path).expect("a source")))
        .collect();
    let known: BTreeSet<&Module> = files.keys().collect();
    files
        .iter()
        .map(|(own, text)| {
            let named = named(text).into_iter().filter_map(|path| resolve(&path, own, &known));
            let others = named.filter(|other| !own.starts_with(other) && !other.starts_with(own));
            (own.clone(), others.collect())
        })
        .collect()
}

fn module_of(path: &Path, src: &Path) -> Module {
    let below = path.strip_prefix(src).expect("below src").with_extension("");
    let mut module: Module =
        below.iter().map(|part| part.to_str().expect("our names are text").to_owned()).collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

/// The module that a path leads to, as far as it leads to modules.
fn resolve(path: &str, own: &Module, known: &BTreeSet<&Module>) -> Option<Module> {
    let mut names = path.split("::").peekable();
    let mut module = match names.next()? {
        "crate" => Module::new(),
        "super" => own[..own.len().checked_sub(1)?].to_vec(),
        _ => return None,
    };
    while names.next_if_eq(&"super").is_some() {
        module.pop();
    }
    for name in names {
        module.push(name.to_owned());
        if !known.contains(&module) {
            module.pop();
            break;
        }
    }
    Some(module)
}

/// Every path of the crate's own that code names; groups in braces are taken apart.
fn named(text: &str) -> Vec<String> {
    let code: Vec<&str> = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code = code.join("\n");
    let mut paths = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                take_apart(&code[at..], "", &mut paths);
            }
        }
    }
    paths
}

/// Reads one path at the beginning of `code`, and says how much of it that was.
fn take_apart(code: &str, prefix: &str, paths: &mut Vec<String>) -> usize {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let end = code.find(|c| !is_part(c)).unwrap_or(code.len());
    let path = format!("{prefix}{}", &code[..end]);
    if !path.ends_with("::") || !code[end..].starts_with('{') {
        paths.push(path.trim_end_matches(':').to_owned());
        return end;
    }
    let mut at = end + 1;
    while let Some(c) = code[at..].chars().next() {
        match c {
            '}' => return at + 1,
            c if is_part(c) => at += take_apart(&code[at..], &path, paths),
            c => at += c.len_utf8(),
        }
    }
    at
}

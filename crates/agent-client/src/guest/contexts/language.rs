//! What languages are called. The agent knows which there are: one that is not in this table is
//! asked for all the same. Pure.

/// Each language's own name, and what else clients call it.
pub const NAMES: [(&str, &[&str]); 3] = [
    ("python", &["python3", "py"]),
    ("node", &["nodejs", "javascript", "js"]),
    ("bash", &["sh", "shell"]),
];

/// The language of a run that names neither a language nor a context.
pub const DEFAULT: &str = "python";

/// The own name of the language that is called so, if we know any.
pub fn called(name: &str) -> Option<&'static str> {
    let mut known = NAMES.iter();
    known.find(|(own, others)| *own == name || others.contains(&name)).map(|(own, _)| *own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_has_several_names() {
        for (name, own) in [("python3", Some("python")), ("js", Some("node")), ("ruby", None)] {
            assert_eq!(called(name), own);
        }
        assert_eq!(called(DEFAULT), Some(DEFAULT));
    }
}

//! What lies in working directories and is nobody's result. Pure.

/// Why a name is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// Interpreters write them beside the code, and make them anew at any time.
    Compiled,
    /// A version control system's own.
    History,
    /// Packages that were installed, by the thousand.
    Packages,
    /// Hidden: settings and caches of programs, what editors and libraries keep.
    Hidden,
    /// What is being written, under a name that its writer will change.
    Unfinished,
}

/// By the whole name.
const NAMES: [(&[u8], Ignored); 7] = [
    (b"__pycache__", Ignored::Compiled),
    (b".git", Ignored::History),
    (b"node_modules", Ignored::Packages),
    (b"site-packages", Ignored::Packages),
    (b"venv", Ignored::Packages),
    (b"lost+found", Ignored::History),
    // Of which manim makes one film.
    (b"partial_movie_files", Ignored::Unfinished),
];

/// By what it ends in.
const ENDINGS: [(&[u8], Ignored); 5] = [
    (b".pyc", Ignored::Compiled),
    (b".pyo", Ignored::Compiled),
    (b"~", Ignored::Unfinished),
    (b".swp", Ignored::Unfinished),
    (b".part", Ignored::Unfinished),
];

/// Whether what has this name is passed over, with all that is below it.
pub fn ignored(name: &[u8]) -> Option<Ignored> {
    let named = NAMES.iter().find(|(known, _)| *known == name);
    let ended = || ENDINGS.iter().find(|(ending, _)| name.ends_with(ending));
    match named.or_else(ended) {
        Some((_, why)) => Some(*why),
        None if name.starts_with(b".") => Some(Ignored::Hidden),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_leave_for_themselves_is_passed_over() {
        for (name, why) in [
            ("__pycache__", Ignored::Compiled),
            ("m.cpython-311.pyc", Ignored::Compiled),
            (".git", Ignored::History),
            (".bashrc", Ignored::Hidden),
            ("node_modules", Ignored::Packages),
            ("report.txt~", Ignored::Unfinished),
        ] {
            assert_eq!(ignored(name.as_bytes()), Some(why), "{name}");
        }
        for name in ["report.txt", "git", "a.pyc.txt", "png"] {
            assert_eq!(ignored(name.as_bytes()), None, "{name}");
        }
    }
}

//! Files in working directories that are no results. Pure.

/// Why a name is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// Interpreters write them beside the code, and make them again at any time.
    Compiled,
    /// A version control system's own.
    History,
    /// Packages that were installed, by the thousand.
    Packages,
    /// Hidden: settings and caches of programs, editors and libraries.
    Hidden,
    /// Unfinished, under a name that its writer will change.
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
    // manim joins these into one film.
    (b"partial_movie_files", Ignored::Unfinished),
];

/// By suffix.
const ENDINGS: [(&[u8], Ignored); 5] = [
    (b".pyc", Ignored::Compiled),
    (b".pyo", Ignored::Compiled),
    (b"~", Ignored::Unfinished),
    (b".swp", Ignored::Unfinished),
    (b".part", Ignored::Unfinished),
];

/// Whether something with this name is skipped, with everything below it.
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
    fn caches_and_hidden_files_are_skipped() {
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

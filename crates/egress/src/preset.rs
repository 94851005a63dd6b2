//! Rules under one name: the hosts of the public package registries. The one place that names them.
//! Pure.

/// A name that stands for hosts.
struct Preset {
    name: &'static str,
    hosts: &'static [&'static str],
}

const PRESETS: [Preset; 4] = [
    Preset { name: "@pypi", hosts: &["pypi.org", "files.pythonhosted.org"] },
    Preset { name: "@npm", hosts: &["registry.npmjs.org"] },
    Preset { name: "@crates", hosts: &["index.crates.io", "static.crates.io", "crates.io"] },
    Preset { name: "@debian", hosts: &["deb.debian.org", "security.debian.org"] },
];

/// The first character of a preset's name.
pub const MARK: char = '@';

/// The names of all presets.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|preset| preset.name)
}

/// The hosts that a preset stands for.
pub fn hosts(name: &str) -> Option<&'static [&'static str]> {
    let found = PRESETS.iter().find(|preset| preset.name.eq_ignore_ascii_case(name));
    found.map(|preset| preset.hosts)
}

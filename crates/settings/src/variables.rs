//! Finds environment variables that begin with `BURROW_` and that nothing reads: a mistyped
//! variable would otherwise be ignored silently. Pure; values are never read.

use super::Settings;
use super::load::{FILE_VARIABLE, options, variable_of};
use host::paths as config;
use host::secret::Source;
use host::similar::nearest;

/// The prefix of our variables.
const OURS: &str = "BURROW_";
/// The prefix of variables for tests.
const OF_TESTS: &str = "BURROW_TEST_";
/// Variables that are read besides options: by machines, by programs in sandboxes, by clients.
const OTHERS: [&str; 14] = [
    "BURROW_NAMESPACE",
    "BURROW_NATS_SERVER",
    "BURROW_NO_DAEMON",
    "BURROW_QEMU_BOARD",
    "BURROW_TRUST_KVM",
    "BURROW_MACHINE",
    "BURROW_ARTIFACTS_DIR",
    "BURROW_REPL",
    "BURROW_SESSION",
    "BURROW_TOKEN",
    "BURROW_URL",
    "BURROW_API_KEY",
    "BURROW_API_KEY_FILE",
    "BURROW_CA_FILE",
];
/// The maximum number of warnings.
const TOLD_MAX: usize = 32;

/// A variable that looks like one of ours but is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedVariable {
    pub name: String,
    /// The variable that was probably meant.
    pub meant: Option<String>,
}

impl std::fmt::Display for UnusedVariable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the variable {} is set, but nothing reads it", self.name)?;
        self.meant.as_ref().map_or(Ok(()), |meant| write!(f, "; did you mean {meant}?"))
    }
}

impl Settings {
    /// The variables of `names` that look like ours and that nothing reads.
    pub fn unread(&self, names: impl IntoIterator<Item = String>) -> Vec<UnusedVariable> {
        let known = known();
        // A secret may be in a variable that is called as its operator likes.
        let of_secrets = |name: &str| {
            let mut sources = self.secrets.values().map(|entry| &entry.source);
            sources.any(|source| matches!(source, Source::Environment(own) if own == name))
        };
        let is_unread = |name: &String| {
            name.starts_with(OURS)
                && !name.starts_with(OF_TESTS)
                && !known.contains(name)
                && !of_secrets(name)
        };
        let mut unread: Vec<_> = names.into_iter().filter(is_unread).collect();
        unread.sort();
        unread.truncate(TOLD_MAX);
        let warnings = unread.into_iter().map(|name| {
            // What all of them begin with makes none of them alike.
            let own = known.iter().filter_map(|known| known.strip_prefix(OURS));
            let meant = nearest(name.strip_prefix(OURS).unwrap_or(&name), own);
            let meant = meant.map(|meant| format!("{OURS}{meant}"));
            UnusedVariable { name, meant }
        });
        warnings.collect()
    }
}

fn known() -> Vec<String> {
    let of_options = options().map(|(section, option)| variable_of(section, option.key));
    let places = [FILE_VARIABLE].into_iter().chain(config::VARIABLES.map(|place| place.name));
    of_options.chain(places.chain(OTHERS).map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Overrides;

    fn unread(names: &[&str]) -> Vec<(String, Option<String>)> {
        let unread = Settings::default().unread(names.iter().map(|name| (*name).to_owned()));
        unread.into_iter().map(|one| (one.name, one.meant)).collect()
    }

    #[test]
    fn a_mistyped_variable_is_reported_with_the_likely_name() {
        let warnings = unread(&["BURROW_EGRES_DNS", "BURROW_AUDIT_CHIAN", "BURROW_HOME", "HOME"]);
        let meant = |name: &str, meant: Option<&str>| (name.to_owned(), meant.map(str::to_owned));
        assert_eq!(warnings[0], meant("BURROW_AUDIT_CHIAN", Some("BURROW_AUDIT_CHAIN")));
        assert_eq!(warnings[1], meant("BURROW_EGRES_DNS", Some("BURROW_EGRESS_DNS")));
        assert_eq!(warnings[2].0, "BURROW_HOME");
        assert_eq!(warnings.len(), 3);
        assert_eq!(unread(&["BURROW_FOO"]), [meant("BURROW_FOO", None)]);
    }

    #[test]
    fn what_somebody_reads_is_not_reported() {
        let all: Vec<_> = known();
        assert_eq!(Settings::default().unread(all), []);
        assert_eq!(unread(&["BURROW_TEST_BRIDGE", "PATH"]), []);
        let mut settings = Settings::default();
        let table = "[secrets.token]\nenv = \"BURROW_OWN\"\nnamespaces = \"*\"\n";
        let file = std::path::Path::new("/etc/burrow.toml");
        let read = Settings::resolve(Some((file, table)), &|_| None, &Overrides::default());
        settings.secrets = read.unwrap().secrets;
        assert_eq!(settings.unread(["BURROW_OWN".to_owned()]), []);
    }
}

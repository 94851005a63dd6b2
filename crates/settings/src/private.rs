//! Which files of the host the settings name, and which of them only the bridge may read.
//! A test gives every option a path, so that a new one cannot be forgotten here. Pure, but for the
//! environment that names files of credentials.

use std::path::PathBuf;

use super::Settings;
use host::secret::{self, Source};
use image::registry::auth_files;

impl Settings {
    /// What no sandbox may read: the configuration, what it names that is secret, and what the
    /// environment names besides. A workspace belongs to those who may use it, and they find it at
    /// its own place in their sandboxes.
    pub fn private_files(&self) -> Vec<PathBuf> {
        let workspaces = self.workspaces.values().filter(|entry| entry.bucket.is_none());
        let workspaces = workspaces.map(|entry| entry.path.clone());
        let credentials = auth_files(&|name| std::env::var_os(name));
        let credentials = credentials.into_iter().chain(secret::credentials_directory());
        self.secret_files().chain(workspaces).chain(credentials).collect()
    }

    /// The configuration and all that it names for the bridge only: none of it may be a workspace.
    pub fn own_files(&self) -> Vec<PathBuf> {
        let authorities = self.registries.values().filter_map(|registry| registry.ca.clone());
        let buckets = self.workspaces.values().filter_map(|entry| entry.bucket.as_ref());
        let buckets = buckets.filter_map(|bucket| bucket.ca.clone());
        let trusted = self.egress.ca.iter().chain(&self.images_ca).chain(&self.otel.ca).cloned();
        self.secret_files().chain(trusted).chain(authorities).chain(buckets).collect()
    }

    fn secret_files(&self) -> impl Iterator<Item = PathBuf> {
        let secrets = self.secrets.values().filter_map(|entry| match &entry.source {
            Source::File(path) => Some(path),
            Source::Environment(_) | Source::Credential(_) | Source::Command(_) => None,
        });
        // The file of a certificate may hold its key too.
        let server = [&self.file, &self.server.tls_certificate, &self.server.tls_key];
        let fleet = [&self.fleet.credentials, &self.fleet.certificate, &self.fleet.key];
        server
            .into_iter()
            .chain(fleet)
            .chain([&self.ssh.host_key])
            .flatten()
            .chain(secrets)
            .cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::SECTIONS;
    use crate::value::RawValue;
    use std::path::Path;

    /// Options that take any text or a path, and that name nothing secret.
    const NOT_PRIVATE: [&str; 13] = [
        // Certificates that are trusted: often those of the host, which programs need.
        "egress.ca",
        "fleet.ca",
        "images.ca",
        "otel.ca",
        // Directories that sandboxes are to have.
        "process.root",
        "pool.entries",
        // Names, not paths.
        "image_policy.allow",
        "image_policy.pins",
        "metrics.labels",
        "otel.service_name",
        "server.allowed_hosts",
        "server.allowed_origins",
        "defaults.egress",
    ];

    #[test]
    fn an_option_that_names_a_file_is_private_or_says_why_not() {
        const GIVEN: &str = "/somewhere/private";
        let mut found = 0;
        for (section, option) in
            SECTIONS.iter().flat_map(|one| one.options.iter().map(move |option| (one.name, option)))
        {
            let name = format!("{section}.{}", option.key);
            let mut settings = Settings::default();
            let texts = [GIVEN.to_owned(), format!("unix:{GIVEN}")].map(RawValue::Text);
            let is_taken = texts.iter().any(|text| (option.set)(&mut settings, text).is_ok());
            if !is_taken || NOT_PRIVATE.contains(&name.as_str()) || name == "server.listen" {
                continue;
            }
            found += 1;
            let private = settings.private_files();
            assert!(private.iter().any(|path| path == Path::new(GIVEN)), "{name} is in no list");
        }
        assert_eq!(
            found, 6,
            "certificates and keys of the server and of the fleet, credentials, and the key of the SSH host"
        );
    }

    #[test]
    fn what_tables_name_is_private() {
        let text = "[secrets.a]\nfile = \"/s/a\"\nnamespaces = \"*\"\n\
                    [workspaces.w]\npath = \"/srv/w\"\nnamespaces = [\"team\"]\n\
                    [registries.\"r.example\"]\nca = \"/etc/ca.pem\"\n";
        let file = Some((Path::new("/etc/own.toml"), text));
        let settings = Settings::resolve(file, &|_| None, &crate::Overrides::default()).unwrap();
        let private = settings.private_files();
        for path in ["/s/a", "/srv/w", "/etc/own.toml"] {
            assert!(private.contains(&PathBuf::from(path)), "{path}: {private:?}");
        }
        assert!(!private.contains(&PathBuf::from("/etc/ca.pem")), "{private:?}");
        assert!(!settings.own_files().contains(&PathBuf::from("/srv/w")));
        assert!(settings.own_files().contains(&PathBuf::from("/etc/ca.pem")));
    }
}

//! Converts the pool settings into the options of the pool.

use std::path::Path;

use protocol::ContextName;

use crate::setup::client_defaults;
use agent_client::guest::contexts::language;
use machine::{MachineKind, UnknownMachine};
use sandbox::host_files::HOST_ROOT;
use sandbox::pool::{Entry, Options};
use sandbox::{SandboxError, Template, TemplateRef, root_of};
use settings::{PoolEntry, Settings};

/// Why the pool settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    #[error("pool.entries: {entry:?}: {source}")]
    Machine { entry: String, source: UnknownMachine },
    #[error(
        "pool.entries: {entry:?}: there is no image {image:?}; name one of [images] or a directory, \
         for a virtual machine one of [images] or of the kit, or a file"
    )]
    Image { entry: String, image: String },
    #[error(
        "pool.entries: {entry:?}: {image:?} is a stored image, which the pool does not support"
    )]
    Stored { entry: String, image: String },
    #[error(
        "pool.entries: {entry:?}: {image:?} is the host's own root: set process.root to \"/\", or name \
         another image"
    )]
    HostRoot { entry: String, image: String },
    #[error("pool.entries: {entry:?}: {language:?} is not a language")]
    Language { entry: String, language: String },
}

/// The templates that the settings have, with the roots that their images mean.
pub fn templates(settings: &Settings) -> Result<Vec<Template>, SandboxError> {
    let mut templates = Vec::new();
    for (name, table) in &settings.templates {
        let mut options = table.options.clone();
        let machine = options.machine.unwrap_or_else(|| client_defaults(settings).machine);
        options.image =
            options.image.map(|image| root_of(&settings.images, machine, &image).unwrap_or(image));
        for namespace in &table.namespaces {
            let parsed = format!("{namespace}/{name}").parse::<TemplateRef>();
            // The settings have checked both.
            let Ok(which) = parsed else { continue };
            templates.push(Template::new(which, options.clone())?);
        }
    }
    Ok(templates)
}

/// The pool that the settings ask for.
pub fn pool_options(settings: &Settings) -> Result<Options, PoolError> {
    let pool = &settings.pool;
    let entries = pool.entries.iter().map(|entry| read(entry, settings));
    Ok(Options {
        entries: entries.collect::<Result<_, _>>()?,
        age_max: pool.age_max,
        check_every: pool.check_every,
        starts_at_once: pool.starts_at_once,
    })
}

fn read(set: &PoolEntry, settings: &Settings) -> Result<Entry, PoolError> {
    let shown = || set.to_string();
    let machine = set.machine.as_deref().unwrap_or(settings.defaults.machine);
    let machine: MachineKind =
        machine.parse().map_err(|source| PoolError::Machine { entry: shown(), source })?;
    // The machine says what is wrong with a path, or with an image of the kit, that is not there.
    let path = || set.image.starts_with('/').then(|| set.image.clone());
    let root = root_of(&settings.images, machine, &set.image).or_else(path);
    if root.as_ref().is_some_and(|root| !root.starts_with('/') && !machine.is_virtual()) {
        return Err(PoolError::Stored { entry: shown(), image: set.image.clone() });
    }
    let is_host = root.as_deref() == Some(HOST_ROOT) && machine.sees_host();
    if is_host && settings.served_root().as_deref() != Some(Path::new(HOST_ROOT)) {
        return Err(PoolError::HostRoot { entry: shown(), image: set.image.clone() });
    }
    let no_image = || PoolError::Image { entry: shown(), image: set.image.clone() };
    let contexts = set.contexts.iter().map(|context| {
        // By the same name as those who do not know that it is there already.
        let own = language::called(context).unwrap_or(context);
        own.parse::<ContextName>()
            .map_err(|_| PoolError::Language { entry: shown(), language: context.clone() })
    });
    Ok(Entry {
        name: set.image.clone(),
        machine,
        image: Some(root.ok_or_else(no_image)?),
        memory_mib: set.memory_mib.or(settings.defaults.memory_mib),
        cpu_millis: set.cpu_millis.or(settings.defaults.cpu_millis),
        scratch_bytes: set.scratch_bytes,
        contexts: contexts.collect::<Result<_, _>>()?,
        count: set.count,
        template: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the names of published clients are where the operator has set a root.
    fn named() -> std::collections::BTreeMap<String, std::path::PathBuf> {
        ["python", "node:20-slim"].map(|name| (name.to_owned(), HOST_ROOT.into())).into()
    }

    fn options(entry: &str) -> Result<Options, PoolError> {
        let mut settings = Settings::default();
        settings.process.root = Some(HOST_ROOT.into());
        settings.images = named();
        settings.pool.entries = vec![entry.parse().unwrap()];
        pool_options(&settings)
    }

    #[test]
    fn the_hosts_root_is_kept_ready_only_where_it_is_given() {
        let mut settings = Settings::default();
        settings.images = named();
        settings.pool.entries = vec!["python=1".parse().unwrap()];
        assert!(matches!(pool_options(&settings), Err(PoolError::HostRoot { .. })));
        settings.server.dev = true;
        pool_options(&settings).unwrap();
    }

    #[test]
    fn an_entry_has_the_defaults_that_a_sandbox_has() {
        let options = options("python=4 contexts=py+sh").unwrap();
        let entry = &options.entries[0];
        assert_eq!((entry.memory_mib, entry.cpu_millis), (Some(512), Some(1000)));
        assert_eq!((entry.image.as_deref(), entry.count), (Some("/"), 4));
        let contexts: Vec<_> = entry.contexts.iter().map(ContextName::as_str).collect();
        assert_eq!(contexts, ["python", "bash"]);
    }

    #[test]
    fn a_virtual_machine_has_the_kits_image_where_a_directory_is_configured() {
        for (entry, image) in [
            ("python=4 machine=qemu", "python"),
            ("node:20-slim=4 machine=firecracker", "node"),
            ("full=4 machine=qemu", "full"),
            ("/srv/own.erofs=4 machine=qemu", "/srv/own.erofs"),
        ] {
            assert_eq!(options(entry).unwrap().entries[0].image.as_deref(), Some(image), "{entry}");
        }
        assert!(matches!(options("debian:12=4 machine=qemu"), Err(PoolError::Image { .. })));
    }

    #[test]
    fn an_entry_without_a_machine_has_the_usual_one() {
        let mut settings = Settings::default();
        settings.defaults.machine = "qemu";
        settings.pool.entries = vec!["python=4".parse().unwrap()];
        let entry = &pool_options(&settings).unwrap().entries[0];
        assert_eq!((entry.machine, entry.image.as_deref()), (MachineKind::Qemu, Some("python")));
    }

    #[test]
    fn what_does_not_exist_is_named() {
        assert!(matches!(options("pyton=4"), Err(PoolError::Image { .. })));
        assert!(matches!(options("python=4 machine=vax"), Err(PoolError::Machine { .. })));
        assert!(matches!(options("python=4 contexts=a/b"), Err(PoolError::Language { .. })));
        assert!(options("/srv/root=4 memory_mib=off").unwrap().entries[0].memory_mib.is_none());
    }
}

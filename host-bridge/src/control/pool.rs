//! From what the operator has set to what the pool keeps ready.

use protocol::ContextName;

use crate::guest::contexts::language;
use crate::machine::{MachineKind, UnknownMachine};
use crate::sandbox::pool::{Entry, Options};
use crate::settings::{PoolEntry, Settings};

/// Why there is no such pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    #[error("pool.entries: {entry:?}: {source}")]
    Machine { entry: String, source: UnknownMachine },
    #[error(
        "pool.entries: {entry:?}: there is no image {image:?}; name one of [images], or a directory"
    )]
    Image { entry: String, image: String },
    #[error("pool.entries: {entry:?}: {language:?} cannot be the name of a language")]
    Language { entry: String, language: String },
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
    let machine = match &set.machine {
        None => MachineKind::default(),
        Some(name) => {
            name.parse().map_err(|source| PoolError::Machine { entry: shown(), source })?
        }
    };
    let root = match settings.images.get(&set.image) {
        Some(root) => root.to_string_lossy().into_owned(),
        None if set.image.starts_with('/') => set.image.clone(),
        // The kit of a virtual machine has names of its own, and says what it does not have.
        None if machine != MachineKind::Process => set.image.clone(),
        None => return Err(PoolError::Image { entry: shown(), image: set.image.clone() }),
    };
    let contexts = set.contexts.iter().map(|asked| {
        // By the same name as those who do not know that it is there already.
        let own = language::called(asked).unwrap_or(asked);
        own.parse::<ContextName>()
            .map_err(|_| PoolError::Language { entry: shown(), language: asked.clone() })
    });
    Ok(Entry {
        name: set.image.clone(),
        machine,
        image: Some(root),
        memory_mib: set.memory_mib.or(settings.defaults.memory_mib),
        cpu_millis: set.cpu_millis.or(settings.defaults.cpu_millis),
        scratch_bytes: set.scratch_bytes,
        contexts: contexts.collect::<Result<_, _>>()?,
        count: set.count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(entry: &str) -> Result<Options, PoolError> {
        let mut settings = Settings::default();
        settings.pool.entries = vec![entry.parse().unwrap()];
        pool_options(&settings)
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
    fn what_does_not_exist_is_named() {
        assert!(matches!(options("pyton=4"), Err(PoolError::Image { .. })));
        assert!(matches!(options("python=4 machine=vax"), Err(PoolError::Machine { .. })));
        assert!(matches!(options("python=4 contexts=a/b"), Err(PoolError::Language { .. })));
        assert!(options("/srv/root=4 memory_mib=off").unwrap().entries[0].memory_mib.is_none());
    }
}

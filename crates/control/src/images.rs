//! Resolves the image names of the configuration to images of the store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use host::paths::Paths;
use image::Images;
use image::digest::Digest;
use image::reference::{InvalidReference, Reference};

/// An entry of `[images]` that means nothing.
#[derive(Debug, thiserror::Error)]
#[error("images.{name:?}: {target:?} is not an absolute path, a digest or an image name: {source}")]
pub struct AliasError {
    name: String,
    target: String,
    source: InvalidReference,
}

/// The stored images that `[images]` names, as they are written there.
pub fn aliases(images: &BTreeMap<String, PathBuf>) -> Result<Vec<String>, AliasError> {
    let stored = images.iter().filter(|(_, target)| !Path::is_absolute(target));
    let check = |(name, target): (&String, &PathBuf)| {
        let target = target.to_string_lossy().into_owned();
        if target.parse::<Digest>().is_err() {
            let invalid =
                |source| AliasError { name: name.clone(), target: target.clone(), source };
            target.parse::<Reference>().map_err(invalid)?;
        }
        Ok(target)
    };
    stored.map(check).collect()
}

/// What `[images]` names and is not here, for people: directories, and images that this host's store does
/// not have. A store that was never opened has none, and is not made by looking.
pub fn missing(
    paths: &Paths,
    named: &BTreeMap<String, PathBuf>,
    aliases: &[String],
) -> Vec<String> {
    let directories = named.values().filter(|target| target.is_absolute() && !target.is_dir());
    let directories = directories
        .map(|path| format!("[images] names {}, which is not a directory", path.display()));
    let images = paths.images().is_dir().then(|| Images::open(paths).ok()).flatten();
    let is_there = |target: &str| images.as_ref().is_some_and(|images| images.find(target).is_ok());
    let gone = aliases.iter().filter(|target| !is_there(target));
    let gone = gone.map(|target| format!("[images] names {target:?}, but there is no such image"));
    directories.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(target: &str) -> Result<Vec<String>, AliasError> {
        aliases(&BTreeMap::from([("microsandbox/python".to_owned(), PathBuf::from(target))]))
    }

    #[test]
    fn a_name_stands_for_a_directory_or_for_an_image() {
        assert_eq!(of("/srv/python").unwrap(), [""; 0]);
        assert_eq!(of("python:3.12-slim").unwrap(), ["python:3.12-slim"]);
        let digest = Digest::of(b"x").to_string();
        assert_eq!(of(&digest).unwrap(), [digest.as_str()]);
        assert!(of("./python").is_err() && of("Python:").is_err());
    }
}

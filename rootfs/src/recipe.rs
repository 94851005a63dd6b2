//! Recipes: small data files that describe an image.
//!
//! Read by the builder; [`Recipes`] finds them and follows `extends`, so that its result is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// How long a chain of `extends` may be.
const CHAIN_MAX: usize = 8;

/// The description of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recipe {
    /// The recipe that this one adds to.
    pub extends: Option<String>,
    /// One line for people.
    pub summary: String,
    /// The suite of Debian, such as `bookworm`.
    pub suite: String,
    /// Not built unless named.
    pub optional: bool,
    /// The wanted packages; their dependencies are added.
    pub packages: Vec<String>,
    /// Packages that are left out: nothing in an image needs them, although others depend on them.
    pub without: BTreeSet<String>,
    /// Paths that are left out, with all below them; a `*` stands for anything but a slash.
    pub exclude: Vec<String>,
    /// Paths that stay although they are excluded.
    pub keep: Vec<String>,
    /// Symbolic links to make when their target exists and they do not.
    pub links: BTreeMap<String, String>,
    /// Files that may run as their owner or group.
    pub set_id: BTreeSet<String>,
    /// Programs that must be found when the image is verified.
    pub programs: Vec<String>,
    /// Whether Python's modules are compiled ahead, by the Python of the image.
    pub bytecode: bool,
    /// The largest image that is right.
    pub size_max_mib: u64,
    /// In the kernel's recipe: how its release must begin.
    pub release: String,
    /// In the kernel's recipe: the modules to pack, in the order of loading.
    pub modules: Vec<String>,
}

/// Why a recipe cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    #[error("there is no recipe {name}; the known recipes are: {known}")]
    Unknown { name: String, known: String },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    Syntax { path: PathBuf, source: Box<toml::de::Error> },
    #[error("{0}: more than {CHAIN_MAX} recipes extend each other")]
    Chain(String),
    #[error("{name}: the recipe has no {field}")]
    Missing { name: String, field: &'static str },
}

/// A directory of recipes.
#[derive(Clone, Debug)]
pub struct Recipes {
    directory: PathBuf,
}

impl Recipes {
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// The names of all recipes, in order.
    pub fn names(&self) -> Result<Vec<String>, RecipeError> {
        let failed = |source| RecipeError::Io { path: self.directory.clone(), source };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".toml")) {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// A recipe with all that it extends.
    pub fn get(&self, name: &str) -> Result<Recipe, RecipeError> {
        let mut whole = self.read(name)?;
        for _ in 0..CHAIN_MAX {
            let Some(parent) = whole.extends.take() else {
                return match &whole {
                    Recipe { suite, .. } if suite.is_empty() => {
                        Err(RecipeError::Missing { name: name.to_owned(), field: "suite" })
                    }
                    Recipe { size_max_mib: 0, .. } => {
                        Err(RecipeError::Missing { name: name.to_owned(), field: "size_max_mib" })
                    }
                    _ => Ok(whole),
                };
            };
            whole = whole.over(self.read(&parent)?);
        }
        Err(RecipeError::Chain(name.to_owned()))
    }

    fn read(&self, name: &str) -> Result<Recipe, RecipeError> {
        let names = self.names()?;
        if !names.iter().any(|known| known == name) {
            return Err(RecipeError::Unknown { name: name.to_owned(), known: names.join(", ") });
        }
        let path = self.directory.join(format!("{name}.toml"));
        let text = std::fs::read_to_string(&path)
            .map_err(|source| RecipeError::Io { path: path.clone(), source })?;
        toml::from_str(&text)
            .map_err(|source| RecipeError::Syntax { path, source: Box::new(source) })
    }
}

impl Recipe {
    /// This recipe on top of its base: lists are joined, single values of this one take precedence.
    fn over(self, parent: Self) -> Self {
        let text = |own: String, other: String| if own.is_empty() { other } else { own };
        Self {
            extends: parent.extends,
            summary: text(self.summary, parent.summary),
            suite: text(self.suite, parent.suite),
            optional: self.optional,
            packages: [parent.packages, self.packages].concat(),
            without: parent.without.into_iter().chain(self.without).collect(),
            exclude: [parent.exclude, self.exclude].concat(),
            keep: [parent.keep, self.keep].concat(),
            links: parent.links.into_iter().chain(self.links).collect(),
            set_id: parent.set_id.into_iter().chain(self.set_id).collect(),
            programs: [parent.programs, self.programs].concat(),
            bytecode: self.bytecode || parent.bytecode,
            size_max_mib: if self.size_max_mib == 0 {
                parent.size_max_mib
            } else {
                self.size_max_mib
            },
            release: text(self.release, parent.release),
            modules: [parent.modules, self.modules].concat(),
        }
    }

    /// Whether this makes a kernel kit and not an image.
    pub fn is_kernel(&self) -> bool {
        !self.modules.is_empty()
    }

    /// Whether a path of a package stays out of the image.
    pub fn excludes(&self, path: &str) -> bool {
        let under = |patterns: &[String]| patterns.iter().any(|pattern| covers(pattern, path));
        under(&self.exclude) && !under(&self.keep)
    }
}

/// Whether a path matches a pattern, or is below a match.
fn covers(pattern: &str, path: &str) -> bool {
    let mut path = path.split('/');
    pattern
        .trim_matches('/')
        .split('/')
        .all(|wanted| path.next().is_some_and(|name| matches(wanted.as_bytes(), name.as_bytes())))
}

fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|skip| matches(rest, &name[skip..])),
        Some((wanted, rest)) => {
            name.split_first().is_some_and(|(byte, left)| byte == wanted && matches(rest, left))
        }
    }
}

#[cfg(test)]
mod tests;

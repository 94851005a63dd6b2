//! The templates of one bridge: those of its configuration, and one file for each that a call has made.
//!
//! A file is written durably under a temporary name and renamed, and it is on disk before the call is answered, so a
//! bridge that dies has the template or has it not. A file that cannot be read stays where it is, for its operator.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Template, TemplateRef};
use crate::limits::{TEMPLATE_FILE_BYTES_MAX, TEMPLATES_MAX, TEMPLATES_PER_NAMESPACE_MAX};
use crate::{Name, SandboxError};
use host::paths::{make_private_directory, write_durably};

const EXTENSION: &str = "json";

/// See the module's description.
#[derive(Debug)]
pub struct Templates {
    directory: PathBuf,
    configured: BTreeMap<TemplateRef, Arc<Template>>,
    made: Mutex<BTreeMap<TemplateRef, Arc<Template>>>,
}

impl Templates {
    /// Reads what is there. Says of each file that is not a template why.
    pub fn open(
        directory: PathBuf,
        configured: Vec<Template>,
    ) -> Result<(Self, Vec<String>), SandboxError> {
        let mut configured_by_name = BTreeMap::new();
        for template in configured {
            template.check()?;
            configured_by_name.insert(template.which(), Arc::new(template));
        }
        let (mut made, mut unread) = (BTreeMap::new(), Vec::new());
        for path in entries(&directory).iter().flat_map(|namespace| entries(namespace)) {
            if path.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            match read(&path) {
                Ok(template) => drop(made.insert(template.which(), Arc::new(template))),
                Err(error) => {
                    let path = path.display();
                    unread.push(format!("the template in {path} is not used: {error}"));
                }
            }
        }
        let made = Mutex::new(made);
        Ok((Self { directory, configured: configured_by_name, made }, unread))
    }

    fn made(&self) -> MutexGuard<'_, BTreeMap<TemplateRef, Arc<Template>>> {
        // The table follows what is on disk.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The template, and whether it is from the configuration.
    pub fn get(&self, which: &TemplateRef) -> Result<(Arc<Template>, bool), SandboxError> {
        if let Some(template) = self.configured.get(which) {
            return Ok((Arc::clone(template), true));
        }
        let made = self.made().get(which).cloned();
        let missing = || SandboxError::NoTemplate { template: which.clone() };
        made.map(|template| (template, false)).ok_or_else(missing)
    }

    /// Those of one namespace or of all, by name.
    pub fn list(&self, namespace: Option<&Name>) -> Vec<(Arc<Template>, bool)> {
        let mut all: BTreeMap<_, _> =
            self.made().clone().into_iter().map(|(which, it)| (which, (it, false))).collect();
        let configured =
            self.configured.iter().map(|(which, it)| (which.clone(), (Arc::clone(it), true)));
        all.extend(configured);
        all.retain(|which, _| namespace.is_none_or(|namespace| which.namespace == *namespace));
        all.into_values().collect()
    }

    /// Refuses templates that this bridge would not keep.
    pub fn check(&self, templates: &[Template]) -> Result<(), SandboxError> {
        self.check_beside(&self.made(), templates)
    }

    fn check_beside(
        &self,
        made: &BTreeMap<TemplateRef, Arc<Template>>,
        templates: &[Template],
    ) -> Result<(), SandboxError> {
        let mut after = made.clone();
        for template in templates {
            let which = template.which();
            if self.configured.contains_key(&which) {
                return Err(SandboxError::TemplateConfigured { template: which });
            }
            template.check()?;
            after.insert(which, Arc::new(template.clone()));
        }
        for template in templates {
            let own = after.keys().filter(|which| which.namespace == template.namespace).count();
            if own > TEMPLATES_PER_NAMESPACE_MAX || after.len() > TEMPLATES_MAX {
                let namespace = template.namespace.clone();
                return Err(SandboxError::TooManyTemplates { namespace });
            }
        }
        Ok(())
    }

    /// Keeps templates, all of one namespace, each in the place of one with its name. Returns those that were
    /// there. Blocks until they are on disk.
    pub fn put(&self, templates: &[Template]) -> Result<Vec<Arc<Template>>, SandboxError> {
        let mut made = self.made();
        self.check_beside(&made, templates)?;
        let mut replaced = Vec::new();
        for template in templates {
            let directory = self.directory.join(template.namespace.as_str());
            let bytes = serde_json::to_vec_pretty(template).map_err(io::Error::from);
            let written = bytes.and_then(|bytes| {
                make_private_directory(&directory)?;
                write_durably(&directory, &file(template), &bytes)
            });
            written.map_err(|source| SandboxError::Files {
                action: "write",
                path: directory,
                source,
            })?;
            replaced.extend(made.insert(template.which(), Arc::new(template.clone())));
        }
        Ok(replaced)
    }

    /// Removes one. Blocks until it is gone from disk.
    pub fn remove(&self, which: &TemplateRef) -> Result<Arc<Template>, SandboxError> {
        if self.configured.contains_key(which) {
            return Err(SandboxError::TemplateConfigured { template: which.clone() });
        }
        let mut made = self.made();
        let missing = || SandboxError::NoTemplate { template: which.clone() };
        let template = made.get(which).cloned().ok_or_else(missing)?;
        let directory = self.directory.join(which.namespace.as_str());
        let removed = fs::remove_file(directory.join(file(&template)));
        let removed = match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::File::open(&directory).and_then(|directory| directory.sync_all()),
        };
        removed.map_err(|source| SandboxError::Files {
            action: "remove",
            path: directory,
            source,
        })?;
        made.remove(which);
        Ok(template)
    }
}

fn file(template: &Template) -> String {
    format!("{}.{EXTENSION}", template.name.stem())
}

/// A template, if the file is where one of its name belongs.
fn read(path: &Path) -> io::Result<Template> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(TEMPLATE_FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    let template: Template = serde_json::from_slice(&bytes)?;
    let namespace = path.parent().and_then(Path::file_name);
    let is_its_place = path.file_name().is_some_and(|name| name == file(&template).as_str())
        && namespace.is_some_and(|name| name == template.namespace.as_str());
    is_its_place.then_some(template).ok_or_else(|| io::Error::other("it has the name of another"))
}

/// The templates in a state directory, without those of a configuration.
pub fn stored(directory: &Path) -> Vec<Template> {
    let files = entries(directory);
    let files = files.iter().flat_map(|namespace| entries(namespace));
    files.filter_map(|path| read(&path).ok()).collect()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<_> = listed.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::TemplateOptions;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("burrow-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn open(&self, configured: Vec<Template>) -> (Templates, Vec<String>) {
            Templates::open(self.0.clone(), configured).unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn template(which: &str) -> Template {
        Template::new(which.parse().unwrap(), TemplateOptions::default()).unwrap()
    }

    #[test]
    fn templates_are_there_for_the_next_bridge_and_a_torn_one_is_named() {
        let scratch = Scratch::new("templates");
        let (templates, _) = scratch.open(Vec::new());
        let (plain, tagged) = (template("ci/app"), template("ci/app:v1"));
        templates.put(&[plain.clone(), tagged.clone()]).unwrap();
        fs::write(scratch.0.join("ci/torn.json"), b"{").unwrap();
        // What a bridge leaves that dies while it writes.
        fs::write(scratch.0.join("ci/half.json.new"), b"{").unwrap();
        fs::copy(scratch.0.join("ci/app.json"), scratch.0.join("ci/other.json")).unwrap();
        let (again, unread) = scratch.open(Vec::new());
        assert_eq!(unread.len(), 2, "{unread:?}");
        let listed: Vec<_> = again.list(None).into_iter().map(|(it, _)| (*it).clone()).collect();
        assert_eq!(listed, [plain.clone(), tagged]);
        assert_eq!(*again.remove(&plain.which()).unwrap(), plain);
        assert!(matches!(again.remove(&plain.which()), Err(SandboxError::NoTemplate { .. })));
        assert_eq!(scratch.open(Vec::new()).0.list(None).len(), 1);
    }

    #[test]
    fn a_namespace_has_a_bound_and_replaces_its_own_at_it() {
        let scratch = Scratch::new("templates-full");
        let (templates, _) = scratch.open(Vec::new());
        for number in 0..TEMPLATES_PER_NAMESPACE_MAX {
            templates.put(&[template(&format!("ci/t{number}"))]).unwrap();
        }
        let full = templates.put(&[template("ci/one-more")]);
        assert!(matches!(full, Err(SandboxError::TooManyTemplates { .. })), "{full:?}");
        assert_eq!(templates.put(&[template("ci/t0")]).unwrap().len(), 1);
        templates.put(&[template("other/t0")]).unwrap();
    }

    #[test]
    fn one_of_the_configuration_is_changed_by_no_call() {
        let scratch = Scratch::new("templates-configured");
        let (templates, _) = scratch.open(vec![template("ci/app")]);
        let which = "ci/app".parse().unwrap();
        assert!(templates.get(&which).unwrap().1);
        for refused in [templates.put(&[template("ci/app")]).err(), templates.remove(&which).err()]
        {
            assert!(
                matches!(refused, Some(SandboxError::TemplateConfigured { .. })),
                "{refused:?}"
            );
        }
    }
}

//! Templates of a bridge: kept, shown, filled into specifications, and held warm in the pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Registry;
use crate::options::Defaults;
use crate::pool::{Entry, ShelfStatus, TemplateEntry};
use crate::startup::Startup;
use crate::template::Template;
use crate::{
    MachineKind, Name, NameRefused, SandboxError, SandboxRef, Spec, TemplateName, TemplateOptions,
    TemplateRef, TemplateRefused,
};

/// A template as people and programs see it. It contains no value of the environment, because those may be secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateInfo {
    pub namespace: Name,
    pub name: TemplateName,
    pub revision: String,
    pub created_at_ms: u64,
    /// It is from the configuration, and no call changes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub configured: bool,
    pub env_names: Vec<String>,
    /// Without its environment.
    pub options: TemplateOptions,
    /// The pool's part, of one that is kept warm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stock: Option<ShelfStatus>,
}

impl TemplateInfo {
    pub fn which(&self) -> TemplateRef {
        TemplateRef { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    fn of(template: &Template, configured: bool, stock: Option<ShelfStatus>) -> Self {
        let env_names = template.options.env.keys().cloned().collect();
        let options = TemplateOptions { env: BTreeMap::new(), ..template.options.clone() };
        Self {
            namespace: template.namespace.clone(),
            name: template.name.clone(),
            revision: template.revision.clone(),
            created_at_ms: template.created_at_ms,
            configured,
            env_names,
            options,
            stock,
        }
    }
}

impl Registry {
    /// Keeps a template durably, in the place of one with its name. It is kept for the next bridge when this
    /// returns; its warm sandboxes are started later.
    pub async fn put_template(
        &self,
        which: TemplateRef,
        options: TemplateOptions,
    ) -> Result<TemplateInfo, SandboxError> {
        let template = Template::new(which, options)?;
        Ok(self.put_templates(vec![template]).await?.remove(0))
    }

    /// The same for several names of one build.
    pub async fn put_templates(
        &self,
        templates: Vec<Template>,
    ) -> Result<Vec<TemplateInfo>, SandboxError> {
        for template in &templates {
            template.check()?;
            let mut spec = self.warm_spec(template)?;
            self.0.files.place_scratch(&mut spec, self.store_paths())?;
            spec.check_scratch()?;
        }
        self.0.templates.check(&templates)?;
        let Some(shared) = self.0.shared_templates.clone() else {
            return self.keep_templates(templates).await;
        };
        let registry = self.clone();
        // It is not left half-done by a caller that is gone.
        let putting = tokio::spawn(async move {
            let mut kept = Vec::new();
            for template in templates {
                let which = template.which();
                let refused = |refused| refusal(&which, refused);
                kept.push(shared.put(template).await.map_err(refused)?);
            }
            registry.keep_templates(kept).await
        });
        putting.await.unwrap_or(Err(SandboxError::Stopping))
    }

    /// Keeps templates here alone: those that the fleet has.
    pub async fn keep_templates(
        &self,
        templates: Vec<Template>,
    ) -> Result<Vec<TemplateInfo>, SandboxError> {
        let registry = self.clone();
        // It is not left half-done by a caller that is gone.
        let putting = tokio::task::spawn_blocking(move || {
            let replaced = registry.0.templates.put(&templates)?;
            for template in &replaced {
                registry.cool(template);
            }
            for template in &templates {
                registry.warm(template);
            }
            Ok(templates.iter().map(|template| registry.shown(template, false)).collect())
        });
        putting.await.unwrap_or(Err(SandboxError::Stopping))
    }

    /// Removes a template. Sandboxes of it stay.
    pub async fn remove_template(&self, which: &TemplateRef) -> Result<TemplateInfo, SandboxError> {
        let (template, is_configured) = self.0.templates.get(which)?;
        if let Some(shared) = self.0.shared_templates.as_ref().filter(|_| !is_configured) {
            let refused = |refused| refusal(which, refused);
            shared.remove(which).await.map_err(refused)?;
        }
        match self.forget_template(which).await {
            // The copy here has followed the fleet already.
            Err(SandboxError::NoTemplate { .. }) if self.0.shared_templates.is_some() => {
                Ok(TemplateInfo::of(&template, false, None))
            }
            removed => removed,
        }
    }

    /// Removes a template here alone: one that the fleet has no more.
    pub async fn forget_template(&self, which: &TemplateRef) -> Result<TemplateInfo, SandboxError> {
        let (registry, which) = (self.clone(), which.clone());
        let removing = tokio::task::spawn_blocking(move || {
            let removed = registry.0.templates.remove(&which)?;
            registry.cool(&removed);
            Ok(TemplateInfo::of(&removed, false, None))
        });
        removing.await.unwrap_or(Err(SandboxError::Stopping))
    }

    pub fn get_template(&self, which: &TemplateRef) -> Result<TemplateInfo, SandboxError> {
        let (template, is_configured) = self.0.templates.get(which)?;
        Ok(self.shown(&template, is_configured))
    }

    /// The template itself, with its environment, to keep it under another name.
    pub fn stored_template(&self, which: &TemplateRef) -> Result<Template, SandboxError> {
        Ok((*self.0.templates.get(which)?.0).clone())
    }

    /// The templates of one namespace or of all, by name.
    pub fn templates(&self, namespace: Option<&Name>) -> Vec<TemplateInfo> {
        let all = self.0.templates.list(namespace).into_iter();
        all.map(|(template, is_configured)| self.shown(&template, is_configured)).collect()
    }

    /// Refuses a request that names a template and something else to make the sandbox of.
    pub(super) fn check_template(spec: &Spec) -> Result<(), SandboxError> {
        let Some(name) = spec.template.clone() else { return Ok(()) };
        let others = [("image", spec.image.is_some()), ("snapshot", spec.snapshot.is_some())];
        match others.into_iter().find(|(_, is_given)| *is_given) {
            Some((what, _)) => {
                let template = TemplateRef { namespace: spec.namespace.clone(), name };
                Err(SandboxError::TemplateFixes { template, what })
            }
            None => Ok(()),
        }
    }

    /// Sets what a request for a sandbox of a template leaves out.
    pub(super) fn fill_from_template(
        &self,
        spec: &mut Spec,
    ) -> Result<Option<Arc<Template>>, SandboxError> {
        let Some(name) = spec.template.clone() else { return Ok(None) };
        let which = TemplateRef { namespace: spec.namespace.clone(), name };
        let (template, _) = self.0.templates.get(&which)?;
        template.fill(spec);
        Ok(Some(template))
    }

    /// The templates that calls have made, with their environments.
    pub fn stored_templates(&self) -> Vec<Template> {
        let all =
            self.0.templates.list(None).into_iter().filter(|(_, is_configured)| !is_configured);
        all.map(|(template, _)| (*template).clone()).collect()
    }

    /// A specification with what its template says, and whether every node of the fleet has that template.
    pub fn filled(&self, spec: &Spec) -> Result<(Spec, bool), SandboxError> {
        let mut filled = spec.clone();
        let template = self.fill_from_template(&mut filled)?;
        Ok((filled, template.is_none_or(|template| template.fleet.is_some())))
    }

    /// The kind of machine of a template's sandboxes, if it says so.
    pub fn template_machine(&self, spec: &Spec) -> Result<Option<MachineKind>, SandboxError> {
        let mut filled = spec.clone();
        self.fill_from_template(&mut filled)?;
        Ok(filled.machine)
    }

    /// Begins to keep sandboxes of the templates ready that say so.
    pub(super) fn warm_templates(&self) {
        for (template, _) in self.0.templates.list(None) {
            self.warm(&template);
        }
    }

    fn shown(&self, template: &Template, is_configured: bool) -> TemplateInfo {
        TemplateInfo::of(template, is_configured, self.0.pool.status_of(&template.revision))
    }

    /// Keeps sandboxes of a template ready from now on.
    fn warm(&self, template: &Template) {
        let image = template.options.image.as_deref();
        // A node of a fleet keeps ready what it has the image of.
        let is_here =
            self.0.shared_templates.is_none() || image.is_none_or(|image| self.has_image(image));
        if template.options.warm == 0 || !is_here {
            return;
        }
        let added = self.warm_spec(template).and_then(|spec| {
            let startup = Startup::of(&template.options);
            let entry = TemplateEntry { revision: template.revision.clone(), spec, startup };
            let name = format!("the template {}", template.which());
            self.0.pool.add(Entry::of_template(name, template.options.warm, entry))
        });
        if let Err(error) = added {
            self.0.trouble(
                None,
                format!("the template {} is not kept warm: {error}", template.which()),
            );
        }
    }

    fn cool(&self, template: &Template) {
        self.0.pool.take_away(&template.revision);
    }

    /// The specification of a sandbox that asks for nothing but the template.
    fn warm_spec(&self, template: &Template) -> Result<Spec, SandboxError> {
        let (namespace, name) = (template.namespace.clone(), template.name.base.clone());
        let mut spec = Spec::new(SandboxRef { namespace, name });
        template.fill(&mut spec);
        let limits =
            Defaults { ttl_ms: None, idle_ttl_ms: None, on_idle: None, ..self.0.defaults.clone() };
        limits.fill(&mut spec);
        if template.options.warm > 0 && !spec.machine().is_started() {
            return Err(SandboxError::Unsupported {
                what: "warm",
                why: "the bridge does not start external machines",
                hint: "leave warm out",
            });
        }
        self.0.files.settle(&mut spec)?;
        Ok(spec)
    }
}

fn refusal(which: &TemplateRef, refused: NameRefused) -> SandboxError {
    let refused = TemplateRefused { template: which.clone(), why: refused };
    SandboxError::TemplateRefused(Box::new(refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_of_the_environment_of_a_template_is_shown() {
        let mut options = TemplateOptions::default();
        options.env.insert("TOKEN".to_owned(), "hunter2".to_owned());
        let template = Template::new("ci/app".parse().unwrap(), options).unwrap();
        let shown = serde_json::to_string(&TemplateInfo::of(&template, false, None)).unwrap();
        assert!(shown.contains("TOKEN") && !shown.contains("hunter2"), "{shown}");
    }
}

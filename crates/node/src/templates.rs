//! Templates of the fleet: each is a document in NATS, and every node has a copy.
//!
//! ```text
//!  put at any node ─▶ NATS, over the revision that was read ─▶ watch ─▶ every registry keeps it
//! ```
//!
//! A copy says which fleet it is of. One that the fleet has no more is removed; one that no fleet has had is given to it when
//! the node joins. Without NATS copies are read and used, and nothing is changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use fleet::event::Outcome;
use fleet::limits::RECORD_BYTES_MAX;
use fleet::nats::{Change, Document, Documents, Link, Shelf};
use machine::BoxFuture;
use sandbox::refusal::Code;
use sandbox::{Event, NameRefused, SharedTemplates, Template, TemplateName, TemplateRef};

use crate::limits::{CONNECT_PAUSE, DOCUMENT_WRITES_MAX};
use crate::{Inner, Node};

/// The key of a template's document. A tag may have dots, which are borders in a key, and has no `=`.
fn key_of(which: &TemplateRef) -> String {
    let TemplateRef { namespace, name } = which;
    match name.to_string().split_once(':') {
        Some((base, tag)) => format!("{namespace}.{base}.{}", tag.replace('.', "=")),
        None => format!("{namespace}.{name}"),
    }
}

fn which_of(key: &str) -> Option<TemplateRef> {
    let mut parts = key.splitn(3, '.');
    let namespace = parts.next()?.parse().ok()?;
    let base = parts.next()?.parse().ok()?;
    let name = match parts.next() {
        Some(tag) => TemplateName::tagged(base, &tag.replace('=', ".")).ok()?,
        None => base.into(),
    };
    Some(TemplateRef { namespace, name })
}

fn away(why: &str) -> NameRefused {
    NameRefused { code: Code::Unavailable, why: format!("nothing was changed: {why}") }
}

/// The write may have been stored.
fn unknown() -> NameRefused {
    let why = "NATS did not say whether it was changed; look before you repeat the call";
    NameRefused { code: Code::Unavailable, why: why.to_owned() }
}

impl SharedTemplates for Node {
    fn put(&self, template: Template) -> BoxFuture<'_, Result<Template, NameRefused>> {
        Box::pin(async move {
            let link = self.documents()?;
            // Who makes a sandbox of it at another node finds the image.
            self.describe_images().await;
            let template = Template { fleet: Some(link.documents_id()), ..template };
            let bytes = serde_json::to_vec(&template).unwrap_or_default();
            if bytes.len() > RECORD_BYTES_MAX {
                let why = format!("it has {} bytes, and {RECORD_BYTES_MAX} may be", bytes.len());
                return Err(NameRefused { code: Code::TooLarge, why });
            }
            write(&link, &template.which(), Some(&bytes)).await?;
            Ok(template)
        })
    }

    fn remove<'a>(&'a self, which: &'a TemplateRef) -> BoxFuture<'a, Result<(), NameRefused>> {
        Box::pin(async move { write(&self.documents()?, which, None).await })
    }
}

/// Writes over what is there, or removes it. Of several at once the last one stays.
async fn write(link: &Link, which: &TemplateRef, bytes: Option<&[u8]>) -> Result<(), NameRefused> {
    let key = key_of(which);
    for _ in 0..DOCUMENT_WRITES_MAX {
        let found = link
            .read_document(Shelf::Templates, &key)
            .await
            .map_err(|error| away(&error.to_string()))?;
        if bytes.is_none() && found.bytes.is_none() {
            return Ok(());
        }
        match link.write_document(Shelf::Templates, &key, found.revision, bytes).await {
            Outcome::Stored(_) => return Ok(()),
            Outcome::Conflict => {}
            Outcome::Unavailable => return Err(unknown()),
        }
    }
    Err(away("others change it at the same moment; repeat the call"))
}

impl Node {
    pub(crate) fn documents(&self) -> Result<Link, NameRefused> {
        self.standing().map_err(|why| away(&why))?;
        let handle = self.handle().ok_or_else(|| away("this node is joining its fleet"))?;
        Ok(handle.link)
    }

    /// Reads a template of the fleet, so that what follows has it as it is now. Without NATS the copy counts.
    pub async fn refresh_template(&self, which: &TemplateRef) {
        let Ok(link) = self.documents() else { return };
        if let Ok(Document { bytes: Some(bytes), .. }) =
            link.read_document(Shelf::Templates, &key_of(which)).await
            && let Some(template) = parse(which, &bytes)
        {
            self.keep(template).await;
        }
    }

    /// Has the copies follow the fleet.
    pub(crate) async fn keep_templates(&self) {
        let weak = Arc::downgrade(&self.0);
        loop {
            let Some(node) = weak.upgrade().map(Node) else { return };
            if let Some(handle) = node.handle()
                && let Ok(watch) = handle.link.watch_documents(&node.0.id).await
            {
                drop(node);
                follow(&weak, watch, &handle.link).await;
            }
            tokio::time::sleep(CONNECT_PAUSE).await;
        }
    }

    /// Keeps a copy, unless it is there already.
    async fn keep(&self, template: Template) {
        let Some(registry) = self.0.registry.get() else { return };
        let which = template.which();
        if registry.stored_template(&which).is_ok_and(|known| known == template) {
            return;
        }
        if let Err(error) = registry.keep_templates(vec![template]).await {
            let what = format!("the fleet's template {which} is not kept here: {error}");
            (self.0.events)(&Event::Trouble { which: None, what });
        }
    }

    async fn forget(&self, which: &TemplateRef) {
        if let Some(registry) = self.0.registry.get() {
            // One that is not here, or is of the configuration, is nothing to forget.
            let _ = registry.forget_template(which).await;
        }
    }

    /// Compares the copies with all that the fleet has.
    async fn settle(&self, all: BTreeMap<TemplateRef, Option<Template>>, link: &Link) {
        let Some(registry) = self.0.registry.get() else { return };
        let fleet = link.documents_id();
        for template in registry.stored_templates() {
            let which = template.which();
            if all.get(&which).is_some_and(Option::is_some) {
                continue;
            }
            if template.fleet.as_ref() == Some(&fleet) {
                self.forget(&which).await;
                continue;
            }
            let template = Template { fleet: Some(fleet.clone()), ..template };
            let Ok(bytes) = serde_json::to_vec(&template) else { continue };
            let key = key_of(&which);
            let Ok(Document { revision, bytes: None }) =
                link.read_document(Shelf::Templates, &key).await
            else {
                // Another node has given one meanwhile: the watch tells it.
                continue;
            };
            let given = link.write_document(Shelf::Templates, &key, revision, Some(&bytes)).await;
            if matches!(given, Outcome::Stored(_)) {
                self.keep(template).await;
            }
        }
        for template in all.into_values().flatten() {
            self.keep(template).await;
        }
    }
}

fn parse(which: &TemplateRef, bytes: &[u8]) -> Option<Template> {
    let template: Option<Template> = serde_json::from_slice(bytes).ok();
    let template = template.filter(|template| template.which() == *which);
    if template.is_none() {
        tracing::warn!(%which, "the fleet's template is not one of ours");
    }
    template
}

/// Takes over what the fleet has, and what it changes, until the watch ends.
async fn follow(weak: &Weak<Inner>, mut watch: Documents, link: &Link) {
    let mut first = Some(BTreeMap::new());
    while let Some(change) = watch.next().await {
        let Some(node) = weak.upgrade().map(Node) else { return };
        match change {
            Change::Document { key, bytes } => {
                let Some(which) = which_of(&key) else { continue };
                let template = bytes.as_ref().and_then(|bytes| parse(&which, bytes));
                if bytes.is_some() && template.is_none() {
                    continue;
                }
                match (&mut first, template) {
                    (Some(first), template) => drop(first.insert(which, template)),
                    (None, Some(template)) => node.keep(template).await,
                    (None, None) => node.forget(&which).await,
                }
            }
            Change::AllTold => {
                if let Some(all) = first.take() {
                    node.settle(all, link).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_template_is_its_own_and_comes_back() {
        for (text, key) in [
            ("app", "default.app"),
            ("ci/app:v1", "ci.app.v1"),
            ("ci/app:v1.2.3-rc_4", "ci.app.v1=2=3-rc_4"),
        ] {
            let which: TemplateRef = text.parse().unwrap();
            assert_eq!(key_of(&which), key);
            assert_eq!(which_of(key), Some(which));
        }
        for key in ["", "app", "a b.c", "ci.app.", "ci.app.=x"] {
            assert_eq!(which_of(key), None, "{key}");
        }
    }

    #[test]
    fn a_document_of_another_name_is_no_template() {
        let which: TemplateRef = "ci/app".parse().unwrap();
        let template = Template::new(which.clone(), sandbox::TemplateOptions::default()).unwrap();
        let bytes = serde_json::to_vec(&template).unwrap();
        assert_eq!(parse(&which, &bytes), Some(template));
        assert_eq!(parse(&"ci/other".parse().unwrap(), &bytes), None);
        assert_eq!(parse(&which, b"{"), None);
    }
}

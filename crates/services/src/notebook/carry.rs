//! Carries notebooks into forks of their sandbox: each fork gets a notebook of its own with the variables that
//! were saved last. They are restored by its first run.

use std::collections::HashSet;

use super::error::NotebookError;
use super::limits::ID_BYTES_MAX;
use super::manifest::Manifest;
use super::vault::{Stamp, Vault};
use super::{NotebookSandbox, Notebooks, context_name, locked, seat};
use crate::store::notebooks::{NotebookInsert, NotebookRow, Totals};
use host::instant::now_ms;
use sandbox::fork::CarriedNotebook;
use sandbox::{CarriedContexts, Record, SandboxRef};

/// Readings of a state that changes meanwhile. Saves are seconds apart.
const TRIES_MAX: usize = 3;

impl Notebooks {
    /// Gives each fork a notebook for each of those whose interpreters are in the original. One that cannot be
    /// carried into all is carried into none, and reported as trouble.
    pub(super) async fn carry(&self, source: &Record, forks: &[SandboxRef]) -> CarriedContexts {
        let mut carried = CarriedContexts::default();
        let rows = self.0.store.notebooks(Some(source.namespace.to_string())).await;
        for row in rows.unwrap_or_default() {
            if seat(&row).ok().flatten().is_none_or(|seat| seat.id != source.id) {
                continue;
            }
            let (mut made, mut failure) = (Vec::new(), None);
            for fork in forks {
                match self.carry_one(&row, fork).await {
                    Ok(id) => made.push((id, fork)),
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                }
            }
            if let Some(error) = failure {
                for (id, _) in made {
                    self.drop_copy(&row.namespace, &id).await;
                }
                let what = format!("the notebook {} was not carried into forks: {error}", row.id);
                (self.0.trouble)(what);
                continue;
            }
            carried.contexts.push(context_name(&row.id).to_string());
            carried.notebooks.extend(made.into_iter().map(|(notebook, fork)| CarriedNotebook {
                from: row.id.clone(),
                notebook,
                sandbox: fork.name.to_string(),
            }));
        }
        carried
    }

    async fn carry_one(
        &self,
        from: &NotebookRow,
        fork: &SandboxRef,
    ) -> Result<String, NotebookError> {
        let id = format!("{}-{}", from.id, fork.name);
        if id.len() > ID_BYTES_MAX {
            return Err(NotebookError::Name { id });
        }
        let now = now_ms();
        let place = NotebookSandbox::Sandbox(fork.clone());
        let row = NotebookRow {
            id: id.clone(),
            created_ms: now,
            used_ms: now,
            place: serde_json::to_string(&place).unwrap_or_default(),
            seat: None,
            saved: None,
            unsaved_runs: 0,
            totals: Totals::default(),
            ..from.clone()
        };
        match self.0.store.add_notebook(row).await? {
            NotebookInsert::Made => {}
            NotebookInsert::Found(_) => return Err(NotebookError::Name { id }),
            NotebookInsert::Full { max } => {
                return Err(NotebookError::Full { namespace: from.namespace.clone(), max });
            }
        }
        let copied = async {
            let old = self.0.vault(&from.namespace, &from.id)?;
            let new = locked(self.0.vault(&from.namespace, &id)?, &id).await?;
            let copying = tokio::task::spawn_blocking(move || copy(&old, &new)).await;
            copying.unwrap_or(Err(NotebookError::Closed))
        };
        if let Err(error) = copied.await {
            self.drop_copy(&from.namespace, &id).await;
            return Err(error);
        }
        Ok(id)
    }

    /// Removes a notebook that nobody has used yet.
    async fn drop_copy(&self, namespace: &str, id: &str) {
        let _ = self.0.store.remove_notebook(namespace, id).await;
        let _ = self.0.vault(namespace, id).map(|vault| vault.remove());
    }
}

/// Copies a state, each file sealed for its new notebook. Its runs are counted from 0 there.
fn copy(old: &Vault, new: &Vault) -> Result<(), NotebookError> {
    let mut tries = 1;
    loop {
        match try_copy(old, new) {
            // A save has replaced the state meanwhile.
            Err(_) if tries < TRIES_MAX => tries += 1,
            copied => return copied,
        }
    }
}

fn try_copy(old: &Vault, new: &Vault) -> Result<(), NotebookError> {
    let Some((_, manifest)) = old.state()? else { return Ok(()) };
    let mut digests = HashSet::new();
    for group in Manifest::parse(&manifest)?.groups {
        // What could not be loaded may be missing.
        if !old.has(&group.digest) || !digests.insert(group.digest.clone()) {
            continue;
        }
        let (mut opening, mut keeping) = (old.open(&group.digest)?, new.begin(&group.digest)?);
        while let Some(chunk) = opening.next()? {
            keeping.write(&chunk)?;
        }
        keeping.finish()?;
    }
    Ok(new.commit(Stamp { version: 0, run: 0 }, &manifest, &digests)?)
}

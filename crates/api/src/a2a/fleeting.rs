//! A sandbox for one run. It is removed when the run has ended, or when its client disconnects.

use crate::call::Call;
use crate::creation::{namespace_of, permitted};
use crate::placing;
use host::id::RandomId;
use sandbox::refusal::{Code, Refusal};
use sandbox::{Incarnation, Name, Registry, SandboxRef, Spec, Until};

pub struct Fleeting {
    registry: Registry,
    which: SandboxRef,
    is_removed: bool,
}

/// What is asked for, under a name that is drawn.
pub fn spec(
    call: &Call,
    ask: impl FnOnce(SandboxRef) -> Result<Spec, Refusal>,
) -> Result<Spec, Refusal> {
    let failed =
        |why: String| Refusal::new(Code::Internal, format!("cannot make a random name: {why}"));
    let which = placing::name(call, || {
        let drawn = RandomId::draw().map_err(|error| failed(error.to_string()))?;
        let name = format!("run-{drawn}").parse::<Name>();
        let name = name.map_err(|error| failed(error.to_string()))?;
        Ok(SandboxRef { namespace: namespace_of(&call.caller, None), name })
    })?;
    call.reaches(&which.namespace)?;
    permitted(&call.api, &call.caller, ask(which)?)
}

impl Fleeting {
    /// Makes one here, under the life that was taken for it.
    pub async fn make(
        call: &Call,
        spec: Spec,
        placed: Option<Incarnation>,
    ) -> Result<Self, Refusal> {
        let (registry, which) = (call.api.registry().clone(), spec.which());
        // Held from here on: a client that leaves meanwhile leaves nothing behind.
        let fleeting = Self { registry, which, is_removed: false };
        fleeting.registry.create_placed(spec, placed).await?;
        Ok(fleeting)
    }

    pub fn which(&self) -> &SandboxRef {
        &self.which
    }

    /// Removes it, and waits until it is gone. A failure here does not fail the run.
    pub async fn remove(mut self) {
        let removed = self.registry.discard(&self.which).await;
        self.is_removed = removed.is_ok();
    }
}

impl Drop for Fleeting {
    fn drop(&mut self) {
        if self.is_removed {
            return;
        }
        let (registry, which) = (self.registry.clone(), self.which.clone());
        tokio::spawn(async move {
            // One that is still being made is let come into being; one that failed is gone already.
            let _ = registry.wait(&which, Until::Created).await;
            let _ = registry.discard(&which).await;
        });
    }
}

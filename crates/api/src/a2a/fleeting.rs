//! A sandbox for one run, which goes with it: when the run is over, and when whoever wanted it is gone.

use crate::call::Call;
use crate::problem::{Code, Problem};
use crate::v1::{CreateSandbox, spec_of};
use host::id::RandomId;
use sandbox::{Name, Registry, SandboxRef, Until};

pub struct Fleeting {
    registry: Registry,
    which: SandboxRef,
    is_removed: bool,
}

impl Fleeting {
    /// Makes one under a name that is drawn.
    pub async fn make(
        call: &Call,
        asked: impl FnOnce(Name) -> CreateSandbox,
    ) -> Result<Self, Problem> {
        let failed =
            |why: String| Problem::new(Code::Internal, format!("cannot make a random name: {why}"));
        let drawn = RandomId::draw().map_err(|error| failed(error.to_string()))?;
        let name = format!("run-{drawn}").parse::<Name>();
        let name = name.map_err(|error| failed(error.to_string()))?;
        let spec = spec_of(&call.api, &call.caller, asked(name))?;
        call.reaches(&spec.namespace)?;
        let which = SandboxRef { namespace: spec.namespace.clone(), name: spec.name.clone() };
        let registry = call.api.registry().clone();
        // Held from here on: a client that leaves meanwhile leaves nothing behind.
        let fleeting = Self { registry, which, is_removed: false };
        fleeting.registry.create(spec).await?;
        Ok(fleeting)
    }

    pub fn which(&self) -> &SandboxRef {
        &self.which
    }

    /// Removes it, and waits until it is gone. That this fails says nothing of the run.
    pub async fn remove(mut self) {
        let removed = self.registry.remove(&self.which, true).await;
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
            let _ = registry.remove(&which, true).await;
        });
    }
}

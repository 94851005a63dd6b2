//! The artifacts of one run, for the calls that ask for them: a scan before the run, and another
//! after it that stores them. Each caller gives them its own form.

use protocol::Text;
use protocol::repl::Happening;
use tokio::time::Instant;

use super::Api;
use super::budget::Share;
use super::call::Inside;
use super::limits::ANSWER_MARGIN;
use sandbox::refusal::Refusal;
use services::artifact::{Artifacts, Before, Captured, Offers, Origin, Scene};

/// A run whose artifacts will be kept.
pub struct Capture {
    artifacts: Artifacts,
    before: Before,
    origin: Origin,
    offers: Offers,
    /// By when its call must be answered.
    until: Option<Instant>,
}

impl Capture {
    /// Looks at the directories of a run that has not begun.
    pub async fn begin(api: &Api, inside: &Inside, scene: Scene) -> Result<Self, Refusal> {
        let artifacts = api.artifacts()?.clone();
        let user = scene.user.or_else(|| inside.user.clone());
        let before = artifacts.before(&inside.guest, &Scene { user, ..scene }).await;
        let origin = origin(inside);
        Ok(Self { artifacts, before, origin, offers: Offers::default(), until: None })
    }

    /// The same for a call with a deadline, which its answer must not miss: what cannot be kept until
    /// then is named as left out.
    #[must_use]
    pub fn within(mut self, deadline: Option<Instant>) -> Self {
        self.until = deadline.and_then(|deadline| deadline.checked_sub(ANSWER_MARGIN));
        self
    }

    /// The same for a run of a notebook, which counts its own.
    #[must_use]
    pub fn of_notebook(mut self, id: &str, number: u64) -> Self {
        self.origin.notebook = id.parse().ok();
        self.origin.run = Some(number);
        self
    }

    /// Takes note of what the run says. What is kept of it is counted as the call's memory.
    pub fn see(&mut self, what: &Happening, memory: &Share) {
        self.offers.see(what, |bytes| memory.try_grow(bytes));
    }

    /// Keeps what the run has left, whose number this is if it has one. Is carried out whether
    /// a caller waits for it or not.
    pub async fn end(mut self, run: Option<u64>) -> Captured {
        self.origin.run = self.origin.run.or(run);
        let Self { artifacts, before, origin, offers, until } = self;
        let keeping =
            tokio::spawn(async move { artifacts.after(before, origin, offers, until).await });
        // The task ends early only with the server.
        keeping.await.unwrap_or_default()
    }
}

/// What is kept of a sandbox by this call.
pub fn origin(inside: &Inside) -> Origin {
    Origin {
        namespace: inside.which.namespace.clone(),
        sandbox: inside.which.name.clone(),
        notebook: None,
        run: None,
    }
}

/// The directory that a run of this context begins in.
pub async fn directory_of(
    inside: &Inside,
    context: &protocol::ContextName,
    requested: Option<&Text>,
) -> Result<Option<Text>, Refusal> {
    if let Some(cwd) = requested {
        return Ok(Some(cwd.clone()));
    }
    let contexts = inside.guest.contexts().await?;
    let found = contexts.into_iter().find(|info| info.context == *context);
    Ok(found.and_then(|info| info.cwd))
}

//! The newest sample of each sandbox, for scrapes.
//!
//! To ask hundreds of agents at once takes as long as all of them need to answer, and each scrape waited for
//! that. So while scrapes come, the agents are asked one after the other between them, and a scrape takes
//! what is there, also where a busy host is late with the next; it asks only those of which nothing is known. Without
//! scrapes no agent is asked.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use machine::SandboxId;
use protocol::metrics::Sample;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::super::Api;
use super::super::limits::{
    SAMPLE_AGE_MAX, SAMPLES_AT_ONCE_MIN, SAMPLES_EVERY, SAMPLES_KEPT_FOR, SAMPLES_PAUSE,
    SAMPLES_TURNS_MAX, SCRAPE_GUEST_MAX,
};
use agent_client::guest::Guest;
use sandbox::{Phase, Record};

/// See the module's description.
#[derive(Default)]
pub struct Samples(Mutex<Known>);

#[derive(Default)]
struct Known {
    samples: HashMap<SandboxId, (Instant, Sample)>,
    scraped_at: Option<Instant>,
    is_refreshed: bool,
}

impl Samples {
    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing in it is ever half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The samples of those of the records that run and answer.
pub async fn of(api: &Api, records: &[Record]) -> HashMap<SandboxId, Sample> {
    let running = records.iter().filter(|record| record.state.phase() == Phase::Running);
    let (mut found, mut answers) = (HashMap::new(), JoinSet::new());
    {
        let mut known = api.samples().known();
        known.scraped_at = Some(Instant::now());
        for record in running {
            let id = record.id.clone();
            if let Some((_, sample)) = known.samples.get(&id) {
                found.insert(id, *sample);
            } else if let Ok(guest) = api.registry().guest(&record.which()) {
                answers.spawn(async move { ask(guest).await.map(|sample| (id, sample)) });
            }
        }
        if !std::mem::replace(&mut known.is_refreshed, true) {
            tokio::spawn(refresh(api.downgrade()));
        }
    }
    while let Some(answer) = answers.join_next().await {
        let Some((id, sample)) = answer.ok().flatten() else { continue };
        api.samples().known().samples.insert(id.clone(), (Instant::now(), sample));
        found.insert(id, sample);
    }
    found
}

async fn ask(guest: Guest) -> Option<Sample> {
    let answer = timeout(SCRAPE_GUEST_MAX, guest.newest_metrics(false)).await.ok()?.ok()?;
    answer.newest().copied()
}

/// Asks all running ones, a few at a time, until the scrapes stop.
async fn refresh(api: super::super::WeakApi) {
    loop {
        sleep(SAMPLES_EVERY).await;
        let Some(api) = api.upgrade() else { return };
        {
            let mut known = api.samples().known();
            if known.scraped_at.is_none_or(|at| at.elapsed() > SAMPLES_KEPT_FOR) {
                *known = Known::default();
                return;
            }
        }
        let mut records = api.registry().list(None);
        records.retain(|record| record.state.phase() == Phase::Running);
        let running: HashSet<_> = records.iter().map(|record| record.id.clone()).collect();
        api.samples().known().samples.retain(|id, _| running.contains(id));
        let at_once = SAMPLES_AT_ONCE_MIN.max(records.len().div_ceil(SAMPLES_TURNS_MAX));
        for few in records.chunks(at_once) {
            let mut answers = JoinSet::new();
            for record in few {
                let Ok(guest) = api.registry().guest(&record.which()) else { continue };
                let id = record.id.clone();
                answers.spawn(async move { (id, ask(guest).await) });
            }
            while let Some(answer) = answers.join_next().await {
                let Ok((id, sample)) = answer else { continue };
                let samples = &mut api.samples().known().samples;
                match sample {
                    Some(sample) => drop(samples.insert(id, (Instant::now(), sample))),
                    // A sandbox that does not answer is not shown for long as if it did.
                    None => samples
                        .retain(|other, (at, _)| *other != id || at.elapsed() <= SAMPLE_AGE_MAX),
                }
            }
            sleep(SAMPLES_PAUSE).await;
        }
    }
}

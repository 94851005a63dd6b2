//! The history of what sandboxes use: the samples of their agents, kept with falling resolution in each
//! sandbox's state directory.
//!
//! An owner has one for its sandbox, which asks the agent every few seconds for what it has sampled since, and once a
//! minute while nothing runs; the agent keeps a quarter of an hour of samples, so that a cut of the link or a new bridge
//! leaves no gap. The same samples are counted as costs. Nothing here can stop a sandbox: what cannot be read or written is reported once.
//!
//! Files are written on threads that may block. The task that has asked may be gone by then: the samples are counted
//! to the end nevertheless, before the next question is asked.

mod bucket;
mod history;
mod ring;
mod step;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use protocol::FaultCode;
use protocol::limits::METRICS_PAGE_MAX;
use protocol::metrics::Sample;
use tokio::sync::{OwnedMutexGuard, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout, timeout_at};

pub use bucket::{Bucket, Counters, CpuParts, Gauge};
pub use history::{History, InvalidWindow, Window};
use step::Step;

use crate::costs::{Cost, Costs, CountedEnd, Payer};
use crate::limits::{
    ENDS_UNCOUNTED_MAX, TELEMETRY_APART, TELEMETRY_AT_REST_MS, TELEMETRY_CLOCK_DRIFT_MS,
    TELEMETRY_DEADLINE, TELEMETRY_FIRST_PAUSE, TELEMETRY_LAST_DEADLINE, TELEMETRY_PAGES_MAX,
    TELEMETRY_PAUSE, TELEMETRY_PAUSE_AT_REST,
};
use crate::log::{ProvenanceLog, log_directory};
use crate::presence::Presence;
use crate::{Event, EventSink, Phase, Record, SandboxRef};
use agent_client::guest::{Guest, GuestError};
use egress::Carried;
use host::instant::now_ms;
use host::paths::make_private_directory;
use host::together::together;
use ring::{RESOLUTIONS, Ring};

/// The directory of the files in a sandbox's state directory.
const DIRECTORY: &str = "metrics";
/// How often the ends of programs are counted of a sandbox in which nothing goes on any more.
const COUNTS_WHEN_STILL: u32 = 2;

/// The history of one sandbox. Clones are the same.
#[derive(Clone)]
pub(super) struct Telemetry(Arc<Inner>);

struct Inner {
    /// Whether there is a next bridge to keep anything for.
    is_kept: bool,
    which: SandboxRef,
    created_at_ms: u64,
    costs: Costs,
    events: EventSink,
    carried: Carried,
    /// Batches that could not be written.
    failures: AtomicU64,
    /// The sandbox is about to be removed, with its history: nothing is written any more.
    is_doomed: AtomicBool,
    /// The agent has taken its last samples far apart: nothing runs in the sandbox.
    is_at_rest: AtomicBool,
    /// Ends of programs and runs that this bridge has recorded since they were counted.
    uncounted_ends: AtomicU64,
    /// Where they are recorded, while the sandbox runs.
    ends: Mutex<Weak<ProvenanceLog>>,
    /// One count of them at a time.
    counting: Mutex<Counted>,
    /// One question at a time: two would count the same samples.
    asking: Arc<tokio::sync::Mutex<()>>,
    account: Mutex<Account>,
    /// Locked only by threads that may block: it is held while files are written.
    store: Mutex<Store>,
}

/// How often the ends of programs were counted since nothing goes on in the sandbox.
#[derive(Default)]
struct Counted {
    still_since_ms: Option<u64>,
    times: u32,
}

struct Account {
    payer: Payer,
    /// Bytes of connections that are counted.
    carried: [u64; 2],
    /// The sandbox is removed: what still comes would be counted for nobody.
    is_closed: bool,
}

struct Store {
    directory: PathBuf,
    /// Opened with the first batch.
    rings: Vec<Ring>,
    /// Up to when an earlier bridge has written, until the first batch of this one is added.
    known_ms: Option<u64>,
}

impl Telemetry {
    pub fn new(
        record: &Record,
        state: &Path,
        is_kept: bool,
        costs: Costs,
        events: EventSink,
    ) -> Self {
        let directory = state.join(DIRECTORY);
        let store = Store { directory, rings: Vec::new(), known_ms: None };
        Self(Arc::new(Inner {
            is_kept,
            which: record.which(),
            created_at_ms: record.created_at_ms,
            costs,
            events,
            carried: Carried::default(),
            failures: AtomicU64::new(0),
            is_doomed: AtomicBool::new(false),
            is_at_rest: AtomicBool::new(false),
            uncounted_ends: AtomicU64::new(0),
            ends: Mutex::default(),
            counting: Mutex::default(),
            asking: Arc::default(),
            account: Mutex::new(Account {
                payer: Payer::of(record),
                carried: [0; 2],
                is_closed: false,
            }),
            store: Mutex::new(store),
        }))
    }

    /// The sandbox has another machine than it was about to have: one of the pool.
    pub fn move_to(&self, record: &Record, state: &Path) {
        self.account().payer = Payer::of(record);
        // Nothing is written before it runs.
        self.store().directory = state.join(DIRECTORY);
    }

    fn payer(&self) -> Payer {
        self.account().payer.clone()
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        // Its fields are replaced as a whole.
        self.0.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the bytes of the sandbox's connections are counted.
    pub fn carried(&self) -> Carried {
        self.0.carried.clone()
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // After a panic a batch may be missing, and no record is half-changed.
        self.0.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a guest until it is lost. While its machine is paused nobody would answer.
    pub async fn follow(
        self,
        guest: Guest,
        presence: Arc<Presence>,
        mut shown: watch::Receiver<Record>,
    ) {
        if !self.0.is_kept {
            return;
        }
        sleep(TELEMETRY_FIRST_PAUSE).await;
        let is_paused = |record: &Record| record.state.phase() == Phase::Paused;
        let mut was_missed = false;
        loop {
            if is_paused(&shown.borrow_and_update()) {
                if shown.wait_for(|record| !is_paused(record)).await.is_err() {
                    return;
                }
                // Its request comes first. One that was awake for less than that is asked at once the next time.
                was_missed = !was_missed
                    && timeout(TELEMETRY_FIRST_PAUSE, shown.wait_for(is_paused)).await.is_ok();
                if was_missed {
                    continue;
                }
            }
            if let Err(GuestError::Link(_)) = self.collect(&guest).await {
                return;
            }
            if self.0.is_at_rest.load(Ordering::Relaxed) {
                let due = together(Instant::now() + TELEMETRY_PAUSE_AT_REST, TELEMETRY_APART);
                if timeout_at(due, presence.active()).await.is_err() {
                    continue;
                }
            }
            sleep(TELEMETRY_PAUSE).await;
        }
    }

    /// Takes what a guest has sampled up to now, before it ends.
    pub async fn take_last(&self, guest: &Guest) {
        if !self.0.is_kept {
            return;
        }
        // A guest that does not answer must not delay its own end.
        let _ = timeout(TELEMETRY_LAST_DEADLINE, self.collect(guest)).await;
    }

    /// Takes what a guest has sampled up to now, for somebody who asks. If it does not answer, what is known has to do.
    pub async fn refresh(&self, guest: &Guest) {
        if self.0.is_kept {
            let _ = self.collect(guest).await;
        }
    }

    /// Takes the samples that are new.
    pub async fn collect(&self, guest: &Guest) -> Result<(), GuestError> {
        let mut asking = Arc::clone(&self.0.asking).lock_owned().await;
        let payer = self.payer();
        // A guest that always has more is asked again in its turn.
        for _ in 0..TELEMETRY_PAGES_MAX {
            let last = self.0.costs.last(&payer);
            let since = last.map_or(0, |last| last.number);
            let Ok(page) = timeout(TELEMETRY_DEADLINE, guest.metrics(since, false)).await else {
                return Ok(());
            };
            let page = match page {
                // The guest has begun again.
                Err(GuestError::Fault(fault)) if fault.code == FaultCode::Invalid && since > 0 => {
                    self.0.costs.begin_again(&payer);
                    continue;
                }
                page => page?,
            };
            let is_last = page.samples.len() < METRICS_PAGE_MAX;
            match self.take_apart(page.samples, asking).await {
                Some(still_asking) if !is_last => asking = still_asking,
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Takes samples on a thread that may block. The right to ask goes along: if the caller is cut off, the next
    /// question waits until these are counted. `None` after a panic, which the thread has reported.
    async fn take_apart(
        &self,
        samples: Vec<Sample>,
        asking: OwnedMutexGuard<()>,
    ) -> Option<OwnedMutexGuard<()>> {
        let telemetry = self.clone();
        let taking = spawn_blocking(move || {
            telemetry.take(&samples, now_ms());
            asking
        });
        taking.await.ok()
    }

    /// Counts samples that have just come, and writes them.
    fn take(&self, samples: &[Sample], now_ms: u64) {
        let buckets = self.count(samples, now_ms);
        if !buckets.is_empty() {
            let written = self.keep(&buckets);
            self.note(&written);
        }
    }

    fn keep(&self, buckets: &[Bucket]) -> io::Result<()> {
        let mut store = self.store();
        if self.0.is_doomed.load(Ordering::Acquire) {
            return Ok(());
        }
        store.write(buckets, |what| self.trouble(what))
    }

    /// Counts samples that have just come, and what connections have carried.
    fn count(&self, samples: &[Sample], now_ms: u64) -> Vec<Bucket> {
        let newest = samples.last().map_or(0, |sample| sample.uptime_ms);
        let mut account = self.account();
        if account.is_closed {
            return Vec::new();
        }
        let payer = account.payer.clone();
        let mut buckets: Vec<Bucket> = Vec::with_capacity(samples.len());
        for sample in samples {
            let at_ms = moment(sample, newest, now_ms);
            let last = self.0.costs.last(&payer);
            if at_ms <= self.0.created_at_ms || (last.is_none() && sample.number > 1) {
                // It ran before it was this sandbox, or nobody knows what was counted.
                self.0.costs.begin_at(&payer, sample);
                continue;
            }
            let step = Step::between(last.as_ref(), sample);
            let is_at_rest = last.is_some() && step.elapsed_ms >= TELEMETRY_AT_REST_MS;
            self.0.is_at_rest.store(is_at_rest, Ordering::Relaxed);
            self.0.costs.count(&payer, sample, step.cost(), at_ms);
            buckets.push(step.shown(last.as_ref(), sample).bucket(sample, at_ms));
        }
        let carried = [self.0.carried.sent_bytes(), self.0.carried.received_bytes()];
        let before = std::mem::replace(&mut account.carried, carried);
        let [sent_bytes, received_bytes] = [carried[0] - before[0], carried[1] - before[1]];
        self.0.costs.count_carried(&payer, sent_bytes, received_bytes, now_ms);
        if let Some(newest) = buckets.last_mut() {
            newest.counters.sent_bytes = sent_bytes;
            newest.counters.received_bytes = received_bytes;
        }
        buckets
    }

    /// Ends are recorded there from now on.
    pub fn expect_ends(&self, log: &Arc<ProvenanceLog>) {
        *self.0.ends.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(log);
    }

    /// Writes the ends that a full disk has kept waiting.
    fn settle_ends(&self) {
        let log = self.0.ends.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        // That they wait is reported where they are recorded.
        let Some(Ok(lost @ 1..)) = log.map(|log| log.settle()) else { return };
        self.trouble(format!(
            "the costs of {lost} programs and runs found no room, and are not counted"
        ));
    }

    /// A program or a run has ended, and that is recorded.
    pub fn note_end(&self) {
        let uncounted = self.0.uncounted_ends.fetch_add(1, Ordering::Relaxed) + 1;
        if uncounted.is_multiple_of(ENDS_UNCOUNTED_MAX) {
            let telemetry = self.clone();
            drop(spawn_blocking(move || telemetry.count_ends(None)));
        }
    }

    /// Counts what programs and runs have cost that have ended. Reads files. Those of a sandbox in which nothing goes on
    /// since `still_since_ms` do not change, but for what a client of its own records a moment later.
    pub fn count_ends(&self, still_since_ms: Option<u64>) {
        if !self.0.is_kept {
            return;
        }
        // A count that panicked has changed nothing.
        let mut counted = self.0.counting.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.still_since_ms != still_since_ms {
            *counted = Counted { still_since_ms, times: 0 };
        }
        if still_since_ms.is_some() {
            counted.times = counted.times.saturating_add(1);
        }
        self.settle_ends();
        let uncounted = self.0.uncounted_ends.swap(0, Ordering::Relaxed);
        if counted.times > COUNTS_WHEN_STILL && uncounted == 0 {
            return;
        }
        let log = log_directory(self.store().directory.parent().unwrap_or(Path::new("")));
        let payer = self.payer();
        let before = self.0.costs.ends_position(&payer).unwrap_or_default();
        let mut ends = Vec::new();
        let read = ProvenanceLog::ends_after(&log, before, |at_ms, what| {
            ends.extend(CountedEnd::of(at_ms, &what));
        });
        match read {
            Ok(reached) if reached != before => {
                let missed = reached.missed - before.missed;
                if missed > 0 {
                    self.trouble(format!(
                        "the costs of {missed} programs and runs are not counted"
                    ));
                }
                let account = self.account();
                if !account.is_closed {
                    self.0.costs.count_ends(&payer, ends, reached);
                }
            }
            Ok(_) => {}
            Err(error) => self.trouble(format!("costs of its programs are not counted: {error}")),
        }
    }

    /// The sandbox has ended: what its connections have carried since the last samples is counted.
    pub fn settle(&self) {
        self.count(&[], now_ms());
    }

    /// What the sandbox has cost so far.
    pub fn cost(&self) -> Cost {
        self.0.costs.of_sandbox(&self.payer())
    }

    /// The sandbox will be removed, with its history: what comes is counted, and no longer written.
    pub fn doom(&self) {
        self.0.is_doomed.store(true, Ordering::Release);
    }

    fn close(&self) {
        self.doom();
        let mut account = self.account();
        account.is_closed = true;
        self.0.costs.forget(&account.payer);
    }

    /// The sandbox is removed. From then on nothing writes to its directory.
    pub async fn forget(&self) {
        let telemetry = self.clone();
        // A batch may be on its way; after a panic there is none.
        let forgetting = spawn_blocking(move || {
            telemetry.count_ends(None);
            telemetry.close();
            drop(telemetry.store());
        });
        let _ = forgetting.await;
    }

    fn note(&self, written: &io::Result<()>) {
        match written {
            Ok(()) => self.0.failures.store(0, Ordering::Relaxed),
            Err(error) if self.0.failures.fetch_add(1, Ordering::Relaxed) == 0 => {
                self.trouble(format!(
                    "its metrics could not be written, and are tried again: {error}"
                ));
            }
            Err(_) => {}
        }
    }

    fn trouble(&self, what: String) {
        (self.0.events)(&Event::Trouble { which: Some(self.0.which.clone()), what });
    }

    /// What is known of a window. Reads files.
    pub fn history(&self, window: Window) -> io::Result<History> {
        let mut store = self.store();
        store.open(|what| self.trouble(what))?;
        let needed = window.needs(&RESOLUTIONS);
        let stored: Vec<_> =
            store.rings.iter().skip(needed).map(Ring::read).collect::<io::Result<_>>()?;
        drop(store);
        Ok(History::new(window, &stored, now_ms()))
    }
}

impl Store {
    fn open(&mut self, trouble: impl Fn(String)) -> io::Result<()> {
        if !self.rings.is_empty() {
            return Ok(());
        }
        let mut rings = Vec::with_capacity(RESOLUTIONS.len());
        for resolution in RESOLUTIONS {
            let (ring, is_damaged) = Ring::open(&self.directory, resolution)?;
            if is_damaged {
                let path = self.directory.join(resolution.file);
                trouble(format!("{} was damaged, and is set aside", path.display()));
            }
            rings.push(ring);
        }
        self.known_ms = rings.iter().filter_map(Ring::newest_ms).max();
        if let [finest, coarser @ ..] = &mut rings[..]
            && coarser.iter().any(|ring| ring.newest_ms() < finest.newest_ms())
        {
            // The coarser files are written once a minute; the finest has the rest.
            let records = finest.read()?;
            for ring in coarser {
                ring.catch_up(&records);
            }
        }
        self.rings = rings;
        Ok(())
    }

    fn write(&mut self, buckets: &[Bucket], trouble: impl Fn(String)) -> io::Result<()> {
        self.open(trouble)?;
        let known_ms = self.known_ms.take().unwrap_or(0);
        // A bridge that was killed may have written more than it had counted.
        for bucket in buckets.iter().filter(|bucket| bucket.to_ms > known_ms) {
            self.rings.iter_mut().for_each(|ring| ring.add(bucket));
        }
        // With a full record of the coarsest all are written, else the finest alone.
        let is_due = self.rings.last().is_some_and(Ring::has_full_records);
        let due = if is_due { self.rings.len() } else { 1 };
        match self.write_first(due) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_private_directory(&self.directory)?;
                self.write_first(due)
            }
            written => written,
        }
    }

    fn write_first(&mut self, count: usize) -> io::Result<()> {
        self.rings.iter_mut().take(count).try_for_each(Ring::write)
    }
}

/// When a sample was taken, by the host's clock. The guest's own clock is finer, where it is about right.
fn moment(sample: &Sample, newest_uptime_ms: u64, now_ms: u64) -> u64 {
    let before_ms = newest_uptime_ms.saturating_sub(sample.uptime_ms);
    let about_ms = now_ms.saturating_sub(before_ms);
    let is_right = sample.time_ms.abs_diff(about_ms) <= TELEMETRY_CLOCK_DRIFT_MS;
    if is_right { sample.time_ms } else { about_ms }
}

#[cfg(test)]
mod tests;

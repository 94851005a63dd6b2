//! The tasks that send: one for each signal, so that none waits for another.
//!
//! ```text
//!  gather ─▶ encode ─▶ send ─taken─▶ counted as sent
//!                       ▲  ├─ 429, 502, 503, 504, no answer ─▶ pause (its own wish, or doubled) ─┐
//!                       └──┼────────────────────────────────────────────────────────────────────┘
//!                          └─ refused, or tried for too long ─▶ counted as lost, and logged once a minute
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::encode;
use super::figures::Family;
use super::limits::{
    BATCH_TIME_MAX, COMPLAINT_PAUSE, EXCERPT_CHARS_MAX, FLUSH_MAX, GATHER_MAX, POINTS_MAX,
    RETRY_PAUSE_FIRST, RETRY_PAUSE_MAX,
};
use super::queue::{Queue, Tally, count};
use super::sender::Sender;
use super::value::Attributes;
use super::{Inner, Otel, Signal};
use host::excerpt::excerpt;
use host::id::random_bytes;
use host::instant::now_ns;

/// Reads the figures of this moment.
pub type Source = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Vec<Family>> + Send>> + Send + Sync>;

/// The `tracing` target of lines about sending. They are not sent themselves.
pub const TARGET: &str = "burrow::otel";

/// The tasks. They end with this; [`Exporter::close`] has them send the rest before.
pub struct Exporter {
    otel: Otel,
    tasks: JoinSet<()>,
    ending: watch::Sender<bool>,
}

impl Exporter {
    pub(super) fn start(otel: Otel, figures: Source) -> Self {
        let (ending, ends) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for (inner, signal) in otel.0.iter().flat_map(|inner| {
            inner.options.signals.iter().map(move |signal| (Arc::clone(inner), *signal))
        }) {
            let task = Task::new(inner, signal, ends.clone());
            match signal {
                Signal::Traces => {
                    tasks.spawn(task.drain(|inner| &inner.spans, encode::traces));
                }
                Signal::Logs => {
                    tasks.spawn(task.drain(|inner| &inner.records, encode::logs));
                }
                Signal::Metrics => {}
            }
        }
        if let Some(inner) = otel.wants(Signal::Metrics) {
            tasks.spawn(Task::new(Arc::clone(inner), Signal::Metrics, ends).read(figures));
        }
        Self { otel, tasks, ending }
    }

    /// Sends what waits, as far as the collector takes it at once, and ends.
    pub async fn close(mut self) {
        self.ending.send_replace(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let is_late = timeout(FLUSH_MAX, all).await.is_err();
        let left: usize = self.otel.counts().iter().map(|(_, _, waiting)| waiting).sum();
        if is_late || left > 0 {
            tracing::warn!(target: TARGET, waiting = left, "the bridge ends, and the collector has not taken everything");
        }
    }
}

/// What the task of one signal has.
struct Task {
    inner: Arc<Inner>,
    signal: Signal,
    sender: Sender,
    ends: watch::Receiver<bool>,
    complaints: Complaints,
}

impl Task {
    fn new(inner: Arc<Inner>, signal: Signal, ends: watch::Receiver<bool>) -> Self {
        let sender = Sender::new(&inner.options, signal);
        Self { inner, signal, sender, ends, complaints: Complaints::default() }
    }

    /// Sends what a queue has, until the end.
    async fn drain<T>(
        mut self,
        queue_of: fn(&Inner) -> &Queue<T>,
        encode: fn(&Attributes, &[T]) -> Vec<u8>,
    ) {
        let inner = Arc::clone(&self.inner);
        let queue = queue_of(&inner);
        loop {
            let is_ending = tokio::select! {
                () = queue.filled() => false,
                () = sleep(GATHER_MAX) => false,
                () = ended(&mut self.ends) => true,
            };
            loop {
                let batch = queue.take();
                if batch.is_empty() {
                    break;
                }
                let body = encode(&inner.options.resource, &batch);
                self.deliver(body, batch.len(), &queue.tally).await;
            }
            self.complaints.log(self.signal, &queue.tally);
            if is_ending {
                return;
            }
        }
    }

    /// Reads figures and sends them, at each interval and at the end.
    async fn read(mut self, figures: Source) {
        let inner = Arc::clone(&self.inner);
        let mut ticks = interval(inner.options.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_ending = tokio::select! {
                _ = ticks.tick() => false,
                () = ended(&mut self.ends) => true,
            };
            let (families, now) = (figures().await, now_ns());
            for batch in batches(families) {
                let points = batch.iter().map(|family| family.points.len()).sum();
                let times = (inner.began_ns, now);
                let body = encode::metrics(&inner.options.resource, &batch, times);
                self.deliver(body, points, &inner.figures).await;
            }
            self.complaints.log(self.signal, &inner.figures);
            if is_ending {
                return;
            }
        }
    }

    /// Sends a batch, until it is taken or given up.
    async fn deliver(&mut self, body: Vec<u8>, entries: usize, tally: &Tally) {
        let (body, begun) = (Bytes::from(body), Instant::now());
        // Figures that are late are replaced by newer ones.
        let time_max = match self.signal {
            Signal::Metrics => self.inner.options.interval.min(BATCH_TIME_MAX),
            Signal::Traces | Signal::Logs => BATCH_TIME_MAX,
        };
        let mut pause = RETRY_PAUSE_FIRST;
        loop {
            let error = match self.sender.send(&self.inner.options, body.clone()).await {
                Ok(partial) => {
                    let rejected =
                        usize::try_from(partial.rejected).unwrap_or(entries).min(entries);
                    count(&tally.sent, entries - rejected);
                    count(&tally.refused, rejected);
                    if rejected > 0 || !partial.message.is_empty() {
                        let words = excerpt(&partial.message, EXCERPT_CHARS_MAX);
                        self.complaints
                            .note(format!("it refuses {rejected} of {entries}: {words}"));
                    } else {
                        self.complaints.works(self.signal);
                    }
                    return;
                }
                Err(error) => error,
            };
            self.complaints.note(error.to_string());
            self.complaints.log(self.signal, tally);
            if !error.may_pass() {
                count(&tally.refused, entries);
                return;
            }
            let wait = error.after().unwrap_or_else(|| jittered(pause));
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
            // At the end each batch has one attempt.
            let is_ending = *self.ends.borrow();
            if !is_ending {
                tokio::select! {
                    () = sleep(wait) => {}
                    () = ended(&mut self.ends) => {}
                }
            }
            if is_ending || begun.elapsed() > time_max {
                count(&tally.abandoned, entries);
                return;
            }
        }
    }
}

/// Resolves when the bridge ends.
async fn ended(ends: &mut watch::Receiver<bool>) {
    // The sender is gone: that is an end too.
    let _ = ends.wait_for(|ending| *ending).await;
}

/// Between half of a pause and all of it, so that not all bridges come back at the same moment.
fn jittered(pause: Duration) -> Duration {
    let [part] = random_bytes().unwrap_or([0]);
    pause.mul_f64(0.5 + f64::from(part) / 512.0)
}

/// Families as requests have them, whose points are bounded. One family may be in several.
fn batches(families: Vec<Family>) -> Vec<Vec<Family>> {
    let mut batches: Vec<Vec<Family>> = Vec::new();
    let mut room = 0;
    for family in families {
        let Family { name, about, kind, mut points } = family;
        while !points.is_empty() {
            if room == 0 {
                batches.push(Vec::new());
                room = POINTS_MAX;
            }
            let rest = points.split_off(points.len().min(room));
            room -= points.len();
            if let Some(batch) = batches.last_mut() {
                batch.push(Family { name, about, kind, points });
            }
            points = rest;
        }
    }
    batches
}

/// The lines of the log about a collector: that it fails, how much was lost, that it works again. For each signal
/// there is one a minute at most.
#[derive(Default)]
struct Complaints {
    trouble: Option<String>,
    is_failing: bool,
    logged_at: Option<Instant>,
    logged_lost: u64,
}

impl Complaints {
    fn note(&mut self, trouble: String) {
        self.trouble = Some(trouble);
    }

    fn works(&mut self, signal: Signal) {
        self.trouble = None;
        if std::mem::take(&mut self.is_failing) {
            tracing::info!(target: TARGET, signal = signal.name(), "the collector takes telemetry again");
        }
    }

    fn log(&mut self, signal: Signal, tally: &Tally) {
        let lost = tally.counts().lost();
        let has_news = self.trouble.is_some() || lost > self.logged_lost;
        if !has_news || self.logged_at.is_some_and(|at| at.elapsed() < COMPLAINT_PAUSE) {
            return;
        }
        let more = lost - self.logged_lost;
        let why = self.trouble.take().unwrap_or_else(|| "there is more than it takes".to_owned());
        tracing::warn!(target: TARGET, signal = signal.name(), lost = more, "telemetry is not sent: {why}");
        (self.is_failing, self.logged_at, self.logged_lost) = (true, Some(Instant::now()), lost);
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::{Kind, Number, Point};
    use super::*;

    #[test]
    fn many_points_become_several_requests_and_none_is_lost() {
        let family = |name, count: usize| Family {
            name,
            about: "",
            kind: Kind::Gauge,
            points: (0..count)
                .map(|at| Point { labels: Vec::new(), value: Number::Plain(at as f64) })
                .collect(),
        };
        let families =
            vec![family("a", 1), family("b", 2 * POINTS_MAX), family("c", 3), family("d", 0)];
        let batches = batches(families);
        let sizes = batches
            .iter()
            .map(|batch| batch.iter().map(|family| family.points.len()).sum::<usize>());
        assert_eq!(sizes.collect::<Vec<_>>(), [POINTS_MAX, POINTS_MAX, 4]);
        assert_eq!(batches[1].len(), 1);
        assert_eq!(batches[2][0].points[0].value, Number::Plain((2 * POINTS_MAX - 1) as f64));
    }

    #[test]
    fn pauses_are_never_longer_than_they_should_be() {
        let pauses: Vec<_> = (0..100).map(|_| jittered(Duration::from_secs(2))).collect();
        assert!(pauses.iter().all(|pause| (1.0..2.0).contains(&pause.as_secs_f64())), "{pauses:?}");
    }
}

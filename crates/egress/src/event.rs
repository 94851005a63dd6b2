//! Events that report each decision of a sandbox's egress.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::limits::{EVENTS_BURST, EVENTS_PER_SECOND};
use super::meter::Bucket;

/// A decision, or how something ended that was allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressEvent {
    pub what: EventSubject,
    /// The name that the guest means, as far as it is known; never longer than a name may be.
    pub host: String,
    /// The port; none for a question for a name.
    pub port: Option<u16>,
    pub verdict: Verdict,
    /// How many events before this one were dropped because there were too many.
    pub untold: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSubject {
    /// The address of a name was asked for.
    Name,
    /// A connection was begun.
    Connection,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// By this rule; a connection to this address.
    Allowed {
        rule: String,
        address: Option<SocketAddr>,
    },
    Refused {
        why: String,
    },
    /// These secrets, by name, were injected into a request of an allowed connection.
    Filled {
        secrets: Vec<String>,
    },
    /// A connection that was allowed is over.
    Ended {
        sent_bytes: u64,
        received_bytes: u64,
        why: Option<String>,
        /// A limit has ended it, and neither of its sides.
        is_limit: bool,
    },
}

impl fmt::Display for EgressEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            EventSubject::Name => f.write_str("the name ")?,
            EventSubject::Connection => f.write_str("a connection to ")?,
        }
        f.write_str(&self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        match &self.verdict {
            Verdict::Allowed { rule, address } => {
                write!(f, " is allowed by {rule:?}")?;
                address.map_or(Ok(()), |address| write!(f, ", with {address}"))?;
            }
            Verdict::Refused { why } => write!(f, " is refused: {why}")?,
            Verdict::Filled { secrets } => write!(f, " was given the secrets {secrets:?}")?,
            Verdict::Ended { sent_bytes, received_bytes, why, .. } => {
                write!(f, " is over: {sent_bytes} bytes sent, {received_bytes} received")?;
                why.as_ref().map_or(Ok(()), |why| write!(f, "; {why}"))?;
            }
        }
        if self.untold > 0 {
            write!(f, " ({} earlier events were not reported)", self.untold)?;
        }
        Ok(())
    }
}

/// Receives events as they happen. It must not block.
pub type EgressSink = Arc<dyn Fn(EgressEvent) + Send + Sync>;

/// Reports the events of one sandbox, at a limited rate. Transfers are always reported: the operator limits
/// the rate of connections anyway, and a flood of questions or refusals must not hide them.
pub struct EventReporter {
    sink: EgressSink,
    bucket: Bucket,
    untold: AtomicU64,
}

impl EventReporter {
    pub fn new(sink: EgressSink) -> Self {
        let bucket = Bucket::new(EVENTS_PER_SECOND.into(), EVENTS_BURST.into());
        Self { sink, bucket, untold: AtomicU64::new(0) }
    }

    pub fn report(&self, what: EventSubject, host: &str, port: Option<u16>, verdict: Verdict) {
        let is_carried =
            what == EventSubject::Connection && !matches!(verdict, Verdict::Refused { .. });
        if !is_carried && !self.bucket.try_take() {
            self.untold.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let untold = self.untold.swap(0, Ordering::Relaxed);
        let host = host.chars().filter(char::is_ascii_graphic).take(253).collect();
        (self.sink)(EgressEvent { what, host, port, verdict, untold });
    }

    pub fn refuse(
        &self,
        what: EventSubject,
        host: &str,
        port: Option<u16>,
        why: impl fmt::Display,
    ) {
        self.report(what, host, port, Verdict::Refused { why: why.to_string() });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_hides_nothing_that_was_carried() {
        let seen: Arc<Mutex<Vec<EgressEvent>>> = Arc::default();
        let sink = Arc::clone(&seen);
        let reporter = EventReporter::new(Arc::new(move |event| sink.lock().unwrap().push(event)));
        for _ in 0..10_000 {
            reporter.refuse(EventSubject::Connection, "a.org", Some(443), "no rule allows it");
        }
        let ended = Verdict::Ended { sent_bytes: 1, received_bytes: 2, why: None, is_limit: false };
        for verdict in [Verdict::Allowed { rule: "b.org".to_owned(), address: None }, ended] {
            reporter.report(EventSubject::Connection, "b.org", Some(443), verdict.clone());
            assert_eq!(seen.lock().unwrap().last().unwrap().verdict, verdict);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_cut_and_its_rest_is_counted() {
        let seen: Arc<Mutex<Vec<EgressEvent>>> = Arc::default();
        let sink = Arc::clone(&seen);
        let reporter = EventReporter::new(Arc::new(move |event| sink.lock().unwrap().push(event)));
        for _ in 0..10_000 {
            reporter.refuse(EventSubject::Name, "evil\u{1b}.org", None, "no rule allows it");
        }
        assert_eq!(seen.lock().unwrap().len(), EVENTS_BURST as usize);
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        reporter.refuse(EventSubject::Connection, "a.org", Some(443), "no rule allows it");
        let seen = seen.lock().unwrap();
        let last = seen.last().unwrap();
        assert_eq!(last.untold, 10_000 - u64::from(EVENTS_BURST));
        assert!(last.to_string().starts_with("a connection to a.org:443 is refused: no rule"));
        assert_eq!(seen[0].host, "evil.org");
    }
}

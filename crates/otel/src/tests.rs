//! What a collector gets: over a socket, from a server that has a list of answers.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use super::*;
use host::dial::Scheme;

/// What a request is answered with; the last answer is that of all later ones.
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
const BUSY: &str = "HTTP/1.1 503 Busy\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
const BAD: &str = "HTTP/1.1 400 Bad\r\ncontent-length: 3\r\n\r\nno!";
const PARTIAL: &str = "HTTP/1.1 200 OK\r\ncontent-length: 65\r\n\r\n\
     {\"partialSuccess\":{\"rejectedSpans\":\"1\",\"errorMessage\":\"too old\"}}";
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

type Requests = Arc<Mutex<Vec<(String, Json)>>>;

/// A collector, which closes the connection after each answer that is empty.
struct Collector {
    port: u16,
    requests: Requests,
}

impl Collector {
    async fn start(answers: &[&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Requests::default();
        let answers = Arc::new(Mutex::new(answers.iter().copied().collect::<VecDeque<_>>()));
        let kept = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&kept), Arc::clone(&answers)));
            }
        });
        Self { port, requests }
    }

    fn requests(&self) -> Vec<(String, Json)> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn otel(&self, signals: &[Signal]) -> Otel {
        Otel::new(options(self.port, signals))
    }
}

async fn serve(
    mut stream: TcpStream,
    requests: Requests,
    answers: Arc<Mutex<VecDeque<&'static str>>>,
) {
    let mut bytes = Vec::new();
    while let Some((head, body)) = read(&mut stream, &mut bytes).await {
        let json = serde_json::from_slice(&body).unwrap();
        requests.lock().unwrap_or_else(PoisonError::into_inner).push((head, json));
        let answer = {
            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            let first = answers.front().copied().unwrap_or_default();
            if answers.len() > 1 {
                answers.pop_front();
            }
            first
        };
        if answer.is_empty() || stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.unwrap().parse().unwrap();
            if bytes.len() >= end + 4 + length {
                let body = bytes[end + 4..end + 4 + length].to_vec();
                bytes.drain(..end + 4 + length);
                return Some((head, body));
            }
        }
        let count = stream.read_buf(bytes).await.ok()?;
        if count == 0 {
            return None;
        }
    }
}

fn options(port: u16, signals: &[Signal]) -> Options {
    let mut resource = Attributes::default();
    resource.set("service.name", "test");
    let header = |name: &str, value: &str| Header {
        name: name.to_owned(),
        value: HeaderText::Plain(value.to_owned()),
    };
    Options {
        origin: Origin { scheme: Scheme::Http, name: "127.0.0.1".to_owned(), port },
        path: "/in/".to_owned(),
        headers: vec![header("x-tenant", "team")],
        secrets: Secrets::default(),
        ca: Vec::new(),
        signals: signals.to_vec(),
        interval: Duration::from_secs(1),
        sample_percent: 100,
        resource,
    }
}

fn nothing() -> Source {
    Box::new(|| Box::pin(async { Vec::new() }))
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        // Polled: the other end is a task of its own.
        sleep(Duration::from_millis(10)).await;
    }
}

fn counts(otel: &Otel) -> Counts {
    otel.counts()[0].1
}

#[tokio::test]
async fn a_span_and_its_child_are_sent_with_their_ids_and_the_callers() {
    let collector = Collector::start(&[OK]).await;
    let otel = collector.otel(&[Signal::Traces]);
    let parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let caller = TraceContext::parse([&parent[..]].into_iter(), [&b"a=b"[..]].into_iter());
    let mut span = otel.begin(caller.as_ref(), SpanKind::Server, "GET /x").unwrap();
    span.set("http.response.status_code", 200_u16);
    let mut inside = Attributes::default();
    inside.set("burrow.sandbox", "work");
    let mut child = span.scope(inside).child("program").unwrap();
    child.fail("exit code 1");
    drop(child);
    drop(span);
    let exporter = otel.start(nothing());
    until("the spans come", || collector.requests().len() == 1).await;
    let (head, body) = collector.requests().remove(0);
    assert!(head.starts_with("POST /in/v1/traces HTTP/1.1"), "{head}");
    assert!(head.contains("x-tenant: team") && head.contains("content-type: application/json"));
    let of_resource = &body["resourceSpans"][0]["resource"]["attributes"][0];
    assert_eq!(*of_resource, json!({ "key": "service.name", "value": { "stringValue": "test" } }));
    let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
    let (child, span) = (&spans[0], &spans[1]);
    assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!((&span["parentSpanId"], &span["kind"]), (&json!("b7ad6b7169203331"), &json!(2)));
    assert_eq!((&span["traceState"], &span["flags"]), (&json!("a=b"), &json!(0x301)));
    assert_eq!((&child["traceId"], &child["parentSpanId"]), (&span["traceId"], &span["spanId"]));
    assert_eq!((&child["flags"], &child["status"]["code"]), (&json!(0x101), &json!(2)));
    let ns = |of: &Json, name: &str| of[name].as_str().unwrap().parse::<u64>().unwrap();
    assert!(ns(child, "startTimeUnixNano") >= ns(span, "startTimeUnixNano"));
    assert!(ns(child, "endTimeUnixNano") <= ns(span, "endTimeUnixNano"));
    assert_eq!(child["attributes"][0]["key"], "burrow.sandbox");
    exporter.close().await;
    assert_eq!((counts(&otel).sent, counts(&otel).lost()), (2, 0));
}

#[tokio::test]
async fn what_a_caller_does_not_sample_is_passed_on_and_not_sent() {
    let collector = Collector::start(&[OK]).await;
    let otel = collector.otel(&[Signal::Traces]);
    let parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let caller = TraceContext::parse([&parent[..]].into_iter(), [].into_iter()).unwrap();
    let span = otel.begin(Some(&caller), SpanKind::Server, "quiet").unwrap();
    let child = span.scope(Attributes::default()).child("child").unwrap();
    assert!(!span.is_seen() && !child.is_seen());
    assert!(child.context().parent().ends_with("-00"));
    drop((child, span));
    let mut discarded = otel.begin(None, SpanKind::Server, "stranger").unwrap();
    discarded.discard();
    drop(discarded);
    assert_eq!(otel.counts()[0].2, 0);
    let none =
        Otel::new(Options { sample_percent: 0, ..options(collector.port, &[Signal::Traces]) });
    assert!(!none.begin(None, SpanKind::Server, "x").unwrap().is_seen());
    assert!(Otel::default().begin(None, SpanKind::Server, "x").is_none());
    assert!(collector.otel(&[Signal::Logs]).begin(None, SpanKind::Server, "x").is_none());
}

#[tokio::test]
async fn a_busy_collector_gets_the_same_again_when_it_wants_it() {
    let collector = Collector::start(&[BUSY, "", OK]).await;
    let otel = collector.otel(&[Signal::Logs]);
    otel.record(LogRecord::new(Severity::Warn, "one".to_owned()));
    let exporter = otel.start(nothing());
    let begun = Instant::now();
    until("it is taken", || counts(&otel).sent == 1).await;
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    let requests = collector.requests();
    // One that closes the connection instead of an answer is asked again.
    assert!(requests.len() >= 3, "{requests:?}");
    assert!(requests.iter().all(|(_, body)| *body == requests[0].1));
    let record = &requests[0].1["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
    assert_eq!(
        (&record["body"]["stringValue"], &record["severityNumber"]),
        (&json!("one"), &json!(13))
    );
    exporter.close().await;
}

#[tokio::test]
async fn what_is_refused_is_counted_and_not_sent_again() {
    let collector = Collector::start(&[BAD, PARTIAL, OK]).await;
    let otel = collector.otel(&[Signal::Traces]);
    let exporter = otel.start(nothing());
    for (number, refused) in [(1, 1), (2, 2)] {
        drop(otel.begin(None, SpanKind::Server, "x"));
        until("it is refused", || counts(&otel).refused == refused).await;
        assert_eq!(collector.requests().len(), number);
    }
    drop(otel.begin(None, SpanKind::Server, "x"));
    until("it is taken", || counts(&otel).sent == 1).await;
    exporter.close().await;
}

#[tokio::test]
async fn a_collector_that_is_away_costs_bounded_memory_and_no_end_waits_for_it() {
    let collector = Collector::start(&[OK]).await;
    // A port at which nobody listens: that of a socket that is not listening.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = nobody.local_addr().unwrap().port();
    let otel = Otel::new(options(port, &[Signal::Logs]));
    let exporter = otel.start(nothing());
    let body = "x".repeat(limits::TEXT_CHARS_MAX);
    for _ in 0..limits::WAITING_MAX {
        otel.record(LogRecord::new(Severity::Info, body.clone()));
    }
    let (_, counts, waiting) = otel.counts()[0];
    let bytes = LogRecord::new(Severity::Info, body).bytes();
    assert!(waiting * bytes <= limits::WAITING_BYTES_MAX, "{waiting}");
    assert_eq!(counts.overflowed as usize + waiting, limits::WAITING_MAX);
    let begun = Instant::now();
    exporter.close().await;
    assert!(begun.elapsed() < limits::FLUSH_MAX + Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(otel.counts()[0].1.sent, 0);
    drop(collector);
}

#[tokio::test]
async fn figures_are_read_at_each_interval_and_at_the_end() {
    let collector = Collector::start(&[OK]).await;
    let otel = collector.otel(&[Signal::Metrics]);
    let reads = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    let source: Source = Box::new(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let point = |value| Point { labels: vec![("a".to_owned(), "b".to_owned())], value };
        let family =
            |name, kind, value| Family { name, about: "About.", kind, points: vec![point(value)] };
        let spread = Spread { bounds: vec![0.5, 1.0], counts: vec![1, 2, 3], sum: 9.5 };
        let families = vec![
            family("some_total", Kind::Counter, Number::Plain(3.0)),
            family("cpu_seconds_total", Kind::OlderCounter, Number::Plain(f64::NAN)),
            family("used_bytes", Kind::Gauge, Number::Plain(1.5)),
            family("took_seconds", Kind::Histogram, Number::Spread(spread)),
        ];
        Box::pin(async move { families })
    });
    let exporter = otel.start(source);
    until("two intervals", || collector.requests().len() >= 2).await;
    let before = collector.requests().len();
    exporter.close().await;
    assert_eq!(collector.requests().len(), before + 1, "the last figures are sent");
    let metrics = &collector.requests()[0].1["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    let sum = &metrics[0]["sum"];
    assert_eq!((&sum["aggregationTemporality"], &sum["isMonotonic"]), (&json!(2), &json!(true)));
    assert_eq!(sum["dataPoints"][0]["asDouble"], 3.0);
    assert!(sum["dataPoints"][0]["startTimeUnixNano"].is_string());
    let older = &metrics[1];
    assert_eq!(
        (&older["unit"], &older["sum"]["dataPoints"][0]["asDouble"]),
        (&json!("s"), &json!("NaN"))
    );
    assert_eq!(older["sum"]["dataPoints"][0]["startTimeUnixNano"], Json::Null);
    assert_eq!(metrics[2]["unit"], "By");
    let point = &metrics[3]["histogram"]["dataPoints"][0];
    assert_eq!(point["bucketCounts"], json!(["1", "2", "3"]));
    assert_eq!((&point["count"], &point["explicitBounds"]), (&json!("6"), &json!([0.5, 1.0])));
    assert_eq!(counts(&otel).sent, 4 * reads.load(std::sync::atomic::Ordering::Relaxed));
}

#[tokio::test]
async fn a_probe_says_what_a_collector_would_not_take() {
    let collector = Collector::start(&[OK, BAD]).await;
    let probed = collector.otel(&Signal::ALL).probe().await;
    let failed: Vec<_> =
        probed.iter().map(|(signal, sent)| (signal.name(), sent.is_err())).collect();
    assert_eq!(failed, [("traces", false), ("metrics", true), ("logs", true)]);
    assert!(collector.requests().iter().all(|(_, body)| *body == json!({})));
}

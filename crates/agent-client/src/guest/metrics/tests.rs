//! How samples from a lying guest are handled.

use protocol::FaultCode;
use protocol::message::Answer;

use super::*;
use crate::link::tests::raw::Raw;
use crate::link::tests::{id, soon};

/// Samples of these numbers, as an honest guest would take them.
fn page(numbers: std::ops::Range<u64>, oldest: u64, next: u64) -> MetricsPage {
    let sample = |number| Sample {
        number,
        uptime_ms: number.saturating_mul(1000),
        cpu_us: number.saturating_mul(10),
        cpu_hundredths: Some(5_000),
        ..Sample::default()
    };
    let samples = numbers.map(sample).collect();
    MetricsPage { samples, oldest, next, cpus: 2, scope: Scope::Namespace }
}

fn samples_of(page: MetricsPage, since: u64) -> Result<Samples, GuestError> {
    check(page, &AskMetrics { since: Some(since), wait: false })
}

fn what(result: Result<Samples, GuestError>) -> &'static str {
    match result {
        Err(GuestError::Malformed { what }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn samples_are_read_on_from_where_one_stands() {
    let first = samples_of(page(1..4, 1, 6), 0).unwrap();
    assert_eq!((first.samples.len(), first.missing, first.seen()), (3, 0, 3));
    let rest = samples_of(page(4..6, 1, 6), first.seen()).unwrap();
    assert_eq!((rest.seen() + 1, rest.next), (6, 6));
    let none = samples_of(page(6..6, 1, 6), 5).unwrap();
    assert_eq!(none.samples, []);
}

#[test]
fn dropped_samples_are_counted() {
    let late = samples_of(page(101..201, 101, 1001), 7).unwrap();
    assert_eq!((late.missing, late.samples[0].number), (93, 101));
    let newest = check(page(1000..1001, 101, 1001), &AskMetrics::default()).unwrap();
    assert_eq!((newest.missing, newest.samples.len()), (0, 1));
    let nothing_yet = check(page(1..1, 1, 1), &AskMetrics::default()).unwrap();
    assert_eq!((nothing_yet.newest(), nothing_yet.seen()), (None, 0));
}

#[test]
fn impossible_numbers_are_refused() {
    let out_of_order = "samples out of order";
    assert_eq!(what(samples_of(page(2..4, 1, 6), 0)), out_of_order, "a hole");
    assert_eq!(what(samples_of(page(1..4, 1, 6), 1)), out_of_order, "seen before");
    assert_eq!(what(samples_of(page(1..4, 1, 3), 0)), out_of_order, "from the future");
    assert_eq!(what(samples_of(page(1..1, 0, 3), 0)), "metrics whose oldest sample is none");
    assert_eq!(what(samples_of(page(1..1, 4, 3), 0)), "metrics whose oldest sample is none");
    assert_eq!(what(samples_of(page(1..1, 1, 3), 0)), "no samples although there are some");
    assert_eq!(what(samples_of(page(1..1, 1, 3), 3)), "metrics of another guest");
    assert_eq!(what(samples_of(page(1..1, 1, 3), u64::MAX)), "metrics of another guest");
    assert_eq!(what(samples_of(page(1..300, 1, 301), 0)), "more samples than a page has");
    let waited = AskMetrics { since: Some(2), wait: true };
    assert_eq!(what(check(page(1..1, 1, 3), &waited)), "no samples although there are some");
    let edge = samples_of(page(u64::MAX - 1..u64::MAX, 1, u64::MAX), u64::MAX - 2).unwrap();
    assert_eq!(edge.seen(), u64::MAX - 1);
}

#[test]
fn counters_may_not_decrease() {
    for spoil in
        [|sample: &mut Sample| sample.cpu_us = 0, |sample: &mut Sample| sample.uptime_ms = 0]
    {
        let mut spoiled = page(1..4, 1, 4);
        spoil(&mut spoiled.samples[2]);
        assert_eq!(what(samples_of(spoiled, 0)), "samples that run backwards");
    }
}

#[test]
fn no_share_is_more_than_the_whole() {
    let mut spoiled = page(1..2, 1, 2);
    let sample = &mut spoiled.samples[0];
    sample.cpu_hundredths = Some(u32::MAX);
    sample.cpu_pressure = Some(u32::MAX);
    sample.io_pressure = Some(9_999);
    let read = samples_of(spoiled.clone(), 0).unwrap();
    let sample = read.newest().unwrap();
    assert_eq!(sample.cpu_percent(), Some(200.0));
    assert_eq!(sample.cpu_pressure, Some(10_000));
    assert_eq!((sample.memory_pressure, sample.io_pressure), (None, Some(9_999)));
    for (cpus, clamped) in [(0, 1), (u32::MAX, CPUS_MAX)] {
        let read = samples_of(MetricsPage { cpus, ..spoiled.clone() }, 0).unwrap();
        assert_eq!(read.cpus, clamped);
        assert_eq!(read.newest().unwrap().cpu_hundredths, Some(clamped * 10_000));
    }
}

#[tokio::test]
async fn questions_about_usage_have_their_answers() {
    let (mut raw, guest) = Raw::meet().await;
    let answering = async {
        let (request, body) = raw.next_request().await;
        raw.reply(request, Reply::Metrics(page(1..1, 1, 3))).await;
        let (other, usage) = raw.next_request().await;
        raw.reply(other, Reply::Usage(TreeUsage { cpu_us: 7, ..TreeUsage::default() })).await;
        (body.request, usage.request)
    };
    let asking = async {
        let lie = guest.metrics(0, true).await;
        (lie, guest.usage(Consumer::Session(id("s"))).await)
    };
    let ((lie, usage), (first, second)) = soon(async { tokio::join!(asking, answering) }).await;
    // A lie costs its question alone.
    assert_eq!(what(lie), "no samples although there are some");
    assert_eq!(usage.unwrap().cpu_us, 7);
    assert_eq!(first, Request::Metrics(AskMetrics { since: Some(0), wait: true }));
    assert_eq!(second, Request::Usage(AskUsage { session: Some(id("s")), context: None }));

    let refusing = async {
        let (request, _) = raw.next_request().await;
        let fault = protocol::Fault::new(FaultCode::Invalid, "there is no sample 9");
        raw.send(protocol::frame::Kind::Reply, request, &Answer::Fault(fault)).await;
    };
    let (refused, ()) = soon(async { tokio::join!(guest.metrics(9, false), refusing) }).await;
    assert_eq!(refused.unwrap_err().fault_code(), Some(FaultCode::Invalid));
}

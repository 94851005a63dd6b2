use proptest::prelude::*;

use super::*;

fn rate(per_second: u32, burst: u32) -> Rate {
    Rate::new(NonZeroU32::new(per_second).unwrap(), NonZeroU32::new(burst).unwrap())
}

#[test]
fn a_burst_passes_and_then_the_rate_holds() {
    let mut limiter = RateLimiter::new(rate(10, 3), 8);
    let now = Instant::now();
    for _ in 0..3 {
        assert_eq!(limiter.admit("a", now), Ok(()));
    }
    let wait = Duration::from_millis(100);
    assert_eq!(limiter.admit("a", now), Err(RetryAfter(wait)));
    assert_eq!(limiter.admit("b", now), Ok(()));
    assert_eq!(limiter.admit("a", now + wait), Ok(()));
    assert_eq!(limiter.admit("a", now + wait), Err(RetryAfter(wait)));
}

#[test]
fn to_be_refused_costs_no_token() {
    let mut limiter = RateLimiter::new(rate(1, 1), 8);
    let now = Instant::now();
    assert_eq!(limiter.admit("a", now), Ok(()));
    for _ in 0..1000 {
        assert!(limiter.admit("a", now).is_err());
    }
    assert_eq!(limiter.admit("a", now + Duration::from_secs(1)), Ok(()));
}

#[test]
fn waits_are_given_in_whole_seconds_and_never_as_zero() {
    let seconds = |ms| RetryAfter(Duration::from_millis(ms)).seconds();
    assert_eq!([0, 1, 1000, 1001, 61_000].map(seconds), [1, 1, 1, 2, 61]);
}

#[test]
fn the_idle_are_forgotten_and_a_full_table_is_shared() {
    let mut limiter = RateLimiter::new(rate(10, 2), 4);
    let now = Instant::now();
    for who in 0..4 {
        assert_eq!(limiter.admit(who, now), Ok(()));
    }
    // Two tokens for all who come too late, together.
    let passed = (4..100).filter(|who| limiter.admit(*who, now).is_ok()).count();
    assert_eq!((passed, limiter.remembered()), (2, 4));
    // Those who were there first keep theirs.
    assert_eq!(limiter.admit(0, now), Ok(()));
    let later = now + Duration::from_secs(1);
    assert_eq!(limiter.admit(100, later), Ok(()));
    assert_eq!(limiter.remembered(), 1);
}

proptest! {
    /// Whatever the times of asking: in any stretch from an admission on, no more pass than the
    /// burst and what the rate gives meanwhile.
    #[test]
    fn no_stretch_of_time_admits_more_than_it_may(
        per_second in 1..50_u32,
        burst in 1..20_u32,
        pauses_ms in prop::collection::vec(0..400_u64, 1..200),
    ) {
        let mut limiter = RateLimiter::new(rate(per_second, burst), 4);
        let mut now = Instant::now();
        let mut passed = Vec::new();
        for pause_ms in pauses_ms {
            now += Duration::from_millis(pause_ms);
            if limiter.admit((), now).is_ok() {
                passed.push(now);
            }
        }
        for (first, from) in passed.iter().enumerate() {
            for (last, to) in passed.iter().enumerate().skip(first) {
                let may = to.duration_since(*from).as_secs_f64() * f64::from(per_second);
                // The interval is rounded to nanoseconds.
                prop_assert!((last - first + 1) as f64 <= may + f64::from(burst) + 1e-3);
            }
        }
    }

    /// A client that waits as long as the answer says is admitted, and a moment earlier it is not.
    #[test]
    fn the_wait_that_is_announced_is_the_wait(
        per_second in 1..1000_u32,
        burst in 1..20_u32,
        pauses_us in prop::collection::vec(0..300_000_u64, 1..100),
    ) {
        let mut now = Instant::now();
        let mut limiter = RateLimiter::new(rate(per_second, burst), 4);
        for pause_us in pauses_us {
            now += Duration::from_micros(pause_us);
            if let Err(RetryAfter(wait)) = limiter.admit((), now) {
                prop_assert!(wait > Duration::ZERO);
                let early = now + wait.saturating_sub(Duration::from_nanos(1));
                prop_assert!(limiter.admit((), early).is_err());
                now += wait;
                prop_assert_eq!(limiter.admit((), now), Ok(()));
            }
        }
    }

    /// Forgetting changes no answer: a table with room for all and a tight one agree for as long
    /// as the tight one has room.
    #[test]
    fn forgetting_is_exact(
        asks in prop::collection::vec((0..6_u8, 0..2000_u64), 1..200),
    ) {
        let mut now = Instant::now();
        let mut roomy = RateLimiter::new(rate(2, 3), 1000);
        let mut tight = RateLimiter::new(rate(2, 3), 6);
        for (who, pause_ms) in asks {
            now += Duration::from_millis(pause_ms);
            prop_assert_eq!(roomy.admit(who, now), tight.admit(who, now));
            prop_assert!(tight.remembered() <= 6);
        }
    }

    #[test]
    fn the_table_is_bounded(asks in prop::collection::vec((any::<u16>(), 0..50_u64), 1..300)) {
        let mut now = Instant::now();
        let mut limiter = RateLimiter::new(rate(5, 2), 16);
        for (who, pause_ms) in asks {
            now += Duration::from_millis(pause_ms);
            let _ = limiter.admit(who, now);
            prop_assert!(limiter.remembered() <= 16);
        }
    }
}

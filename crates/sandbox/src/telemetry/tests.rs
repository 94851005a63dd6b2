use std::pin::pin;
use std::task::{Context, Waker};

use agent_client::guest::{ProgramEnd, Provenance};

use super::*;
use crate::Spec;

const RECORD_BYTES: u64 = bucket::RECORD_BYTES as u64;

struct Scene {
    directory: PathBuf,
    record: Record,
    created_ms: u64,
}

impl Scene {
    fn new(name: &str) -> Self {
        let id = std::process::id();
        let directory = std::env::temp_dir().join(format!("burrow-telemetry-{name}-{id}"));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let created_ms = now_ms() - 600_000;
        let spec = Spec::new("a/box".parse().unwrap());
        let record = Record::new("0123456789ab".parse().unwrap(), &spec, created_ms);
        Self { directory, record, created_ms }
    }

    /// A bridge begins.
    fn telemetry(&self) -> Telemetry {
        let (costs, trouble) = Costs::open(&self.directory.join("costs"), |_| true);
        assert!(trouble.is_none());
        Telemetry::new(&self.record, &self.directory, true, costs, Arc::new(|_| {}))
    }

    /// The sample of a second, with a tenth of a CPU.
    fn sample(&self, second: u64) -> Sample {
        Sample {
            number: second,
            time_ms: self.created_ms + second * 1000,
            uptime_ms: second * 1000,
            cpu_us: second * 100_000,
            memory_bytes: 64 << 20,
            processes: 2,
            ..Sample::default()
        }
    }

    /// Takes what an agent has that was not counted.
    fn take(&self, telemetry: &Telemetry, until: u64) {
        let since = telemetry.0.costs.last(&telemetry.payer()).map_or(0, |last| last.number);
        let samples: Vec<Sample> = (since + 1..=until).map(|second| self.sample(second)).collect();
        telemetry.take(&samples, self.created_ms + until * 1000);
    }

    fn history(&self, telemetry: &Telemetry, step_ms: u64) -> History {
        let (from_ms, to_ms) = (self.created_ms, self.created_ms + 300_000);
        telemetry.history(Window { from_ms, to_ms, step_ms }).unwrap()
    }
}

#[test]
fn bridges_that_are_killed_leave_no_gap_and_nothing_twice() {
    let scene = Scene::new("killed");
    for (until, is_saved) in [(30, true), (70, false), (75, false), (180, true), (290, false)] {
        let telemetry = scene.telemetry();
        scene.take(&telemetry, until);
        if is_saved {
            telemetry.0.costs.mark().unwrap();
        }
    }
    let telemetry = scene.telemetry();
    scene.take(&telemetry, 300);
    for step_ms in [1000, 10_000, 60_000] {
        let history = scene.history(&telemetry, step_ms);
        assert_eq!(history.gaps, [], "{step_ms}");
        let sum = |of: fn(&Bucket) -> u64| history.points.iter().map(|(_, at)| of(at)).sum::<u64>();
        assert_eq!(sum(|at| at.counters.cpu_us), 300 * 100_000, "{step_ms}");
        assert_eq!(sum(|at| at.covered_ms.into()), 300_000, "{step_ms}");
        assert_eq!(sum(|at| at.samples.into()), 300, "{step_ms}");
        let steady = Gauge { min: 64 << 10, mean: 64 << 10, max: 64 << 10 };
        assert!(history.points.iter().all(|(_, at)| at.memory_kib == Some(steady)));
    }
    let cost = telemetry.cost();
    assert_eq!((cost.cpu_us, cost.run_ms), (300 * 100_000, 300_000));
}

#[test]
fn coarser_files_are_written_once_a_minute_and_lack_nothing() {
    let scene = Scene::new("coarser");
    let telemetry = scene.telemetry();
    let changed = |file: &str| {
        let metadata = std::fs::metadata(scene.directory.join(DIRECTORY).join(file));
        metadata.ok().map(|metadata| metadata.len())
    };
    let (mut fine, mut coarse, mut before) = (0, 0, (None, None));
    for until in (10..=300).step_by(10) {
        scene.take(&telemetry, until);
        let now = (changed("seconds"), changed("tens"));
        fine += usize::from(now.0 != before.0);
        coarse += usize::from(now.1 != before.1);
        before = now;
    }
    assert_eq!(fine, 30);
    assert!((4..=5).contains(&coarse), "{coarse}");
    telemetry.0.costs.mark().unwrap();
    // A damaged coarse file has of the last hour what the finest has.
    std::fs::write(scene.directory.join(DIRECTORY).join("minutes"), "damaged, whatever was in it")
        .unwrap();
    for step_ms in [1000, 10_000, 60_000] {
        let history = scene.history(&scene.telemetry(), step_ms);
        assert_eq!(history.gaps, [], "{step_ms}");
        assert_eq!(history.points.iter().map(|(_, at)| at.samples).sum::<u32>(), 300, "{step_ms}");
    }
}

#[test]
fn what_a_machine_used_before_it_was_this_sandbox_is_not_counted() {
    let mut scene = Scene::new("pooled");
    scene.record.created_at_ms = scene.created_ms + 100_500;
    let telemetry = scene.telemetry();
    scene.take(&telemetry, 110);
    let cost = telemetry.cost();
    assert_eq!((cost.cpu_us, cost.run_ms), (10 * 100_000, 10_000));
    assert_eq!(scene.history(&telemetry, 1000).points.len(), 10);
}

#[test]
fn a_guest_whose_clock_is_wrong_is_shown_by_the_clock_of_the_host() {
    let sample = Sample { time_ms: 5, uptime_ms: 4000, ..Sample::default() };
    assert_eq!(moment(&sample, 9000, 1_000_000), 995_000);
    let right = Sample { time_ms: 995_300, ..sample };
    assert_eq!(moment(&right, 9000, 1_000_000), 995_300);
}

#[test]
fn bytes_of_connections_are_counted_with_the_samples_and_at_the_end() {
    let scene = Scene::new("carried");
    let telemetry = scene.telemetry();
    scene.take(&telemetry, 10);
    let before = telemetry.cost();
    telemetry.settle();
    assert_eq!(telemetry.cost(), before);
}

#[test]
fn an_hour_takes_what_the_limits_say() {
    let scene = Scene::new("hour");
    let telemetry = scene.telemetry();
    for until in (10..=3600).step_by(10) {
        scene.take(&telemetry, until);
    }
    let files = std::fs::read_dir(scene.directory.join(DIRECTORY)).unwrap();
    let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    let records = 3600 + 360 + 60;
    // A step may begin within the first and the last of them, and the newest of the coarser files wait for a full minute.
    let least = RECORD_BYTES * (records - 8);
    assert!((least..RECORD_BYTES * (records + 3) + 3 * 16).contains(&bytes), "{bytes}");
    let month: u64 = RESOLUTIONS.iter().map(|one| u64::from(one.records) * RECORD_BYTES).sum();
    assert!(month < 12_100_000, "{month}");
}

#[tokio::test]
async fn questions_that_are_cut_count_no_sample_twice() {
    let scene = Scene::new("cut");
    let telemetry = scene.telemetry();
    let payer = telemetry.payer();
    let question = async |until: u64| {
        let asking = Arc::clone(&telemetry.0.asking).lock_owned().await;
        let since = telemetry.0.costs.last(&payer).map_or(0, |last| last.number);
        let samples = (since + 1..=until).map(|second| scene.sample(second)).collect();
        telemetry.take_apart(samples, asking).await
    };
    for until in (1..=100).step_by(3) {
        // Nothing can be counted before all of these are cut.
        let counting = telemetry.account();
        for _ in 0..3 {
            let mut cut = pin!(question(until));
            let polled = cut.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "it waits");
        }
        drop(counting);
    }
    assert!(question(100).await.is_some());
    let cost = telemetry.cost();
    assert_eq!((cost.cpu_us, cost.run_ms), (100 * 100_000, 100_000));
    let (from_ms, to_ms) = (scene.created_ms, now_ms() + 1000);
    let history = telemetry.history(Window { from_ms, to_ms, step_ms: 60_000 }).unwrap();
    assert_eq!(history.points.iter().map(|(_, at)| at.samples).sum::<u32>(), 100);
}

#[tokio::test]
async fn what_is_about_to_be_removed_is_counted_and_not_written() {
    let scene = Scene::new("doomed");
    let telemetry = scene.telemetry();
    scene.take(&telemetry, 10);
    std::fs::remove_dir_all(scene.directory.join(DIRECTORY)).unwrap();
    telemetry.doom();
    scene.take(&telemetry, 20);
    assert!(!scene.directory.join(DIRECTORY).exists());
    assert_eq!(telemetry.cost().cpu_us, 20 * 100_000);
    telemetry.forget().await;
    // A question that was on its way.
    scene.take(&telemetry, 30);
    assert_eq!(telemetry.cost(), Cost::default());
}

fn end(session: &str) -> Provenance {
    Provenance::Program(ProgramEnd {
        session: session.parse().unwrap(),
        started_at_ms: now_ms(),
        program: "sh".to_owned(),
        duration_us: 7,
        cpu_us: 1,
        memory_bytes_peak: 0,
        read_bytes: 0,
        written_bytes: 0,
    })
}

#[test]
fn ends_in_a_sandbox_that_is_still_are_read_twice_and_again_when_it_went_on() {
    let scene = Scene::new("still");
    let telemetry = scene.telemetry();
    let log = log_directory(&scene.directory);
    make_private_directory(&log).unwrap();
    let log = ProvenanceLog::new(&log);
    let counted = || {
        let rows = telemetry.0.costs.of_programs(None, 0, now_ms() + 1).unwrap();
        rows.iter().map(|row| row.cost.ends).sum::<u64>()
    };
    log.append(end("one")).unwrap();
    telemetry.count_ends(Some(5));
    log.append(end("two")).unwrap();
    telemetry.count_ends(Some(5));
    assert_eq!(counted(), 2);
    log.append(end("three")).unwrap();
    telemetry.count_ends(Some(5));
    assert_eq!(counted(), 2, "files were read of a sandbox in which nothing goes on");
    // It was awake for a moment that nobody saw.
    telemetry.count_ends(Some(6));
    assert_eq!(counted(), 3);
    log.append(end("four")).unwrap();
    telemetry.count_ends(None);
    assert_eq!(counted(), 4);
}

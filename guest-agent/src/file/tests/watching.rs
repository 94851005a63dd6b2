use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use protocol::message::Change::{self, Attributes, Created, Modified, Moved, Overflow, Removed};
use protocol::requests::Watch;
use protocol::watch::parse_record;
use protocol::{Fault, FaultCode, StreamId, Text};

use super::super::limits::WATCHES_MAX;
use super::super::watch;
use super::Scratch;
use super::client::{Download, run};

/// How long nothing must arrive to count as nothing. Long compared with a move's wait.
const SILENCE: Duration = Duration::from_millis(150);

struct Watching {
    download: Download,
    bytes: Vec<u8>,
}

impl Watching {
    async fn begin(path: Text, recursive: bool) -> Self {
        Self::try_begin(path, recursive).await.unwrap()
    }

    async fn try_begin(path: Text, recursive: bool) -> Result<Self, Fault> {
        let download = Download::from(0);
        let ask = Watch { path, stream: StreamId(1), recursive };
        watch(ask, download.outlet.clone()).await?;
        Ok(Self { download, bytes: Vec::new() })
    }

    /// The next event as `(change, path, from)`; none at the end of the stream.
    async fn next(&mut self) -> Option<(Change, String, String)> {
        loop {
            if let Some((event, length)) = parse_record(&self.bytes).unwrap() {
                self.bytes.drain(..length);
                let from = event.from.unwrap_or_default();
                return Some((event.change, event.path.to_string(), from.to_string()));
            }
            self.bytes.extend(self.download.next().await.unwrap()?);
        }
    }

    async fn expect(&mut self, change: Change, path: &str) {
        let expected = (change, path.to_owned(), String::new());
        assert_eq!(self.next().await, Some(expected));
    }

    async fn expect_move(&mut self, from: &str, to: &str) {
        assert_eq!(self.next().await, Some((Moved, to.to_owned(), from.to_owned())));
    }

    async fn expect_end(&mut self) {
        assert_eq!(self.next().await, None);
    }

    async fn expect_silence(&mut self) {
        let next = tokio::time::timeout(SILENCE, self.next()).await;
        assert!(next.is_err(), "{next:?}");
    }
}

#[test]
fn changes_in_a_directory_are_reported_as_they_happen() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("d/inner/f", "");
        let mut watching = Watching::begin(scratch.text("d"), false).await;
        scratch.write("d/f", "x");
        watching.expect(Created, "f").await;
        watching.expect(Modified, "f").await;
        fs::set_permissions(scratch.at("d/f"), PermissionsExt::from_mode(0o600)).unwrap();
        watching.expect(Attributes, "f").await;
        fs::rename(scratch.at("d/f"), scratch.at("d/g")).unwrap();
        watching.expect_move("f", "g").await;
        fs::remove_file(scratch.at("d/g")).unwrap();
        watching.expect(Removed, "g").await;
        fs::set_permissions(scratch.at("d"), PermissionsExt::from_mode(0o700)).unwrap();
        watching.expect(Attributes, "").await;
        scratch.write("d/inner/f", "not watched");
        watching.expect_silence().await;
    });
}

#[test]
fn a_recursive_watch_covers_what_comes_later_and_tells_it_once() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("d/a/f", "");
        let mut watching = Watching::begin(scratch.text("d"), true).await;
        scratch.write("d/a/f", "x");
        watching.expect(Modified, "a/f").await;
        // Made in one go, so that files are there before any watch can be.
        fs::create_dir_all(scratch.at("d/b/c")).unwrap();
        File::create(scratch.at("d/b/c/f")).unwrap();
        let mut created = Vec::new();
        while !created.contains(&"b/c/f".to_owned()) {
            let (change, path, _) = watching.next().await.unwrap();
            if change == Created {
                created.push(path);
            }
        }
        assert_eq!(created, ["b", "b/c", "b/c/f"]);
        while tokio::time::timeout(SILENCE, watching.next()).await.is_ok_and(|event| {
            assert_eq!(event.unwrap().0, Modified, "nothing is created twice");
            true
        }) {}
        scratch.write("d/b/c/g", "");
        watching.expect(Created, "b/c/g").await;
        watching.expect(Modified, "b/c/g").await;
        fs::remove_dir_all(scratch.at("d/b/c")).unwrap();
        let mut gone = vec![watching.next().await.unwrap().1, watching.next().await.unwrap().1];
        gone.sort();
        assert_eq!(gone, ["b/c/f", "b/c/g"]);
        watching.expect(Removed, "b/c").await;
        watching.expect_silence().await;
    });
}

#[test]
fn a_large_tree_moved_in_is_reported_completely_and_without_doubles() {
    run(async {
        let scratch = Scratch::new();
        for number in 0..300 {
            scratch.write(&format!("outside/d{}/f{number}", number % 30), "");
        }
        fs::create_dir(scratch.at("d")).unwrap();
        let mut watching = Watching::begin(scratch.text("d"), true).await;
        fs::rename(scratch.at("outside"), scratch.at("d/new")).unwrap();
        let mut paths = Vec::new();
        for _ in 0..331 {
            let (change, path, _) = watching.next().await.unwrap();
            assert_eq!(change, Created);
            paths.push(path);
        }
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), 331);
        watching.expect_silence().await;
    });
}

#[test]
fn a_moved_directory_is_followed_within_the_tree_and_left_alone_outside() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("d/a/inner/f", "");
        fs::create_dir(scratch.at("elsewhere")).unwrap();
        let mut watching = Watching::begin(scratch.text("d"), true).await;
        fs::rename(scratch.at("d/a"), scratch.at("d/b")).unwrap();
        watching.expect_move("a", "b").await;
        scratch.write("d/b/inner/f", "x");
        watching.expect(Modified, "b/inner/f").await;
        fs::rename(scratch.at("d/b"), scratch.at("elsewhere/b")).unwrap();
        watching.expect(Removed, "b").await;
        scratch.write("elsewhere/b/inner/f", "y");
        watching.expect_silence().await;
        fs::rename(scratch.at("elsewhere/b"), scratch.at("d/c")).unwrap();
        let mut paths = Vec::new();
        for _ in 0..3 {
            paths.push(watching.next().await.unwrap().1);
        }
        assert_eq!(paths, ["c", "c/inner", "c/inner/f"]);
        scratch.write("d/c/inner/f", "z");
        watching.expect(Modified, "c/inner/f").await;
    });
}

#[test]
fn the_end_of_the_path_is_the_end_of_the_stream() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("d/f", "");
        let mut watching = Watching::begin(scratch.text("d"), true).await;
        fs::remove_dir_all(scratch.at("d")).unwrap();
        watching.expect(Removed, "f").await;
        watching.expect(Removed, "").await;
        watching.expect_end().await;

        scratch.write("f", "");
        let open = File::open(scratch.at("f")).unwrap();
        let mut watching = Watching::begin(scratch.text("f"), false).await;
        fs::remove_file(scratch.at("f")).unwrap();
        watching.expect(Removed, "").await;
        watching.expect_end().await;
        drop(open);

        fs::create_dir(scratch.at("d")).unwrap();
        let mut watching = Watching::begin(scratch.text("d"), false).await;
        fs::rename(scratch.at("d"), scratch.at("e")).unwrap();
        watching.expect(Removed, "").await;
        watching.expect_end().await;
    });
}

#[test]
fn a_file_that_is_replaced_by_renaming_is_watched_on() {
    run(async {
        let scratch = Scratch::new();
        scratch.write("f", "old");
        let mut watching = Watching::begin(scratch.text("f"), false).await;
        for round in 0..3 {
            scratch.write("new", format!("new {round}"));
            fs::rename(scratch.at("new"), scratch.at("f")).unwrap();
            watching.expect(Created, "").await;
        }
        scratch.write("f", "in place");
        watching.expect(Modified, "").await;
    });
}

#[test]
fn a_client_that_reads_too_slowly_learns_once_that_events_were_lost() {
    run(async {
        let scratch = Scratch::new();
        fs::create_dir(scratch.at("d")).unwrap();
        let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let limit: usize = limit.trim().parse().unwrap();
        if limit > 100_000 {
            println!("skipped: the kernel queues {limit} events");
            return;
        }
        let mut watching = Watching::begin(scratch.text("d"), true).await;
        // Nobody reads meanwhile: this is the thread that would.
        let files: Vec<_> = (0..8).map(|n| scratch.at(&format!("d/f{n}"))).collect();
        for round in 0..limit {
            File::create(&files[round % 8]).unwrap();
        }
        fs::create_dir(scratch.at("d/late")).unwrap();
        let mut overflows = 0;
        while let Ok(event) = tokio::time::timeout(SILENCE, watching.next()).await {
            overflows += usize::from(event.unwrap().0 == Overflow);
        }
        assert_eq!(overflows, 1);
        scratch.write("d/late/f", "x");
        watching.expect(Created, "late/f").await;
        watching.expect(Modified, "late/f").await;
    });
}

#[test]
fn unwatchable_paths_are_refused() {
    run(async {
        let refused = async |path, recursive| {
            Watching::try_begin(path, recursive).await.err().expect("this cannot be watched").code
        };
        let scratch = Scratch::new();
        assert_eq!(refused(scratch.text("none"), false).await, FaultCode::NotFound);
        assert_eq!(refused("relative".into(), false).await, FaultCode::Invalid);
        for number in 0..WATCHES_MAX {
            fs::create_dir_all(scratch.at(&format!("d/{}/{number}", number % 8))).unwrap();
        }
        assert_eq!(refused(scratch.text("d"), true).await, FaultCode::Limit);
    });
}

#[test]
fn a_watch_that_nobody_reads_ends() {
    run(async {
        let scratch = Scratch::new();
        let watching = Watching::begin(scratch.text(""), false).await;
        watching.download.abandon();
        tokio::time::timeout(Duration::from_secs(20), async {
            while !watching.download.outlet.is_closed() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await
        .expect("it ends at its next look around");
    });
}

//! Links that code in a sandbox exchanges for what they lead to, while the agent follows them: at every
//! request that follows any. A second each, or as long as `BURROW_RACE_SECONDS` says (`just soak-races`).
//!
//! Where the tests run as root, each runs once more as an ordinary user.

use std::time::{Duration, Instant};

use agent_client::guest::{GuestError, Output, Piece};
use agent_client::program::collect;
use protocol::exit::SpawnStage;
use protocol::requests::{Move, Start, WriteMode};
use protocol::{Fault, FaultCode};
use tests::sandbox::Sandbox;
use tests::{PATIENCE, have_or_skip};
use tokio::time::timeout;

use crate::ordinary;
use crate::paths::{WRITTEN, assert_alive, run, written};

const RACE: Duration = Duration::from_secs(1);

/// What a link of `/proc` would lead to: nothing may ever be made or seen there.
const ELSEWHERE: &str = "/tmp/elsewhere";

/// Exchanges two names as fast as it can. Now and then it makes a file in the directory that was the target
/// at first, and one elsewhere.
const FLIP: &str = "
import ctypes, os
libc = ctypes.CDLL(None)
os.chdir('/tmp/race')
inside = os.open('target', os.O_RDONLY)
is_directory = os.path.isdir('target')
flips = 0
while True:
    libc.renameat2(-100, b'target', -100, b'link', 2)
    flips += 1
    if is_directory and flips % 64 == 0:
        os.close(os.open('tick', os.O_CREAT | os.O_WRONLY, dir_fd=inside))
        os.unlink('tick', dir_fd=inside)
        os.close(os.open('/tmp/elsewhere-tick/tock', os.O_CREAT | os.O_WRONLY))
        os.unlink('/tmp/elsewhere-tick/tock')
";

/// A sandbox in which `target` and `link` of `/tmp/race` are exchanged, and what has come of it so far.
struct Race {
    sandbox: Sandbox,
    length: Duration,
    began: Instant,
    took: u32,
    refused: u32,
}

impl Race {
    /// `make` makes the target; the link leads to `to`.
    async fn start(make: &str, to: &str) -> Self {
        let mut sandbox = Sandbox::start().await;
        let make = format!(
            "mkdir -p /tmp/race {ELSEWHERE} {ELSEWHERE}-tick && cd /tmp/race && {make} && ln -s {to} link"
        );
        let made = sandbox.run(&["sh", "-c", &make]).await;
        assert!(made.stderr.is_empty(), "{}", String::from_utf8_lossy(&made.stderr));
        let flip = sandbox.command(&["python3", "-c", FLIP]);
        sandbox.guest.start(&flip).await.expect("it starts");
        let seconds = std::env::var("BURROW_RACE_SECONDS").ok().and_then(|text| text.parse().ok());
        let length = seconds.map_or(RACE, Duration::from_secs);
        Self { sandbox, length, began: Instant::now(), took: 0, refused: 0 }
    }

    /// Until its time is over and both have happened.
    fn goes_on(&self) -> bool {
        let is_over = self.began.elapsed() >= self.length && self.took > 0 && self.refused > 0;
        let is_late = self.began.elapsed() > self.length + PATIENCE;
        assert!(!is_late || is_over, "{} successes and {} refusals", self.took, self.refused);
        !is_over
    }

    /// Counts an answer, which may say that a path is denied or has just changed, and nothing else.
    fn count<T>(&mut self, answer: Result<T, GuestError>) -> Option<T> {
        const REFUSALS: [FaultCode; 3] =
            [FaultCode::Denied, FaultCode::NotFound, FaultCode::Invalid];
        match answer {
            Ok(value) => {
                self.took += 1;
                return Some(value);
            }
            Err(GuestError::Fault(fault)) if REFUSALS.contains(&fault.code) => self.refused += 1,
            Err(other) => panic!("after {} and {}: {other:?}", self.took, self.refused),
        }
        None
    }

    /// The same of a program that was not started for this reason.
    fn count_start<T>(&mut self, answer: Result<T, GuestError>, stage: SpawnStage) -> Option<T> {
        match answer {
            Ok(value) => {
                self.took += 1;
                return Some(value);
            }
            Err(GuestError::Fault(Fault { spawn: Some(spawn), .. })) if spawn.stage == stage => {
                self.refused += 1;
            }
            Err(other) => panic!("after {} and {}: {other:?}", self.took, self.refused),
        }
        None
    }

    async fn end(mut self) {
        let found = self.sandbox.run(&["find", ELSEWHERE, "-mindepth", "1"]).await;
        assert_eq!(String::from_utf8_lossy(&found.stdout), "", "it led elsewhere");
        assert_alive(&mut self.sandbox).await;
        self.sandbox.end().await;
    }
}

/// What came of a stream, and whether that is all of it.
async fn all(mut output: Output) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    loop {
        match output.next().await {
            Piece::Bytes { bytes, .. } => all.extend_from_slice(&bytes),
            Piece::End => return (all, true),
            Piece::Failed(_) => return (all, false),
            piece @ Piece::Gap { .. } => panic!("{piece:?} after {} bytes", all.len()),
        }
    }
}

/// What a program prints.
async fn printed(race: &mut Race, start: &Start) -> Result<String, GuestError> {
    let mut output = Vec::new();
    let guest = race.sandbox.guest.clone();
    collect(&guest, start, &[], |bytes| output.extend_from_slice(bytes), |_| {}).await?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

#[test]
fn a_link_that_is_flipped_never_leads_into_the_agents_memory() {
    if !have_or_skip("python3") {
        return;
    }
    run(async {
        let mut race = Race::start("truncate -s 1T target", "/proc/1/mem").await;
        while race.goes_on() {
            // Nothing is mapped there, so a write to the memory gets a specific error.
            let at = WriteMode::At { offset: 4096 };
            let answer = written(&race.sandbox.guest, "/tmp/race/target", at).await;
            race.count(answer);
            let read = race.sandbox.guest.read_file("/tmp/race/target", 4096, Some(1)).await;
            if let Some((output, ..)) = race.count(read) {
                // What was written there, or what was there before.
                let (byte, is_whole) = all(output).await;
                assert!(is_whole && (byte == [0] || byte == WRITTEN[..1]), "{byte:?} was read");
            }
        }
        race.end().await;
    });
}

#[test]
fn it_never_does_for_an_ordinary_user_either() {
    ordinary::again("races::a_link_that_is_flipped_never_leads_into_the_agents_memory");
}

#[test]
fn a_working_directory_that_is_flipped_is_never_the_agents() {
    if !have_or_skip("python3") {
        return;
    }
    run(async {
        let mut race = Race::start("mkdir target && touch target/here", "/proc/1/cwd").await;
        while race.goes_on() {
            let cwd = Some("/tmp/race/target".into());
            let start = Start { cwd, ..race.sandbox.command(&["ls", "here"]) };
            let listed = printed(&mut race, &start).await;
            if let Some(listed) = race.count_start(listed, SpawnStage::WorkingDirectory) {
                assert_eq!(listed, "here\n");
            }
        }
        race.end().await;
    });
}

#[test]
fn it_never_is_an_ordinary_users_agents_either() {
    ordinary::again("races::a_working_directory_that_is_flipped_is_never_the_agents");
}

#[test]
fn a_program_that_is_flipped_is_never_the_agent() {
    if !have_or_skip("python3") {
        return;
    }
    run(async {
        // Flipped with a link while it is looked up: a program, and a link to one.
        for make in ["cp /bin/echo target", "cp /bin/echo kept && ln -s kept target"] {
            let mut race = Race::start(make, "/proc/self/exe").await;
            while race.goes_on() {
                // The agent answers it with its own name.
                let start = race.sandbox.command(&["/tmp/race/target", "--version"]);
                let output = printed(&mut race, &start).await;
                if let Some(output) = race.count_start(output, SpawnStage::Exec) {
                    assert!(!output.contains("guest-agent"), "{output}");
                }
            }
            race.end().await;
        }
    });
}

#[test]
fn a_program_that_is_flipped_is_never_an_ordinary_users_agent() {
    ordinary::again("races::a_program_that_is_flipped_is_never_the_agent");
}

#[test]
fn an_archive_of_what_is_flipped_has_nothing_of_a_process() {
    if !have_or_skip("python3") {
        return;
    }
    run(async {
        let make = "mkdir target && echo ours > target/here";
        let mut race = Race::start(make, "/proc/1").await;
        while race.goes_on() {
            // The path itself, and a name that is met on the way.
            for (path, follow) in [("/tmp/race/target", true), ("/tmp/race", false)] {
                let answer = race.sandbox.guest.tar_get(path, follow).await;
                let Some(output) = race.count(answer) else { continue };
                // It is cut off where what was met has become something else.
                let (archive, _) = all(output).await;
                let has =
                    |word: &str| archive.windows(word.len()).any(|part| part == word.as_bytes());
                for of_a_process in ["oom_score", "mountinfo", "cmdline", "/maps"] {
                    assert!(!has(of_a_process), "{of_a_process} is in the archive of {path}");
                }
            }
        }
        race.end().await;
    });
}

#[test]
fn an_archive_of_an_ordinary_users_sandbox_lacks_them_too() {
    ordinary::again("races::an_archive_of_what_is_flipped_has_nothing_of_a_process");
}

#[test]
fn nothing_is_unpacked_through_a_link_that_is_flipped() {
    if !have_or_skip("python3") {
        return;
    }
    run(async {
        let mut race = Race::start("mkdir target", &format!("/proc/1/root{ELSEWHERE}")).await;
        let make = "mkdir -p /tmp/pack/target && echo attack > /tmp/pack/target/attack && tar -C /tmp/pack -cf - target";
        let archive = race.sandbox.run(&["sh", "-c", make]).await.stdout;
        while race.goes_on() {
            for directory in ["/tmp/race/target", "/tmp/race"] {
                let guest = &race.sandbox.guest;
                let answer = match guest.tar_put(directory, false, false) {
                    Ok(mut upload) => {
                        upload.write(&archive).await.ok();
                        upload.finish().await.map(drop)
                    }
                    Err(error) => Err(error),
                };
                race.count(answer);
            }
        }
        race.end().await;
    });
}

#[test]
fn nothing_is_for_an_ordinary_user_either() {
    ordinary::again("races::nothing_is_unpacked_through_a_link_that_is_flipped");
}

#[test]
fn nothing_is_moved_made_or_removed_through_a_link_that_is_flipped() {
    if !have_or_skip("python3") {
        return;
    }
    run(async {
        let mut race = Race::start("mkdir target", &format!("/proc/1/root{ELSEWHERE}")).await;
        let guest = race.sandbox.guest.clone();
        while race.goes_on() {
            written(&guest, "/tmp/source", WriteMode::Replace {}).await.expect("it is ours");
            let (from, to) = ("/tmp/source".into(), "/tmp/race/target/attack".into());
            race.count(guest.rename(Move { from, to, replace: true }).await);
            let made = written(&guest, "/tmp/race/target/made", WriteMode::Replace {}).await;
            race.count(made);
        }
        race.end().await;
    });
}

#[test]
fn nothing_is_moved_so_for_an_ordinary_user_either() {
    ordinary::again("races::nothing_is_moved_made_or_removed_through_a_link_that_is_flipped");
}

#[test]
fn a_watch_of_what_is_flipped_never_tells_of_another_place() {
    if !have_or_skip("python3") {
        return;
    }
    run(async {
        let link = format!("/proc/1/root{ELSEWHERE}-tick");
        let mut race = Race::start("mkdir target", &link).await;
        while race.goes_on() {
            for recursive in [false, true] {
                let answer = race.sandbox.guest.watch("/tmp/race/target", recursive).await;
                let Some(mut watcher) = race.count(answer) else { continue };
                let first = timeout(PATIENCE, async {
                    loop {
                        // Until then the directory itself was renamed. A refusal comes here, too.
                        match watcher.next().await?.map(|change| change.path.to_string()) {
                            Some(path) if path.is_empty() => {}
                            path => return Ok(path),
                        }
                    }
                });
                let first = first.await.expect("the directory changes");
                let Some(first) = race.count(first) else { continue };
                assert!(first.as_deref().is_none_or(|path| path == "tick"), "{first:?}");
            }
        }
        race.end().await;
    });
}

#[test]
fn a_watch_of_an_ordinary_users_does_not_either() {
    ordinary::again("races::a_watch_of_what_is_flipped_never_tells_of_another_place");
}

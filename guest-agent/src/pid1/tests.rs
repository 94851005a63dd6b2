//! A shutdown as an ordinary process. As PID 1 it is tried by the tests that launch sandboxes.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::shutdown::{Ended, Scope, Sessions, end_processes};
use crate::process::tests::{Started, World, shell};
use crate::process::tree::Tree;

struct One<'a> {
    world: &'a World,
    started: Started,
}

impl<'a> One<'a> {
    /// Starts a script and waits for the file that it makes when it is ready.
    fn new(world: &'a World, name: &str, script: &str) -> Self {
        let ready = std::env::temp_dir().join(format!("burrow-{name}-{}", std::process::id()));
        let started = world.start(shell(&format!("{script} : >{}; wait", ready.display())));
        world.until("the script is ready", || std::fs::remove_file(&ready).ok());
        Self { world, started }
    }

    fn tree(&self) -> Tree<'static> {
        let leader = self.started.child.pid;
        let leader_reaped = !self.world.reaper.is_registered(leader);
        Tree { session: "test", leader, leader_reaped, group: None }
    }
}

impl Sessions for One<'_> {
    fn signal(&mut self, signal: Signal) {
        self.tree().signal(signal);
    }

    fn are_gone(&mut self) -> bool {
        self.tree().is_gone()
    }
}

fn shut_down(world: &World, sessions: &mut One<'_>, grace: Duration) -> Ended {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let scope = Scope::Sessions(sessions);
    runtime.block_on(end_processes(&world.reaper, scope, grace))
}

#[test]
fn a_shutdown_takes_no_longer_than_the_processes_do() {
    let world = World::new();
    let mut one = One::new(&world, "gentle", "sleep 1000 & setsid sleep 1000 &");
    let begun = Instant::now();
    let ended = shut_down(&world, &mut one, Duration::from_secs(60));
    assert_eq!(ended, Ended { gently: true, completely: true });
    assert!(begun.elapsed() < Duration::from_secs(30), "the grace was not waited out");
}

#[test]
fn deaf_processes_are_killed_after_the_grace() {
    let world = World::new();
    let mut one = One::new(&world, "stubborn", "trap '' TERM; sleep 1000 & setsid sleep 1000 &");
    let begun = Instant::now();
    let grace = Duration::from_millis(300);
    let ended = shut_down(&world, &mut one, grace);
    assert_eq!(ended, Ended { gently: false, completely: true });
    assert!(begun.elapsed() >= grace);
    assert_eq!(one.tree().members().count, 0);
}

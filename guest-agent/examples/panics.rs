//! Panics in every way that matters to the agent, with the agent's build flags and its replacements
//! for the unwinder's functions, and prints `survived` if each panic ends where it is caught and
//! drops what it passes.
//!
//! `just build` builds it beside the agent, and the test `agent_panics` runs it. It stands for the
//! promise that a fault in one task does not end PID 1.

#![allow(clippy::many_single_char_names, reason = "many values, to fill registers and the stack")]
#![allow(clippy::print_stdout, reason = "a program of its own, whose word is awaited")]

use std::cell::RefCell;
use std::hint::black_box;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

#[cfg(all(target_env = "musl", not(debug_assertions)))]
#[allow(unsafe_code)]
#[path = "../src/sys/backtrace.rs"]
mod backtrace;

/// Deeper than any stack of the agent's.
const DEPTH: u64 = 1000;

fn main() {
    a_panic_prints_its_message();
    panic::set_hook(Box::new(|_| {}));
    the_payload_arrives();
    passed_values_are_dropped_from_the_innermost_outwards();
    registers_of_the_catching_frame_are_as_they_were();
    arguments_on_the_stack_are_taken_off();
    a_panic_while_another_unwinds_is_caught_where_it_may_be();
    a_panic_that_is_thrown_again_goes_on();
    a_thread_ends_alone();
    println!("survived");
}

/// With the standard library's own hook, which also prints a backtrace if the environment requests one.
fn a_panic_prints_its_message() {
    assert!(catch_unwind(|| panic!("the first one")).is_err());
}

fn the_payload_arrives() {
    let caught = catch_unwind(|| panic!("number {}", black_box(7))).expect_err("it panics");
    assert_eq!(caught.downcast_ref::<String>().map(String::as_str), Some("number 7"));
    let caught = catch_unwind(|| black_box(&[1, 2, 3])[black_box(3)]).expect_err("it panics");
    assert!(caught.downcast_ref::<String>().is_some_and(|text| text.contains("out of bounds")));
}

thread_local! {
    static DROPPED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

struct Noted(u64);

impl Drop for Noted {
    fn drop(&mut self) {
        DROPPED.with_borrow_mut(|dropped| dropped.push(self.0));
    }
}

#[inline(never)]
fn descend(depth: u64) -> u64 {
    let noted = Noted(depth);
    assert!(depth != 0, "at the bottom");
    let below = descend(black_box(depth - 1));
    below + noted.0
}

fn passed_values_are_dropped_from_the_innermost_outwards() {
    for _ in 0..3 {
        assert!(catch_unwind(|| descend(black_box(DEPTH))).is_err());
        let dropped = DROPPED.take();
        assert!(dropped.iter().copied().eq(0..=DEPTH), "{dropped:?}");
    }
}

/// Keeps many values alive over a call that panics, so that some are in registers.
#[inline(never)]
fn registers_of_the_catching_frame_are_as_they_were() {
    let seed = black_box(3_u64);
    let values = [seed * 3, seed * 5, seed * 7, seed * 11, seed * 13, seed * 17, seed * 19];
    let [a, b, c, d, e, f, g] = values;
    for round in 0..black_box(3) {
        let caught = catch_unwind(|| busy(round + a, b, c));
        assert!(caught.is_err());
        assert_eq!([a, b, c, d, e, f, g], values.map(black_box));
    }
}

/// Uses all registers that it must restore, and panics in its own frame.
#[inline(never)]
fn busy(a: u64, b: u64, c: u64) -> u64 {
    let (d, e, f) = (black_box(a + b), black_box(b + c), black_box(a + c));
    let under = many(d, e, f, a, b, c, a ^ d, b ^ e, c ^ f, a & f);
    under + a * d + b * e + c * f
}

#[inline(never)]
#[expect(clippy::too_many_arguments, reason = "they must be on the stack")]
fn many(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64, j: u64) -> u64 {
    let _noted = Noted(j);
    assert!(black_box(a | b | c | d | e | f | g | h | i) == 0, "never zero");
    j
}

fn arguments_on_the_stack_are_taken_off() {
    DROPPED.take();
    for round in 1..100 {
        let noted = Noted(round);
        let caught = catch_unwind(|| {
            let _inner = Noted(1000 + round);
            let held = (black_box(round), black_box(round * 2));
            let result = many(round, 2, 3, 4, 5, 6, 7, 8, 9, 2000 + round);
            result + held.0 + held.1
        });
        assert!(caught.is_err());
        assert_eq!(DROPPED.take(), [2000 + round, 1000 + round]);
        drop(noted);
        DROPPED.take();
    }
}

struct Stumbles;

impl Drop for Stumbles {
    fn drop(&mut self) {
        assert!(catch_unwind(|| descend(5)).is_err());
    }
}

fn a_panic_while_another_unwinds_is_caught_where_it_may_be() {
    let caught = catch_unwind(|| {
        let _stumbles = Stumbles;
        let _noted = Noted(99);
        panic!("the outer one");
    });
    assert_eq!(caught.expect_err("it panics").downcast_ref::<&str>(), Some(&"the outer one"));
    assert_eq!(DROPPED.take(), [99, 0, 1, 2, 3, 4, 5]);
}

fn a_panic_that_is_thrown_again_goes_on() {
    let caught = catch_unwind(|| {
        let _noted = Noted(1);
        let inner = catch_unwind(AssertUnwindSafe(|| {
            let _noted = Noted(0);
            panic!("twice");
        }));
        resume_unwind(inner.expect_err("it panics"));
    });
    assert_eq!(caught.expect_err("it panics").downcast_ref::<&str>(), Some(&"twice"));
    assert_eq!(DROPPED.take(), [0, 1]);
}

fn a_thread_ends_alone() {
    let threads: Vec<_> = (0..8).map(|_| thread::spawn(|| descend(black_box(DEPTH)))).collect();
    assert!(threads.into_iter().all(|thread| thread.join().is_err()));
}

//! Maps the end of a run to the exit code of the language's own interpreter, and to a message where
//! the code does not say enough. Pure.

use std::time::Duration;

use protocol::exit::{Cause, EXIT_TIMED_OUT};
use protocol::repl::{Finished, RunEnd, Rung};

use super::super::exit::{self, Exit};
use super::super::output::printable;
use super::super::values::{human_duration, signal_name};
use super::printer::SandboxLifetime;

/// The exit code after ctrl-c: 128 + SIGINT.
const INTERRUPTED: Exit = Exit(128 + 2);

/// Python's name for an interrupt that nobody caught, from ctrl-c or raised by the code: it then ends as if
/// by the signal.
const KEYBOARD_INTERRUPT: &str = "KeyboardInterrupt";

/// The exit code. `by_us`: we interrupted the run; `error`: the kind of the last reported error.
pub fn exit(end: &RunEnd, error: Option<&str>, by_us: bool) -> Exit {
    match end {
        RunEnd::Ok {} => Exit::SUCCESS,
        RunEnd::Error {} if error == Some(KEYBOARD_INTERRUPT) => INTERRUPTED,
        RunEnd::Error {} => Exit(1),
        // Like any process's, eight bits of it.
        RunEnd::Exited { code } => Exit(*code as u8),
        RunEnd::Interrupted { .. } => INTERRUPTED,
        RunEnd::TimedOut { .. } => Exit(EXIT_TIMED_OUT as u8),
        RunEnd::Died { cause } => Exit(cause.shell_code() as u8),
        RunEnd::Cancelled { .. } if by_us => INTERRUPTED,
        RunEnd::Cancelled { .. } => Exit::FAILED_ITSELF,
    }
}

/// The message for what the exit code does not show.
pub fn explain(finished: &Finished, lifetime: SandboxLifetime, by_us: bool) -> Option<String> {
    let killed = finished.rung == Some(Rung::Killed);
    let fate = if killed { "the interpreter was killed" } else { "the code was interrupted" };
    let explanation = match &finished.end {
        RunEnd::Ok {} | RunEnd::Error {} | RunEnd::Exited { .. } => None,
        RunEnd::Cancelled { .. } | RunEnd::Interrupted { .. } if by_us && !killed => None,
        RunEnd::Interrupted { .. } if by_us => Some(format!("{fate}: it did not react to ctrl-c")),
        RunEnd::Interrupted { by } => Some(format!("{fate} by {}", printable(by))),
        RunEnd::TimedOut { limit_ms } => {
            let limit = human_duration(Duration::from_millis(*limit_ms));
            Some(format!("{fate} after its time limit of {limit}"))
        }
        RunEnd::Died { cause: Cause::Signaled { signal, core_dumped } } => {
            let core = if *core_dumped { ", and dumped core" } else { "" };
            Some(format!("the interpreter was ended by {}{core}", signal_name(*signal)))
        }
        RunEnd::Died { cause } => exit::explain(cause, "the interpreter"),
        RunEnd::Cancelled { reason } => {
            Some(format!("the code was not run: {}", printable(reason)))
        }
    };
    // A run's own sandbox has no state to keep.
    if finished.state_kept || lifetime == SandboxLifetime::Temporary {
        return explanation;
    }
    let lost = "the state of the context is lost";
    Some(
        explanation.map_or_else(|| lost.to_owned(), |explanation| format!("{explanation}; {lost}")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(end: RunEnd) -> Finished {
        Finished {
            end,
            duration_us: 0,
            cpu_us: None,
            memory_bytes_peak: None,
            state_kept: true,
            rung: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            cached: None,
        }
    }

    fn by(who: &str) -> RunEnd {
        RunEnd::Interrupted { by: who.to_owned() }
    }

    #[test]
    fn codes_are_those_of_an_interpreter() {
        let died = |cause| RunEnd::Died { cause };
        let segfault = Cause::Signaled { signal: 11, core_dumped: false };
        for (end, code) in [
            (RunEnd::Ok {}, 0),
            (RunEnd::Error {}, 1),
            (RunEnd::Exited { code: 3 }, 3),
            (RunEnd::Exited { code: -1 }, 255),
            (RunEnd::Exited { code: 256 }, 0),
            (by("x"), 130),
            (RunEnd::TimedOut { limit_ms: 1 }, 124),
            (died(Cause::Exited { code: 9 }), 9),
            (died(segfault), 139),
            (died(Cause::OutOfMemory { limit_bytes: None }), 137),
            (RunEnd::Cancelled { reason: String::new() }, 125),
        ] {
            assert_eq!(exit(&end, None, false), Exit(code), "{end:?}");
        }
        let cancelled = RunEnd::Cancelled { reason: String::new() };
        assert_eq!(exit(&cancelled, None, true), Exit(130));
        assert_eq!(exit(&RunEnd::Error {}, Some("ValueError"), false), Exit(1));
        assert_eq!(exit(&RunEnd::Error {}, Some("KeyboardInterrupt"), false), Exit(130));
    }

    #[test]
    fn an_end_is_explained_only_where_nothing_else_shows_it() {
        let alone = |end, by_us| explain(&finished(end), SandboxLifetime::Temporary, by_us);
        assert_eq!(alone(RunEnd::Error {}, false), None);
        assert_eq!(alone(by("us"), true), None);
        let other = alone(by("so\x1bmebody"), false).expect("a line");
        assert_eq!(other, "the code was interrupted by so\\u{1b}mebody");
        let late = alone(RunEnd::TimedOut { limit_ms: 2000 }, false).expect("a line");
        assert_eq!(late, "the code was interrupted after its time limit of 2s");
        let cause = Cause::Signaled { signal: 11, core_dumped: false };
        let died = alone(RunEnd::Died { cause }, false).expect("a line");
        assert_eq!(died, "the interpreter was ended by SIGSEGV");
    }

    #[test]
    fn a_shared_context_that_is_lost_is_reported() {
        let mut end = finished(by("us"));
        end.state_kept = false;
        end.rung = Some(Rung::Killed);
        let line = explain(&end, SandboxLifetime::Persistent, true).expect("a line");
        assert!(line.contains("did not react to ctrl-c") && line.ends_with("is lost"), "{line}");
        end.end = RunEnd::Died { cause: Cause::Exited { code: 1 } };
        let line = explain(&end, SandboxLifetime::Persistent, true).expect("a line");
        assert_eq!(line, "the state of the context is lost");
    }
}

//! Converts the guest's events of runs into the events that clients read. Pure.

use protocol::repl::{Event, Happening};

use super::event::{Chunk, RunEvent, What};
use agent_client::program::Characters;

/// Turns events into what clients read. Of output that ends within a character, the beginning of
/// that character waits for what follows; nothing waits past the end of its run or a gap.
#[derive(Debug, Default)]
pub struct Narrator {
    stdout: Characters,
    stderr: Characters,
}

impl Narrator {
    pub fn tell(&mut self, mut event: Event) -> Vec<RunEvent> {
        let happening = std::mem::replace(&mut event.what, Happening::Gap { events: 0, bytes: 0 });
        let mut narrated = Vec::new();
        let what = match happening {
            Happening::Stdout { bytes } => {
                let whole = self.stdout.take(bytes.into_bytes());
                narrated.extend(output(&event, What::Stdout, whole));
                return narrated;
            }
            Happening::Stderr { bytes } => {
                let whole = self.stderr.take(bytes.into_bytes());
                narrated.extend(output(&event, What::Stderr, whole));
                return narrated;
            }
            Happening::Started(started) => {
                What::Started { count: started.count, lost: started.lost }
            }
            Happening::Late(late) => What::Late(late.into()),
            Happening::Display(shown) => What::Display { display: shown.into() },
            Happening::Artifact(file) => What::Artifact { artifact: file.into() },
            Happening::Error(report) => What::Error { error: report.into() },
            Happening::InputRequest { request, prompt, secret } => {
                What::InputRequest { request, prompt, secret }
            }
            Happening::Lost { reason } => What::Lost { reason },
            Happening::Gap { events, bytes } => {
                narrated.extend(self.flush(&event));
                What::Gap { events, bytes }
            }
            Happening::Finished(finished) => {
                narrated.extend(self.flush(&event));
                What::Finished(finished.into())
            }
        };
        narrated.push(RunEvent::of(&event, what));
        narrated
    }

    /// What was held back will not be completed.
    fn flush(&mut self, event: &Event) -> impl Iterator<Item = RunEvent> {
        let stdout = output(event, What::Stdout, self.stdout.finish());
        stdout.into_iter().chain(output(event, What::Stderr, self.stderr.finish()))
    }
}

fn output(event: &Event, channel: fn(Chunk) -> What, bytes: Vec<u8>) -> Option<RunEvent> {
    (!bytes.is_empty()).then(|| RunEvent::of(event, channel(bytes.into())))
}

#[cfg(test)]
mod tests {
    use protocol::message::Channel;
    use protocol::repl::{self, DisplayRole, RunEnd};

    use super::*;

    fn event(run: u64, what: Happening) -> Event {
        Event { run, at_us: 7, what }
    }

    fn stdout(bytes: &[u8]) -> Happening {
        Happening::Stdout { bytes: bytes.to_vec().into() }
    }

    fn finished() -> Happening {
        Happening::Finished(repl::Finished {
            end: RunEnd::Ok {},
            duration_us: 1,
            cpu_us: None,
            memory_bytes_peak: None,
            state_kept: true,
            rung: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            cached: None,
        })
    }

    #[test]
    fn a_character_in_two_pieces_is_sent_in_one() {
        let mut narrator = Narrator::default();
        assert!(narrator.tell(event(1, stdout(b"\xe2\x82"))).is_empty());
        let events = narrator.tell(event(1, stdout(b"\xac!")));
        let events = serde_json::to_value(&events).expect("JSON");
        let expected =
            serde_json::json!([{ "type": "stdout", "text": "€!", "run": 1, "at_us": 7 }]);
        assert_eq!(events, expected);
    }

    #[test]
    fn half_a_character_at_the_end_of_a_run_is_reported_as_bytes_before_it() {
        let mut narrator = Narrator::default();
        let first = narrator.tell(event(1, stdout(b"ab\xe2\x82")));
        assert_eq!(first.len(), 1);
        let events = narrator.tell(event(1, finished()));
        let events = serde_json::to_value(&events).expect("JSON");
        assert_eq!(events[0]["base64"], "4oI=");
        assert_eq!(
            (events[1]["type"].as_str(), events[1]["status"].as_str()),
            (Some("finished"), Some("ok"))
        );
        assert!(narrator.tell(event(2, finished())).len() == 1, "nothing is told twice");
    }

    #[test]
    fn an_event_reads_back_as_it_was_written() {
        let display = repl::Display {
            role: DisplayRole::Shown,
            id: None,
            data: vec![repl::Datum { mime: "image/png".to_owned(), data: vec![0xff].into() }],
            metadata: Some("[1]".to_owned()),
        };
        let late = repl::Late { of: 0, channel: Channel::Stderr, bytes: "late".into(), dropped: 3 };
        let died =
            RunEnd::Died { cause: protocol::Cause::Signaled { signal: 9, core_dumped: false } };
        let Happening::Finished(finished) = finished() else { unreachable!("it is one") };
        for what in [
            Happening::Display(display),
            Happening::Late(late),
            Happening::Finished(repl::Finished { end: died, ..finished }),
            Happening::Gap { events: 1, bytes: 2 },
        ] {
            for written in Narrator::default().tell(event(0, what.clone())) {
                let text = serde_json::to_string(&written).expect("JSON");
                assert!(!text.contains("null"), "{text}");
                assert_eq!(serde_json::from_str::<RunEvent>(&text).expect(&text), written);
            }
        }
    }
}

//! Results that were cut, kept for `read_output` while there is room for them. Pure.

use std::collections::VecDeque;

use super::cut::{Rest, Stream, page};
use super::limits::{KEPT_BYTES_MAX, RESULTS_KEPT_MAX, SESSION_KEPT_BYTES_MAX, SHOWN_BYTES_MAX};
use crate::budget::Share;
use agent_client::program::Head;

/// How long a result is kept, in words for clients.
pub const KEPT_FOR: &str = "kept until newer cut results replace it or this session ends";

/// The cut results of one session.
#[derive(Debug, Default)]
pub struct Results {
    outputs: VecDeque<Outputs>,
    bytes: usize,
    /// How many there were.
    count: u64,
    /// Of what the calls of the server hold together.
    memory: Option<Share>,
}

/// The output of a program or a run.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// Its handle, once it is kept.
    run: String,
    pub stdout: Head,
    pub stderr: Head,
}

/// What is shown of it.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    pub stdout: String,
    pub stderr: String,
    /// The handle of the rest, if anything was cut.
    pub run: Option<String>,
    pub rest: Vec<Rest>,
}

/// An output of which as much is kept as of any.
pub fn output() -> Head {
    Head::new(KEPT_BYTES_MAX)
}

impl Default for Outputs {
    fn default() -> Self {
        Self { run: String::new(), stdout: output(), stderr: output() }
    }
}

impl Outputs {
    pub fn total_bytes(&self) -> u64 {
        self.stdout.total_bytes() + self.stderr.total_bytes()
    }

    pub fn of(&self, stream: Stream) -> &Head {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }

    fn kept_bytes(&self) -> usize {
        self.stdout.bytes().len() + self.stderr.bytes().len()
    }
}

impl Results {
    /// The beginning of both outputs; what has more is kept, if there is memory for it.
    pub fn show(
        &mut self,
        mut outputs: Outputs,
        handle: impl Fn(u64) -> String,
        begin_share: impl FnOnce() -> Share,
    ) -> Shown {
        let mut rest = Vec::new();
        let mut begin = |stream: Stream| {
            let output = outputs.of(stream);
            let page = page(output.bytes(), 0, SHOWN_BYTES_MAX);
            let shown_bytes = page.next.unwrap_or(output.bytes().len()) as u64;
            if output.total_bytes() > shown_bytes {
                rest.push(Rest {
                    stream,
                    shown_bytes,
                    total_bytes: output.total_bytes(),
                    kept_bytes: output.bytes().len() as u64,
                    next_offset: shown_bytes,
                });
            }
            page.text
        };
        let (stdout, stderr) = (begin(Stream::Stdout), begin(Stream::Stderr));
        if rest.is_empty() {
            return Shown { stdout, stderr, run: None, rest };
        }
        outputs.run = handle(self.count + 1);
        let run = outputs.run.clone();
        let run = self.keep(outputs, begin_share).then_some(run);
        if run.is_some() {
            self.count += 1;
        } else {
            for rest in &mut rest {
                rest.kept_bytes = rest.shown_bytes;
            }
        }
        Shown { stdout, stderr, run, rest }
    }

    /// The result of that handle, if it is still kept.
    pub fn get(&self, run: &str) -> Option<&Outputs> {
        self.outputs.iter().find(|outputs| outputs.run == run)
    }

    /// The handles, oldest first.
    pub fn runs(&self) -> Vec<String> {
        self.outputs.iter().map(|outputs| outputs.run.clone()).collect()
    }

    /// Whether it is kept. The oldest are dropped for it.
    fn keep(&mut self, outputs: Outputs, begin_share: impl FnOnce() -> Share) -> bool {
        let bytes = outputs.kept_bytes();
        let memory = self.memory.get_or_insert_with(begin_share).clone();
        let has_room = |results: &Self| {
            results.outputs.len() < RESULTS_KEPT_MAX
                && results.bytes + bytes <= SESSION_KEPT_BYTES_MAX
        };
        while !has_room(self) || !memory.try_grow(bytes) {
            let Some(oldest) = self.outputs.pop_front() else { return false };
            self.bytes -= oldest.kept_bytes();
            memory.shrink(oldest.kept_bytes());
        }
        self.bytes += bytes;
        self.outputs.push_back(outputs);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MEMORY_STEP_BYTES;

    fn handle(number: u64) -> String {
        format!("r{number}")
    }

    fn outputs(stdout: usize, stderr: usize) -> Outputs {
        let mut outputs = Outputs::default();
        let memory = Share::within(u64::MAX);
        outputs.stdout.add(&vec![b'o'; stdout], &memory);
        outputs.stderr.add(&vec![b'e'; stderr], &memory);
        outputs
    }

    #[test]
    fn what_fits_is_shown_whole_and_not_kept() {
        let (mut results, share) = (Results::default(), || Share::within(u64::MAX));
        let shown = results.show(outputs(SHOWN_BYTES_MAX, 3), handle, share);
        assert_eq!((shown.stdout.len(), shown.stderr.as_str()), (SHOWN_BYTES_MAX, "eee"));
        assert!(shown.run.is_none() && shown.rest.is_empty() && results.runs().is_empty());
    }

    #[test]
    fn what_is_cut_is_read_on_from_where_it_was_cut() {
        let (mut results, share) = (Results::default(), || Share::within(u64::MAX));
        let shown = results.show(outputs(SHOWN_BYTES_MAX + 5, 0), handle, share);
        let run = shown.run.expect("a handle");
        let [rest] = shown.rest.try_into().expect("one output");
        assert_eq!(rest.total_bytes, SHOWN_BYTES_MAX as u64 + 5);
        let output = results.get(&run).expect("kept").of(rest.stream);
        assert_eq!(page(output.bytes(), rest.next_offset as usize, 99).text, "ooooo");
    }

    #[test]
    fn what_there_is_no_memory_for_is_cut_without_a_handle() {
        let (mut results, share) = (Results::default(), || Share::within(0));
        // The first step is free, as of every call.
        let free = MEMORY_STEP_BYTES as usize;
        assert!(free < KEPT_BYTES_MAX);
        assert!(results.show(outputs(free, 0), handle, share).run.is_some());
        let shown = results.show(outputs(KEPT_BYTES_MAX, 0), handle, share);
        assert!(shown.run.is_none() && results.runs().is_empty());
        assert_eq!(shown.rest[0].kept_bytes, SHOWN_BYTES_MAX as u64);
        let again = results.show(outputs(free, 0), handle, share);
        assert_eq!(again.run.as_deref(), Some("r2"));
    }

    #[test]
    fn the_oldest_give_way() {
        let (mut results, share) = (Results::default(), || Share::within(u64::MAX));
        for _ in 0..10 {
            results.show(outputs(KEPT_BYTES_MAX, 0), handle, share);
        }
        assert_eq!(results.runs(), ["r7", "r8", "r9", "r10"]);
        assert_eq!(results.bytes, SESSION_KEPT_BYTES_MAX);
        let (mut results, share) = (Results::default(), || Share::within(u64::MAX));
        for _ in 0..=RESULTS_KEPT_MAX {
            results.show(outputs(SHOWN_BYTES_MAX + 1, 0), handle, share);
        }
        assert_eq!(results.runs().len(), RESULTS_KEPT_MAX);
    }

    #[test]
    fn an_output_keeps_its_beginning_and_counts_the_rest() {
        let memory = Share::within(u64::MAX);
        let mut output = output();
        output.add(&vec![b'a'; KEPT_BYTES_MAX - 1], &memory);
        output.add(b"bcd", &memory);
        output.lose(2);
        assert_eq!(output.bytes().len(), KEPT_BYTES_MAX);
        assert_eq!(output.total_bytes(), KEPT_BYTES_MAX as u64 + 4);
        assert_eq!(page(output.bytes(), KEPT_BYTES_MAX - 1, 9).text, "b");
    }

    #[test]
    fn nothing_is_kept_behind_what_there_was_no_memory_for() {
        let memory = Share::within(0);
        let mut output = output();
        output.add(b"first", &memory);
        output.add(&vec![b'x'; MEMORY_STEP_BYTES as usize], &memory);
        output.add(b"last", &memory);
        assert_eq!(
            page(output.bytes(), 0, 99),
            super::super::cut::Page { text: "first".to_owned(), next: None }
        );
        assert_eq!(output.total_bytes(), 9 + MEMORY_STEP_BYTES);
    }
}

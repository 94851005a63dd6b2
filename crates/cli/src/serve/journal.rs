//! The log of the daemon on stderr: text for people, or JSON.
//!
//! A daemon that a verb started has a file as its stderr. It is replaced when it is long, and one
//! earlier file is kept.
//!
//! Everything goes through `tracing`, so each line has fields for the sandbox, the request and the
//! id of the key. Values of keys, environments and inputs are never logged.
//!
//! A collector of OpenTelemetry gets the same lines, where one is configured.
//!
//! A separate thread writes the lines, so a blocked reader does not block the server. A line is traced
//! before its request is answered, so a timer wakes the thread, after the answer. Lines that do not fit
//! into the buffer are counted, and the count is logged when there is room again.

mod telemetry;

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::runtime::Handle;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{FilterFn, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

use super::super::{background, output};
use otel::Otel;
use sandbox::EventSink;
use settings::{Log, LogFormat, LogLevel};

/// The `tracing` target of sandboxes' events.
const SANDBOX: &str = "burrow::sandbox";

/// The `tracing` target of the MCP SDK.
const SDK: &str = "rmcp";

/// Lines that wait to be written: about a megabyte of them.
const LINES_WAITING_MAX: usize = 4096;
/// From a line to its writing, and between two rounds of it: to wake the thread for every line would
/// cost a call more than its line does.
const PAUSE: Duration = Duration::from_millis(5);
/// How long the end of the program waits for the last lines.
const LAST_LINES_MAX: Duration = Duration::from_secs(1);

/// A log file of this length is replaced.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The journal of this process. Dropping it waits for the last lines, within bounds.
#[must_use]
pub struct Journal {
    done: Receiver<()>,
    lines: Lines,
}

/// Sends traces from here on to stderr, which is `file` if one is named.
pub fn open(log: Log, file: Option<PathBuf>, otel: Otel) -> Journal {
    let level = match log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let (sender, waiting) = sync_channel(LINES_WAITING_MAX);
    let (finished, done) = sync_channel(1);
    let counts = Arc::<Counts>::default();
    let known = Arc::clone(&counts);
    let writing = thread::spawn(move || {
        write_lines(&waiting, &known, file.as_deref());
        // Nobody may be waiting for it.
        let _ = finished.send(());
    });
    let lines = Lines { sender, counts, writer: writing.thread().clone() };
    let collector = otel.has_logs().then_some(telemetry::Lines(otel));
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(lines.clone());
    // Only this process's first server opens a journal; a second one would be a test's.
    let _ = match log.format {
        LogFormat::Json => tracing::subscriber::set_global_default(
            builder
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .finish()
                .with(collector)
                .with(discretion()),
        ),
        LogFormat::Text => {
            let plain = builder.event_format(PlainFormat).finish();
            tracing::subscriber::set_global_default(plain.with(collector).with(discretion()))
        }
    };
    Journal { done, lines }
}

/// Other crates log whole requests, which contain code and environments: only their errors are written, and
/// not those that a client causes.
fn discretion() -> FilterFn {
    filter_fn(|what| !what.target().starts_with(SDK) || *what.level() == Level::ERROR)
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.lines.sender.try_send(Vec::new()).is_ok() {
            self.lines.writer.unpark();
            let _ = self.done.recv_timeout(LAST_LINES_MAX);
        }
    }
}

/// Writes lines until an empty one comes, all that wait in one write. That stderr is gone ends
/// nothing.
fn write_lines(waiting: &Receiver<Vec<u8>>, counts: &Counts, file: Option<&Path>) {
    while let Some(mut lines) = first_line(waiting, counts) {
        let mut is_over = lines.is_empty();
        for line in waiting.try_iter().take(LINES_WAITING_MAX) {
            is_over |= line.is_empty();
            lines.extend_from_slice(&line);
        }
        let mut stderr = io::stderr().lock();
        let _ = stderr.write_all(&lines);
        let count = counts.lost.swap(0, Ordering::Relaxed);
        if count > 0 {
            let _ = writeln!(stderr, "host-bridge: warning: {count} lines were dropped");
        }
        drop(stderr);
        if let Some(file) = file {
            // If this fails, the log continues in the existing file.
            let _ = replace_long_file(file, FILE_BYTES_MAX);
        }
        if is_over {
            return;
        }
        thread::sleep(PAUSE);
    }
}

/// The next line, slept for; `None` when nobody is left who could write one.
fn first_line(waiting: &Receiver<Vec<u8>>, counts: &Counts) -> Option<Vec<u8>> {
    loop {
        // Set before the check, so that a later writer wakes this thread.
        counts.is_asleep.store(true, Ordering::SeqCst);
        match waiting.try_recv() {
            Err(TryRecvError::Empty) => thread::park(),
            Err(TryRecvError::Disconnected) => return None,
            Ok(line) => {
                counts.is_asleep.store(false, Ordering::SeqCst);
                return Some(line);
            }
        }
    }
}

/// Renames a file that has become too long, and makes a new one our stdout and stderr.
fn replace_long_file(path: &Path, bytes_max: u64) -> io::Result<()> {
    if fs::metadata(path)?.len() < bytes_max {
        return Ok(());
    }
    fs::rename(path, path.with_extension("log.1"))?;
    let file = background::open_log(path)?;
    nix::unistd::dup2_stdout(&file)?;
    nix::unistd::dup2_stderr(&file)?;
    Ok(())
}

/// The buffer of lines, and the thread that writes them.
#[derive(Clone)]
struct Lines {
    sender: SyncSender<Vec<u8>>,
    counts: Arc<Counts>,
    writer: Thread,
}

#[derive(Default)]
struct Counts {
    lost: AtomicU64,
    /// Whether the thread sleeps until it is woken.
    is_asleep: AtomicBool,
}

impl Lines {
    fn push(&self, line: Vec<u8>) {
        if self.sender.try_send(line).is_err() {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if self.counts.is_asleep.swap(false, Ordering::SeqCst) {
            let wake = Wake(self.writer.clone());
            // Where there is no runtime, nobody waits for an answer.
            if let Ok(runtime) = Handle::try_current() {
                drop(runtime.spawn(async move {
                    tokio::time::sleep(PAUSE).await;
                    drop(wake);
                }));
            }
        }
    }
}

/// Wakes the thread when it is dropped: also with a runtime that ends before its timer.
struct Wake(Thread);

impl Drop for Wake {
    fn drop(&mut self) {
        self.0.unpark();
    }
}

/// One line being formatted.
struct Line {
    bytes: Vec<u8>,
    lines: Lines,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { bytes: Vec::new(), lines: self.clone() }
    }
}

impl io::Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if !bytes.is_empty() {
            self.lines.push(bytes);
        }
    }
}

/// Logs events of sandboxes.
pub fn events() -> EventSink {
    Arc::new(|event| {
        // The stream of events has these; the journal has the states.
        if matches!(event, sandbox::Event::Happened { .. }) {
            return;
        }
        let text = output::printable(&event.to_string());
        let which = event.which().map(ToString::to_string);
        if event.is_trouble() {
            tracing::warn!(target: SANDBOX, sandbox = which, "{text}");
        } else {
            tracing::info!(target: SANDBOX, sandbox = which, "{text}");
        }
    })
}

/// One line: `host-bridge: message name=value …`.
struct PlainFormat;

impl<S, N> FormatEvent<S, N> for PlainFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mark = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        };
        let line = format!("{}{}", fields.message, fields.others);
        writeln!(writer, "host-bridge: {mark}{}", line.trim())
    }
}

/// The fields of one line.
#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        use std::fmt::Write as _;
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            // Its name is in the message already.
            "sandbox" => Ok(()),
            name => write!(self.others, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &output::printable(value) as &dyn fmt::Debug);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Lines without the rest of a journal, and the thread that hands on the first of them.
    fn lines() -> (Lines, thread::JoinHandle<Option<Vec<u8>>>) {
        let (sender, waiting) = sync_channel(LINES_WAITING_MAX);
        let counts = Arc::<Counts>::default();
        let known = Arc::clone(&counts);
        let thread = thread::spawn(move || first_line(&waiting, &known));
        let lines = Lines { sender, counts, writer: thread.thread().clone() };
        while !lines.counts.is_asleep.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        (lines, thread)
    }

    #[tokio::test]
    async fn a_line_is_written_behind_the_answer_that_it_is_about() {
        let (lines, thread) = lines();
        let begun = Instant::now();
        lines.push(b"one".to_vec());
        tokio::task::yield_now().await;
        assert!(!thread.is_finished() || begun.elapsed() >= PAUSE);
        let line = tokio::task::spawn_blocking(|| thread.join()).await.unwrap().unwrap();
        assert_eq!(line.as_deref(), Some(&b"one"[..]));
        assert!(begun.elapsed() >= PAUSE, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_line_is_written_without_a_runtime_and_when_the_runtime_ends() {
        let (outside, thread) = lines();
        outside.push(b"one".to_vec());
        assert_eq!(thread.join().unwrap().as_deref(), Some(&b"one"[..]));
        let (inside, thread) = lines();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { inside.push(b"two".to_vec()) });
        drop(runtime);
        assert_eq!(thread.join().unwrap().as_deref(), Some(&b"two"[..]));
    }
}

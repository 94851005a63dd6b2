//! The log of the daemon on stderr: text for people, or JSON.
//!
//! Everything goes through `tracing`, so each line has fields for the sandbox, the request and the
//! id of the key. Values of keys, environments and inputs are never logged.
//!
//! A separate thread writes the lines, so a blocked reader does not block the server. Lines that do
//! not fit into the buffer are counted, and the count is logged when there is room again.

use std::fmt;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{FilterFn, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

use super::super::output;
use sandbox::EventSink;
use settings::{Log, LogFormat, LogLevel};

/// The `tracing` target of sandboxes' events.
const SANDBOX: &str = "burrow::sandbox";

/// The `tracing` target of the MCP SDK.
const SDK: &str = "rmcp";

/// Lines that wait to be written: about a megabyte of them.
const LINES_WAITING_MAX: usize = 4096;
/// Between two rounds of writing: to wake the thread for every line would cost a call more than its
/// line does.
const PAUSE: Duration = Duration::from_millis(5);
/// How long the end of the program waits for the last lines.
const LAST_LINES_MAX: Duration = Duration::from_secs(1);

/// The journal of this process. Dropping it waits for the last lines, within bounds.
#[must_use]
pub struct Journal {
    done: Receiver<()>,
    lines: Lines,
}

/// Sends what is traced from here on to stderr.
pub fn open(log: Log) -> Journal {
    let level = match log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let (sender, waiting) = sync_channel(LINES_WAITING_MAX);
    let (finished, done) = sync_channel(1);
    let lines = Lines { sender, lost: Arc::default() };
    let lost = Arc::clone(&lines.lost);
    std::thread::spawn(move || {
        write_lines(&waiting, &lost);
        // Nobody may be waiting for it.
        let _ = finished.send(());
    });
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(lines.clone());
    // Only this process's first server opens a journal; a second one would be a test's.
    let _ = match log.format {
        LogFormat::Json => tracing::subscriber::set_global_default(
            builder.json().flatten_event(true).with_current_span(false).finish().with(discretion()),
        ),
        LogFormat::Text => {
            let plain = builder.event_format(PlainFormat).finish();
            tracing::subscriber::set_global_default(plain.with(discretion()))
        }
    };
    Journal { done, lines }
}

/// What others say here of their doings quotes whole requests, and those carry code and environments:
/// only their faults are written, and not what a client does wrong.
fn discretion() -> FilterFn {
    filter_fn(|what| !what.target().starts_with(SDK) || *what.level() == Level::ERROR)
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.lines.sender.try_send(Vec::new()).is_ok() {
            let _ = self.done.recv_timeout(LAST_LINES_MAX);
        }
    }
}

/// Writes lines until an empty one comes, all that wait in one write. That stderr is gone ends
/// nothing.
fn write_lines(waiting: &Receiver<Vec<u8>>, lost: &AtomicU64) {
    while let Ok(mut lines) = waiting.recv() {
        let mut is_over = lines.is_empty();
        for line in waiting.try_iter().take(LINES_WAITING_MAX) {
            is_over |= line.is_empty();
            lines.extend_from_slice(&line);
        }
        let mut stderr = io::stderr().lock();
        let _ = stderr.write_all(&lines);
        let count = lost.swap(0, Ordering::Relaxed);
        if count > 0 {
            let _ = writeln!(stderr, "host-bridge: warning: {count} lines were dropped");
        }
        drop(stderr);
        if is_over {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// The buffer of lines.
#[derive(Clone)]
struct Lines {
    sender: SyncSender<Vec<u8>>,
    lost: Arc<AtomicU64>,
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
        if !bytes.is_empty() && self.lines.sender.try_send(bytes).is_err() {
            self.lines.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Logs events of sandboxes.
pub fn events() -> EventSink {
    Arc::new(|event| {
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

//! QEMU's monitor: lines of JSON, answers to commands among events.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::limits::MONITOR_ORDER_DEADLINE;

/// One line of the monitor; the longest describe a machine's whole memory.
const LINE_BYTES_MAX: u64 = 1024 * 1024;
/// Events that are kept while an answer is awaited; the newest count.
const EVENTS_MAX: usize = 256;

/// A connection to a monitor that takes commands.
pub struct Qmp {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// Events that came while an answer was awaited.
    events: VecDeque<Value>,
}

impl Qmp {
    pub async fn connect(path: &Path) -> io::Result<Self> {
        let (reader, writer) = UnixStream::connect(path).await?.into_split();
        let mut qmp = Self { reader: BufReader::new(reader), writer, events: VecDeque::new() };
        qmp.read().await?;
        qmp.execute("qmp_capabilities", json!({})).await?;
        Ok(qmp)
    }

    /// Sends a command and waits for its answer. A live monitor answers at once; events report the end of
    /// what takes long.
    pub async fn execute(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        let answered = timeout(MONITOR_ORDER_DEADLINE, self.ask(command, arguments)).await;
        answered.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("{command}: it takes too long")))
        })
    }

    async fn ask(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        let mut line = json!({ "execute": command, "arguments": arguments }).to_string();
        line.push('\n');
        self.writer.write_all(line.as_bytes()).await?;
        loop {
            let mut answer = self.read().await?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                let words = error.get("desc").and_then(Value::as_str).unwrap_or("no reason given");
                return Err(io::Error::other(format!("{command}: {words}")));
            }
            self.events.push_back(answer);
            if self.events.len() > EVENTS_MAX {
                self.events.pop_front();
            }
        }
    }

    /// The next event.
    pub async fn event(&mut self) -> io::Result<Value> {
        match self.events.pop_front() {
            Some(event) => Ok(event),
            None => self.read().await,
        }
    }

    async fn read(&mut self) -> io::Result<Value> {
        let mut line = Vec::new();
        (&mut self.reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
        if line.last() != Some(&b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(&line)?)
    }
}

/// Follows the monitor to its end and says why it ended.
pub async fn last_word(path: &Path) -> Option<String> {
    let mut qmp = Qmp::connect(path).await.ok()?;
    let mut reason = None;
    while let Ok(event) = qmp.event().await {
        if event.get("event").and_then(Value::as_str) == Some("SHUTDOWN") {
            let given = event.pointer("/data/reason").and_then(Value::as_str);
            reason = given.map(str::to_owned);
        }
    }
    reason
}

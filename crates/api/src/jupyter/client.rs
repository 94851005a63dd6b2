//! What waits for one client. All of it counts in the memory of the client's key, and has a bound.
//!
//! Output waits for room for a moment, so that a client that reads misses nothing. One that does not read
//! misses output until it has read what waits, and learns how much. Replies and states are never left out:
//! a client for which too many of them wait is given up.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::limits::{STALL_MAX, WAITING_BYTES_MAX, WAITING_MAX};
use super::wire::Outgoing;
use crate::budget::{Portion, Share};

/// See the module's description.
#[derive(Debug)]
pub struct Client {
    memory: Share,
    queue: Mutex<Queue>,
    arrived: Notify,
    taken: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Arc<Outgoing>, Portion)>,
    bytes: usize,
    /// It has missed something, and has not yet read what waits.
    is_behind: bool,
    missed: Missed,
    /// Why nothing more is sent.
    end: Option<String>,
}

/// Output that a client did not get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    pub messages: u64,
    pub bytes: u64,
}

/// Makes the message that says what is missing.
pub type Notice<'a> = &'a (dyn Fn(Missed) -> Arc<Outgoing> + Send + Sync);

impl Client {
    pub fn new(memory: Share) -> Self {
        let (arrived, taken) = (Notify::new(), Notify::new());
        Self { memory, queue: Mutex::default(), arrived, taken }
    }

    /// A message that the client may miss.
    pub async fn output(&self, message: &Arc<Outgoing>, notice: Notice<'_>) {
        let deadline = Instant::now() + STALL_MAX;
        loop {
            match self.offer(message, notice, Instant::now() >= deadline) {
                Offered::Done => return self.arrived.notify_one(),
                // Each message that is taken leaves a permit, so none is overlooked.
                Offered::Full => drop(timeout_at(deadline, self.taken.notified()).await),
            }
        }
    }

    fn offer(&self, message: &Arc<Outgoing>, notice: Notice<'_>, is_last: bool) -> Offered {
        let mut queue = self.queue();
        if queue.end.is_some() {
            return Offered::Done;
        }
        let is_empty = queue.waiting.is_empty();
        queue.is_behind &= !is_empty;
        if !queue.is_behind {
            queue.tell_missed(&self.memory, notice);
        }
        let bytes = message.memory_bytes();
        // The other half of the places is for words.
        let has_room =
            queue.bytes + bytes <= WAITING_BYTES_MAX && queue.waiting.len() < WAITING_MAX / 2;
        let fits = is_empty || (has_room && !queue.is_behind);
        if fits && queue.push(&self.memory, message) {
            return Offered::Done;
        }
        if !is_last && !queue.is_behind {
            return Offered::Full;
        }
        queue.is_behind = true;
        queue.missed.messages += 1;
        queue.missed.bytes += bytes as u64 / 2;
        Offered::Done
    }

    /// A message that the client must get.
    pub fn word(&self, message: &Arc<Outgoing>, notice: Notice<'_>) {
        let mut queue = self.queue();
        if queue.end.is_some() {
            return;
        }
        if queue.has_place() {
            queue.tell_missed(&self.memory, notice);
        }
        if !queue.has_place() || !queue.push(&self.memory, message) {
            queue.close("this client does not read, and too much waits for it".to_owned());
        }
        drop(queue);
        self.arrived.notify_one();
    }

    /// Sends nothing more, for this reason.
    pub fn close(&self, reason: &str) {
        self.queue().close(reason.to_owned());
        self.arrived.notify_one();
    }

    /// The next message, or why there is none. Cancel safe.
    pub async fn next(&self) -> Result<Arc<Outgoing>, String> {
        loop {
            if let Some(next) = self.queue().pop() {
                self.taken.notify_one();
                return next;
            }
            self.arrived.notified().await;
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Offered {
    /// It waits, or counts as missed.
    Done,
    Full,
}

impl Queue {
    fn has_place(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    fn push(&mut self, memory: &Share, message: &Arc<Outgoing>) -> bool {
        let bytes = message.memory_bytes();
        let Some(portion) = memory.try_portion(bytes) else { return false };
        self.bytes += bytes;
        self.waiting.push_back((Arc::clone(message), portion));
        true
    }

    fn tell_missed(&mut self, memory: &Share, notice: Notice<'_>) {
        if self.missed.messages > 0 && self.push(memory, &notice(self.missed)) {
            self.missed = Missed::default();
        }
    }

    fn close(&mut self, reason: String) {
        self.waiting.clear();
        self.end.get_or_insert(reason);
    }

    fn pop(&mut self) -> Option<Result<Arc<Outgoing>, String>> {
        if let Some(reason) = &self.end {
            return Some(Err(reason.clone()));
        }
        let (message, _) = self.waiting.pop_front()?;
        self.bytes -= message.memory_bytes();
        self.is_behind &= !self.waiting.is_empty();
        Some(Ok(message))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use crate::jupyter::wire::Channel;

    fn message(text: &str) -> Arc<Outgoing> {
        let content = json!({ "text": text });
        Arc::new(Outgoing::new(Channel::Iopub, "stream", ("s", 1), &Bytes::new(), &content))
    }

    fn notice(missed: Missed) -> Arc<Outgoing> {
        message(&format!("missed {}", missed.messages))
    }

    async fn text(client: &Client) -> String {
        let message = client.next().await.unwrap();
        String::from_utf8(message.encode(crate::jupyter::wire::Framing::Text).to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_misses_output_and_learns_how_much() {
        let client = Client::new(Share::within(64 * 1024 * 1024));
        let large = "x".repeat(WAITING_BYTES_MAX / 4);
        for _ in 0..9 {
            client.output(&message(&large), &notice).await;
        }
        client.word(&message("idle"), &notice);
        let mut texts = Vec::new();
        while texts.last().is_none_or(|last: &String| !last.contains("idle")) {
            texts.push(text(&client).await);
        }
        assert!(texts.len() < 9, "{}", texts.len());
        let told = texts[texts.len() - 2].clone();
        assert!(told.contains(&format!("missed {}", 9 - (texts.len() - 2))), "{told}");
        client.output(&message("again"), &notice).await;
        assert!(text(&client).await.contains("again"));
    }

    #[tokio::test(start_paused = true)]
    async fn small_output_leaves_room_for_words() {
        let client = Client::new(Share::within(64 * 1024 * 1024));
        for _ in 0..WAITING_MAX {
            client.output(&message("x"), &notice).await;
        }
        client.word(&message("idle"), &notice);
        let mut count = 0;
        while !text(&client).await.contains("idle") {
            count += 1;
        }
        assert_eq!(count, WAITING_MAX / 2 + 1, "half of it, and what says what is missing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_misses_nothing() {
        let client = Arc::new(Client::new(Share::within(64 * 1024 * 1024)));
        let large = "x".repeat(WAITING_BYTES_MAX / 4);
        let reading = tokio::spawn({
            let client = Arc::clone(&client);
            async move {
                for _ in 0..20 {
                    tokio::time::sleep(STALL_MAX / 2).await;
                    assert!(text(&client).await.contains("xx"));
                }
            }
        });
        for _ in 0..20 {
            client.output(&message(&large), &notice).await;
        }
        reading.await.unwrap();
    }

    #[tokio::test]
    async fn words_that_nobody_reads_end_at_a_bound_and_give_their_memory_back() {
        let share = Share::within(64 * 1024 * 1024);
        let client = Client::new(share.clone());
        for _ in 0..=WAITING_MAX {
            client.word(&message("idle"), &notice);
        }
        assert!(client.next().await.unwrap_err().contains("does not read"));
        assert!(share.is_free());
        let poor = Client::new(Share::within(0));
        poor.output(&message(&"x".repeat(1024 * 1024)), &notice).await;
        poor.word(&message(&"x".repeat(1024 * 1024)), &notice);
        assert!(poor.next().await.is_err());
    }
}

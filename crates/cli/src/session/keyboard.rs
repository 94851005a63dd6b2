//! Reads stdin in pieces on a thread. A terminal or pipe that other programs share must not be made
//! non-blocking, and a thread that waits for a key can be left behind at exit.

use std::io::{ErrorKind, Read, stdin};

use tokio::sync::mpsc;

/// How much is read at once: more than a person types, and a pipe's buffer.
const READ_BYTES: usize = 64 * 1024;
/// Pieces that may wait. Few, so that a program that does not read slows down its pipe's writer.
const PIECES_WAITING_MAX: usize = 2;

/// Starts to read; the channel closes at the end of the input.
pub fn listen() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(PIECES_WAITING_MAX);
    std::thread::spawn(move || {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match stdin().lock().read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A closed terminal returns EIO forever.
                Err(_) => return,
            }
        }
    });
    receiver
}

//! Many connections at once.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::served;

/// More than may be open into one sandbox, so that some wait for others.
const CONNECTIONS: usize = 1000;

#[test]
fn a_thousand_connections_at_once_are_all_answered() {
    let served = served();
    let host = served.server.url().trim_start_matches("http://");
    let request = format!("GET {}/slow HTTP/1.1\r\nhost: {host}\r\n\r\n", served.prefix);
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| served.client.raw()).collect();
    // All have asked before any answer is read, and each twice.
    for _ in 0..2 {
        for stream in &mut streams {
            stream.write_all(request.as_bytes()).unwrap();
        }
        for (number, stream) in streams.iter_mut().enumerate() {
            let mut seen = Vec::new();
            while !seen.ends_with(b"slow") {
                let mut buffer = [0; 1024];
                let count = stream.read(&mut buffer).unwrap();
                let text = String::from_utf8_lossy(&seen);
                assert!(count > 0, "connection {number} was closed after {text:?}");
                seen.extend_from_slice(&buffer[..count]);
                let text = String::from_utf8_lossy(&seen);
                assert!(text.starts_with("HTTP/1.1 200"), "connection {number}: {text}");
            }
        }
    }
}

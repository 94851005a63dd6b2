//! Requests as bytes, for those that no client library would send.

use std::io::{BufRead, BufReader, Read, Write};

/// One answer as it came.
#[derive(Debug)]
pub struct RawAnswer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl RawAnswer {
    pub fn has(&self, header: &str) -> bool {
        self.head.to_ascii_lowercase().contains(&header.to_ascii_lowercase())
    }

    pub fn code(&self) -> String {
        let value: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        value["code"].as_str().unwrap().to_owned()
    }
}

/// Sends bytes; that the other side does not take all of them is its answer's business.
pub fn send(mut to: impl Write, bytes: impl AsRef<[u8]>) {
    let _ = to.write_all(bytes.as_ref());
}

/// The next answer with a known length; `None` when the connection is closed or broken instead.
pub fn answer(from: &mut BufReader<impl Read>) -> Option<RawAnswer> {
    let mut head = String::new();
    loop {
        let before = head.len();
        if from.read_line(&mut head).ok()? == 0 {
            return None;
        }
        if head[before..].trim_end().is_empty() {
            break;
        }
    }
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    from.read_exact(&mut body).ok()?;
    Some(RawAnswer { status, head, body })
}

/// Whether the other side closes the connection before it says anything more.
pub fn is_closed(from: &mut impl Read) -> bool {
    let mut byte = [0];
    match from.read(&mut byte) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

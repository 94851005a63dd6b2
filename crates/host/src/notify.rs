//! Reports the state of the bridge to the service manager with the `sd_notify` protocol: one
//! datagram of text per message.
//!
//! The daemon reports when it is ready and when it ends. Without a manager, or if sending fails,
//! nothing happens.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The manager's socket: a path, or an abstract name after an `@`.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
/// The interval of the watchdog, in microseconds.
const WATCHDOG_VARIABLE: &str = "WATCHDOG_USEC";
/// The process that the watchdog expects messages from.
const WATCHDOG_PID_VARIABLE: &str = "WATCHDOG_PID";
/// The longest status; the manager shows one line.
const STATUS_BYTES_MAX: usize = 512;
/// The shortest watchdog interval that is used.
const WATCHDOG_PAUSE_MIN: Duration = Duration::from_millis(10);

/// The connection to the service manager, if there is one.
#[derive(Debug, Default)]
pub struct Notifier {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// The manager that started this process.
    pub fn from_environment() -> Self {
        Self::resolve(&|name| std::env::var_os(name), std::process::id())
    }

    fn resolve(variable: &dyn Fn(&str) -> Option<OsString>, pid: u32) -> Self {
        let Some(socket) = variable(SOCKET_VARIABLE).and_then(|name| connect(&name).ok()) else {
            return Self::default();
        };
        let number = |name| variable(name)?.into_string().ok()?.parse::<u64>().ok();
        let is_ours = number(WATCHDOG_PID_VARIABLE).is_none_or(|wanted| wanted == u64::from(pid));
        let interval = number(WATCHDOG_VARIABLE).filter(|us| is_ours && *us > 0);
        Self { socket: Some(socket), watchdog: interval.map(Duration::from_micros) }
    }

    /// Reports that requests are answered from now on.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Reports a status line.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)));
    }

    /// Reports that shutdown has begun.
    pub fn stopping(&self, status: &str) {
        self.send(&format!("STOPPING=1\nSTATUS={}", one_line(status)));
    }

    /// Sends keep-alives while it is polled: from the event loop whose hang the manager should
    /// notice. Never ends.
    pub async fn keep_alive(&self) {
        let Some(interval) = self.watchdog else { return std::future::pending().await };
        // Twice as often as is asked for, so that one that is late does no harm.
        let pause = (interval / 2).max(WATCHDOG_PAUSE_MIN);
        loop {
            self.send("WATCHDOG=1");
            tokio::time::sleep(pause).await;
        }
    }

    fn send(&self, words: &str) {
        if let Some(socket) = &self.socket {
            // The socket does not block: a manager that does not read loses a word, not us.
            let _ = socket.send(words.as_bytes());
        }
    }
}

fn connect(name: &OsString) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

/// The text as one line, which cannot contain another message.
fn one_line(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut end = line.len().min(STATUS_BYTES_MAX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.truncate(end);
    line
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// The next message for the manager.
    fn receive(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 4096];
        manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    fn notifier(variables: &[(&str, &str)]) -> Notifier {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Notifier::resolve(&|name| find(name).map(|(_, value)| OsString::from(value)), 42)
    }

    fn path(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("burrow-notify-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn the_words_arrive_at_a_path() {
        let path = path("words");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = notifier(&[(SOCKET_VARIABLE, path.to_str().unwrap())]);
        notifier.ready("listening on http://127.0.0.1:5555");
        assert_eq!(receive(&manager), "READY=1\nSTATUS=listening on http://127.0.0.1:5555");
        notifier.status("3 sandboxes");
        assert_eq!(receive(&manager), "STATUS=3 sandboxes");
        notifier.stopping("2 requests to finish");
        assert_eq!(receive(&manager), "STOPPING=1\nSTATUS=2 requests to finish");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_words_arrive_in_the_abstract_namespace() {
        let name = format!("burrow-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        notifier(&[(SOCKET_VARIABLE, &format!("@{name}"))]).ready("");
        assert_eq!(receive(&manager), "READY=1\nSTATUS=");
    }

    #[test]
    fn a_status_cannot_say_another_word() {
        let path = path("line");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = notifier(&[(SOCKET_VARIABLE, path.to_str().unwrap())]);
        notifier.status("a\nSTOPPING=1\r\0b");
        assert_eq!(receive(&manager), "STATUS=a STOPPING=1  b");
        notifier.status(&"ä".repeat(10_000));
        assert_eq!(receive(&manager).len(), "STATUS=".len() + STATUS_BYTES_MAX);
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn signs_of_life_come_twice_as_often_as_asked() {
        let path = path("watchdog");
        let manager = UnixDatagram::bind(&path).unwrap();
        let socket = path.to_str().unwrap();
        let ours = notifier(&[
            (SOCKET_VARIABLE, socket),
            (WATCHDOG_VARIABLE, "100000"),
            (WATCHDOG_PID_VARIABLE, "42"),
        ]);
        let began = std::time::Instant::now();
        let _ = tokio::time::timeout(Duration::from_millis(230), ours.keep_alive()).await;
        let spent = began.elapsed();
        manager.set_nonblocking(true).unwrap();
        let mut bytes = [0; 64];
        let mut count = 0;
        while let Ok(length) = manager.recv(&mut bytes) {
            assert_eq!(&bytes[..length], b"WATCHDOG=1");
            count += 1;
        }
        let most = spent.as_millis() / 50 + 1;
        assert!((2..=most).contains(&count), "{count} in {spent:?}");
        for pid in ["43", "x"] {
            let variables = [
                (SOCKET_VARIABLE, socket),
                (WATCHDOG_VARIABLE, "100000"),
                (WATCHDOG_PID_VARIABLE, pid),
            ];
            assert_eq!(notifier(&variables).watchdog.is_none(), pid == "43");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn nobody_who_listens_is_no_fault() {
        for socket in ["", "relative", "/nowhere/socket", "@", "vsock:2:1", &"/x".repeat(200)] {
            let notifier = notifier(&[(SOCKET_VARIABLE, socket)]);
            notifier.ready("");
            notifier.stopping("");
        }
        let path = path("gone");
        drop(UnixDatagram::bind(&path).unwrap());
        notifier(&[(SOCKET_VARIABLE, path.to_str().unwrap())]).ready("");
        // A manager that does not read loses messages and delays nobody.
        let _ = std::fs::remove_file(&path);
        let _deaf = UnixDatagram::bind(&path).unwrap();
        let notifier = notifier(&[(SOCKET_VARIABLE, path.to_str().unwrap())]);
        for _ in 0..10_000 {
            notifier.status("still here");
        }
        std::fs::remove_file(path).unwrap();
    }
}

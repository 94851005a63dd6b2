//! Addresses, dialling and the handshake.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use protocol::codec::encode_message;
use protocol::frame::Kind;
use protocol::hello::{Goodbye, GoodbyeReason};

use super::agent::{Agent, welcome};
use super::{quick, soon};
use crate::guest::Guest;
use crate::link::dial::Patience;
use crate::link::{Address, LinkError, Options};

#[test]
fn an_address_is_printed_as_it_is_parsed() {
    for text in [
        "unix:/run/a.sock",
        "hybrid:/run/v:1.sock:1024",
        "vsock:3:1024",
        "unix:a",
        "serial:/run/v:1",
    ] {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
    }
    let hybrid = Address::Hybrid { path: PathBuf::from("/run/v:1.sock"), port: 1024 };
    assert_eq!("hybrid:/run/v:1.sock:1024".parse::<Address>().unwrap(), hybrid);
}

#[test]
fn invalid_addresses_are_refused() {
    let texts = [
        "",
        "unix:",
        "/run/a.sock",
        "hybrid:/run/a",
        "hybrid::1",
        "hybrid:/a:+1",
        "vsock:3",
        "vsock:3:",
        "vsock:-1:2",
        "vsock:3:4294967296",
        "tcp:1:2",
        "serial:",
        "unix:/a\0b",
    ];
    for text in texts {
        assert!(text.parse::<Address>().is_err(), "{text:?}");
    }
}

#[test]
fn an_address_is_a_string_in_records() {
    let address: Address = serde_json::from_str("\"vsock:3:1024\"").unwrap();
    assert_eq!(serde_json::to_string(&address).unwrap(), "\"vsock:3:1024\"");
    assert!(serde_json::from_str::<Address>("\"nowhere\"").is_err());
}

/// A machine monitor that answers `CONNECT` with `reply` and whatever follows at once.
fn monitor(name: &str, reply: Vec<u8>) -> (Address, std::thread::JoinHandle<Vec<u8>>) {
    let path = std::env::temp_dir().join(format!("burrow-{name}-{}.sock", std::process::id()));
    std::fs::remove_file(&path).ok();
    let listener = UnixListener::bind(&path).unwrap();
    let address = Address::Hybrid { path, port: 1024 };
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 64];
        let count = stream.read(&mut request).unwrap();
        stream.write_all(&reply).unwrap();
        // Kept open until the host has sent everything.
        let mut rest = Vec::new();
        if !reply.is_empty() {
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            stream.read_to_end(&mut rest).ok();
        }
        request[..count].to_vec()
    });
    (address, served)
}

#[tokio::test]
async fn a_hybrid_handshake_swallows_no_payload_behind_ok() {
    let mut reply = b"OK 1073741824\n".to_vec();
    encode_message(Kind::Welcome, 0, &welcome(9), &mut reply);
    // A further frame in the same packet: it must reach the driver.
    let goodbye = Goodbye { reason: GoodbyeReason::Stopping, message: "bye".to_owned() };
    encode_message(Kind::Goodbye, 0, &goodbye, &mut reply);
    let (address, monitor) = monitor("payload", reply);
    let guest = soon(Guest::connect(address, quick())).await.unwrap();
    assert_eq!(guest.info().release, "test");
    let lost = soon(guest.lost()).await;
    assert!(matches!(lost, LinkError::Refused { reason: GoodbyeReason::Stopping, .. }), "{lost}");
    assert_eq!(monitor.join().unwrap(), b"CONNECT 1024\n", "nothing is sent before OK");
}

#[tokio::test]
async fn a_hybrid_handshake_that_fails_says_how() {
    let long = vec![b'O'; 4096];
    let cases: [(&str, &[u8], &str); 5] = [
        ("silent", b"", ""),
        ("refused", b"FAIL no such port\n", "FAIL no such port"),
        ("short", b"OK", ""),
        ("nearly", b"OKAY 3\n", "OKAY 3"),
        ("long", &long, &"O".repeat(128)),
    ];
    for (name, reply, expected) in cases {
        let (address, monitor) = monitor(name, reply.to_vec());
        match soon(Guest::connect(address, quick())).await {
            Err(LinkError::Handshake { reply, .. }) => assert_eq!(reply, expected, "{name}"),
            // A monitor that hangs up with unread bytes breaks the socket.
            other => panic!("{name}: {other:?}"),
        }
        monitor.join().unwrap();
    }
}

#[tokio::test]
async fn a_dial_without_a_deadline_is_tried_once() {
    let address: Address = "unix:/nowhere/at/all.sock".parse().unwrap();
    let error = soon(Guest::connect(address.clone(), quick())).await.unwrap_err();
    assert!(matches!(error, LinkError::Dial { address: dialled, .. } if dialled == address));
}

#[tokio::test]
async fn a_first_dial_waits_for_an_agent_that_comes_late() {
    let path = std::env::temp_dir().join(format!("burrow-late-{}.sock", std::process::id()));
    std::fs::remove_file(&path).ok();
    let late = path.clone();
    let server = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(60));
        let listener = UnixListener::bind(&late).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        encode_message(Kind::Welcome, 0, &welcome(1), &mut bytes);
        stream.write_all(&bytes).unwrap();
        std::fs::remove_file(&late).unwrap();
        stream
    });
    let options = Options { connect_deadline: Duration::from_secs(5), ..quick() };
    soon(Guest::connect(Address::Unix { path }, options)).await.unwrap();
    drop(server.join().unwrap());
}

#[tokio::test]
async fn a_try_that_is_stuck_is_not_waited_for_while_the_next_may_not_be() {
    let path = std::env::temp_dir().join(format!("burrow-stuck-{}.sock", std::process::id()));
    std::fs::remove_file(&path).ok();
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        encode_message(Kind::Welcome, 0, &welcome(1), &mut bytes);
        let greeted = || {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            stream
        };
        // The first is cut, and the second takes everything and never says anything.
        greeted().write_all(&bytes).unwrap();
        let began = std::time::Instant::now();
        let stuck = greeted();
        let mut third = greeted();
        third.write_all(&bytes).unwrap();
        (began.elapsed(), stuck, third)
    });
    let long = Duration::from_secs(300);
    let options = Options { dial_deadline: long, welcome_deadline: long, ..quick() };
    let guest = soon(Guest::connect(Address::Unix { path: path.clone() }, options)).await.unwrap();
    let (waited, ..) = tokio::task::spawn_blocking(|| server.join().unwrap()).await.unwrap();
    assert!(waited < Duration::from_secs(60), "{waited:?}");
    drop(guest);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn each_try_is_given_more_time_up_to_the_whole() {
    let seconds = |patience: &mut Patience| patience.take().as_secs();
    let mut many = Patience::of_many_tries(Duration::from_secs(20));
    assert_eq!([(); 5].map(|()| seconds(&mut many)), [3, 6, 12, 20, 20]);
    assert_eq!(seconds(&mut Patience::of_many_tries(Duration::from_secs(1))), 1);
    assert_eq!(seconds(&mut Patience::of_one_try(Duration::from_secs(20))), 20);
}

#[tokio::test]
async fn an_agent_that_says_nothing_is_not_waited_for_beyond_the_deadline() {
    let (silent, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let options = Options { welcome_deadline: Duration::from_millis(30), ..quick() };
    let error = soon(Guest::over(theirs, None, options)).await.unwrap_err();
    assert!(matches!(error, LinkError::NoWelcome { .. }), "{error}");
    drop(silent);
}

#[tokio::test]
async fn a_welcome_in_another_version_is_refused() {
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut bytes = Vec::new();
    let foreign = protocol::hello::Welcome { version: 7, ..welcome(1) };
    encode_message(Kind::Welcome, 0, &foreign, &mut bytes);
    ours.write_all(&bytes).unwrap();
    let error = soon(Guest::over(theirs, None, quick())).await.unwrap_err();
    assert!(matches!(error, LinkError::Version { spoken: 7 }), "{error}");
}

#[tokio::test]
async fn a_goodbye_instead_of_a_welcome_is_reported() {
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let goodbye = Goodbye { reason: GoodbyeReason::BootFailed, message: "no root".to_owned() };
    let mut bytes = Vec::new();
    encode_message(Kind::Goodbye, 0, &goodbye, &mut bytes);
    ours.write_all(&bytes).unwrap();
    match soon(Guest::over(theirs, None, quick())).await {
        Err(LinkError::Refused { reason: GoodbyeReason::BootFailed, message }) => {
            assert_eq!(message, "no root");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_link_ends_with_the_last_handle_and_not_before() {
    let (agent, theirs) = Agent::pair();
    let guest = Guest::over(theirs, None, quick()).await.unwrap();
    let lost = guest.lost();
    let clone = guest.clone();
    drop(guest);
    soon(clone.stat("/a", false)).await.unwrap();
    drop(clone);
    assert!(matches!(soon(lost).await, LinkError::Closed));
    drop(agent);
}

//! The end of a server, and its beginning as a service manager sees it.

use std::fs;
use std::io::{BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;
use tests::http::{Client, SocketMessage};
use tests::{Burrow, PATIENCE, eventually};

use super::own::Own;
use super::raw::{answer, is_closed, send};
use super::{a_run_is_under_way, bash, create, path_of};

const SERVE: [&str; 3] = ["--dev", "--listen", "127.0.0.1:0"];
const LIVEZ: &str = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Lets a call that was sent arrive.
fn arrive() {
    // No figure says that the server has read a call that waits.
    std::thread::sleep(Duration::from_millis(200));
}

#[test]
fn a_call_under_way_is_finished_before_the_server_ends() {
    let mut own = Own::start(&SERVE);
    let url = own.url("http://");
    let client = Client::new(&url);
    create(&client, "box");
    bash(&client, "box", "true").expect(200);
    std::thread::scope(|scope| {
        let url = url.clone();
        let busy = scope.spawn(move || bash(&Client::new(&url), "box", "sleep 1; echo done"));
        a_run_is_under_way(&client);
        own.signal(Signal::SIGTERM);
        // A server that does not wait for the call has time to end.
        std::thread::sleep(Duration::from_millis(200));
        assert!(own.has_ended().is_none(), "the server ended before its call");
        let answered = busy.join().unwrap().expect(200);
        assert_eq!(answered.json()["stdout"], "done\n");
        assert_eq!(answered.header("connection"), Some("close"), "it says that it goes");
    });
    let (status, took) = own.wait();
    assert!(status.success() && took < Duration::from_secs(3), "{status:?} after {took:?}");
    // The sandbox has been kept, and its interpreter too.
    let own = Own::start_in(own.into_burrow(), &SERVE, |_| {});
    let client = Client::new(&own.url("http://"));
    assert_eq!(client.get(&path_of("box")).expect(200).json()["state"], "running");
    client.delete(&format!("{}?force=true", path_of("box"))).expect(200);
    own.end();
}

#[test]
fn a_websocket_is_finished_before_the_server_ends() {
    let mut own = Own::start(&SERVE);
    let client = Client::new(&own.url("http://"));
    create(&client, "box");
    let mut socket = client.websocket(&format!("{}/exec", path_of("box")), &[]);
    socket.tell(&json!({ "script": "sleep 1; echo done" }));
    assert_eq!(socket.hear_value()["type"], "started");
    own.signal(Signal::SIGTERM);
    assert_eq!(socket.hear_value()["text"], "done\n");
    assert_eq!(socket.hear_value()["exit"]["success"], true);
    assert_eq!(socket.hear(), SocketMessage::Closed(Some(1000)));
    drop(socket);
    let (status, took) = own.wait();
    assert!(status.success() && took < Duration::from_secs(3), "{status:?} after {took:?}");
    remove_all(own);
}

#[test]
fn while_a_call_is_finished_others_learn_that_the_server_ends() {
    let mut own = Own::start(&SERVE);
    let url = own.url("http://");
    let client = Client::new(&url);
    create(&client, "box");
    let waiting = client.raw();
    send(
        &waiting,
        format!("GET {}/wait?timeout_ms=2000 HTTP/1.1\r\nhost: localhost\r\n\r\n", path_of("box")),
    );
    arrive();
    own.signal(Signal::SIGTERM);
    let mut result = None;
    eventually("the server is not ready any more", || {
        let connection = client.raw();
        send(&connection, "GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n");
        result = answer(&mut BufReader::new(&connection)).filter(|result| result.status != 200);
        result.is_some()
    });
    let result = result.unwrap();
    assert_eq!((result.status, result.code().as_str()), (503, "unavailable"));
    assert_eq!(answer(&mut BufReader::new(&waiting)).unwrap().status, 200);
    let (status, _) = own.wait();
    assert!(status.success(), "{status:?}");
    remove_all(own);
}

#[test]
fn connections_without_a_call_do_not_delay_the_end() {
    let mut own = Own::start(&SERVE);
    let client = Client::new(&own.url("http://"));
    let fresh: Vec<_> = (0..10).map(|_| client.raw()).collect();
    let used = client.raw();
    send(&used, LIVEZ);
    let mut from = BufReader::new(&used);
    assert_eq!(answer(&mut from).unwrap().status, 200);
    let half = client.raw();
    send(&half, "GET /livez HTTP/1.1\r\nho");
    // All have arrived when one that came later is answered.
    client.get("/livez").expect(200);
    own.signal(Signal::SIGTERM);
    let (status, took) = own.wait();
    assert!(status.success(), "{status:?}");
    assert!(took < Duration::from_secs(3), "it took {took:?} to end");
    assert!(is_closed(&mut from));
    drop((fresh, half));
}

#[test]
fn a_call_that_overruns_the_grace_is_cut_off() {
    let mut own = Own::start(&[&SERVE[..], &["--set", "server.shutdown_grace=500ms"]].concat());
    let client = Client::new(&own.url("http://"));
    create(&client, "box");
    let connection = client.raw();
    send(&connection, format!("GET {}/wait HTTP/1.1\r\nhost: localhost\r\n\r\n", path_of("box")));
    arrive();
    own.signal(Signal::SIGTERM);
    let (status, took) = own.wait();
    assert!(status.success(), "{status:?}");
    assert!((Duration::from_millis(400)..Duration::from_secs(4)).contains(&took), "{took:?}");
    assert!(answer(&mut BufReader::new(&connection)).is_none());
    remove_all(own);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut own = Own::start(&SERVE);
    let client = Client::new(&own.url("http://"));
    create(&client, "box");
    let connection = client.raw();
    send(&connection, format!("GET {}/wait HTTP/1.1\r\nhost: localhost\r\n\r\n", path_of("box")));
    arrive();
    own.signal(Signal::SIGTERM);
    // One signal must not end it: the call is still under way.
    std::thread::sleep(Duration::from_millis(300));
    assert!(own.has_ended().is_none());
    own.signal(Signal::SIGINT);
    let (status, took) = own.wait();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(status.code(), Some(130), "{status:?}");
    remove_all(own);
}

#[test]
fn sandboxes_are_stopped_at_the_end_where_that_is_asked_for() {
    let mut own = Own::start(&[&SERVE[..], &["--stop-boxes"]].concat());
    let client = Client::new(&own.url("http://"));
    create(&client, "box");
    own.signal(Signal::SIGTERM);
    let (status, _) = own.wait();
    assert!(status.success(), "{status:?}");
    let own = Own::start_in(own.into_burrow(), &SERVE, |_| {});
    let client = Client::new(&own.url("http://"));
    let left = client.get(&path_of("box")).expect(200).json();
    assert_eq!(left["state"], "stopped", "{left}");
    client.delete(&path_of("box")).expect(200);
    own.end();
}

/// Takes down what a server has left, with another.
fn remove_all(own: Own) {
    let own = Own::start_in(own.into_burrow(), &SERVE, |_| {});
    let client = Client::new(&own.url("http://"));
    client.delete(&format!("{}?force=true", path_of("box"))).expect(200);
    own.end();
}

#[test]
fn a_unix_socket_is_served_for_its_owner_alone_and_goes_with_the_server() {
    let burrow = Burrow::new();
    let path = burrow.scratch().join("api.sock");
    let listen = format!("unix:{}", path.display());
    // One that an earlier server has left behind.
    drop(UnixListener::bind(&path).unwrap());
    let own =
        Own::start_in(burrow, &["--dev", "--listen", &listen, "--listen", "127.0.0.1:0"], |_| {});
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut connection = UnixStream::connect(&path).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection.write_all(b"GET /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    assert_eq!(answer(&mut BufReader::new(&connection)).unwrap().status, 200);
    // A second server does not take it away from the first.
    let second = Burrow::new();
    let output = second.run(&["serve", "--dev", "--listen", &listen]);
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("api.sock"), "{stderr}");
    assert!(UnixStream::connect(&path).is_ok());
    // It is the other address of the same server.
    Client::new(&own.url("http://")).get("/livez").expect(200);
    let burrow = own.end();
    assert!(!path.exists(), "the socket is left");
    fs::write(&path, "a file of somebody").unwrap();
    let output = burrow.run(&["serve", "--dev", "--listen", &listen]);
    assert!(!output.status.success());
    assert_eq!(fs::read_to_string(&path).unwrap(), "a file of somebody");
}

#[test]
fn the_service_manager_is_notified_when_it_is_ready_and_when_it_ends() {
    let burrow = Burrow::new();
    let path = burrow.scratch().join("notify.sock");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let began = Instant::now();
    let mut own = Own::start_in(burrow, &SERVE, |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    });
    let hear = |word: &str| {
        let mut bytes = [0; 4096];
        while began.elapsed() < PATIENCE {
            let length = manager.recv(&mut bytes).unwrap();
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if text.lines().any(|line| line == word) {
                return text;
            }
        }
        panic!("{word} was not said");
    };
    let ready = hear("READY=1");
    // A client that gets this answer finds the bridge answering.
    Client::new(&own.url("http://")).get("/readyz").expect(200);
    assert!(ready.contains("STATUS="), "{ready}");
    hear("WATCHDOG=1");
    own.signal(Signal::SIGTERM);
    hear("STOPPING=1");
    let (status, _) = own.wait();
    assert!(status.success());
}

//! Connections that are slow, idle, many, half closed, or full of something else than HTTP.

use std::fs;
use std::io::{BufReader, Read};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use tests::http::Client;
use tests::server::Server;
use tests::{eventually, have_or_skip};

use super::raw::{answer, is_closed, send};
use super::{a_run_is_under_way, answers_as_usual, bash, create};

const LIVEZ: &str = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";

fn descriptors(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.daemon_pid())).unwrap().count()
}

#[test]
fn at_the_limit_of_descriptors_idle_connections_give_way_to_a_new_one() {
    if !have_or_skip("prlimit") {
        return;
    }
    let server = Server::dev();
    let pid = server.daemon_pid();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("it is ours").count();
    let set = std::process::Command::new("prlimit")
        .arg(format!("--pid={pid}"))
        .arg(format!("--nofile={}", open + 12))
        .status();
    assert!(set.expect("it runs").success());
    let client = Client::new(server.url());
    let idle: Vec<_> = (0..60).map(|_| client.raw()).collect();
    for _ in 0..5 {
        Client::new(server.url()).get("/livez").expect(200);
    }
    drop(idle);
}

#[test]
fn heads_that_come_drop_by_drop_are_cut_and_others_are_served_meanwhile() {
    let server = Server::start(&["--dev", "--set", "server.header_timeout=1s"]);
    let client = Client::new(server.url());
    let mut slow: Vec<TcpStream> = (0..100).map(|_| client.raw()).collect();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        slow.iter()
            .zip("GET /livez HTTP/1.1\r\nhost: localhost\r\nx-".bytes().cycle())
            .for_each(|(connection, _)| send(connection, "a"));
        answers_as_usual(&client);
        // The pace of the drops.
        std::thread::sleep(Duration::from_millis(100));
    }
    for connection in &mut slow {
        connection.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut bytes = Vec::new();
        // An answer is allowed; to stay is not.
        let _ = connection.read_to_end(&mut bytes);
        let bytes = String::from_utf8_lossy(&bytes).into_owned();
        assert!(bytes.is_empty() || bytes.starts_with("HTTP/1.1 4"), "{bytes}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_second_head_on_a_connection_has_its_time_too() {
    let server = Server::start(&["--dev", "--set", "server.header_timeout=1s"]);
    let client = Client::new(server.url());
    let connection = client.raw();
    let mut from = BufReader::new(&connection);
    send(&connection, LIVEZ);
    assert_eq!(answer(&mut from).unwrap().status, 200);
    // Idle for longer than a head may take is no fault.
    std::thread::sleep(Duration::from_millis(1300));
    send(&connection, LIVEZ);
    assert_eq!(answer(&mut from).unwrap().status, 200);
    let began = Instant::now();
    send(&connection, "GET /livez HT");
    assert!(answer(&mut from).is_none_or(|cut| cut.status == 408), "it was served");
    let waited = began.elapsed();
    assert!((Duration::from_millis(800)..Duration::from_secs(5)).contains(&waited), "{waited:?}");
}

#[test]
fn two_thousand_idle_connections_give_way_to_who_asks() {
    let server = Server::start(&["--dev", "--set", "server.connections_max=500"]);
    let client = Client::new(server.url());
    let mut idle = Vec::new();
    for _ in 0..2000 {
        idle.push(client.raw());
    }
    for _ in 0..20 {
        answers_as_usual(&Client::new(server.url()));
    }
    eventually("no more connections than there may be", || descriptors(&server) < 600);
    let (mut closed, mut open) = (0, 0);
    for connection in &mut idle {
        connection.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        if is_closed(connection) { closed += 1 } else { open += 1 }
    }
    assert!(closed >= 1500 && open > 0, "{closed} were closed and {open} not");
    drop(idle);
    eventually("the descriptors are given back", || descriptors(&server) < 60);
}

#[test]
fn a_connection_at_work_does_not_give_way() {
    let server = Server::start(&["--dev", "--set", "server.connections_max=5"]);
    let client = Client::new(server.url());
    create(&client, "box");
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| bash(&Client::new(server.url()), "box", "sleep 1; echo done"));
        a_run_is_under_way(&client);
        for _ in 0..100 {
            let connection = client.raw();
            send(&connection, LIVEZ);
            assert_eq!(answer(&mut BufReader::new(&connection)).unwrap().status, 200);
        }
        assert_eq!(busy.join().unwrap().expect(200).json()["stdout"], "done\n");
    });
}

#[test]
fn a_client_learns_that_all_connections_are_busy() {
    let server = Server::start(&["--dev", "--set", "server.connections_max=3"]);
    let client = Client::new(server.url());
    create(&client, "box");
    let path = format!("{}/wait?timeout_ms=3000", super::path_of("box"));
    let waiting: Vec<TcpStream> = (0..3)
        .map(|_| {
            let connection = client.raw();
            send(&connection, format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"));
            connection
        })
        .collect();
    // The server reads the three heads. To ask it whether it has would take the place of one of them.
    std::thread::sleep(Duration::from_millis(300));
    let connection = client.raw();
    send(&connection, LIVEZ);
    let refused = answer(&mut BufReader::new(&connection)).unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (503, "unavailable"));
    assert!(refused.has("retry-after: 1") && refused.has("connection: close"), "{}", refused.head);
    for connection in &waiting {
        assert_eq!(answer(&mut BufReader::new(connection)).unwrap().status, 200);
    }
    answers_as_usual(&Client::new(server.url()));
}

#[test]
fn a_client_that_closes_its_half_is_served_or_cut_and_costs_nothing() {
    let server = Server::dev();
    let client = Client::new(server.url());
    answers_as_usual(&client);
    let before = descriptors(&server);
    // To close a half looks like leaving, and who leaves gives up what it has asked for.
    for request in ["", "GET /li", LIVEZ, "GET /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
        let connection = client.raw();
        send(&connection, request);
        connection.shutdown(Shutdown::Write).unwrap();
        let began = Instant::now();
        let mut bytes = Vec::new();
        let _ = (&connection).read_to_end(&mut bytes);
        let bytes = String::from_utf8_lossy(&bytes).into_owned();
        assert!(bytes.is_empty() || bytes.starts_with("HTTP/1.1 200"), "{bytes}");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
    eventually("the connections are closed", || descriptors(&server) <= before + 1);
}

#[test]
fn requests_that_are_sent_ahead_are_answered_in_order() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let connection = client.raw();
    let ask = |path: &str, id: usize| {
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nx-request-id: r{id}\r\n\r\n")
    };
    let paths = ["/livez", "/v1/sandboxes", "/nowhere", "/openapi.json", "/readyz"];
    let all: String = (0..100).map(|id| ask(paths[id % paths.len()], id)).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| send(&connection, &all));
        let mut from = BufReader::new(&connection);
        for id in 0..100 {
            let answered = answer(&mut from).unwrap();
            assert_eq!(answered.status, if id % paths.len() == 2 { 404 } else { 200 });
            assert!(answered.has(&format!("x-request-id: r{id}\r\n")), "{}", answered.head);
        }
    });
}

#[test]
fn invalid_http_is_refused_and_affects_nobody_else() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let before = descriptors(&server);
    let many = "x-a: b\r\n".repeat(1000);
    let long = "a".repeat(200_000);
    let rows = [
        "\r\n\r\n\r\n\r\n".to_owned(),
        "\0\0\0\0\0\0\0\0".repeat(100),
        "\x16\x03\x01\x02\0\x01\0\x01\x7c\x03\x03".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "SSH-2.0-OpenSSH_9.2\r\n".to_owned(),
        "GET /livez\r\n\r\n".to_owned(),
        "GET /livez HTTP/3.0\r\nhost: localhost\r\n\r\n".to_owned(),
        "GET /li vez HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
        format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"),
        format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n"),
        format!("GET /{long} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        "GET /livez HTTP/1.1\r\nhost: localhost\r\nbad header\r\n\r\n".to_owned(),
        "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n".to_owned(),
        "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\
         content-length: 2\r\n\r\nab"
            .to_owned(),
        "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999999999\
         \r\n\r\n"
            .to_owned(),
        "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\nzz\r\n"
            .to_owned(),
        "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         transfer-encoding: gzip\r\n\r\n{}"
            .to_owned(),
    ];
    for request in rows {
        let connection = client.raw();
        send(&connection, &request);
        let _ = connection.shutdown(Shutdown::Write);
        let mut bytes = Vec::new();
        let _ = (&connection).read_to_end(&mut bytes);
        let bytes = String::from_utf8_lossy(&bytes).into_owned();
        let what: String = request.chars().take(60).collect();
        assert!(bytes.is_empty() || bytes.starts_with("HTTP/1.1 4"), "{what:?}: {bytes}");
        answers_as_usual(&client);
    }
    eventually("the connections are closed", || descriptors(&server) <= before + 3);
}

#[test]
fn a_length_and_chunks_at_once_cannot_hide_a_second_request() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let connection = client.raw();
    send(
        &connection,
        "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\
        content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n\
        GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n",
    );
    let mut from = BufReader::new(&connection);
    let first = answer(&mut from).unwrap();
    assert_eq!(first.status, 400, "{}", first.head);
}

#[test]
fn an_older_client_is_answered_and_left() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let connection = client.raw();
    send(&connection, "GET /livez HTTP/1.0\r\nhost: localhost\r\n\r\n");
    let mut from = BufReader::new(&connection);
    assert_eq!(answer(&mut from).unwrap().status, 200);
    assert!(is_closed(&mut from));
    let connection = client.raw();
    send(&connection, "GET /livez HTTP/1.0\r\nhost: localhost\r\nconnection: keep-alive\r\n\r\n");
    let mut from = BufReader::new(&connection);
    let json = answer(&mut from).unwrap();
    assert!(json.has("connection: keep-alive"), "{}", json.head);
    send(&connection, "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!(answer(&mut from).unwrap().has("connection: close"));
    assert!(is_closed(&mut from));
}

#[test]
fn a_thousand_clients_that_leave_without_a_word_leave_nothing() {
    let server = Server::dev();
    let client = Client::new(server.url());
    answers_as_usual(&client);
    let before = descriptors(&server);
    for round in 0..1000 {
        let connection = client.raw();
        match round % 3 {
            0 => {}
            1 => send(&connection, "GET /live"),
            _ => send(&connection, LIVEZ),
        }
    }
    answers_as_usual(&client);
    eventually("the connections are closed", || descriptors(&server) <= before + 3);
}

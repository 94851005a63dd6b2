//! Forwarding to real listeners on the loopback interface.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::rc::Rc;
use std::thread::JoinHandle;

use protocol::StreamId;

use super::*;
use crate::file::tests::client::{Client, Download, gone, run, two_way};

/// 20 MB that do not repeat, so that a lost or doubled piece shows.
fn pattern() -> Vec<u8> {
    (0..5_000_000_u32).flat_map(u32::to_le_bytes).collect()
}

/// Serves one connection on a thread.
fn serve<T: Send + 'static>(
    server: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (u16, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (port, std::thread::spawn(move || server(listener.accept().unwrap().0)))
}

/// Waits for a server without blocking the event loop that serves it.
async fn joined<T>(server: JoinHandle<T>) -> T {
    while !server.is_finished() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    server.join().unwrap()
}

fn ask(port: u16) -> Forward {
    Forward { stream: StreamId(1), address: None, port, accept: None }
}

async fn connect(port: u16) -> (Inlet, Download) {
    let (inlet, download) = two_way();
    forward(Rc::default(), ask(port), inlet.clone(), download.outlet.clone()).await.unwrap();
    (inlet, download)
}

/// Sends like a client with credit: never more than a little beyond what was taken.
async fn send(inlet: &Inlet, client: Rc<Client>, bytes: &[u8]) {
    let mut sent = 0;
    for chunk in bytes.chunks(60_000) {
        client.consumed_up_to((sent as u64).saturating_sub(256 * 1024)).await;
        inlet.push(chunk);
        sent += chunk.len();
    }
    inlet.finish();
}

#[test]
fn twenty_megabytes_are_echoed_and_both_ends_end() {
    run(async {
        let (port, server) = serve(|mut connection| {
            let mut copy = connection.try_clone().unwrap();
            let copied = io::copy(&mut connection, &mut copy).unwrap();
            copy.shutdown(Shutdown::Write).unwrap();
            copied
        });
        let (inlet, mut download) = connect(port).await;
        let bytes = pattern();
        let client = download.client.clone();
        let (echoed, ()) = tokio::join!(download.all(), send(&inlet, client.clone(), &bytes));
        assert!(echoed.unwrap() == bytes, "what came back is not what was sent");
        assert_eq!(joined(server).await, bytes.len() as u64);
        assert_eq!((client.consumed(), client.fault()), (bytes.len() as u64, None));
    });
}

#[test]
fn the_answer_may_come_after_the_end_of_the_question() {
    run(async {
        let (port, server) = serve(|mut connection| {
            let mut question = String::new();
            connection.read_to_string(&mut question).unwrap();
            connection.write_all(format!("{question} to you").as_bytes()).unwrap();
        });
        let (inlet, mut download) = connect(port).await;
        inlet.push(b"good day");
        inlet.finish();
        assert_eq!(download.all().await.unwrap(), b"good day to you");
        joined(server).await;
    });
}

#[test]
fn a_server_that_has_sent_everything_may_still_read() {
    run(async {
        let (port, server) = serve(|mut connection| {
            connection.write_all(b"tell me").unwrap();
            connection.shutdown(Shutdown::Write).unwrap();
            let mut received = String::new();
            connection.read_to_string(&mut received).unwrap();
            received
        });
        let (inlet, mut download) = connect(port).await;
        assert_eq!(download.all().await.unwrap(), b"tell me");
        inlet.push(b"all of it");
        inlet.finish();
        assert_eq!(joined(server).await, "all of it");
        assert_eq!(download.client.fault(), None);
    });
}

#[test]
fn a_slow_server_is_not_sent_more_than_it_takes() {
    run(async {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (port, server) = serve(move |mut connection| {
            wait.recv().unwrap();
            let mut received = Vec::new();
            connection.read_to_end(&mut received).unwrap();
            received.len()
        });
        let (inlet, download) = connect(port).await;
        let client = download.client.clone();
        let bytes = pattern();
        let sending = tokio::task::spawn_local({
            let client = client.clone();
            async move { send(&inlet, client, &bytes).await }
        });
        // The kernel's buffers take some megabytes; then everything stalls.
        let mut before = u64::MAX;
        while before != client.consumed() {
            before = client.consumed();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(before < 20_000_000, "the server has taken nothing of {before} bytes");
        go.send(()).unwrap();
        sending.await.unwrap();
        client.consumed_up_to(20_000_000).await;
        assert_eq!(joined(server).await, 20_000_000);
    });
}

#[test]
fn a_client_that_gives_up_shows_the_server_a_reset_and_no_end() {
    run(async {
        let (port, server) = serve(|mut connection| {
            let mut received = Vec::new();
            connection.read_to_end(&mut received).map_err(|error| error.kind())
        });
        let (inlet, download) = connect(port).await;
        inlet.push(b"half of it");
        download.client.consumed_up_to(10).await;
        inlet.fail(gone());
        download.abandon();
        assert_eq!(joined(server).await, Err(io::ErrorKind::ConnectionReset));
    });
}

#[test]
fn a_server_that_breaks_off_resets_the_stream() {
    run(async {
        let (port, server) = serve(|mut connection| {
            let mut first = [0];
            connection.read_exact(&mut first).unwrap();
            // Unread bytes at the close make the kernel send a reset.
        });
        let (inlet, mut download) = connect(port).await;
        inlet.push(&vec![b'x'; 100_000]);
        joined(server).await;
        let fault = download.all().await.unwrap_err();
        assert_eq!(fault.errno, Some(libc::ECONNRESET), "{fault}");
        assert!(fault.message.ends_with("broke off: Connection reset by peer"), "{fault}");
    });
}

#[test]
fn what_a_server_says_before_it_breaks_off_is_read_before_the_reset() {
    run(async {
        let (port, server) = serve(|mut connection| {
            let mut first = [0];
            connection.read_exact(&mut first).unwrap();
            connection.write_all(b"too much").unwrap();
            // Unread bytes at the close make the kernel send a reset.
        });
        let (inlet, mut download) = connect(port).await;
        inlet.push(&vec![b'x'; 100_000]);
        joined(server).await;
        while download.outlet.end() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // The reset is known by now, and waits for who reads.
        let _ = timeout(Duration::from_millis(20), download.outlet.abandoned()).await;
        assert_eq!(download.client.fault(), None);
        assert_eq!(download.next().await.unwrap().as_deref(), Some(&b"too much"[..]));
        if let Some(fault) = download.next().await.err() {
            assert_eq!(fault.errno, Some(libc::ECONNRESET), "{fault}");
        }
    });
}

#[test]
fn a_server_that_is_gone_takes_the_rest_of_an_upload_for_nothing() {
    run(async {
        let (port, server) = serve(|mut connection| {
            let mut first = [0];
            connection.read_exact(&mut first).unwrap();
            connection.write_all(b"enough").unwrap();
        });
        let (inlet, mut download) = connect(port).await;
        inlet.push(b"x");
        joined(server).await;
        let client = download.client.clone();
        assert_eq!(download.all().await.unwrap(), b"enough");
        send(&inlet, client.clone(), &vec![b'y'; 10_000_000]).await;
        client.consumed_up_to(10_000_001).await;
        assert_eq!(client.fault(), None);
    });
}

async fn refused(ask: Forward) -> Fault {
    let (inlet, download) = two_way();
    forward(Rc::default(), ask, inlet, download.outlet)
        .await
        .expect_err("there is nothing to connect to")
}

#[test]
fn unreachable_ports_are_refused_with_their_address() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let fault = refused(ask(port)).await;
        assert_eq!(fault.errno, Some(libc::ECONNREFUSED));
        let message = format!("cannot connect to 127.0.0.1:{port}: Connection refused");
        assert_eq!(fault.message, message);
        assert_eq!(refused(ask(0)).await.code, FaultCode::Invalid);
        for address in ["localhost", "", "127.0.0.1:80", "[::1]"] {
            let named = Forward { address: Some(address.to_owned()), ..ask(80) };
            assert_eq!(refused(named).await.code, FaultCode::Invalid, "{address}");
        }
    });
}

#[test]
fn a_connection_that_nobody_accepts_has_a_deadline() {
    run(async {
        use nix::sys::socket::{
            AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, getsockname, listen,
            socket,
        };
        let stream = SockType::Stream;
        let full = socket(AddressFamily::Inet, stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(full.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
        listen(&full, Backlog::new(0).unwrap()).unwrap();
        let port = getsockname::<SockaddrIn>(full.as_raw_fd()).unwrap().port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // One connection waits to be accepted, and then the queue is full.
        let _first = TcpStream::connect(address).unwrap();
        let began = std::time::Instant::now();
        let fault = refused(ask(port)).await;
        assert_eq!(fault.errno, Some(libc::ETIMEDOUT), "{fault}");
        assert!(began.elapsed() < CONNECT_DEADLINE * 2);
    });
}

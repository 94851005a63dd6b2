//! TCP connections into a sandbox: through the library and through `port-forward`, megabytes both ways
//! at once, with ends that close one after the other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use agent_client::guest::{Guest, Output, Piece, Writer};
use agent_client::program::{Event, Program};
use tests::sandbox::{Sandbox, start};
use tests::{Burrow, PATIENCE, eventually};
use tokio::runtime::Builder;
use tokio::time::timeout;

/// Sends back what it gets, as it comes, and after its end says how much that was. Prints its port.
const ECHO: &str = "
import socket, sys, threading
def serve(peer):
    count = 0
    while data := peer.recv(65536):
        peer.sendall(data)
        count += len(data)
    peer.sendall(b'END %d' % count)
    peer.close()
server = socket.create_server(('127.0.0.1', int(sys.argv[1])))
print(server.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],)).start()
";

const BYTES: usize = 50_000_000;

fn pattern() -> Vec<u8> {
    (0..BYTES as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

fn assert_echo(got: &[u8], sent: &[u8]) {
    let end = format!("END {}", sent.len());
    assert_eq!(got.len(), sent.len() + end.len());
    assert!(got[..sent.len()] == *sent, "the bytes differ");
    assert_eq!(&got[sent.len()..], end.as_bytes());
}

async fn serve(guest: &Guest) -> u16 {
    let mut server =
        Program::from(start("server", &["python3", "-c", ECHO, "0"])).begin(guest).expect("queued");
    loop {
        let event = timeout(PATIENCE, server.next()).await.expect("a port").expect("it runs");
        if let Some(Event::Output { bytes, .. }) = event {
            return String::from_utf8(bytes).expect("UTF-8").trim().parse().expect("a port");
        }
    }
}

async fn send(mut writer: Writer, bytes: &[u8]) {
    writer.write(bytes).await.expect("taken");
    writer.finish().await.expect("its end is taken");
}

async fn receive(mut output: Output) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match output.next().await {
            Piece::Bytes { bytes, .. } => all.extend_from_slice(&bytes),
            Piece::End => return all,
            piece => panic!("{piece:?} after {} bytes", all.len()),
        }
    }
}

#[test]
fn a_forwarded_connection_carries_megabytes_both_ways_and_closes_in_halves() {
    Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(async {
        let mut sandbox = Sandbox::start().await;
        let port = serve(&sandbox.guest).await;
        // One that does not read what it gets back is in nobody's way.
        let (mut deaf, _unread) = sandbox.guest.forward(None, port).await.expect("a connection");
        let stuck = tokio::spawn(async move {
            let block = vec![b'x'; 65536];
            while deaf.write(&block).await.is_ok() {}
        });
        let sent = pattern();
        let (writer, output) = sandbox.guest.forward(None, port).await.expect("a connection");
        let both = async { tokio::join!(send(writer, &sent), receive(output)) };
        let ((), got) = timeout(2 * PATIENCE, both).await.expect("in time");
        assert_echo(&got, &sent);
        let ran = timeout(PATIENCE, sandbox.run(&["echo", "hello"])).await.expect("in time");
        assert_eq!(ran.stdout, b"hello\n");
        assert!(!stuck.is_finished());
        stuck.abort();

        let refused = sandbox.guest.forward(None, 1).await.expect_err("nobody listens");
        assert!(refused.to_string().contains('1'), "{refused}");
        assert!(refused.fault_code().is_some(), "{refused}");
        sandbox.end().await;
    });
}

#[test]
fn a_port_of_the_host_leads_into_a_sandbox() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    burrow.ok(&["exec", "-d", "work", "--", "python3", "-c", ECHO, "7000"]);
    eventually("it listens", || burrow.ok(&["logs", "work"]) == "7000\n");
    let mut forward = burrow
        .command(&["port-forward", "work", "0:7000"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    BufReader::new(forward.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let address = line.split(' ').next().expect("an address").to_owned();
    assert!(line.ends_with(" -> work:7000\n"), "{line:?}");

    let sent = pattern();
    let mut stream = TcpStream::connect(&address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a deadline");
    let mut reader = stream.try_clone().expect("a second handle");
    let reading = std::thread::spawn(move || {
        let mut got = Vec::new();
        reader.read_to_end(&mut got).map(|_| got)
    });
    stream.write_all(&sent).expect("taken");
    stream.shutdown(Shutdown::Write).expect("half is closed");
    assert_echo(&reading.join().expect("no panic").expect("all of it"), &sent);

    // One that nobody inside answers is closed, and the forwarding goes on.
    let mut second = burrow.command(&["port-forward", "work", "0:1"]);
    let mut second = second.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(second.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let closed = line.split(' ').next().expect("an address");
    for _ in 0..2 {
        let mut stream = TcpStream::connect(closed).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a deadline");
        let mut nothing = Vec::new();
        // Closed or reset: both say that there is nobody.
        stream.read_to_end(&mut nothing).ok();
        assert_eq!(nothing, b"");
    }
    second.kill().expect("it is ours");
    let output = second.wait_with_output().expect("it is ours");
    assert!(String::from_utf8_lossy(&output.stderr).contains("refused"), "{output:?}");

    let interrupt = nix::unistd::Pid::from_raw(forward.id() as i32);
    nix::sys::signal::kill(interrupt, nix::sys::signal::Signal::SIGINT).expect("it is ours");
    assert!(forward.wait().expect("it is ours").success(), "ctrl-c is how it ends");
    let taken = burrow.run(&["port-forward", "work", "127.0.0.1:70000:1"]);
    assert_eq!(taken.status.code(), Some(125));
}

#[test]
fn a_taken_port_of_the_host_is_refused_with_what_to_do() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let forwarding = format!("{}:80", taken.local_addr().expect("bound").port());
    let output = burrow.run(&["port-forward", "work", &forwarding]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("choose another port"), "{stderr}");
}

//! What editors do first over SSH, with the real client of OpenSSH: VS Code's Remote-SSH pipes a script into a shell
//! that starts its server, and reaches that through a dynamic forwarding; the Gateway of `JetBrains` asks what the host is,
//! uploads its server, starts it, and forwards its port. docs/howto/editors.md is about them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use tests::own_port::OwnPort;
use tests::ssh::{Background, Ssh, digest};
use tests::{PATIENCE, eventually, have_or_skip};

/// Where the editor's server is in the sandbox.
const HOME: &str = "/tmp/.editor-server";
/// The server: it says at which port it listens, and sends back what it hears.
const SERVER: &str = "\
import os, socket, threading
server = socket.create_server(('127.0.0.1', 0))
with open('/tmp/.editor-server/port.new', 'w') as port: port.write(str(server.getsockname()[1]))
os.rename('/tmp/.editor-server/port.new', '/tmp/.editor-server/port')
def serve(peer):
    while data := peer.recv(65536): peer.sendall(data)
while True: threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
";
/// Starts it if it does not run, and says where it is, as an editor's script does. It ends, and the server stays.
const INSTALL: &str = "\
set -e
export HOME_OF_SERVER=/tmp/.editor-server
mkdir -p \"$HOME_OF_SERVER\"
case \"$(uname -sm)\" in 'Linux '*) ;; *) echo unsupported; exit 1;; esac
if [[ ! -e $HOME_OF_SERVER/port ]]; then
    nohup setsid python3 $HOME_OF_SERVER/server.py > $HOME_OF_SERVER/log 2>&1 < /dev/null &
    for ((i = 0; i < 300; i++)); do [[ -e $HOME_OF_SERVER/port ]] && break; sleep 0.1; done
fi
echo \"listeningOn==$(cat $HOME_OF_SERVER/port)==\"
";

fn or_skip() -> Option<Ssh> {
    let ssh = Ssh::open()?;
    (have_or_skip("python3") && have_or_skip("bash") && have_or_skip("sftp")).then_some(ssh)
}

/// Pipes a script into a shell of the sandbox.
fn pipe(ssh: &Ssh, options: &[&str], shell: &str, script: &str) -> Child {
    let mut command = ssh.ssh(options, shell);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("ssh runs");
    child.stdin.take().expect("piped").write_all(script.as_bytes()).expect("it reads");
    child
}

/// The port in the first line that names one.
fn port_of(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> u16 {
    let found = lines.find_map(|line| {
        let line = line.expect("text");
        line.strip_prefix("listeningOn==")?.strip_suffix("==")?.parse().ok()
    });
    found.expect("the script says where the server listens")
}

/// Connects through the SOCKS server of a dynamic forwarding, by a name as browsers and editors do. `None` if it
/// refuses.
fn through(socks: u16, host: &str, port: u16) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", socks)).expect("ssh listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.write_all(&[5, 1, 0]).expect("taken");
    let mut choice = [0; 2];
    stream.read_exact(&mut choice).expect("an answer");
    assert_eq!(choice, [5, 0]);
    let mut ask = vec![5, 1, 0, 3, u8::try_from(host.len()).expect("a short name")];
    ask.extend(host.as_bytes());
    ask.extend(port.to_be_bytes());
    stream.write_all(&ask).expect("taken");
    let mut answer = [0; 10];
    (stream.read_exact(&mut answer).is_ok() && answer[1] == 0).then_some(stream)
}

fn assert_echoes(mut stream: TcpStream, bytes: &[u8]) {
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let mut sent = stream.try_clone().expect("a clone");
    let copy = bytes.to_vec();
    let writer = std::thread::spawn(move || sent.write_all(&copy).expect("taken"));
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).expect("it is sent back");
    writer.join().expect("no panic");
    assert!(back == bytes, "other bytes came back");
}

#[test]
fn vs_code_installs_its_server_and_reaches_it_by_a_dynamic_forwarding() {
    let Some(ssh) = or_skip() else { return };
    ssh.say(&format!("mkdir -p {HOME} && cat > {HOME}/server.py <<'END'\n{SERVER}END\n"));
    let socks = OwnPort::claim();
    let number = socks.number().to_string();
    drop(socks);
    // The shell stays for as long as the window is open.
    let script = format!("{INSTALL}echo ready\nexec sleep 100000\n");
    let mut window = pipe(&ssh, &["-T", "-D", &number, "-o", "ConnectTimeout=15"], "bash", &script);
    let mut lines = BufReader::new(window.stdout.take().expect("piped")).lines();
    let window = Background(window);
    let port = port_of(&mut lines);
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    let socks: u16 = number.parse().expect("a number");
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    let streams: Vec<_> =
        (0..4).map(|_| through(socks, "127.0.0.1", port).expect("it is reached")).collect();
    let echoes: Vec<_> = streams
        .into_iter()
        .map(|stream| {
            let bytes = bytes.clone();
            std::thread::spawn(move || assert_echoes(stream, &bytes))
        })
        .collect();
    for echo in echoes {
        echo.join().expect("no panic");
    }
    assert!(through(socks, "example.org", 80).is_none(), "another host is reached");
    // A window that is opened again finds the server, which the first one has left.
    drop(window);
    let again = pipe(&ssh, &["-T"], "bash", INSTALL).wait_with_output().expect("it ends");
    assert!(again.status.success());
    let again = String::from_utf8(again.stdout).expect("text");
    eventually("the server is the same", || again.contains(&format!("listeningOn=={port}==")));
}

#[test]
fn gateway_uploads_its_server_over_one_connection_and_forwards_its_port() {
    let Some(ssh) = or_skip() else { return };
    let socket = ssh.path("control");
    let socket = format!("ControlPath={}", socket.display());
    let master = ["-o", "ControlMaster=auto", "-o", &socket, "-o", "ControlPersist=60"];
    let shared = ["-o", &socket[..]];
    let asked = ssh.ssh(&master, "uname -sm; echo $HOME; id -u").output().expect("ssh runs");
    let asked = String::from_utf8(asked.stdout).expect("text");
    assert!(asked.starts_with("Linux ") && asked.lines().count() == 3, "{asked}");
    // An archive by sftp, a file beside it by scp, both over the same connection.
    let archive = ssh.big_file("backend.tar", 32);
    fs::write(ssh.path("server.py"), SERVER).expect("written");
    let batch =
        format!("-mkdir {HOME}\nput {} {HOME}/backend.tar\nls -l {HOME}\n", archive.display());
    fs::write(ssh.path("batch"), batch).expect("written");
    let batch = ssh.path("batch");
    let batch = batch.to_str().expect("UTF-8");
    ssh.do_with("sftp", &[&shared[..], &["-b", batch, "box@burrow"]].concat());
    let server = ssh.path("server.py");
    let server = server.to_str().expect("UTF-8");
    ssh.do_with(
        "scp",
        &[&shared[..], &["-p", server, &format!("box@burrow:{HOME}/server.py")]].concat(),
    );
    let sum = ssh.ssh(&shared, &format!("sha256sum {HOME}/backend.tar")).output().expect("ssh");
    assert!(String::from_utf8_lossy(&sum.stdout).starts_with(&digest(&archive)));
    let started = pipe(&ssh, &[&shared[..], &["-T"]].concat(), "bash -s", INSTALL);
    let started = started.wait_with_output().expect("it ends");
    let port = port_of(&mut started.stdout.lines());
    // The forwarding is added to the connection that is there.
    let near = OwnPort::claim().number();
    let forward = format!("{near}:127.0.0.1:{port}");
    ssh.do_with("ssh", &[&shared[..], &["-O", "forward", "-L", &forward, "box@burrow"]].concat());
    let stream = TcpStream::connect(("127.0.0.1", near)).expect("ssh listens");
    assert_echoes(stream, &fs::read(&archive).expect("it is there")[..4_000_000]);
    // What was uploaded comes back as it was.
    let back = ssh.path("back");
    let copied = ssh.ssh(&shared, &format!("cat {HOME}/backend.tar"));
    let mut copied = copied;
    let status = copied.stdout(File::create(&back).expect("a file")).status().expect("ssh runs");
    assert!(status.success());
    assert_eq!(digest(&back), digest(&archive));
    ssh.do_with("ssh", &[&shared[..], &["-O", "exit", "box@burrow"]].concat());
}

//! Programs as they come, without any configuration, and with a proxy that they are configured
//! of.

use tests::internet::{Internet, NAME_SERVER, SPEAKS_FIRST};
use tests::{Burrow, have_or_skip, skip};

use super::{PROXY, Ran, Scene};

const RULES: [&str; 2] = ["*.example.com", "example.org"];
const WAYS: [&[(&str, &str)]; 2] = [&[], &PROXY];

#[test]
fn curl_reaches_what_is_allowed_and_nothing_else() {
    let Some(scene) = Scene::or_skip(&RULES) else { return };
    for variables in WAYS {
        let curl = |url: &str| scene.run_in("a", &format!("curl -fsS -m 20 {url}"), variables);
        assert_eq!(curl("https://www.example.com/hello").ok(), "hello from www.example.com\n");
        assert_eq!(curl("http://www.example.com/hello").ok(), "hello from www.example.com\n");
        assert_eq!(curl("https://example.org/hello").ok(), "hello from example.org\n");
        // Names are names in whatever way they are written.
        assert_eq!(curl("https://EXAMPLE.org/hello").ok(), "hello from EXAMPLE.org\n");
        for other in ["https://example.net/hello", "http://example.net/hello"] {
            let refused = curl(other).fails();
            let (code, _) = (refused.code.unwrap(), &refused.stderr);
            assert!(matches!(code, 5 | 6 | 56) || variables != WAYS[0], "{refused:?}");
        }
        curl("https://example.com/hello").fails();
        curl("https://www.example.com:8443/hello").fails();
    }
    scene.is_refused("example.net", "no rule allows it");
    assert!(
        !scene.internet.names.requests().contains(&"example.net".to_owned()),
        "nobody was asked"
    );
    scene.only_the_internet_was_reached();
}

#[test]
fn a_redirect_leads_no_further_than_a_request() {
    let Some(scene) = Scene::or_skip(&RULES) else { return };
    let redirected = |to: &str| {
        scene.run(&format!("curl -sSL -m 20 'https://www.example.com/redirect?to={to}'"))
    };
    assert_eq!(redirected("https://example.org/hello").ok(), "hello from example.org\n");
    for to in [
        "https://example.net/hello",
        "http://169.254.169.254/hello",
        "http://127.0.0.1/hello",
        "http://93.184.216.34/hello",
        "http://[2606:2800::1]/hello",
        "http://localhost/hello",
    ] {
        redirected(to).fails();
    }
    scene.only_the_internet_was_reached();
    let hosts: Vec<_> = scene.internet.requests().iter().map(|one| one["host"].clone()).collect();
    assert!(
        hosts
            .iter()
            .all(|host| ["www.example.com", "example.org"].contains(&host.as_str().unwrap())),
        "{hosts:?}"
    );
}

#[test]
fn python_reaches_what_is_allowed_and_nothing_else() {
    let Some(scene) = Scene::or_skip(&RULES) else { return };
    let script = "exec python3 -c 'import sys, urllib.request\n\
                  print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode(), end=\"\")' ";
    for variables in WAYS {
        let fetch = |url: &str| scene.run_in("a", &format!("{script} {url}"), variables);
        assert_eq!(fetch("https://example.org/hello").ok(), "hello from example.org\n");
        assert_eq!(fetch("http://example.org/hello").ok(), "hello from example.org\n");
        let refused = fetch("https://example.net/hello").fails();
        let known =
            ["not known", "No address", "403"].iter().any(|word| refused.stderr.contains(word));
        assert!(known, "{refused:?}");
    }
    scene.only_the_internet_was_reached();
}

#[test]
fn node_reaches_what_is_allowed_and_nothing_else() {
    let Some(scene) = Scene::or_skip(&RULES) else { return };
    if !have_or_skip("node") {
        return;
    }
    for variables in WAYS {
        let fetch = |url: &str| {
            let code = format!(
                "fetch(\"{url}\").then(async (received) => process.stdout.write(await received.text()),\
                 (error) => {{ console.error(error.cause?.code); process.exit(1); }})"
            );
            scene.run_in("a", &format!("exec node -e '{code}'"), variables)
        };
        assert_eq!(fetch("https://example.org/hello").ok(), "hello from example.org\n");
        assert_eq!(fetch("http://example.org/hello").ok(), "hello from example.org\n");
        fetch("https://example.net/hello").fails();
    }
    scene.only_the_internet_was_reached();
}

#[test]
fn a_port_that_is_named_carries_whatever_goes_over_tcp() {
    let rule = format!("db.example.com:{SPEAKS_FIRST}");
    let Some(scene) = Scene::or_skip(&[&rule]) else { return };
    let code = format!(
        "import socket\n\
         peer = socket.create_connection(('db.example.com', {SPEAKS_FIRST}), 20)\n\
         print(peer.recv(100)); peer.sendall(b'burrow'); peer.shutdown(socket.SHUT_WR)\n\
         received = b''\n\
         while more := peer.recv(100): received += more\n\
         print(received)"
    );
    assert_eq!(scene.python(&code).ok(), "b'who are you?\\n'\nb'you are burrow'\n");
    // That port alone.
    scene.run("curl -sS -m 20 https://db.example.com/hello").fails();
    assert_eq!(scene.internet.requests(), [0; 0]);
}

#[test]
fn public_is_every_name_of_the_internet() {
    let Some(scene) = Scene::or_skip(&["public"]) else { return };
    for host in ["example.org", "a.b.c.example.net"] {
        let output = scene.run(&format!("curl -sS -m 20 http://{host}/hello")).ok();
        assert_eq!(output, format!("hello from {host}\n"));
    }
    scene.internet.names.set("host", &[super::lookups::web()]);
    scene.run("curl -sS -m 20 http://host/hello").fails();
    scene.run("curl -sS -m 20 http://no-such-name.test/hello").fails();
    scene.is_refused("no-such-name.test", "there is no such name");
    scene.is_refused("host", "no rule allows it");
}

#[test]
fn a_websocket_is_opened_and_goes_both_ways() {
    let Some(scene) = Scene::or_skip(&RULES) else { return };
    for (port, wrap) in [
        (80, "peer"),
        (443, "ssl.create_default_context().wrap_socket(peer, server_hostname='example.org')"),
    ] {
        let code = format!(
            "import socket, ssl\n\
             peer = socket.create_connection(('example.org', {port}), 20)\n\
             peer = {wrap}\n\
             peer.sendall(b'GET /socket HTTP/1.1\\r\\nHost: example.org\\r\\nUpgrade: websocket\\r\\n'\n\
             \x20            b'Connection: Upgrade\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n'\n\
             \x20            b'Sec-WebSocket-Version: 13\\r\\n\\r\\n')\n\
             received = b''\n\
             while not received.endswith(b'welcome'): received += peer.recv(1000)\n\
             assert b's3pPLMBiTxaQ9kYGzzhZRbK+xOo=' in received, received\n\
             for _ in range(100):\n\
             \x20   frame = b'\\x82\\x7e\\x03\\xe8' + bytes(1000)\n\
             \x20   peer.sendall(frame); back = b''\n\
             \x20   while len(back) < len(frame): back += peer.recv(2000)\n\
             \x20   assert back == frame\n\
             print('fine')"
        );
        assert_eq!(scene.python(&code).ok(), "fine\n");
    }
}

#[test]
fn unsupported_traffic_fails_at_once() {
    let Some(scene) = Scene::or_skip(&["public"]) else { return };
    let code = "import socket, time, errno\n\
         began = time.monotonic()\n\
         def fails(*kind, to):\n\
         \x20   try:\n\
         \x20       peer = socket.socket(*kind); peer.settimeout(20)\n\
         \x20       peer.connect(to); peer.send(b'x'); peer.recv(10)\n\
         \x20   except OSError as error: return errno.errorcode.get(error.errno, error)\n\
         \x20   return 'no error'\n\
         UDP, TCP = socket.SOCK_DGRAM, socket.SOCK_STREAM\n\
         V4, V6 = socket.AF_INET, socket.AF_INET6\n\
         for to in ['93.184.216.34', '169.254.169.254', '10.1.2.3', '198.20.0.1']:\n\
         \x20   for kind in [UDP, TCP]: assert fails(V4, kind, to=(to, 443)) == 'ENETUNREACH', to\n\
         for to in ['2606:2800::1', 'fd00::1', '::ffff:93.184.216.34']:\n\
         \x20   for kind in [UDP, TCP]: assert fails(V6, kind, to=(to, 443)) == 'ENETUNREACH', to\n\
         ping = fails(V4, socket.SOCK_RAW, socket.IPPROTO_ICMP, to=('93.184.216.34', 0))\n\
         assert ping in ['ENETUNREACH', 'EPERM'], ping\n\
         # Addresses that stand for nothing, and what is only the sandbox's own.\n\
         for to in ['198.18.7.7', '127.0.0.1', '198.18.0.1']:\n\
         \x20   assert fails(V4, TCP, to=(to, 80)) == 'ECONNREFUSED', to\n\
         address = socket.gethostbyname('example.org')\n\
         assert address.startswith('198.18.'), address\n\
         assert fails(V4, UDP, to=(address, 443)) == 'ECONNREFUSED'\n\
         assert fails(V4, TCP, to=(address, 22)) == 'ECONNREFUSED'\n\
         assert fails(40, TCP, to=(2, 1)) == 'EAFNOSUPPORT'\n\
         assert time.monotonic() - began < 10, time.monotonic() - began\n\
         print('fine')";
    assert_eq!(scene.python(code).ok(), "fine\n");
    assert_eq!(scene.internet.requests(), [0; 0]);
}

#[test]
fn without_rules_there_is_no_way_at_all() {
    let Some(scene) = Scene::or_skip(&[]) else { return };
    let output = scene.run("cat /etc/resolv.conf; ls /sys/class/net").ok();
    assert!(!output.contains("198.18.0.1") && output.ends_with("lo\n"), "{output}");
    let code = "import socket\n\
         for port in [53, 80, 443, 3128]:\n\
         \x20   peer = socket.socket(); peer.settimeout(20)\n\
         \x20   error = peer.connect_ex(('198.18.0.1', port))\n\
         \x20   assert error in [101, 111], error\n\
         try: print(socket.gethostbyname('example.org'))\n\
         except OSError: print('no such name')\n\
         print(open('/proc/net/tcp').read().count('\\n'), open('/proc/net/udp').read().count('\\n'))";
    let output = scene.python(code).ok();
    assert_eq!(output, "no such name\n1 1\n", "nobody listens");
    scene.run("curl -sS -m 20 https://example.org/hello").fails();
    assert_eq!(scene.internet.requests(), [0; 0]);
    assert_eq!(scene.audited(), [0; 0]);
}

#[test]
fn rules_that_cannot_be_kept_to_are_refused_when_the_sandbox_is_made() {
    let Some(scene) = Scene::or_skip(&[]) else { return };
    for rule in [
        "93.184.216.34",
        "10.0.0.0/8",
        "[::1]:80",
        "2130706433",
        "https://example.org",
        "*",
        "a.org:0",
        "",
    ] {
        let body = serde_json::json!({ "name": "b", "egress": [rule] });
        let refused = scene.client().post("/v1/sandboxes", &body).expect(400);
        assert!(refused.text().contains("egress"), "{rule}: {}", refused.text());
        let result = scene.server.run(&["start", "--name", "b", "--egress", rule]);
        assert!(!result.status.success(), "{rule}");
    }
    assert_eq!(scene.server.ok(&["ps", "--all", "--quiet"]), "a\n");
}

#[test]
fn a_command_in_a_sandbox_of_its_own_has_the_bounds_of_the_configuration() {
    let Some(internet) = Internet::or_skip() else { return };
    let burrow = Burrow::new();
    let config = burrow.scratch().join("burrow.toml");
    // The host's own resolver knows no name here, so that one is found shows whose server is asked.
    let settings = format!("[egress]\ndns = \"{NAME_SERVER}:53\"\nbytes_max = \"1MiB\"\n");
    std::fs::write(&config, settings).unwrap();
    let run = |script: &str| -> Ran {
        let words = ["run", "--egress", "example.org", "--", "sh", "-c", script];
        burrow.command(&words).env("BURROW_CONFIG", &config).output().unwrap().into()
    };
    let output = run("curl -sS -m 20 http://example.org/hello").ok();
    assert_eq!(output, "hello from example.org\n");
    run("curl -sS -m 20 http://example.net/hello").fails();
    run("curl -sS -m 20 -o /dev/null 'http://example.org/bytes?n=8000000'").fails();
    assert_eq!(internet.reached(), ["93.184.216.34"]);
}

#[test]
fn machines_of_the_host_are_none_of_the_sandboxs() {
    let Some(scene) = Scene::or_skip(&["public"]) else { return };
    if !std::path::Path::new("/dev/vsock").exists() {
        skip("there is no /dev/vsock here, but the call is refused anyway");
    }
    // Only the calls that make a socket: no other is there to be made without one.
    let code = "import ctypes, errno\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         def fails(*call):\n\
         \x20   assert libc.syscall(*call) == -1\n\
         \x20   return errno.errorcode[ctypes.get_errno()]\n\
         assert fails(41, 40, 1, 0) == 'EAFNOSUPPORT'\n\
         assert fails(41, 17, 3, 0) == 'EAFNOSUPPORT'\n\
         # A ring could open one without a call that is seen; so could another way into the kernel.\n\
         assert fails(425, 8, ctypes.c_void_p()) == 'ENOSYS'\n\
         assert fails(0x40000000 | 41, 40, 1, 0) == 'ENOSYS'\n\
         print('fine')";
    assert_eq!(scene.python(code).ok(), "fine\n");
}

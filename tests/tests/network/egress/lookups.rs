//! What a name means: everything that a name server, which may be anybody's, can say of it.

use std::net::IpAddr;

use tests::internet::names::Answer;
use tests::internet::{WEB, WEB_V6};

use super::Scene;

/// What leads to the web.
pub fn web() -> Answer {
    Answer::Addresses(vec![WEB.into()])
}

fn says(scene: &Scene, host: &str) -> super::Ran {
    scene.run(&format!("curl -sS -m 30 http://{host}/hello"))
}

#[test]
fn a_name_with_an_address_that_is_not_the_internets_is_refused() {
    let Some(scene) = Scene::or_skip(&["public"]) else { return };
    let forms = [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "0.0.0.0",
        "::1",
        "::",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::7f00:1",
        "64:ff9b::a01:203",
        "fe80::1",
        "fd00::1",
        "2002:7f00:1::1",
        "2001:0:7f00:1::1",
    ];
    for (number, form) in forms.iter().enumerate() {
        let host = format!("h{number}.example.org");
        scene.internet.names.set(&host, &[Answer::addresses(&[form])]);
        let mixed = format!("m{number}.example.org");
        scene.internet.names.set(&mixed, &[Answer::addresses(&["93.184.216.34", form])]);
    }
    // All at once, since each is a question and an answer.
    let each = format!(
        "for n in $(seq 0 {}); do for k in h m; do curl -sS -m 30 http://$k$n.example.org/hello & \
         done; done; wait",
        forms.len() - 1
    );
    assert_eq!(scene.run(&each).stdout, "");
    for number in 0..forms.len() {
        for kind in ["h", "m"] {
            scene.is_refused(&format!("{kind}{number}.example.org"), "it resolves to");
        }
    }
    assert_eq!(scene.internet.requests(), [0; 0]);
}

#[test]
fn a_name_that_comes_to_mean_another_address_gains_nothing() {
    let Some(mut scene) = Scene::or_skip(&["public"]) else { return };
    let forms = ["127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "10.1.2.3"];
    let hosts: Vec<_> = (0..forms.len()).map(|number| format!("r{number}.example.org")).collect();
    for (host, form) in hosts.iter().zip(forms) {
        // Each later query gets this, from any sender.
        scene.internet.names.set(host, &[web(), Answer::addresses(&[form])]);
        // What was looked at is what is connected to.
        assert_eq!(says(&scene, host).ok(), format!("hello from {host}\n"));
    }
    let address = scene.run("getent ahostsv4 r0.example.org | head -1").ok();
    let address = address.split_whitespace().next().unwrap().to_owned();
    let count = scene.internet.requests().len();
    // The next bridge knows what address stands for the name, and no more what the name meant.
    scene.server.kill_and_serve_again();
    for host in &hosts {
        says(&scene, host).fails();
        scene.is_refused(host, "it resolves to");
    }
    scene.run(&format!("curl -sS -m 20 -H 'Host: r0.example.org' http://{address}/hello")).fails();
    assert_eq!(scene.internet.requests().len(), count, "{:?}", scene.internet.requests());
    scene.only_the_internet_was_reached();
}

#[test]
fn answers_are_understood_in_the_ways_in_which_servers_give_them() {
    let Some(scene) = Scene::or_skip(&["public"]) else { return };
    let names = &scene.internet.names;
    let web: IpAddr = WEB.into();
    let alias = |count: usize| (0..count).map(|at| format!("alias{at}.example.net")).collect();
    names.set("cut.example.org", &[Answer::OverTcp(vec![web])]);
    names.set("alias.example.org", &[Answer::Aliases(alias(8), web)]);
    names.set("six.example.org", &[Answer::addresses(&[WEB_V6])]);
    names.set("both.example.org", &[Answer::addresses(&["93.184.216.34", WEB_V6])]);
    names.set("late.example.org", &[Answer::Silence, super::lookups::web()]);
    for host in ["cut", "alias", "six", "both", "late"] {
        let host = format!("{host}.example.org");
        assert_eq!(says(&scene, &host).ok(), format!("hello from {host}\n"));
    }
    let reached = scene.internet.reached();
    assert!(reached.contains(&WEB_V6.to_owned()), "{reached:?}");
    scene.only_the_internet_was_reached();
}

#[test]
fn answers_that_no_server_should_give_are_no_answers() {
    let Some(scene) = Scene::or_skip(&["public"]) else { return };
    let names = &scene.internet.names;
    let web: IpAddr = WEB.into();
    let alias = |count: usize| (0..count).map(|at| format!("alias{at}.example.net")).collect();
    names.set(
        "loop.example.org",
        &[Answer::Aliases(vec!["loop.example.org".to_owned()], "127.0.0.1".parse().unwrap())],
    );
    names.set("long.example.org", &[Answer::Aliases(alias(40), web)]);
    names.set("failed.example.org", &[Answer::Failed]);
    names.set("empty.example.org", &[Answer::Addresses(Vec::new())]);
    // A name that points to itself, one that runs out of the message, counts without records.
    let heads: [&[u8]; 4] = [
        &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1],
        &[0x81, 0x80, 0, 1, 0xff, 0xff, 0, 0, 0, 0, 63, b'a'],
        &[0x81, 0x80, 0, 0, 0, 9, 0, 0, 0, 0],
        &[],
    ];
    for (number, head) in heads.iter().enumerate() {
        names.set(&format!("bad{number}.example.org"), &[Answer::Bytes(head.to_vec())]);
    }
    let hosts = ["loop", "long", "failed", "empty", "bad0", "bad1", "bad2", "bad3"];
    let each = format!(
        "for n in {}; do curl -sS -m 30 http://$n.example.org/hello & done; wait",
        hosts.join(" ")
    );
    assert_eq!(scene.run(&each).stdout, "");
    for host in hosts {
        scene.is_refused(&format!("{host}.example.org"), "");
    }
    assert_eq!(scene.internet.requests(), [0; 0]);
    assert_eq!(says(&scene, "example.org").ok(), "hello from example.org\n", "it has survived");
}

#[test]
fn the_resolver_in_the_sandbox_answers_at_once_and_for_allowed_names_alone() {
    let Some(scene) = Scene::or_skip(&["*.example.org"]) else { return };
    // Questions as bytes, over TCP; a datagram is answered that it must use TCP.
    let code = "import socket, struct, time\n\
         def ask(name, kind, over=socket.SOCK_STREAM):\n\
         \x20   body = struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 0)\n\
         \x20   body += b''.join(bytes([len(part)]) + part.encode() for part in name.split('.')) + b'\\0'\n\
         \x20   body += struct.pack('>HH', kind, 1)\n\
         \x20   peer = socket.socket(socket.AF_INET, over); peer.settimeout(20)\n\
         \x20   peer.connect(('198.18.0.1', 53))\n\
         \x20   if over == socket.SOCK_DGRAM:\n\
         \x20       peer.send(body); received = peer.recv(5000)\n\
         \x20       return 'cut' if received[2] & 2 else received[3] & 15\n\
         \x20   peer.sendall(struct.pack('>H', len(body)) + body)\n\
         \x20   received = b''\n\
         \x20   while len(received) < 2 or len(received) < 2 + struct.unpack('>H', received[:2])[0]: received += peer.recv(5000)\n\
         \x20   received = received[2:]\n\
         \x20   return received[3] & 15, struct.unpack('>H', received[6:8])[0]\n\
         A, AAAA, ANY, TXT = 1, 28, 255, 16\n\
         began = time.monotonic()\n\
         assert ask('www.example.org', A) == (0, 1)\n\
         assert ask('WWW.Example.ORG', A) == (0, 1)\n\
         assert ask('www.example.org', AAAA) == (0, 0)\n\
         assert ask('www.example.org', TXT) == (0, 0)\n\
         for name in ['example.org', 'example.net', 'wwwexample.org', 'localhost', 'www.example.org.evil.net']:\n\
         \x20   for kind in [A, AAAA, ANY, TXT]: assert ask(name, kind) == (3, 0), (name, kind)\n\
         assert ask('www.example.org', A, socket.SOCK_DGRAM) == 'cut'\n\
         assert time.monotonic() - began < 10\n\
         print(socket.gethostbyaddr(socket.gethostbyname('www.example.org'))[0])";
    assert_eq!(scene.python(code).ok(), "www.example.org\n");
    assert!(scene.internet.names.requests().iter().all(|name| name == "www.example.org"));
}

//! Hosts of a secret that are wrong or missing: a program gets an answer that says so, and not a broken
//! connection.

use serde_json::json;
use tests::eventually;
use tests::internet::names::Answer;

use super::secrets::{VALUE, empty_for_or_skip, empty_with_or_skip};
use super::{NAME, PROXY, Scene};

/// Hosts of the secret, and the message about each while the web is there.
const HOSTS: [(&str, &str); 3] = [
    ("api.example.edu", "its certificate is for another name"),
    ("expired.example.org", "its certificate has expired"),
    (
        "strange.example.org",
        "its certificate was issued by an authority that this host does not trust",
    ),
];
/// The same of those whose names change while the sandbox remembers what they meant.
const CHANGED: [(&str, &str); 2] = [
    ("nowhere.example.org", "there is no such name"),
    ("private.example.org", "it resolves to 10.1.2.3, which is private"),
];
/// One that is reached.
const GOOD: &str = "api.example.org";

fn scene_or_skip() -> Option<Scene> {
    let hosts: Vec<_> = HOSTS.iter().chain(&CHANGED).map(|(host, _)| *host).chain([GOOD]).collect();
    let scene = empty_for_or_skip(&hosts)?;
    let body = json!({ "name": NAME, "egress": hosts, "secrets": ["github"] });
    scene.client().post("/v1/sandboxes", &body).expect(201);
    Some(scene)
}

/// What curl is answered, and with which status; nothing when it is not.
fn curl(scene: &Scene, host: &str, more: &str) -> String {
    let script = format!(
        "{more} curl -sS -m 60 -w '%{{http_code}}' -H \"token: $GITHUB\" https://{host}/unreached"
    );
    scene.plainly(&script).stdout
}

#[track_caller]
fn is_refused_with(text: &str, host: &str, why: &str) {
    let sentence =
        format!("The sandbox's host refuses this request: {host} cannot be reached: {why}.\n");
    assert_eq!(text, format!("{sentence}502"));
}

#[test]
fn a_host_that_is_not_what_it_should_be_is_an_answer_that_says_so() {
    let Some(mut scene) = scene_or_skip() else { return };
    for (host, why) in HOSTS {
        is_refused_with(&curl(&scene, host, ""), host, why);
        scene.is_audited(&format!("{host}: {why}"), |record| {
            record["facts"]["host"] == host
                && record["facts"]["why"].as_str().is_some_and(|why| !why.is_empty())
                && !record.to_string().contains(VALUE)
        });
    }
    // A proxy's tunnel is answered within, where there is a tunnel.
    let proxied = PROXY.map(|(name, value)| format!("{name}={value}"));
    let (host, why) = HOSTS[1];
    is_refused_with(&curl(&scene, host, &proxied.join(" ")), host, why);
    // Python's client reads the whole of it, to the last word of TLS.
    let python = format!(
        r#"
import os, urllib.error, urllib.request
for host, why in {HOSTS:?}:
    for body in [None, b"x" * 100000]:
        request = urllib.request.Request(f"https://{{host}}/unreached", data=body, headers={{"token": os.environ["GITHUB"]}})
        try: raise SystemExit(urllib.request.urlopen(request, timeout=60).read())
        except urllib.error.HTTPError as error: code, received = error.code, error.read().decode()
        assert code == 502 and f"{{host}} cannot be reached: {{why}}.\n" in received, (host, received)
print("fine")"#
    );
    let output = scene.server.feed(&["exec", "-i", NAME, "--", "python3", "-"], python.as_bytes());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "fine\n", "{output:?}");
    assert_eq!(curl(&scene, GOOD, ""), "no such page\n404", "others are as they were");
    assert_eq!(scene.internet.requests().len(), 1, "nothing else was asked of anybody");
    assert_eq!(scene.received("/unreached"), [VALUE]);

    scene.internet.close_web();
    let output = curl(&scene, GOOD, "");
    assert!(output.starts_with(
        "The sandbox's host refuses this request: api.example.org cannot be reached: "
    ));
    assert!(output.contains("Connection refused") && output.ends_with("502"), "{output}");
    scene.is_refused(GOOD, "Connection refused");
}

#[test]
fn a_name_without_addresses_is_answered_as_such() {
    let Some(mut scene) = scene_or_skip() else { return };
    let addresses = CHANGED.map(|(host, _)| {
        let known = scene.plainly(&format!("getent ahostsv4 {host}")).ok();
        known.split(' ').next().unwrap().to_owned()
    });
    scene.internet.names.set(CHANGED[0].0, &[Answer::Missing]);
    scene.internet.names.set(CHANGED[1].0, &[Answer::addresses(&["10.1.2.3"])]);
    // Another bridge has forgotten what they meant, and not which address is whose.
    scene.server.kill_and_serve_again();
    eventually("hosts are reached again", || curl(&scene, GOOD, "").ends_with("404"));
    for ((host, why), address) in CHANGED.into_iter().zip(addresses) {
        let output = scene.plainly(&format!(
            "curl -sS -m 60 -w '%{{http_code}}' --resolve {host}:443:{address} https://{host}/"
        ));
        is_refused_with(&output.ok(), host, why);
        scene.is_refused(host, why);
    }
    scene.only_the_internet_was_reached();
}

#[test]
fn a_sandbox_that_has_used_up_its_bytes_is_refused_before_a_connection_is_made() {
    let options = ["--set", "egress.bytes_max=64KiB"];
    let Some(scene) = empty_with_or_skip(&[GOOD], &options) else { return };
    let body = json!({ "name": NAME, "egress": [GOOD], "secrets": ["github"] });
    scene.client().post("/v1/sandboxes", &body).expect(201);
    scene.plainly(&format!("curl -sS -m 60 -o /dev/null 'https://{GOOD}/bytes?n=1000000'")).fails();
    let body = scene.internet.requests().len();
    let output = curl(&scene, GOOD, "");
    let why = format!("{GOOD} cannot be reached: the sandbox has used its limit of 65536 bytes");
    assert!(output.contains(&why) && output.ends_with("403"), "{output}");
    scene.is_refused(GOOD, "its limit of 65536 bytes");
    assert_eq!(scene.internet.requests().len(), body);
}

#[test]
fn a_request_that_would_be_refused_is_refused_before_its_host_is_connected_to() {
    let Some(scene) = scene_or_skip() else { return };
    let script = "curl -sS -m 60 -w '%{http_code}' -X TRACE https://expired.example.org/ \
                  -H 'host: api.example.org'";
    let output = scene.plainly(script).ok();
    assert!(output.contains("it is for the host") && output.ends_with("403"), "{output}");
    // A program that trusts only its own authorities gets no answer, and learns nothing else.
    scene.plainly("curl -sS -m 60 --cacert /dev/null https://expired.example.org/").fails();
    assert!(scene.internet.requests().is_empty());
}

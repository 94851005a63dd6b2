//! TLS from files, which are renewed under a running server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tests::{Burrow, eventually, have_or_skip};

use super::own::Own;

struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn below(directory: &Path) -> Self {
        Self { certificate: directory.join("cert.pem"), key: directory.join("key.pem") }
    }

    /// Writes a certificate of its own signature, in place of one that is there.
    fn issue(&self, name: &str) {
        let (new_certificate, new_key) =
            (self.certificate.with_extension("new"), self.key.with_extension("new"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-nodes", "-days", "2", "-subj", &format!("/CN={name}")])
            .args(["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"])
            .arg("-keyout")
            .arg(&new_key)
            .arg("-out")
            .arg(&new_certificate)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        fs::rename(new_key, &self.key).unwrap();
        fs::rename(new_certificate, &self.certificate).unwrap();
    }

    fn options(&self) -> [String; 2] {
        [
            format!("server.tls_certificate={}", self.certificate.display()),
            format!("server.tls_key={}", self.key.display()),
        ]
    }
}

fn curl(files: &Files, url: &str) -> Output {
    Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "10", "--cacert"])
        .arg(&files.certificate)
        .arg(url)
        .output()
        .unwrap()
}

/// Whose certificate a server shows.
fn shown(url: &str) -> String {
    let address = url.strip_prefix("https://").unwrap();
    let output = Command::new("openssl")
        .args(["s_client", "-connect", address, "-servername", "localhost"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let subject = text.lines().find_map(|line| line.trim().strip_prefix("subject="));
    subject.unwrap_or_default().replace(' ', "")
}

#[test]
fn https_is_spoken_and_a_renewed_certificate_is_used_without_a_restart() {
    if !have_or_skip("openssl") || !have_or_skip("curl") {
        return;
    }
    let burrow = Burrow::new();
    let files = Files::below(burrow.scratch());
    files.issue("first");
    let [certificate, key] = files.options();
    let options = ["--dev", "--listen", "127.0.0.1:0", "--set", &certificate, "--set", &key];
    let own = Own::start_in(burrow, &options, |_| {});
    let url = own.url("https://");
    let got = curl(&files, &format!("{url}/livez"));
    let body = String::from_utf8_lossy(&got.stdout).into_owned();
    assert!(body.contains("\"ok\""), "{body} {}", String::from_utf8_lossy(&got.stderr));
    assert_eq!(shown(&url), "CN=first");
    // Who speaks plainly to it is cut, and costs nobody anything.
    let plain = Command::new("curl")
        .args(["--silent", "--max-time", "10"])
        .arg(format!("{}/livez", url.replace("https", "http")))
        .output()
        .unwrap();
    assert!(!plain.status.success());

    files.issue("second");
    eventually("the new certificate is shown", || shown(&url) == "CN=second");
    assert!(curl(&files, &format!("{url}/livez")).status.success());

    // A half-written file is not used, and is reported once it is read.
    fs::write(&files.certificate, "-----BEGIN CERTIFICATE-----\nnot yet").unwrap();
    eventually("the broken certificate is told of", || {
        assert_eq!(shown(&url), "CN=second");
        own.log().contains("the changed certificate cannot be used")
    });
    files.issue("third");
    eventually("the mended certificate is shown", || shown(&url) == "CN=third");
    own.end();
}

#[test]
fn without_a_sound_certificate_nothing_is_served() {
    if !have_or_skip("openssl") {
        return;
    }
    let burrow = Burrow::new();
    let files = Files::below(burrow.scratch());
    files.issue("one");
    let [certificate, key] = files.options();
    let serve = |certificate: &str, key: &str| {
        let output = burrow.run(&[
            "serve",
            "--dev",
            "--listen",
            "127.0.0.1:0",
            "--set",
            certificate,
            "--set",
            key,
        ]);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = serve("server.tls_certificate=/no/such/file.pem", &key);
    assert!(text.contains("/no/such/file.pem"), "{text}");
    fs::write(&files.key, "no key").unwrap();
    let text = serve(&certificate, &key);
    assert!(text.contains("key.pem"), "{text}");
    let half = burrow.run(&["serve", "--listen", "127.0.0.1:0", "--set", &certificate]);
    assert!(String::from_utf8_lossy(&half.stderr).contains("tls_key"), "{half:?}");
}

//! `keygen` and `keys` as a person or a script uses them, with a server's keyring.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use access::keys::{Access, Denied, Keyring};

/// A bridge's directories, gone with the test.
struct KeyDirectory(PathBuf);

impl KeyDirectory {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("burrow-keygen-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn run(&self, line: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_host-bridge"))
            .args(line.split(' '))
            .env("BURROW_RUNTIME_DIR", self.0.join("run"))
            .env("BURROW_STATE_DIR", self.0.join("state"))
            .output()
            .expect("the program that was built")
    }

    /// The stdout of a command that succeeds.
    fn stdout(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    fn keyring(&self) -> Keyring {
        Keyring::open(&self.0.join("state/keys")).expect("keys")
    }
}

impl Drop for KeyDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_key_alone_is_on_stdout_and_its_id_beside_it() {
    let place = KeyDirectory::new("alone");
    let output = place.run("keygen --namespace team --name laptop");
    let key = String::from_utf8(output.stdout).unwrap();
    assert!(key.starts_with("msb_ey") && key.lines().count() == 1, "{key}");
    let grant = place.keyring().verify(key.trim_end()).unwrap();
    assert!(grant.covers(&"team".parse().unwrap()) && !grant.covers(&"default".parse().unwrap()));
    assert!(grant.may(Access::Run) && !grant.may(Access::Admin));
    let note = String::from_utf8(output.stderr).unwrap();
    let id = grant.id.unwrap();
    assert!(note.contains(&format!("key {id}: read,run in the namespace team, until ")), "{note}");
    assert!(!note.contains(key.trim_end()));
    let listed = place.stdout("keys ls");
    assert!(listed.contains(id.as_str()) && listed.contains("laptop"), "{listed}");
    assert!(!listed.contains("msb_"), "{listed}");
}

#[test]
fn default_keys_are_limited() {
    let place = KeyDirectory::new("default");
    let made: serde_json::Value = serde_json::from_str(&place.stdout("keygen --json")).unwrap();
    let grant = place.keyring().verify(made["key"].as_str().unwrap()).unwrap();
    assert!(grant.covers(&"default".parse().unwrap()) && !grant.covers(&"x".parse().unwrap()));
    let lives_ms = made["expires_at_ms"].as_u64().unwrap() - made["issued_at_ms"].as_u64().unwrap();
    let month_ms: u64 = 30 * 86_400_000;
    // Keys count in whole seconds.
    assert!(month_ms.abs_diff(lives_ms) <= 1000, "{lives_ms}");
    assert_eq!(made["scopes"], serde_json::json!(["read", "run"]));
    let all = place.stdout("keygen --namespace * --scope admin --expire never");
    let grant = place.keyring().verify(all.trim_end()).unwrap();
    assert!(grant.may(Access::Admin) && grant.covers(&"x".parse().unwrap()));
    assert_eq!(grant.expires_at_ms, None);
}

#[test]
fn a_server_that_runs_follows_what_is_typed() {
    let place = KeyDirectory::new("follows");
    let key = place.stdout("keygen");
    let keyring = place.keyring();
    let id = keyring.verify(key.trim_end()).unwrap().id.unwrap();
    let becomes = |what: &str, holds: &dyn Fn(&Result<_, Denied>) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !holds(&keyring.verify(key.trim_end())) {
            assert!(Instant::now() < deadline, "the key is not {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    assert_eq!(place.stdout(&format!("keys revoke {id}")), format!("{id}\n"));
    becomes("revoked", &|verified| matches!(verified, Err(Denied::Revoked { .. })));
    assert_eq!(place.stdout("keys ls -q"), "");
    let all: serde_json::Value = serde_json::from_str(&place.stdout("keys ls -a --json")).unwrap();
    assert_eq!((&all[0]["id"], &all[0]["standing"]), (&id.as_str().into(), &"revoked".into()));
    place.stdout("keys rotate");
    place.stdout("keys rotate --finish");
    becomes("signed by nobody", &|verified| matches!(verified, Err(Denied::BadSignature)));
}

#[test]
fn impossible_commands_fail_with_a_reason() {
    let place = KeyDirectory::new("failure");
    for (line, reason) in [
        ("keys revoke 000000000000", "there is no key 000000000000; `host-bridge keys ls`"),
        ("keys revoke msb_abc.def.ghi", "is not the id of a key"),
        ("keygen --scope write", "is not a scope: write read, run or admin"),
        ("keygen --expire 0", "cannot expire before it is created"),
        ("keygen --namespace a/b", "is not a name"),
    ] {
        let output = place.run(line);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains(reason), "{line}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

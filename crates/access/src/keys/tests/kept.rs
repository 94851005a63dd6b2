//! The files: writers beside a bridge that serves, revocation, rotation, damage.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use super::*;

/// Until `holds` does. Longer than a keyring takes between two looks.
fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} took too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn a_key_says_what_was_ordered() {
    let scratch = Scratch::new("ordered");
    let store = Store::open(&scratch.0).unwrap();
    let keyring = Keyring::open(&scratch.0).unwrap();
    let mut wanted = order("team", &[Access::Admin]);
    wanted.name = Some("Zoë's laptop".to_owned());
    let (key, issued) = store.issue(wanted.clone()).unwrap();
    soon("a new key", || keyring.verify(key.expose()).is_ok());
    let grant = keyring.verify(key.expose()).unwrap();
    assert_eq!(grant.id.as_ref(), Some(&issued.id));
    assert_eq!(grant.name, wanted.name);
    assert_eq!(grant.namespace, wanted.namespace);
    assert!(grant.may(Access::Admin));
    assert_eq!(grant.expires_at_ms, wanted.expires_at_ms.map(|ms| ms / 1000 * 1000));
    assert_eq!(store.list().unwrap(), [(issued, Standing::Valid)]);
}

#[test]
fn all_is_private_and_holds_no_key() {
    let scratch = Scratch::new("private");
    let store = Store::open(&scratch.0).unwrap();
    let (key, _) = store.issue(order("*", &[Access::Run])).unwrap();
    assert_eq!(mode(&scratch.0), 0o700);
    for name in ["secrets.json", "keys.json", "lock"] {
        assert_eq!(mode(&scratch.0.join(name)), 0o600, "{name}");
        let text = fs::read_to_string(scratch.0.join(name)).unwrap();
        let parts = key.expose().trim_start_matches("msb_").split('.');
        assert!(parts.skip(1).all(|part| !text.contains(part)), "{name} holds a key");
    }
}

#[test]
fn a_key_that_never_expires_lives_by_its_entry() {
    let scratch = Scratch::new("never");
    let store = Store::open(&scratch.0).unwrap();
    let (key, issued) =
        store.issue(KeyRequest { expires_at_ms: None, ..order("*", &[Access::Run]) }).unwrap();
    let keyring = Keyring::open(&scratch.0).unwrap();
    assert_eq!(keyring.verify(key.expose()).unwrap().expires_at_ms, None);
    fs::write(scratch.0.join("keys.json"), r#"{"keys":[]}"#).unwrap();
    let unknown = Err(Denied::Unknown { id: issued.id });
    soon("a lost entry", || keyring.verify(key.expose()) == unknown);
}

#[test]
fn revocation_acts_within_a_second() {
    let scratch = Scratch::new("revoked");
    let store = Store::open(&scratch.0).unwrap();
    let (one, first) = store.issue(order("*", &[Access::Run])).unwrap();
    let (other, _) = store.issue(order("*", &[Access::Run])).unwrap();
    let keyring = Keyring::open(&scratch.0).unwrap();
    assert!(keyring.verify(one.expose()).is_ok());
    let began = Instant::now();
    let revoked = store.revoke(&first.id).unwrap();
    let refused = |denied: &Result<Grant, Denied>| matches!(denied, Err(Denied::Revoked { .. }));
    soon("a revocation", || refused(&keyring.verify(one.expose())));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(keyring.verify(other.expose()).is_ok());
    // The time of the first revocation stays.
    assert_eq!(store.revoke(&first.id).unwrap(), revoked);
    assert_eq!(store.list().unwrap()[0].1, Standing::Revoked);
    let nobody = "000000000000".parse().unwrap();
    assert!(matches!(store.revoke(&nobody), Err(KeysError::NoSuchKey { .. })));
}

#[test]
fn rotation_keeps_old_keys_until_it_is_finished() {
    let scratch = Scratch::new("rotated");
    let store = Store::open(&scratch.0).unwrap();
    let (old, _) = store.issue(order("*", &[Access::Run])).unwrap();
    assert_eq!(store.rotate(Rotation::Begin).unwrap(), 2);
    let (new, issued) = store.issue(order("*", &[Access::Run])).unwrap();
    let keyring = Keyring::open(&scratch.0).unwrap();
    assert!(keyring.verify(old.expose()).is_ok() && keyring.verify(new.expose()).is_ok());
    assert_eq!(store.rotate(Rotation::Finish).unwrap(), 1);
    soon("the end of a rotation", || keyring.verify(old.expose()) == Err(Denied::BadSignature));
    assert!(keyring.verify(new.expose()).is_ok());
    assert_eq!(store.list().unwrap()[0].1, Standing::Dropped);
    assert_eq!(store.rotate(Rotation::Replace).unwrap(), 1);
    soon("a replacement", || keyring.verify(new.expose()) == Err(Denied::BadSignature));
    // Dropped keys leave the index with the next that is made.
    store.issue(order("*", &[Access::Run])).unwrap();
    let listed = store.list().unwrap();
    assert!(listed.len() == 1 && listed[0].0.id != issued.id);
}

#[test]
fn secrets_do_not_pile_up() {
    let scratch = Scratch::new("pile");
    let store = Store::open(&scratch.0).unwrap();
    let refused = (0..100).find_map(|_| store.rotate(Rotation::Begin).err()).unwrap();
    assert!(matches!(refused, KeysError::TooManySecrets { secrets_max: 8 }), "{refused}");
    assert_eq!(store.rotate(Rotation::Finish).unwrap(), 1);
}

#[test]
fn writers_at_once_lose_nothing() {
    let scratch = Scratch::new("writers");
    let store = Store::open(&scratch.0).unwrap();
    let keyring = Keyring::open(&scratch.0).unwrap();
    let keys: Vec<Key> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let issue = |_| store.issue(order("*", &[Access::Run])).unwrap().0;
                    (0..10).map(issue).collect::<Vec<_>>()
                })
            })
            .collect();
        // Half-written files would be a trouble.
        for _ in 0..200 {
            store.read().unwrap();
        }
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!((keys.len(), store.list().unwrap().len()), (40, 40));
    soon("the last key", || keys.iter().all(|key| keyring.verify(key.expose()).is_ok()));
    assert_eq!(keyring.trouble(), None);
}

#[test]
fn damage_keeps_the_last_good_keys_and_is_reported() {
    let scratch = Scratch::new("damage");
    let store = Store::open(&scratch.0).unwrap();
    let (key, _) = store.issue(order("*", &[Access::Run])).unwrap();
    let keyring = Keyring::open(&scratch.0).unwrap();
    for name in ["secrets.json", "keys.json"] {
        let path = scratch.0.join(name);
        let good = fs::read(&path).unwrap();
        let torn = &good[..good.len() / 2];
        fs::write(&path, torn).unwrap();
        soon("trouble", || keyring.trouble().is_some_and(|trouble| trouble.contains(name)));
        assert!(keyring.verify(key.expose()).is_ok());
        // At the start there is no last good one.
        let error = Keyring::open(&scratch.0).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("line"), "{error}");
        fs::remove_file(&path).unwrap();
        soon("trouble", || keyring.trouble().is_some_and(|trouble| trouble.contains("open")));
        assert!(keyring.verify(key.expose()).is_ok());
        let mut options = fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::mode(options.write(true).create(true), 0o600);
        io::Write::write_all(&mut options.open(&path).unwrap(), &good).unwrap();
        soon("recovery", || keyring.trouble().is_none());
    }
}

#[test]
fn no_error_about_secrets_shows_one() {
    let scratch = Scratch::new("shown");
    Store::open(&scratch.0).unwrap();
    let path = scratch.0.join("secrets.json");
    let text = fs::read_to_string(&path).unwrap();
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    let secret = parsed["secrets"][0]["secret"].as_str().unwrap();
    for damaged in [text.replace(secret, &secret[1..]), text.replace("\"secret\"", "\"id\"")] {
        fs::write(&path, damaged).unwrap();
        let error = Keyring::open(&scratch.0).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(&secret[1..]), "{shown}");
    }
}

#[test]
fn a_lost_index_brings_no_revoked_key_back() {
    let scratch = Scratch::new("lost");
    let store = Store::open(&scratch.0).unwrap();
    let (_, issued) = store.issue(order("*", &[Access::Run])).unwrap();
    store.revoke(&issued.id).unwrap();
    fs::remove_file(scratch.0.join("keys.json")).unwrap();
    let error = Keyring::open(&scratch.0).unwrap_err();
    assert!(error.to_string().contains("keys.json"), "{error}");
    // Without secrets there is nothing that a key could be verified with: that is a new beginning.
    fs::remove_file(scratch.0.join("secrets.json")).unwrap();
    assert!(Keyring::open(&scratch.0).is_ok());
}

#[test]
fn secrets_that_others_can_read_are_refused() {
    let scratch = Scratch::new("exposed");
    Store::open(&scratch.0).unwrap();
    let path = scratch.0.join("secrets.json");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let error = Keyring::open(&scratch.0).unwrap_err();
    assert!(matches!(error, KeysError::Exposed { mode: 0o640, .. }), "{error}");
}

#[test]
fn orders_that_make_no_sense_are_refused() {
    let scratch = Scratch::new("sense");
    let store = Store::open(&scratch.0).unwrap();
    for name in ["", "a\nb", "\x1b[2J", &"x".repeat(64)] {
        let refused = KeyRequest { name: Some(name.to_owned()), ..order("*", &[Access::Run]) };
        assert!(matches!(store.issue(refused), Err(KeysError::Label(_))), "{name:?}");
    }
    let late = KeyRequest { expires_at_ms: Some(store::now_ms()), ..order("*", &[Access::Run]) };
    assert!(matches!(store.issue(late), Err(KeysError::ExpiredAlready)));
}

#[test]
fn what_a_key_has_issued_ends_with_it() {
    let scratch = Scratch::new("issued");
    let store = Store::open(&scratch.0).unwrap();
    let issue = |by: Option<&Issued>| {
        let issued_by = by.map(|key| key.id.clone());
        store.issue(KeyRequest { issued_by, ..order("*", &[Access::Admin]) }).map(|made| made.1)
    };
    let first = issue(None).unwrap();
    let second = issue(Some(&first)).unwrap();
    let third = issue(Some(&second)).unwrap();
    let other = issue(None).unwrap();
    let of_other = issue(Some(&other)).unwrap();
    let valid = || {
        let all = store.list().unwrap().into_iter();
        let valid = all.filter(|(_, standing)| *standing == Standing::Valid);
        valid.map(|(key, _)| key.id).collect::<Vec<_>>()
    };
    let ids = |keys: &[&Issued]| keys.iter().map(|key| key.id.clone()).collect::<Vec<_>>();
    store.revoke(&second.id).unwrap();
    assert_eq!(valid(), ids(&[&first, &other, &of_other]));
    assert!(issue(Some(&third)).is_err(), "it was let in, and revoked meanwhile");
    // What the holder of an old key has had signed by the new secret goes with the old one.
    store.rotate(Rotation::Begin).unwrap();
    let late = issue(Some(&other)).unwrap();
    let own = issue(None).unwrap();
    assert_eq!(valid(), ids(&[&first, &other, &of_other, &late, &own]));
    store.rotate(Rotation::Finish).unwrap();
    assert_eq!(valid(), ids(&[&own]));
}

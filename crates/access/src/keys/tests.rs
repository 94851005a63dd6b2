mod forged;
mod kept;
mod ssh;

use std::path::PathBuf;

use super::secret::Secret;
use super::*;

/// A directory of its own for a test, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("burrow-keys-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn order(namespace: &str, scopes: &[Access]) -> KeyRequest {
    KeyRequest {
        namespace: namespace.parse().unwrap(),
        scopes: Scopes::of(scopes).unwrap(),
        expires_at_ms: Some(store::now_ms() + 3_600_000),
        name: None,
        issued_by: None,
    }
}

#[test]
fn greater_scopes_hold_the_smaller() {
    let allowed = |scopes: &[Access]| {
        let scopes = Scopes::of(scopes).unwrap();
        Access::ALL.map(|access| scopes.allow(access))
    };
    assert_eq!(allowed(&[Access::Read]), [true, false, false]);
    assert_eq!(allowed(&[Access::Run]), [true, true, false]);
    assert_eq!(allowed(&[Access::Admin]), [true, true, true]);
    assert_eq!(allowed(&[Access::Admin, Access::Read]), [true, true, true]);
    assert_eq!(Scopes::of(&[]), None);
    assert_eq!(Scopes::of(&[Access::Run]).unwrap().to_string(), "read,run");
    assert!("write".parse::<Access>().is_err() && "Run".parse::<Access>().is_err());
}

#[test]
fn a_key_of_one_namespace_is_good_for_no_other() {
    let one: Namespaces = "team".parse().unwrap();
    assert!(one.covers(&"team".parse().unwrap()) && !one.covers(&"tea".parse().unwrap()));
    let all: Namespaces = "*".parse().unwrap();
    assert!(all.covers(&"anything".parse().unwrap()));
    assert!("".parse::<Namespaces>().is_err() && "a/b".parse::<Namespaces>().is_err());
}

#[test]
fn what_must_not_be_seen_is_not_in_debug() {
    let scratch = Scratch::new("debug");
    let store = Store::open(&scratch.0).unwrap();
    let (key, issued) = store.issue(order("*", &[Access::Run])).unwrap();
    let keyring = Keyring::open(&scratch.0).unwrap();
    let grant = keyring.verify(key.expose()).unwrap();
    let secrets = std::fs::read_to_string(scratch.0.join("secrets.json")).unwrap();
    let secrets: serde_json::Value = serde_json::from_str(&secrets).unwrap();
    let secret = secrets["secrets"][0]["secret"].as_str().unwrap();
    let (_, signature) = key.expose().rsplit_once('.').unwrap();
    let files = store.read().unwrap();
    let shown = format!("{key:?} {issued:?} {keyring:?} {grant:?} {files:?}");
    assert!(!shown.contains(secret) && !shown.contains(signature), "{shown}");
    // As numbers neither.
    assert!(!shown.contains("bytes: ["), "{shown}");
    assert_eq!(format!("{:?}", Secret::draw().unwrap()), "Secret(..)");
}

#[test]
fn the_client_learns_more_only_where_the_signature_was_ours() {
    let id: KeyId = "0123456789ab".parse().unwrap();
    let silent = [
        Denied::Malformed("it has no parts"),
        Denied::BadSignature,
        Denied::Unknown { id: id.clone() },
    ];
    for denied in &silent {
        assert_eq!((denied.explanation(), denied.code()), (silent[0].explanation(), "key_invalid"));
        assert!(denied.is_suspect());
    }
    let open = [
        Denied::Missing,
        Denied::Expired { at_ms: 1 },
        Denied::Revoked { id, at_ms: 1 },
        Denied::NotYetValid { from_ms: 1 },
    ];
    assert!(open.iter().all(|denied| !denied.is_suspect()));
}

#[test]
fn a_pasted_key_is_not_repeated_in_the_error() {
    let error = "msb_eyJhbGciOiJIUzI1NiJ9.secret.secret".parse::<KeyId>().unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn a_flood_of_bad_keys_stays_cheap() {
    const KEYS: u32 = 20_000;
    let scratch = Scratch::new("flood");
    let store = Store::open(&scratch.0).unwrap();
    // As many secrets as there may be.
    while store.rotate(Rotation::Begin).is_ok() {}
    let (key, _) = store.issue(order("team", &[Access::Run])).unwrap();
    let keyring = Keyring::open(&scratch.0).unwrap();
    assert!(keyring.verify(key.expose()).is_ok());
    // The form is right, so that every secret is tried.
    let (signed, signature) = key.expose().rsplit_once('.').unwrap();
    let bad = format!("{signed}.{}A", &signature[1..42].replace('A', "B").repeat(2)[..42]);
    let began = std::time::Instant::now();
    for _ in 0..KEYS {
        assert_eq!(keyring.verify(&bad), Err(Denied::BadSignature));
    }
    // A hundredth of what this allows is what it takes.
    let each = began.elapsed() / KEYS;
    assert!(each < std::time::Duration::from_micros(500), "{each:?}");
}

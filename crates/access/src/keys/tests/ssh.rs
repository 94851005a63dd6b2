//! SSH keys that stand for issued keys, and what ends that.

use super::*;

fn draw(byte: u8) -> SshKey {
    use base64::Engine as _;
    let kind = b"ssh-ed25519";
    let blob = [&[0, 0, 0, 11][..], kind, &[0, 0, 0, 32], &[byte; 32]].concat();
    let text = base64::engine::general_purpose::STANDARD.encode(blob);
    format!("ssh-ed25519 {text} ada@laptop").parse().unwrap()
}

#[test]
fn an_ssh_key_may_do_what_its_key_allows_until_that_ends() {
    let scratch = Scratch::new("ssh");
    let store = Store::open(&scratch.0).unwrap();
    let keyring = Keyring::open(&scratch.0).unwrap();
    let (_, issued) = store.issue(order("team", &[Access::Run])).unwrap();
    let (one, other) = (draw(1), draw(2));
    assert_eq!(keyring.of_ssh_key(&one), None);
    store.add_ssh_keys(&issued.id, &[one.clone(), one.clone()]).unwrap();
    // It holds at once.
    let grant = keyring.of_ssh_key(&one).unwrap();
    assert_eq!((grant.id.as_ref(), &grant.namespace), (Some(&issued.id), &issued.namespace));
    assert!(grant.may(Access::Run) && !grant.may(Access::Admin));
    assert_eq!(keyring.of_ssh_key(&other), None);
    store.add_ssh_keys(&issued.id, std::slice::from_ref(&other)).unwrap();
    assert_eq!(store.remove_ssh_keys(&issued.id).unwrap().ssh_keys, []);
    let reopened = || Keyring::open(&scratch.0).unwrap();
    assert_eq!(reopened().of_ssh_key(&one), None);
    store.add_ssh_keys(&issued.id, std::slice::from_ref(&one)).unwrap();
    store.revoke(&issued.id).unwrap();
    assert_eq!(reopened().of_ssh_key(&one), None);
}

#[test]
fn an_ssh_key_stands_for_one_key_and_a_dropped_secret_takes_it() {
    let scratch = Scratch::new("ssh-one");
    let store = Store::open(&scratch.0).unwrap();
    let issue = || store.issue(order("team", &[Access::Run])).unwrap().1.id;
    let (first, second) = (issue(), issue());
    store.add_ssh_keys(&first, &[draw(1)]).unwrap();
    let taken = store.add_ssh_keys(&second, &[draw(2), draw(1)]);
    assert!(matches!(taken, Err(KeysError::SshKeyTaken { id, .. }) if id == first));
    let many: Vec<_> = (0..=SSH_KEYS_PER_KEY_MAX as u8).map(|byte| draw(byte + 10)).collect();
    assert!(matches!(store.add_ssh_keys(&second, &many), Err(KeysError::TooManySshKeys)));
    assert!(store.list().unwrap()[1].0.ssh_keys.is_empty(), "all or nothing");
    let keyring = || Keyring::open(&scratch.0).unwrap();
    assert!(keyring().of_ssh_key(&draw(1)).is_some());
    store.rotate(Rotation::Replace).unwrap();
    assert_eq!(keyring().of_ssh_key(&draw(1)), None);
}

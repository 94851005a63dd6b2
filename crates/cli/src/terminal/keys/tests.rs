use super::{Command, KeyError, Keys};

const P: u8 = 0x10;
const Q: u8 = 0x11;
const T: u8 = 0x14;

/// Feeds `pieces` in order; returns what was forwarded, and the commands.
fn play(keys: &mut Keys, pieces: &[&[u8]]) -> (Vec<u8>, Vec<Command>) {
    let (mut forward, mut commands) = (Vec::new(), Vec::new());
    for piece in pieces {
        let mut rest = *piece;
        while let Some((command, taken)) = keys.feed(rest, &mut forward) {
            commands.push(command);
            rest = &rest[taken..];
        }
    }
    (forward, commands)
}

#[test]
fn ordinary_bytes_pass_at_once() {
    let every: Vec<u8> = (0..=255).filter(|byte| *byte != P).collect();
    let mut keys = Keys::default();
    assert_eq!(play(&mut keys, &[&every]), (every.clone(), vec![]));
    assert!(!keys.is_holding());
}

#[test]
fn every_split_of_the_input_means_the_same() {
    let cases: [(&[u8], &[u8], &[Command]); 7] = [
        (&[b'a', P, Q, b'b'], b"ab", &[Command::Detach]),
        (&[b'a', P, T, b'b'], b"ab", &[Command::Take]),
        (&[P, b'x'], &[P, b'x'], &[]),
        (&[P, P, Q], &[P], &[Command::Detach]),
        (&[P, P, P, b'x', Q], &[P, P, P, b'x', Q], &[]),
        (&[Q, T, P, T, P, Q], &[Q, T], &[Command::Take, Command::Detach]),
        (&[0, 255, P, 0], &[0, 255, P, 0], &[]),
    ];
    for (input, forward, commands) in cases {
        for mask in 0..1_u32 << (input.len() - 1) {
            let mut pieces: Vec<&[u8]> = Vec::new();
            let mut start = 0;
            for at in 1..input.len() {
                if mask >> (at - 1) & 1 == 1 {
                    pieces.push(&input[start..at]);
                    start = at;
                }
            }
            pieces.push(&input[start..]);
            let played = play(&mut Keys::default(), &pieces);
            assert_eq!(played, (forward.to_vec(), commands.to_vec()), "{input:?} as {pieces:?}");
        }
    }
}

#[test]
fn a_command_says_how_much_it_took() {
    let mut forward = Vec::new();
    let taken = Keys::default().feed(&[b'a', P, Q, b'b', b'c'], &mut forward);
    assert_eq!(taken, Some((Command::Detach, 3)));
    assert_eq!(forward, b"a");
}

#[test]
fn a_lone_key_goes_on_at_once_and_a_slow_second_one_still_completes_the_sequence() {
    let mut keys = Keys::default();
    let mut forward = Vec::new();
    assert_eq!(keys.feed(&[P], &mut forward), None);
    assert!(keys.is_holding() && forward.is_empty());
    keys.expire(&mut forward);
    assert!(!keys.is_holding() && keys.is_begun());
    assert_eq!(forward, [P]);
    assert_eq!(keys.feed(&[Q], &mut forward), Some((Command::Detach, 1)));
    assert_eq!(forward, [P]);
    assert!(!keys.is_begun());
}

#[test]
fn passed_keys_are_passed_once() {
    for next in [b'x', P] {
        let mut keys = Keys::default();
        let mut forward = Vec::new();
        keys.feed(&[P], &mut forward);
        keys.expire(&mut forward);
        keys.expire(&mut forward);
        assert_eq!(keys.feed(&[next], &mut forward), None);
        keys.forget(&mut forward);
        assert_eq!(forward, [P, next]);
    }
}

#[test]
fn a_sequence_that_is_forgotten_is_none() {
    let mut keys = Keys::default();
    let mut forward = Vec::new();
    keys.feed(&[P], &mut forward);
    keys.forget(&mut forward);
    assert!(!keys.is_begun());
    assert_eq!(keys.feed(&[Q], &mut forward), None);
    assert_eq!(forward, [P, Q]);
}

#[test]
fn a_sequence_that_overlaps_itself_is_found() {
    let mut keys: Keys = "a,a,b".parse().expect("a sequence");
    assert_eq!(play(&mut keys, &[b"aaab"]), (b"a".to_vec(), vec![Command::Detach]));
}

#[test]
fn no_sequence_means_that_everything_passes() {
    let mut keys: Keys = "".parse().expect("no keys are fine");
    assert_eq!(play(&mut keys, &[&[P, Q, P, T]]), (vec![P, Q, P, T], vec![]));
    assert_eq!((keys.detach_name(), keys.take_name()), (None, None));
}

#[test]
fn a_single_key_detaches_and_leaves_none_for_taking() {
    let mut keys: Keys = "ctrl-]".parse().expect("a key");
    assert_eq!(keys.take_name(), None);
    assert_eq!(play(&mut keys, &[&[b'x', 0x1d]]), (b"x".to_vec(), vec![Command::Detach]));
}

#[test]
fn names_are_what_a_person_would_write() {
    assert_eq!(Keys::default().detach_name().as_deref(), Some("ctrl-p ctrl-q"));
    assert_eq!(Keys::default().take_name().as_deref(), Some("ctrl-p ctrl-t"));
    let keys: Keys = "ctrl-@,x".parse().expect("keys");
    assert_eq!(keys.detach_name().as_deref(), Some("ctrl-@ x"));
}

#[test]
fn wrong_keys_are_refused_with_the_key() {
    for wrong in ["ctrl-", "ctrl-1", "shift-a", "ctrl-pq", ",", "ä"] {
        assert!(matches!(wrong.parse::<Keys>(), Err(KeyError::Unknown { .. })), "{wrong}");
    }
    assert_eq!("a,a,a,a,a,a,a,a,a".parse::<Keys>(), Err(KeyError::TooLong { count: 9 }));
}

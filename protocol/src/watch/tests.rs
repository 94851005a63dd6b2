use super::*;
use crate::message::Change;

fn events() -> Vec<WatchEvent> {
    let plain = |change, path: &str| WatchEvent { change, path: path.into(), from: None };
    vec![
        plain(Change::Created, "a/b"),
        plain(Change::Overflow, ""),
        WatchEvent { change: Change::Moved, path: "new".into(), from: Some("old".into()) },
        WatchEvent {
            change: Change::Moved,
            path: vec![0xff; PATH_BYTES_MAX + 256].into(),
            from: Some(vec![b'x'; PATH_BYTES_MAX + 256].into()),
        },
    ]
}

#[test]
fn records_are_read_back_whatever_pieces_they_come_in() {
    let mut encoded = Vec::new();
    for event in events() {
        encode_record(&event, &mut encoded);
    }
    let mut at = 0;
    for event in events() {
        let (first, taken) = parse_record(&encoded[at..]).unwrap().expect("it is all there");
        assert_eq!(first, event);
        for cut in 0..taken {
            assert_eq!(parse_record(&encoded[at..at + cut]), Ok(None));
        }
        at += taken;
    }
    assert_eq!(at, encoded.len());
}

#[test]
fn invalid_records_are_refused() {
    let bytes = RECORD_BYTES_MAX + 1;
    let length = (bytes as u32).to_be_bytes();
    assert_eq!(parse_record(&length), Err(RecordError::TooLong { bytes }));
    assert!(matches!(parse_record(&[0, 0, 0, 1, 0xc0]), Err(RecordError::Malformed { .. })));
    assert!(matches!(parse_record(&[0, 0, 0, 0]), Err(RecordError::Malformed { .. })));

    let mut trailing = Vec::new();
    encode_record(&events()[0], &mut trailing);
    trailing[3] += 1;
    trailing.push(0xc0);
    assert!(matches!(parse_record(&trailing), Err(RecordError::Malformed { .. })));
}

use std::collections::BTreeSet;

use ring::rand::SystemRandom;
use serde_json::{Value, json};

use super::*;

fn key() -> Ed25519KeyPair {
    let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap()
}

fn statement() -> Statement {
    let decision = Decision {
        time: "2026-01-31T12:00:00.250Z".to_owned(),
        operation: "egress.connection".to_owned(),
        outcome: crate::audit::Outcome::Refused,
        facts: json!({ "host": "example.org", "port": 443 }).as_object().unwrap().clone(),
    };
    Statement {
        seq: 7,
        issued_at: "2026-01-31T12:00:01.000Z".to_owned(),
        previous: Some("ab".repeat(32)),
        sandbox: Subject {
            namespace: "default".to_owned(),
            name: "work".to_owned(),
            id: "box-1".to_owned(),
            machine: "process".to_owned(),
            image: Some("debian".to_owned()),
            image_digest: Some("sha256:00".to_owned()),
        },
        session: Some("build".to_owned()),
        command: Some("make test".to_owned()),
        started_at: "2026-01-31T12:00:00.000Z".to_owned(),
        ended_at: "2026-01-31T12:00:00.500Z".to_owned(),
        duration_us: 500_000,
        cause: json!({ "exited": { "code": 2 } }),
        exit_code: Some(2),
        outputs: vec![Output {
            output: "stdout".to_owned(),
            bytes: 12,
            dropped: 3,
            sha256: Some("cd".repeat(32)),
        }],
        limits: Limits { memory_mib: Some(512), cpu_millis: Some(1000), scratch_bytes: 1 << 30 },
        egress: vec!["example.com:443".to_owned()],
        decisions: Some(Decisions {
            decided_for: Some(DecidedFor::Sandbox),
            allowed: 1,
            refused: 1,
            listed: vec![decision],
            has_more: true,
        }),
        inputs: Some(ReceivedFiles {
            listed: vec![ReceivedFile {
                time: "2026-01-31T11:59:59.000Z".to_owned(),
                operation: "write_file".to_owned(),
                path: "/work/input.csv".to_owned(),
                place: Some("whole".to_owned()),
                bytes: 9,
                sha256: "ef".repeat(32),
            }],
            has_more: true,
            has_unrecorded: true,
        }),
        stdin: Some(ReceivedInput {
            listed: vec![InputPart {
                time: "2026-01-31T12:00:00.100Z".to_owned(),
                offset: Some(8),
                bytes: 4,
                sha256: "01".repeat(32),
                closed: true,
            }],
            has_more: true,
            is_open: true,
        }),
        run: None,
    }
}

/// Of a run of a context, which has no session.
fn statement_of_run() -> Statement {
    let digested = |text: &str| text.repeat(32);
    let run = ContextRun {
        context: "main".to_owned(),
        run: 3,
        language: "python".to_owned(),
        count: Some(2),
        code: Digested { bytes: 5, sha256: digested("23") },
        displays: vec![DisplayedForm {
            mime: "text/plain".to_owned(),
            bytes: 2,
            sha256: digested("45"),
        }],
        has_more_displays: true,
        error: Some("ValueError".to_owned()),
        state_kept: true,
        cpu_us: Some(1000),
        memory_bytes_peak: Some(1 << 20),
    };
    let cause = json!({ "timed_out": { "limit_ms": 7 } });
    let (session, command, exit_code, stdin) = (None, None, None, None);
    Statement { session, command, exit_code, stdin, cause, run: Some(run), ..statement() }
}

/// All leaves of a document, by their paths.
fn leaves(value: &Value, path: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| leaves(value, &format!("{path}/{name}"), out));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(at, value)| leaves(value, &format!("{path}/{at}"), out));
        }
        _ => drop(out.insert(path.to_owned())),
    }
}

#[test]
fn a_receipt_that_nobody_changed_is_believed() {
    let key = key();
    let receipt = Receipt::sign(statement(), &key);
    let text = serde_json::to_vec_pretty(&receipt).unwrap();
    assert_eq!(Receipt::verify(&text, &public_key(&key)), Ok(receipt));
}

/// A receipt that was issued before its decisions said whose they are.
#[test]
fn a_receipt_of_an_earlier_version_is_believed() {
    let key = key();
    let mut earlier = statement();
    earlier.decisions = earlier.decisions.map(|all| Decisions { decided_for: None, ..all });
    let text = serde_json::to_vec(&Receipt::sign(earlier.clone(), &key)).unwrap();
    assert!(!String::from_utf8_lossy(&text).contains("decided_for"));
    assert_eq!(Receipt::verify(&text, &public_key(&key)).unwrap().statement, earlier);
}

#[test]
fn a_changed_field_is_refused_whichever_it_is() {
    let key = key();
    for (statement, fields) in [(statement(), 43), (statement_of_run(), 46)] {
        refused_if_changed(&key, statement, fields);
    }
}

fn refused_if_changed(key: &Ed25519KeyPair, statement: Statement, fields_min: usize) {
    let receipt = serde_json::to_value(Receipt::sign(statement, key)).unwrap();
    let mut paths = BTreeSet::new();
    leaves(&receipt, "", &mut paths);
    assert!(paths.len() >= fields_min, "every field is there: {paths:?}");
    for path in paths {
        let mut changed = receipt.clone();
        let leaf = changed.pointer_mut(&path).unwrap();
        *leaf = match leaf {
            Value::String(text) => {
                // One bit of one character.
                let mut bytes = text.clone().into_bytes();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                json!(String::from_utf8(bytes).unwrap())
            }
            Value::Number(number) => json!(number.as_u64().unwrap() ^ 1),
            Value::Bool(is) => json!(!*is),
            other => panic!("{path} is {other}"),
        };
        let text = serde_json::to_vec(&changed).unwrap();
        assert!(Receipt::verify(&text, &public_key(key)).is_err(), "{path}");
    }
}

#[test]
fn no_flipped_bit_of_the_file_changes_what_is_believed() {
    let key = key();
    let receipt = Receipt::sign(statement(), &key);
    let text = serde_json::to_vec(&receipt).unwrap();
    for bit in 0..text.len() * 8 {
        let mut flipped = text.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let verified = Receipt::verify(&flipped, &public_key(&key));
        assert!(verified.is_err(), "bit {bit}: {}", String::from_utf8_lossy(&flipped));
    }
}

/// The file is one that a bridge has issued before receipts had inputs.
#[test]
fn a_receipt_of_an_earlier_bridge_is_still_believed() {
    let text = include_str!("tests/earlier.json");
    let key = "VzWZrP8kJPLTq4dbfW7MCAw-UXBmCAqGsU0RXOACte8";
    let receipt = Receipt::verify(text.as_bytes(), key).unwrap();
    assert_eq!((receipt.statement.exit_code, receipt.statement.inputs), (Some(3), None));
    let added = r#""inputs": {"listed": [], "has_more": false}, "decisions": {"#;
    let forged = text.replace("\"decisions\": {", added);
    assert_eq!(Receipt::verify(forged.as_bytes(), key), Err(Invalid::Signature));
}

#[test]
fn another_key_and_no_key_are_refused() {
    let (mine, other) = (key(), key());
    let receipt = Receipt::sign(statement(), &mine);
    let text = serde_json::to_vec(&receipt).unwrap();
    let refused = Receipt::verify(&text, &public_key(&other));
    assert_eq!(refused, Err(Invalid::OtherKey(public_key(&mine))));
    assert_eq!(Receipt::verify(&text, "x"), Err(Invalid::Key("x".to_owned())));
    // Somebody who puts a key of his own into it has signed it himself.
    let mut forged = Receipt::sign(statement(), &other);
    forged.key = public_key(&mine);
    let text = serde_json::to_vec(&forged).unwrap();
    assert_eq!(Receipt::verify(&text, &public_key(&mine)), Err(Invalid::Signature));
}

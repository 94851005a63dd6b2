use protocol::codec::{FrameBuffer, decode_body};
use protocol::frame::{HEADER_BYTES, Kind};
use protocol::limits::FRAME_BYTES_MAX;

use super::*;
use crate::{MachineExit, ProcessIdentity};

fn spec() -> MachineSpec {
    MachineSpec {
        id: "0123456789ab".parse().unwrap(),
        hostname: "box".to_owned(),
        root: PathBuf::from("/"),
        image: None,
        scratch_bytes: SCRATCH_BYTES_MIN,
        scratch_disk: None,
        bounds: bounds::Bounds::default(),
        confinement: confinement::Confinement::default(),
        env: vec![("A".to_owned(), "1".to_owned())],
        secrets: Vec::new(),
        hide: vec!["/etc/shadow".to_owned()],
        directories: None,
        address: None,
        restore: None,
        bind: None,
    }
}

/// A program that plays an agent badly.
fn script(name: &str, body: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("burrow-agent-{}-{name}", std::process::id()));
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path
}

#[test]
fn the_boot_frame_carries_the_whole_description() {
    let mut buffer = FrameBuffer::new();
    buffer.extend(&encode_boot(&spec(), None, None, Vec::new()).unwrap());
    let frame = buffer.take().unwrap().unwrap();
    assert_eq!(frame.kind, Kind::Boot);
    let config: BootConfig = decode_body(frame.kind, frame.body).unwrap();
    assert_eq!((config.sandbox.as_str(), config.root.as_str()), ("0123456789ab", "/"));
    assert_eq!(config.env, spec().env);
    assert!(!config.door, "a machine without directories has no door");
}

#[test]
fn an_estimate_is_never_below_the_frame() {
    let mut spec = spec();
    spec.env = (0..2000).map(|n| (format!("N{n}"), "v".repeat(n % 300))).collect();
    spec.hide = (0..500).map(|n| format!("/hidden/{n}")).collect();
    let frame = encode_boot(&spec, None, None, Vec::new()).unwrap();
    let config: BootConfig = decode_body(Kind::Boot, &frame[HEADER_BYTES..]).unwrap();
    assert!(boot::estimate_bytes(&config) >= frame.len());
}

#[test]
fn an_environment_larger_than_a_frame_is_refused_with_the_numbers() {
    let mut spec = spec();
    spec.env = vec![("BIG".to_owned(), "x".repeat(FRAME_BYTES_MAX))];
    assert!(matches!(
        encode_boot(&spec, None, None, Vec::new()),
        Err(MachineError::TooLarge { .. })
    ));
}

#[test]
fn a_root_that_is_no_directory_is_refused_before_anything_starts() {
    for (root, word) in
        [("/nowhere/at/all", "no such"), ("/etc/passwd", "not a directory"), ("usr", "absolute")]
    {
        let spec = MachineSpec { root: root.into(), ..spec() };
        let message = check(&spec).unwrap_err().to_string();
        assert!(message.contains(word), "{message}");
    }
}

#[tokio::test]
async fn an_agent_that_dies_at_once_is_reported_with_its_last_words() {
    let agent = script("dies", "echo no namespaces here >&2; exit 3");
    let error = ProcessMachine::new(agent.clone()).start(spec()).await.err().unwrap();
    let MachineError::Died { exit, console } = &error else { panic!("{error}") };
    assert_eq!(*exit, MachineExit::Exited { code: 3 });
    assert_eq!(console, "no namespaces here");
    fs::remove_file(agent).unwrap();
}

#[tokio::test]
async fn an_agent_that_cannot_be_executed_is_a_host_error() {
    let machine = ProcessMachine::new(PathBuf::from("/nowhere/agent"));
    let error = machine.start(spec()).await.err().unwrap();
    assert!(matches!(error, MachineError::Host { action: "execute the agent", .. }), "{error}");
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_no_process() {
    let agent = script("hangs", "echo $$ >&2; exec sleep 1000");
    let directory = std::env::temp_dir().join(format!("burrow-half-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let directories = Directories { runtime: directory.clone(), state: directory.clone() };
    let spec = MachineSpec { directories: Some(directories), ..spec() };
    let machine = ProcessMachine::new(agent.clone());
    let mut start = machine.start(spec);
    let console = directory.join(CONSOLE_FILE);
    let pid: u32 = tokio::select! {
        _ = &mut start => panic!("an agent that says nothing has started"),
        pid = async {
            loop {
                let text = fs::read_to_string(&console).unwrap_or_default();
                if let Ok(pid) = text.trim().parse() {
                    break pid;
                }
                tokio::task::yield_now().await;
            }
        } => pid,
    };
    let identity = ProcessIdentity::of(pid).unwrap();
    assert!(directory.join(DOOR).exists());
    drop(start);
    let gone = tokio::time::timeout(KILL_DEADLINE, async {
        while identity.is_current() {
            tokio::task::yield_now().await;
        }
    });
    gone.await.unwrap();
    assert!(!directory.join(DOOR).exists());
    fs::remove_dir_all(directory).unwrap();
    fs::remove_file(agent).unwrap();
}

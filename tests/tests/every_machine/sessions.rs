//! What a client may ask of a session, through the bridge's library against a real agent.

use protocol::requests::{GroupLimits, Program, Release, Signal, Start, Target};
use protocol::{Cause, FaultCode};
use tests::sandbox::{Sandbox, start};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn code_of(error: &agent_client::guest::GuestError) -> Option<FaultCode> {
    error.fault_code()
}

#[test]
fn a_repeated_start_is_the_same_process_and_a_different_one_a_conflict() {
    runtime().block_on(async {
        let sandbox = Sandbox::start().await;
        let ask = start("once", &["sleep", "1000"]);
        let first = sandbox.guest.start(&ask).await.expect("it starts");
        let again = sandbox.guest.start(&ask).await.expect("it is found");
        assert_eq!((first.repeated, again.repeated), (false, true));
        assert_eq!(first.pid, again.pid);
        let other = start("once", &["sleep", "1001"]);
        let refused = sandbox.guest.start(&other).await.expect_err("it differs");
        assert_eq!(code_of(&refused), Some(FaultCode::Conflict));
        sandbox.end().await;
    });
}

#[test]
fn a_failed_start_is_reported_alike_however_often_it_is_asked() {
    runtime().block_on(async {
        let sandbox = Sandbox::start().await;
        let ask = start("never", &["/no/such/program"]);
        for _ in 0..2 {
            let refused = sandbox.guest.start(&ask).await.expect_err("there is none");
            assert_eq!(code_of(&refused), Some(FaultCode::SpawnFailed));
        }
        let record = sandbox.guest.wait(&ask.session).await.expect("a record");
        assert!(matches!(record.cause, Cause::SpawnFailed { .. }), "{:?}", record.cause);
        let kill = Signal { session: ask.session.clone(), signal: 9, target: Target::Tree };
        let refused = sandbox.guest.signal(kill).await.expect_err("nothing runs");
        assert_eq!(code_of(&refused), Some(FaultCode::Gone));
        let alive = sandbox.guest.refresh_info().await;
        assert!(alive.is_ok(), "the agent must not have hit itself");
        sandbox.end().await;
    });
}

/// A leader that ignores TERM, with a child in a session of its own.
const STUBBORN: &str = "trap '' TERM; setsid sleep 1000 & echo ready; while :; do sleep 1; done";

async fn ready(sandbox: &Sandbox, ask: &Start) {
    let (mut output, _) = sandbox
        .guest
        .subscribe(
            &ask.session,
            protocol::message::Channel::Stdout,
            protocol::requests::Origin::Oldest {},
            protocol::requests::Role::Observer {},
        )
        .await
        .expect("it has an output");
    let piece = output.next().await;
    assert!(matches!(piece, agent_client::guest::Piece::Bytes { .. }), "{piece:?}");
}

#[test]
fn a_kill_of_the_tree_leaves_nothing_and_says_who_asked() {
    runtime().block_on(async {
        let mut sandbox = Sandbox::start().await;
        let ask = start("stubborn", &["sh", "-c", STUBBORN]);
        sandbox.guest.start(&ask).await.expect("it starts");
        ready(&sandbox, &ask).await;
        let kill = |signal, target| Signal { session: ask.session.clone(), signal, target };
        sandbox.guest.signal(kill(15, Target::Tree)).await.expect("sent");
        sandbox.guest.signal(kill(9, Target::Tree)).await.expect("sent");
        let record = sandbox.guest.wait(&ask.session).await.expect("a record");
        assert!(matches!(record.cause, Cause::Killed { signal: 9, .. }), "{:?}", record.cause);
        assert_eq!(record.left_behind_count, 0, "{:?}", record.left_behind);
        let ran = sandbox.run(&["sh", "-c", "ps -e -o args | grep -c '[s]leep 1000'"]).await;
        assert_eq!(ran.stdout, b"0\n");
        sandbox.end().await;
    });
}

#[test]
fn a_kill_of_the_leader_leaves_its_children_and_names_them() {
    runtime().block_on(async {
        let sandbox = Sandbox::start().await;
        // Until it has executed, the child is another shell.
        let child = "sleep 1000 & until grep -q sleep /proc/$!/comm; do :; done; echo ready; wait";
        let ask = start("parent", &["sh", "-c", child]);
        sandbox.guest.start(&ask).await.expect("it starts");
        ready(&sandbox, &ask).await;
        let kill = Signal { session: ask.session.clone(), signal: 9, target: Target::Leader };
        sandbox.guest.signal(kill).await.expect("sent");
        let record = sandbox.guest.wait(&ask.session).await.expect("a record");
        assert!(matches!(record.cause, Cause::Killed { signal: 9, .. }), "{:?}", record.cause);
        assert_eq!(record.left_behind_count, 1);
        assert_eq!(record.left_behind[0].command, "sleep 1000");
        let done = Release { session: ask.session, holder: None, kill_survivors: true };
        sandbox.guest.release(done).await.expect("released");
        sandbox.end().await;
    });
}

#[test]
fn a_script_runs_in_the_shell_that_it_names() {
    runtime().block_on(async {
        let mut sandbox = Sandbox::start().await;
        let mut ask = start("script", &["-"]);
        ask.program = Program::Script {
            script: "echo ${BASH_VERSION:+bash} $((6 * 7))".into(),
            shell: Some("/bin/bash".into()),
        };
        let ran = sandbox.run_start(&ask, &[]).await;
        assert_eq!(ran.stdout, b"bash 42\n");
        sandbox.end().await;
    });
}

#[test]
fn arguments_and_environment_that_are_not_utf_8_arrive_as_they_are() {
    runtime().block_on(async {
        let mut sandbox = Sandbox::start().await;
        let mut ask = start("bytes", &["sh", "-c", "printf %s \"$1$X\" | od -An -tx1", "sh"]);
        if let Program::Argv { argv } = &mut ask.program {
            argv.push(vec![0xff, 0xfe].into());
        }
        ask.env = vec![("X".into(), vec![0x80].into())];
        let ran = sandbox.run_start(&ask, &[]).await;
        assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "ff fe 80");
        sandbox.end().await;
    });
}

#[test]
fn limits_that_cannot_be_enforced_are_reported() {
    runtime().block_on(async {
        let sandbox = Sandbox::start().await;
        let mut ask = start("limited", &["true"]);
        ask.limits = GroupLimits { memory_bytes: Some(1 << 30), ..GroupLimits::default() };
        let started = sandbox.guest.start(&ask).await.expect("it starts anyway");
        let controllers = sandbox.guest.info().controllers;
        let held = controllers.iter().any(|controller| controller == "memory");
        assert_eq!(started.warnings.is_empty(), held, "{:?}", started.warnings);
        sandbox.end().await;
    });
}

#[test]
fn a_signal_that_ends_nothing_does_not_hide_who_sent_the_one_that_did() {
    runtime().block_on(async {
        let sandbox = Sandbox::start().await;
        let ask = start("told", &["sh", "-c", "echo ready; exec sleep 1000"]);
        sandbox.guest.start(&ask).await.expect("it starts");
        ready(&sandbox, &ask).await;
        for signal in [15, 18] {
            let send = Signal { session: ask.session.clone(), signal, target: Target::Leader };
            // The second may find it ended, which is as good.
            sandbox.guest.signal(send).await.ok();
        }
        let record = sandbox.guest.wait(&ask.session).await.expect("a record");
        assert!(matches!(record.cause, Cause::Killed { signal: 15, .. }), "{:?}", record.cause);
        sandbox.end().await;
    });
}

#[test]
fn a_start_cannot_name_more_holders_than_there_is_room_for() {
    runtime().block_on(async {
        let sandbox = Sandbox::start().await;
        let mut ask = start("held", &["true"]);
        ask.holders = (0..9).map(|number| format!("holder-{number}")).collect();
        let refused = sandbox.guest.start(&ask).await.expect_err("too many");
        assert_eq!(code_of(&refused), Some(FaultCode::Invalid));
        sandbox.end().await;
    });
}

#[test]
fn a_list_of_lasting_sessions_is_not_about_those_that_die_with_their_client() {
    runtime().block_on(async {
        let sandbox = Sandbox::start().await;
        let guest = sandbox.guest.clone();
        let lasting = start("lasting", &["sleep", "1000"]);
        guest.start(&lasting).await.expect("it starts");
        let held = Start { holders: vec!["somebody".to_owned()], ..start("held", &["true"]) };
        guest.start(&Start { tied: true, ..held }).await.expect("it starts");
        guest.wait(&"held".parse().expect("an id")).await.expect("it ends");
        let list = guest.lasting_sessions(0).await.expect("a list");
        let named = |list: &[protocol::message::SessionInfo]| {
            list.iter().map(|info| info.session.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(named(&list.sessions), ["held", "lasting"]);

        let next = guest.lasting_sessions(list.version);
        tokio::pin!(next);
        let tied = Start { tied: true, ..start("tied", &["true"]) };
        let run = async {
            guest.start(&tied).await.expect("it starts");
            guest.wait(&tied.session).await.expect("it ends");
            let done =
                Release { session: tied.session.clone(), holder: None, kill_survivors: false };
            guest.release(done).await.expect("released");
            // The list of all contains it by now.
            assert!(guest.sessions(0).await.expect("a list").version > list.version);
        };
        tokio::select! {
            biased;
            list = &mut next => panic!("a tied session is no news: {list:?}"),
            () = run => {}
        }
        let release =
            Release { session: lasting.session.clone(), holder: None, kill_survivors: true };
        let signal = Signal { session: lasting.session.clone(), signal: 9, target: Target::Tree };
        guest.signal(signal).await.expect("it is killed");
        let list = next.await.expect("its end is news");
        assert_eq!(named(&list.sessions), ["held", "lasting"]);
        assert!(list.sessions[1].exit.is_some());
        guest.release(release).await.expect("released");
        sandbox.end().await;
    });
}

#[test]
fn the_subject_of_a_failed_start_is_cut_to_a_bounded_text() {
    runtime().block_on(async {
        let sandbox = Sandbox::start().await;
        let long = "x".repeat(100_000);
        for number in 0..20 {
            let ask = start(&format!("long-{number}"), &[&long]);
            sandbox.guest.start(&ask).await.expect_err("there is none");
        }
        let list = sandbox.guest.sessions(0).await.expect("the list fits a frame");
        assert_eq!(list.sessions.len(), 20);
        sandbox.end().await;
    });
}

//! A sandbox that gets another host: what it is from then on, and what lives on.

use std::time::Duration;

use agent_client::guest::{Address, Adoption, Guest, LinkError, Options};
use agent_client::program::{Event, Program};
use protocol::hello::GoodbyeReason;
use protocol::message::Channel;
use protocol::repl::Happening;
use protocol::{Cause, FaultCode, Text};
use tests::contexts::{context, run, stdout};
use tests::sandbox::{Sandbox, start};
use tests::served::Served;
use tests::{PATIENCE, have_or_skip};

fn variables(env: &[(&str, &str)]) -> Vec<(Text, Text)> {
    env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

fn adoption(env: &[(&str, &str)]) -> Adoption {
    Adoption { env: variables(env), ..Adoption::default() }
}

/// Prints some numbers before it may continue and some after.
const NUMBERS: &str = "i=0; while [ $i -lt 5000 ]; do echo $i; i=$((i+1)); done; read go; \
     while [ $i -lt 10000 ]; do echo $i; i=$((i+1)); done";

#[tokio::test]
async fn an_adopted_sandbox_has_another_identity_and_its_sessions_live_on() {
    let mut sandbox = Sandbox::start_as(|spec| spec.env = vec![("OLD".into(), "old".into())]).await;
    let before = sandbox.guest.agent_id();
    let mut numbers = start("numbers", &["sh", "-c", NUMBERS]);
    numbers.stdio = protocol::requests::Stdio::Pipes { stdin: true };
    numbers.tied = true;
    let mut execution = Program::from(numbers.clone()).begin(&sandbox.guest).expect("a session");
    let mut input = execution.take_input().expect("its input");
    let mut output = Vec::new();
    while output.len() < 1000 {
        if let Event::Output { bytes, .. } = execution.next().await.expect("output").expect("more")
        {
            output.extend_from_slice(&bytes);
        }
    }

    let order = Adoption {
        hostname: Some("another".to_owned()),
        ..adoption(&[("NEW", "new"), ("OLD", "newer")])
    };
    let adopted = sandbox.guest.adopt(order).await.expect("it is adopted");
    assert!(!adopted.stepped, "the clock is the host's own");
    assert!(adopted.drift_us.abs() < 10_000_000, "{} us", adopted.drift_us);
    assert_eq!((adopted.frozen_ms, &adopted.warnings[..]), (0, &[][..]));
    assert_ne!(adopted.agent, before);
    assert_eq!(sandbox.guest.agent_id(), adopted.agent, "the link knows without a new dial");
    assert_eq!(sandbox.guest.refresh_info().await.expect("info").hostname, "another");

    input.write(b"go\n").await.expect("the keyboard is still ours");
    input.finish().await.expect("the end of the input");
    let exited = loop {
        match execution.next().await.expect("events").expect("its end") {
            Event::Output { channel: Channel::Stdout, bytes, .. } => {
                output.extend_from_slice(&bytes);
            }
            Event::Ended(ended) => break ended.record,
            _ => {}
        }
    };
    while let Some(event) = execution.next().await.expect("the rest") {
        if let Event::Output { bytes, .. } = event {
            output.extend_from_slice(&bytes);
        }
    }
    assert_eq!(exited.cause, Cause::Exited { code: 0 });
    let expected = tests::lines("", 0..10_000);
    assert!(
        String::from_utf8(output).expect("UTF-8") == expected,
        "nothing was lost or said twice"
    );

    let words =
        "echo $OLD $NEW; cat /proc/sys/kernel/hostname /etc/hostname; grep -c another /etc/hosts";
    let ran = sandbox.run(&["sh", "-c", words]).await;
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "newer new\nanother\nanother\n1\n");

    // Once more: each time it is another.
    let again = sandbox.guest.adopt(Adoption::default()).await.expect("it is adopted");
    assert!(again.agent != adopted.agent && again.token != adopted.token);
    let ran = sandbox.run(&["sh", "-c", "echo $OLD $NEW"]).await;
    assert_eq!(ran.stdout, b"newer new\n", "what is not named stays");
    sandbox.end().await;
}

#[tokio::test]
async fn an_interpreter_that_has_run_nothing_gets_the_new_environment() {
    if !have_or_skip("python3") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let pid = async |name: &str| {
        let contexts = sandbox.guest.contexts().await.expect("contexts");
        let found = contexts.iter().find(|info| info.context.as_str() == name).expect("it is open");
        found.interpreter.as_ref().map(|interpreter| interpreter.pid)
    };
    let look = "import os; print(os.environ.get('NEW'))";
    sandbox.guest.open_context(&context("warm:python")).await.expect("a context");
    sandbox.guest.open_context(&context("used:python")).await.expect("a context");
    run(&sandbox.guest, "used:python", "kept = 7").await;
    let (warm, used) = (pid("warm").await, pid("used").await);

    sandbox.guest.adopt(Adoption::default()).await.expect("it is adopted");
    assert_eq!(pid("warm").await, warm, "nothing is new for it");
    sandbox.guest.adopt(adoption(&[("NEW", "new")])).await.expect("it is adopted");
    let first = run(&sandbox.guest, "warm:python", look).await;
    assert_eq!(stdout(&first), "new\n");
    let is_lost = |event: &protocol::repl::Event| match &event.what {
        Happening::Started(started) => started.lost.is_some() || started.count != 1,
        Happening::Lost { .. } => true,
        _ => false,
    };
    assert!(!first.events.iter().any(is_lost), "nothing was lost: {:?}", first.events);
    assert_ne!(pid("warm").await, warm);

    // One that has run something keeps what it has.
    assert_eq!(stdout(&run(&sandbox.guest, "used:python", "print(kept)").await), "7\n");
    assert_eq!(stdout(&run(&sandbox.guest, "used:python", look).await), "None\n");
    assert_eq!(pid("used").await, used);

    // A clone's interpreter is exchanged whatever the environment is, one that is starting too.
    sandbox.guest.open_context(&context("clone:python")).await.expect("a context");
    let clone = pid("clone").await;
    let restored = Adoption { restored: true, ..Adoption::default() };
    sandbox.guest.adopt(restored.clone()).await.expect("it is adopted");
    sandbox.guest.adopt(restored).await.expect("it is adopted");
    assert_eq!(stdout(&run(&sandbox.guest, "clone:python", look).await), "new\n");
    assert_ne!(pid("clone").await, clone);
    sandbox.end().await;
}

#[tokio::test]
async fn an_adoption_that_makes_no_sense_changes_nothing() {
    let mut sandbox = Sandbox::start().await;
    let before = sandbox.guest.agent_id();
    let with_name =
        |name: &str| Adoption { hostname: Some(name.to_owned()), ..Adoption::default() };
    let wrong =
        [adoption(&[("A=B", "1")]), adoption(&[("A", "x\0y")]), with_name(""), with_name("-a b")];
    for ask in wrong {
        let refused = sandbox.guest.adopt(ask).await.expect_err("it makes no sense");
        assert_eq!(refused.fault_code(), Some(FaultCode::Invalid), "{refused}");
    }
    let huge = "x".repeat(500_000);
    sandbox.guest.adopt(adoption(&[("A", &huge)])).await.expect("there is room for one");
    let refused = sandbox.guest.adopt(adoption(&[("B", &huge)])).await.expect_err("not for two");
    assert_eq!(refused.fault_code(), Some(FaultCode::Limit), "{refused}");
    assert_ne!(sandbox.guest.agent_id(), before);
    sandbox.guest.adopt(adoption(&[("A", "small")])).await.expect("room again");
    assert_eq!(sandbox.run(&["sh", "-c", "echo $A"]).await.stdout, b"small\n");
    sandbox.end().await;
}

async fn connect(agent: &Served) -> Guest {
    let address = Address::Unix { path: agent.socket.clone() };
    let options = Options { connect_deadline: PATIENCE, ..Options::default() };
    Guest::connect(address, options).await.expect("the agent answers")
}

#[tokio::test]
async fn an_adoption_puts_every_other_host_out_and_leaves_what_it_had_started() {
    let agent = Served::new();
    let (former, host) = (connect(&agent).await, connect(&agent).await);
    let mut sleeper = start("sleeper", &["sleep", "1000"]);
    sleeper.tied = true;
    sleeper.holders = vec!["log".to_owned()];
    former.start(&sleeper).await.expect("a session");
    let waiting = former.wait_now(&sleeper.session).expect("a request");

    host.adopt(Adoption::default()).await.expect("it is adopted");
    let lost = tokio::time::timeout(PATIENCE, former.lost()).await.expect("it is put out");
    assert!(matches!(&lost, LinkError::Refused { reason: GoodbyeReason::Replaced, .. }), "{lost}");
    assert!(waiting.await.is_err());
    let sessions = host.sessions(0).await.expect("a list").sessions;
    assert_eq!(sessions.len(), 1);
    assert!(sessions[0].exit.is_none(), "what was tied to the former host lives on");
    // It is the new host's to take along.
    host.close().await;
    let looker = connect(&agent).await;
    let record = looker.wait(&sleeper.session).await.expect("its end");
    assert!(matches!(record.cause, Cause::Killed { .. }), "{:?}", record.cause);
}

#[tokio::test]
async fn an_agent_that_shares_its_machine_keeps_the_machines_name() {
    let agent = Served::new();
    let guest = connect(&agent).await;
    let before = guest.agent_id();
    let ask = Adoption { hostname: Some("another".to_owned()), ..Adoption::default() };
    let refused = guest.adopt(ask).await.expect_err("the name is not its own");
    assert_eq!(refused.fault_code(), Some(FaultCode::Unsupported), "{refused}");
    assert_eq!(guest.agent_id(), before);
    assert!(!guest.info().machine);
    tokio::time::timeout(Duration::from_secs(5), guest.close()).await.expect("it closes");
}

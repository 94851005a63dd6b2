use super::*;

#[tokio::test]
async fn a_supervisor_of_an_earlier_bridge_is_found_and_its_end_noticed() {
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let identity = ProcessIdentity::of(child.id()).unwrap();
    let found = Supervisor::find(&identity).unwrap().unwrap();
    assert_eq!(found.exited_within(Duration::from_millis(10)).await, None);
    found.kill();
    assert_eq!(found.exited_within(KILL_DEADLINE).await, Some(MachineExit::Gone));
    child.wait().unwrap();
    assert!(Supervisor::find(&identity).unwrap().is_none());
}

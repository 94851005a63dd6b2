use super::*;

#[test]
fn a_name_full_of_parentheses_does_not_hide_the_start_time() {
    let numbers = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
    let stat = format!("42 (a) b) S {numbers}");
    assert_eq!(parse_stat(&stat), Some((4711, 'S')));
    assert_eq!(parse_stat("42 (cut"), None);
    assert_eq!(parse_stat("42 (short) S 1 2"), None);
}

#[test]
fn this_process_is_found_and_another_start_time_is_not_it() {
    let me = ProcessIdentity::of(std::process::id()).unwrap();
    assert!(me.is_current());
    assert!(me.open().unwrap().is_some());
    let other = ProcessIdentity { started_ticks: me.started_ticks + 1, ..me.clone() };
    assert!(!other.is_current());
    assert!(other.open().unwrap().is_none());
    let earlier_boot = ProcessIdentity { boot_id: "another".to_owned(), ..me };
    assert!(earlier_boot.open().unwrap().is_none());
}

#[test]
fn a_process_that_ended_is_not_current_even_before_it_is_reaped() {
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let identity = ProcessIdentity::of(child.id()).unwrap();
    assert!(identity.is_current());
    child.kill().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while identity.is_current() {
        assert!(std::time::Instant::now() < deadline, "the killed child still counts as current");
        std::thread::yield_now();
    }
    child.wait().unwrap();
    assert!(identity.open().unwrap().is_none());
}

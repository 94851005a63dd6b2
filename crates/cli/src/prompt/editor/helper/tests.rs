use super::*;

fn found(start: usize, matches: &[&str]) -> Found {
    Found { start, matches: matches.iter().map(ToString::to_string).collect() }
}

#[test]
fn offsets_of_the_code_become_those_of_the_line() {
    let fit = fitting(found(10, &["print("]), 8, "  pri", 5);
    assert_eq!(fit, Some((2, vec!["print(".to_owned()])));
}

#[test]
fn completions_for_another_place_are_ignored() {
    assert_eq!(fitting(found(3, &["x"]), 8, "  pri", 5), None, "above the line");
    assert_eq!(fitting(found(14, &["x"]), 8, "  pri", 5), None, "behind the cursor");
    assert_eq!(fitting(found(1, &["x"]), 0, "äx", 3), None, "within a character");
    assert_eq!(fitting(found(usize::MAX, &["x"]), 0, "x", 1), None);
}

#[test]
fn a_match_draws_nothing_but_itself() {
    let long = "x".repeat(10_000);
    let fit = fitting(found(0, &["ok", "", "\x1b[2J", "a\nb", "\u{9b}", &long]), 0, "o", 1);
    assert_eq!(fit, Some((0, vec!["ok".to_owned()])));
    let many = vec!["x"; 10_000];
    assert_eq!(fitting(found(0, &many), 0, "x", 1).expect("fits").1.len(), MATCHES_MAX);
}

#[test]
fn nobody_who_answers_is_no_hang() {
    let (ask, mut questions) = mpsc::channel(1);
    let helper = Helper::new("    ", ask);
    assert_eq!(helper.find("", "x", 1), None);
    // The question was asked and not answered, and there is no room for the next.
    assert_eq!(helper.find("", "x", 1), None);
    assert!(matches!(questions.try_recv(), Ok(EditorEvent::Complete(_))));
}

use super::*;

/// Paths that go away with their test.
struct TestDirectory(Paths);

impl TestDirectory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("history-{}-{name}", std::process::id()));
        Self(Paths { runtime: path.join("run"), state: path })
    }

    fn open(&self) -> (History, Vec<String>) {
        History::open(&self.0, "python").expect("opened")
    }

    fn file(&self) -> PathBuf {
        self.0.state.join("history/python")
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0.state).expect("removed");
    }
}

#[test]
fn typed_input_is_in_the_history() {
    let place = TestDirectory::new("again");
    let (mut history, entries) = place.open();
    assert!(entries.is_empty());
    let typed = ["x = 1", "def f():\n    return \"\\n\"\n", "größe"];
    for entry in typed {
        assert!(history.add(entry).expect("added"));
    }
    // Nothing was closed or saved: whatever ends us, the entry exists.
    assert_eq!(place.open().1, typed);
    assert_eq!(fs::metadata(place.file()).expect("there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn blank_and_private_inputs_are_not_kept() {
    let place = TestDirectory::new("not-kept");
    let (mut history, _) = place.open();
    assert!(history.add("x").expect("added"));
    for entry in ["x", "", "  ", " token = 'secret'", &"x".repeat(ENTRY_BYTES_MAX + 1)] {
        assert!(!history.add(entry).expect("no error"), "{entry}");
    }
    assert_eq!(place.open().1, ["x"]);
}

#[test]
fn a_history_has_a_bound() {
    let place = TestDirectory::new("bound");
    let (mut history, _) = place.open();
    for number in 0..ENTRIES_MAX + 10 {
        history.add(&number.to_string()).expect("added");
    }
    let (_, entries) = place.open();
    assert_eq!(entries.len(), ENTRIES_MAX);
    assert_eq!(entries[0], "10");
    let lines = fs::read_to_string(place.file()).expect("read").lines().count();
    assert_eq!(lines, ENTRIES_MAX);
}

#[test]
fn invalid_entries_are_skipped() {
    let place = TestDirectory::new("skipped");
    drop(place.open());
    fs::write(place.file(), b"\"a\"\nnonsense\n\xff\xfe\n\"b\"\n\"cut of").expect("written");
    assert_eq!(place.open().1, ["a", "b"]);
}

#[test]
fn a_language_is_no_path() {
    assert_eq!(file_name("../../etc/passwd"), "etcpasswd");
    assert_eq!(file_name("/"), "other");
}

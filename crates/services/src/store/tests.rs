//! A store in a directory of its own for each test.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use super::history::{RunFilter, RunRow};
use super::notebooks::{NotebookInsert, NotebookRow, Totals};
use super::*;

struct TestDirectory(Paths);

impl TestDirectory {
    fn new(name: &str) -> Self {
        let state =
            std::env::temp_dir().join(format!("burrow-store-{name}-{}", std::process::id()));
        fs::create_dir_all(&state).unwrap();
        Self(Paths { runtime: state.clone(), state })
    }

    async fn open(&self) -> Store {
        Store::open(&self.0).await.unwrap()
    }

    /// Waits until a store that was dropped is closed: its thread does that, and the last to close takes
    /// the log away.
    async fn closed(&self) {
        let log = self.0.store().with_extension("db-wal");
        let until = Instant::now() + Duration::from_secs(60);
        while log.exists() {
            assert!(Instant::now() < until, "the store is not closed");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0.state);
    }
}

fn notebook(id: &str) -> NotebookRow {
    NotebookRow {
        namespace: "team".to_owned(),
        id: id.to_owned(),
        language: "python".to_owned(),
        created_ms: 5,
        used_ms: 5,
        place: "{}".to_owned(),
        seat: None,
        saved: None,
        unsaved_runs: 0,
        totals: Totals::default(),
    }
}

fn run(code: &str, started_ms: u64) -> RunRow {
    RunRow {
        namespace: "team".to_owned(),
        notebook: "a".to_owned(),
        started_ms,
        duration_us: 10,
        status: "ok".to_owned(),
        code: code.to_owned(),
        cache_hit: Some(code == "again"),
        ..RunRow::default()
    }
}

#[tokio::test]
async fn a_notebook_and_its_history_are_there_after_a_restart() {
    let place = TestDirectory::new("restart");
    let store = place.open().await;
    assert_eq!(store.add_notebook(notebook("a")).await.unwrap(), NotebookInsert::Made);
    assert_eq!(store.add_run(run("x = 1", 7)).await.unwrap(), Some(1));
    assert_eq!(store.add_run(run("again", 8)).await.unwrap(), Some(2));
    store.set_seat("team", "a", Some("here".to_owned())).await.unwrap();
    drop(store);

    let store = place.open().await;
    let found = store.notebook("team", "a").await.unwrap().expect("the notebook");
    assert_eq!(found.seat.as_deref(), Some("here"));
    assert_eq!(found.used_ms, 8);
    assert_eq!(found.totals, Totals { runs: 2, runs_us: 20, cache_hits: 1, cache_misses: 1 });
    let asked = RunFilter { limit: 10, ..RunFilter::default() };
    let history = store.history(asked.clone()).await.unwrap();
    let told: Vec<_> = history.iter().map(|run| (run.number, run.code.as_str())).collect();
    assert_eq!(told, [(2, "again"), (1, "x = 1")]);
    assert_eq!(read(&place.0, |c| history::history(c, &asked)).unwrap(), Some(history));
}

#[tokio::test]
async fn runs_that_were_cancelled_have_changed_nothing_and_what_was_told_is_owed_no_more() {
    let place = TestDirectory::new("unsaved");
    let store = place.open().await;
    store.add_notebook(notebook("a")).await.unwrap();
    for status in ["ok", "cancelled", "died", "abandoned", "cancelled"] {
        store.add_run(RunRow { status: status.to_owned(), ..run("x", 1) }).await.unwrap();
    }
    let owed = async || {
        let listed = store.notebooks(None).await.unwrap().remove(0).unsaved_runs;
        let found = store.notebook("team", "a").await.unwrap().expect("it").unsaved_runs;
        assert_eq!(listed, found);
        found
    };
    assert_eq!(owed().await, 3);
    store.set_saved("team", "a", "{}".to_owned(), 1).await.unwrap();
    assert_eq!((owed().await, store.changes_behind("team", "a", 3).await.unwrap()), (2, 1));
    store.set_saved_run("team", "a", 4).await.unwrap();
    assert_eq!(owed().await, 0);
    // What was told stays told.
    store.set_saved_run("team", "a", 2).await.unwrap();
    assert_eq!((owed().await, store.changes_behind("team", "a", 1).await.unwrap()), (0, 2));
}

#[tokio::test]
async fn a_taken_name_is_found_and_a_full_namespace_is_said() {
    let place = TestDirectory::new("taken");
    let store = place.open().await;
    assert_eq!(store.add_notebook(notebook("a")).await.unwrap(), NotebookInsert::Made);
    let again = store.add_notebook(NotebookRow { created_ms: 9, ..notebook("a") }).await.unwrap();
    assert_eq!(again, NotebookInsert::Found(Box::new(notebook("a"))));
    for at in 1..limits::NOTEBOOKS_MAX {
        assert_eq!(
            store.add_notebook(notebook(&format!("n{at}"))).await.unwrap(),
            NotebookInsert::Made
        );
    }
    let full = store.add_notebook(notebook("more")).await.unwrap();
    assert_eq!(full, NotebookInsert::Full { max: limits::NOTEBOOKS_MAX });
}

#[tokio::test]
async fn a_removed_notebook_takes_its_history_along() {
    let place = TestDirectory::new("removed");
    let store = place.open().await;
    store.add_notebook(notebook("a")).await.unwrap();
    store.add_run(run("x", 1)).await.unwrap();
    assert!(store.remove_notebook("team", "a").await.unwrap());
    assert!(!store.remove_notebook("team", "a").await.unwrap());
    assert_eq!(store.add_run(run("x", 1)).await.unwrap(), None);
    let asked = RunFilter { limit: 10, ..RunFilter::default() };
    assert_eq!(store.history(asked).await.unwrap(), []);
}

#[tokio::test]
async fn what_is_long_is_kept_by_its_beginning_in_whole_characters() {
    let place = TestDirectory::new("long");
    let store = place.open().await;
    store.add_notebook(notebook("a")).await.unwrap();
    let long = "é".repeat(HISTORY + 1);
    store.add_run(RunRow { stdout: format!("a{long}"), ..run("x", 1) }).await.unwrap();
    let asked = RunFilter { limit: 10, ..RunFilter::default() };
    let stdout = store.history(asked).await.unwrap().remove(0).stdout;
    assert_eq!(stdout.len(), HISTORY - 1);
}

const HISTORY: usize = limits::HISTORY_OUTPUT_BYTES_MAX;

#[tokio::test]
async fn a_damaged_store_and_one_of_a_newer_bridge_are_refused_in_words() {
    let place = TestDirectory::new("damaged");
    drop(place.open().await);
    place.closed().await;
    let connection = Connection::open(place.0.store()).unwrap();
    connection.pragma_update(None, "user_version", 4000).unwrap();
    drop(connection);
    let refusal = Store::open(&place.0).await.err().expect("a refusal").to_string();
    assert!(refusal.contains("newer bridge (version 4000"), "{refusal}");
    fs::write(place.0.store(), "this has never been a store, and is long enough to be none")
        .unwrap();
    let refusal = Store::open(&place.0).await.err().expect("a refusal").to_string();
    assert!(refusal.contains("damaged"), "{refusal}");
    assert!(fs::read_to_string(place.0.store()).unwrap().starts_with("this"), "left as it was");
}

#[tokio::test]
async fn the_store_is_for_its_owner_alone() {
    let place = TestDirectory::new("mode");
    let store = place.open().await;
    store.add_notebook(notebook("a")).await.unwrap();
    for entry in fs::read_dir(&place.0.state).unwrap().flatten() {
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, PRIVATE_FILE, "{}", entry.path().display());
    }
}

//! A store in its own directory for each test.

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

/// Counts a run and writes it, and says its number.
async fn add(store: &Store, run: RunRow) -> Option<u64> {
    let number = store.begin_run("team", "a", run.started_ms).await.unwrap()?;
    assert!(store.add_run(RunRow { number, ..run }).await.unwrap());
    Some(number)
}

#[tokio::test]
async fn a_run_that_was_counted_and_never_written_is_unsaved() {
    let place = TestDirectory::new("counted");
    let store = place.open().await;
    store.add_notebook(notebook("a")).await.unwrap();
    add(&store, run("x", 1)).await;
    assert_eq!(store.begin_run("team", "a", 2).await.unwrap(), Some(2));
    drop(store);
    let store = place.open().await;
    let found = store.notebook("team", "a").await.unwrap().expect("the notebook");
    assert_eq!((found.unsaved_runs, found.totals.runs), (2, 2));
    assert_eq!(store.changes_behind("team", "a", 1).await.unwrap(), 1);
    // One that was never asked for gives its number back, if no other has begun since.
    assert_eq!(store.begin_run("team", "a", 3).await.unwrap(), Some(3));
    store.abandon_run("team", "a", 2).await.unwrap();
    store.abandon_run("team", "a", 3).await.unwrap();
    assert_eq!(add(&store, run("y", 4)).await, Some(3));
}

#[tokio::test]
async fn a_notebook_and_its_history_are_there_after_a_restart() {
    let place = TestDirectory::new("restart");
    let store = place.open().await;
    assert_eq!(store.add_notebook(notebook("a")).await.unwrap(), NotebookInsert::Made);
    assert_eq!(add(&store, run("x = 1", 7)).await, Some(1));
    assert_eq!(add(&store, run("again", 8)).await, Some(2));
    store.set_seat("team", "a", Some("here".to_owned())).await.unwrap();
    drop(store);

    let store = place.open().await;
    let found = store.notebook("team", "a").await.unwrap().expect("the notebook");
    assert_eq!(found.seat.as_deref(), Some("here"));
    assert_eq!(found.used_ms, 8);
    assert_eq!(found.totals, Totals { runs: 2, runs_us: 20, cache_hits: 1, cache_misses: 1 });
    let filter = RunFilter { limit: 10, ..RunFilter::default() };
    let history = store.history(filter.clone()).await.unwrap();
    let rows: Vec<_> = history.iter().map(|run| (run.number, run.code.as_str())).collect();
    assert_eq!(rows, [(2, "again"), (1, "x = 1")]);
    assert_eq!(read(&place.0, |c| history::history(c, &filter)).unwrap(), Some(history));
}

#[tokio::test]
async fn cancelled_runs_have_changed_nothing_and_reported_ones_are_not_reported_again() {
    let place = TestDirectory::new("unsaved");
    let store = place.open().await;
    store.add_notebook(notebook("a")).await.unwrap();
    for status in ["ok", "cancelled", "died", "abandoned", "cancelled"] {
        add(&store, RunRow { status: status.to_owned(), ..run("x", 1) }).await;
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
    // What was reported stays reported.
    store.set_saved_run("team", "a", 2).await.unwrap();
    assert_eq!((owed().await, store.changes_behind("team", "a", 1).await.unwrap()), (0, 2));
}

#[tokio::test]
async fn a_taken_name_is_found_and_a_full_namespace_is_reported() {
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
    add(&store, run("x", 1)).await;
    assert!(store.remove_notebook("team", "a").await.unwrap());
    assert!(!store.remove_notebook("team", "a").await.unwrap());
    assert_eq!(add(&store, run("x", 1)).await, None);
    assert!(!store.add_run(run("x", 1)).await.unwrap());
    let filter = RunFilter { limit: 10, ..RunFilter::default() };
    assert_eq!(store.history(filter).await.unwrap(), []);
}

#[tokio::test]
async fn long_texts_are_cut_at_whole_characters() {
    let place = TestDirectory::new("long");
    let store = place.open().await;
    store.add_notebook(notebook("a")).await.unwrap();
    let long = "é".repeat(HISTORY + 1);
    add(&store, RunRow { stdout: format!("a{long}"), ..run("x", 1) }).await;
    let filter = RunFilter { limit: 10, ..RunFilter::default() };
    let stdout = store.history(filter).await.unwrap().remove(0).stdout;
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
async fn a_repair_keeps_what_can_be_read_and_the_damaged_file() {
    let place = TestDirectory::new("repair");
    let store = place.open().await;
    store.add_notebook(notebook("a")).await.unwrap();
    for at in 0..400 {
        add(&store, RunRow { stdout: "o".repeat(1000), ..run(&format!("x = {at}"), at) }).await;
    }
    drop(store);
    place.closed().await;
    assert_eq!(repair::repair(&place.0).unwrap(), None, "it is whole");
    let mut bytes = fs::read(place.0.store()).unwrap();
    let middle = bytes.len() / 8192 * 4096;
    bytes[middle..middle + 3 * 4096].fill(0xa5);
    fs::write(place.0.store(), &bytes).unwrap();
    let refusal = Store::open(&place.0).await.err().expect("a refusal").to_string();
    assert!(refusal.contains("store repair"), "{refusal}");

    let done = repair::repair(&place.0).unwrap().expect("it was damaged");
    assert_eq!(fs::read(&done.damaged).unwrap(), bytes);
    assert_eq!(done.tables[0], ("notebooks", 1, 0));
    let (_, runs, _) = done.tables[1];
    assert!((300..400).contains(&runs), "{runs} runs were kept");
    let store = place.open().await;
    assert_eq!(store.notebook("team", "a").await.unwrap().expect("it").totals.runs, 400);
    let filter = RunFilter { limit: 1000, ..RunFilter::default() };
    assert_eq!(store.history(filter).await.unwrap().len() as u64, runs);
    drop(store);
    place.closed().await;

    fs::write(place.0.store(), vec![7; 5000]).unwrap();
    let done = repair::repair(&place.0).unwrap().expect("it was damaged");
    assert_eq!(done.tables, [("notebooks", 0, 0), ("runs", 0, 0), ("artifacts", 0, 0)]);
    drop(place.open().await);
}

#[tokio::test]
async fn without_a_store_everything_is_refused_with_the_reason() {
    let why = StoreError::Newer { path: "x".into(), version: 9, known: 2 };
    let store = Store::unavailable(&why);
    let refused = store.notebook("team", "a").await.unwrap_err();
    assert_eq!(refused.to_string(), why.to_string());
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

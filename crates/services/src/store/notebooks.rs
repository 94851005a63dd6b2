//! The rows of notebooks. What is in `place`, `seat` and `saved` is their owner's affair: text here.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::limits::NOTEBOOKS_MAX;
use super::{Store, StoreError, count, number};

/// A notebook as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotebookRow {
    pub namespace: String,
    pub id: String,
    pub language: String,
    pub created_ms: u64,
    pub used_ms: u64,
    /// The place of its contexts.
    pub place: String,
    /// The interpreter that has its variables.
    pub seat: Option<String>,
    /// The description of its saved state.
    pub saved: Option<String>,
    /// Runs whose changes are neither saved nor known to be lost.
    pub unsaved_runs: u64,
    pub totals: Totals,
}

/// Totals of a notebook's runs, including those that the history has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub runs: u64,
    pub runs_us: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
}

/// The result of creating a notebook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotebookInsert {
    Made,
    /// One with that name exists already.
    Found(Box<NotebookRow>),
    /// The namespace has as many as it may.
    Full {
        max: u64,
    },
}

/// A notebook's row. Changes up to `saved_run` are settled: they are on disk, or a later caller has learned that
/// they are lost. A cancelled run had never begun, so it changed nothing. A counted run without a row may
/// have changed anything.
const SELECT: &str = "SELECT *, max(0, n.runs - n.saved_run - (SELECT count(*) FROM runs \
     WHERE runs.namespace = n.namespace AND runs.notebook = n.id AND number > n.saved_run \
     AND status = 'cancelled')) AS unsaved_runs";

impl Store {
    pub async fn add_notebook(&self, row: NotebookRow) -> Result<NotebookInsert, StoreError> {
        self.call(move |connection| {
            if let Some(found) = find(connection, &row.namespace, &row.id)? {
                return Ok(NotebookInsert::Found(Box::new(found)));
            }
            let count = "SELECT count(*) FROM notebooks WHERE namespace = ?1";
            let there: i64 = connection.query_row(count, [&row.namespace], |row| row.get(0))?;
            if there >= number(NOTEBOOKS_MAX) {
                return Ok(NotebookInsert::Full { max: NOTEBOOKS_MAX });
            }
            connection.execute(
                "INSERT INTO notebooks (namespace, id, language, created_ms, used_ms, place) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    row.namespace,
                    row.id,
                    row.language,
                    number(row.created_ms),
                    number(row.used_ms),
                    row.place
                ],
            )?;
            Ok(NotebookInsert::Made)
        })
        .await
    }

    pub async fn notebook(
        &self,
        namespace: &str,
        id: &str,
    ) -> Result<Option<NotebookRow>, StoreError> {
        let (namespace, id) = (namespace.to_owned(), id.to_owned());
        self.call(move |connection| find(connection, &namespace, &id)).await
    }

    /// Notebooks of one namespace or of all, sorted by name, without their saved state, which may be large.
    pub async fn notebooks(
        &self,
        namespace: Option<String>,
    ) -> Result<Vec<NotebookRow>, StoreError> {
        self.call(move |connection| {
            let mut statement = connection.prepare_cached(&format!(
                "{SELECT} FROM (SELECT namespace, id, language, created_ms, used_ms, place, seat, \
                 NULL AS saved, saved_run, runs, runs_us, cache_hits, cache_misses FROM notebooks) \
                 AS n WHERE ?1 IS NULL OR namespace = ?1 ORDER BY namespace, id"
            ))?;
            let rows = statement.query_map([namespace], read)?;
            rows.map(|row| row.map_err(StoreError::from)).collect()
        })
        .await
    }

    /// The sum of a number that all notebooks have at this place in `saved`. Where there is none, nothing
    /// is added.
    pub async fn sum_of_saved(&self, place: &'static str) -> Result<u64, StoreError> {
        self.call(move |connection| {
            let sum = "SELECT coalesce(sum(json_extract(saved, ?1)), 0) FROM notebooks \
                 WHERE json_valid(saved) AND json_type(saved, ?1) = 'integer'";
            let mut statement = connection.prepare_cached(sum)?;
            Ok(statement.query_row([place], |row| count(row, 0))?)
        })
        .await
    }

    pub async fn set_place(
        &self,
        namespace: &str,
        id: &str,
        place: String,
    ) -> Result<(), StoreError> {
        self.set(
            namespace,
            id,
            "UPDATE notebooks SET place = ?3 WHERE namespace = ?1 AND id = ?2",
            Some(place),
        )
        .await
    }

    pub async fn set_seat(
        &self,
        namespace: &str,
        id: &str,
        seat: Option<String>,
    ) -> Result<(), StoreError> {
        self.set(
            namespace,
            id,
            "UPDATE notebooks SET seat = ?3 WHERE namespace = ?1 AND id = ?2",
            seat,
        )
        .await
    }

    pub async fn set_saved(
        &self,
        namespace: &str,
        id: &str,
        saved: String,
        saved_run: u64,
    ) -> Result<(), StoreError> {
        let (namespace, id) = (namespace.to_owned(), id.to_owned());
        self.call(move |connection| {
            let order = "UPDATE notebooks SET saved = ?3, saved_run = ?4 \
                 WHERE namespace = ?1 AND id = ?2";
            connection.execute(order, params![namespace, id, saved, number(saved_run)])?;
            Ok(())
        })
        .await
    }

    /// Says that nothing is owed up to this run.
    pub async fn set_saved_run(
        &self,
        namespace: &str,
        id: &str,
        run: u64,
    ) -> Result<(), StoreError> {
        let (namespace, id) = (namespace.to_owned(), id.to_owned());
        self.call(move |connection| {
            let order = "UPDATE notebooks SET saved_run = max(saved_run, ?3) \
                 WHERE namespace = ?1 AND id = ?2";
            connection.execute(order, params![namespace, id, number(run)])?;
            Ok(())
        })
        .await
    }

    /// How many runs after this one may have changed something.
    pub async fn changes_behind(
        &self,
        namespace: &str,
        id: &str,
        run: u64,
    ) -> Result<u64, StoreError> {
        let (namespace, id) = (namespace.to_owned(), id.to_owned());
        self.call(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT max(0, n.runs - ?3 - (SELECT count(*) FROM runs \
                 WHERE runs.namespace = n.namespace AND runs.notebook = n.id AND number > ?3 \
                 AND status = 'cancelled')) FROM notebooks AS n WHERE namespace = ?1 AND id = ?2",
            )?;
            let behind = params![namespace, id, number(run)];
            let found = statement.query_row(behind, |row| count(row, 0)).optional()?;
            Ok(found.unwrap_or_default())
        })
        .await
    }

    async fn set(
        &self,
        namespace: &str,
        id: &str,
        order: &'static str,
        value: Option<String>,
    ) -> Result<(), StoreError> {
        let (namespace, id) = (namespace.to_owned(), id.to_owned());
        self.call(move |connection| {
            connection.execute(order, params![namespace, id, value])?;
            Ok(())
        })
        .await
    }

    /// Removes a notebook with its history, and says whether there was one.
    pub async fn remove_notebook(&self, namespace: &str, id: &str) -> Result<bool, StoreError> {
        let (namespace, id) = (namespace.to_owned(), id.to_owned());
        self.call(move |connection| {
            let order = "DELETE FROM notebooks WHERE namespace = ?1 AND id = ?2";
            Ok(connection.execute(order, params![namespace, id])? > 0)
        })
        .await
    }
}

/// The names of a namespace's notebooks, for a process that has opened the file with [`read`](super::read).
pub fn notebook_names(connection: &Connection, namespace: &str) -> Result<Vec<String>, StoreError> {
    let order = "SELECT id FROM notebooks WHERE namespace = ?1 ORDER BY id";
    let mut statement = connection.prepare_cached(order)?;
    let names = statement.query_map([namespace], |row| row.get(0))?;
    names.map(|name| name.map_err(StoreError::from)).collect()
}

fn find(
    connection: &Connection,
    namespace: &str,
    id: &str,
) -> Result<Option<NotebookRow>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "{SELECT} FROM notebooks AS n WHERE namespace = ?1 AND id = ?2"
    ))?;
    Ok(statement.query_row([namespace, id], read).optional()?)
}

fn read(row: &Row<'_>) -> Result<NotebookRow, rusqlite::Error> {
    Ok(NotebookRow {
        namespace: row.get("namespace")?,
        id: row.get("id")?,
        language: row.get("language")?,
        created_ms: count(row, "created_ms")?,
        used_ms: count(row, "used_ms")?,
        place: row.get("place")?,
        seat: row.get("seat")?,
        saved: row.get("saved")?,
        unsaved_runs: count(row, "unsaved_runs")?,
        totals: Totals {
            runs: count(row, "runs")?,
            runs_us: count(row, "runs_us")?,
            cache_hits: count(row, "cache_hits")?,
            cache_misses: count(row, "cache_misses")?,
        },
    })
}

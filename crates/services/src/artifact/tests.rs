//! Contents and rows together, without a guest: keeping, counting, removing and finding them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::*;
use crate::store::artifacts::ArtifactRow;

struct TestDirectory(Paths);

impl TestDirectory {
    fn new(name: &str) -> Self {
        let state = std::env::temp_dir().join(format!("burrow-kept-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&state);
        fs::create_dir_all(&state).unwrap();
        Self(Paths { runtime: state.clone(), state })
    }

    async fn open(&self) -> Artifacts {
        self.open_with(Limits::default()).await
    }

    async fn open_with(&self, limits: Limits) -> Artifacts {
        let store = Store::open(&self.0).await.unwrap();
        Artifacts::open(&self.0, store, limits).await.unwrap()
    }

    /// The contents on disk, and unfinished ones.
    fn files(&self) -> BTreeSet<String> {
        fn walk(path: &Path, found: &mut BTreeSet<String>) {
            for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                if entry.path().is_dir() {
                    walk(&entry.path(), found);
                } else {
                    found.insert(entry.file_name().to_string_lossy().into_owned());
                }
            }
        }
        let mut found = BTreeSet::new();
        walk(&self.0.artifacts(), &mut found);
        found
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0.state);
    }
}

fn row(name: &str, whole: &WrittenBlob) -> ArtifactRow {
    ArtifactRow {
        id: ArtifactId::draw().unwrap().to_string(),
        namespace: "team".to_owned(),
        sandbox: "box".to_owned(),
        name: name.to_owned(),
        mime: "text/plain".to_owned(),
        category: "text".to_owned(),
        size: whole.bytes,
        digest: whole.digest.as_str().to_owned(),
        created_ms: now_ms(),
        ..ArtifactRow::default()
    }
}

async fn keep(artifacts: &Artifacts, name: &str, bytes: &str) -> Result<ArtifactRow, Reason> {
    let whole = copy::store(bytes.as_bytes().to_vec(), &artifacts.0.blobs).await?;
    let row = row(name, &whole);
    artifacts.commit(whole, row).await
}

fn all() -> ArtifactFilter {
    ArtifactFilter::default()
}

#[tokio::test]
async fn equal_bytes_are_there_once_until_the_last_who_means_them_is_gone() {
    let place = TestDirectory::new("once");
    let artifacts = place.open().await;
    let first = keep(&artifacts, "a", "same").await.unwrap();
    let second = keep(&artifacts, "b", "same").await.unwrap();
    keep(&artifacts, "c", "other").await.unwrap();
    assert_eq!(first.digest, second.digest);
    assert_eq!(place.files().len(), 2);

    let one = ArtifactFilter { id: Some(first.id), ..all() };
    assert_eq!(artifacts.remove(one).await.unwrap(), CleanupResult { count: 1, bytes: 4 });
    assert_eq!(artifacts.read_range(&second, 1, 2).await.unwrap(), b"am");
    assert_eq!(artifacts.read_range(&second, 9, 2).await.unwrap(), b"");
    assert_eq!(artifacts.remove(all()).await.unwrap(), CleanupResult { count: 2, bytes: 9 });
    assert!(place.files().is_empty(), "{:?}", place.files());
    let gone = artifacts.open_content(&second).await.unwrap_err();
    assert!(matches!(gone, ArtifactError::Content { .. }), "{gone}");
}

#[tokio::test]
async fn a_content_that_no_row_means_goes_when_a_bridge_opens() {
    let place = TestDirectory::new("orphan");
    let artifacts = place.open().await;
    let artifact = keep(&artifacts, "a", "meant").await.unwrap();
    // A bridge that dies between the content and its row, and one that dies while it copies.
    let whole = copy::store(b"orphan".to_vec(), &artifacts.0.blobs).await.unwrap();
    artifacts.0.blobs.put(&whole).unwrap();
    let begun = artifacts.0.blobs.begin().unwrap();
    assert_eq!(place.files().len(), 3);
    std::mem::forget(begun);
    drop(artifacts);

    let artifacts = place.open().await;
    assert_eq!(place.files(), BTreeSet::from([artifact.digest.clone()]));
    assert_eq!(artifacts.get(&artifact.id.parse().unwrap()).await.unwrap(), artifact);
    assert_eq!(artifacts.read_range(&artifact, 0, 99).await.unwrap(), b"meant");
}

#[tokio::test]
async fn abandoned_contents_leave_nothing() {
    let place = TestDirectory::new("given-up");
    let artifacts = place.open().await;
    let mut begun = artifacts.0.blobs.begin().unwrap();
    begun.write(b"part").unwrap();
    drop(begun);
    drop(copy::store(b"whole".to_vec(), &artifacts.0.blobs).await.unwrap());
    assert!(place.files().is_empty(), "{:?}", place.files());
}

#[tokio::test]
async fn a_full_namespace_keeps_no_more_and_another_does() {
    let place = TestDirectory::new("full");
    let limits =
        Limits { namespace_artifacts_max: 2, namespace_bytes_max: 10, ..Limits::default() };
    let artifacts = place.open_with(limits).await;
    keep(&artifacts, "a", "12345678").await.unwrap();
    let refused = keep(&artifacts, "b", "123").await.unwrap_err();
    let reason = Reason::NamespaceFull {
        namespace: "team".to_owned(),
        count: 1,
        bytes: 8,
        count_max: 2,
        bytes_max: 10,
    };
    assert_eq!(refused, reason);
    keep(&artifacts, "b", "12").await.unwrap();
    assert!(keep(&artifacts, "c", "").await.is_err(), "the count is full");
    assert_eq!(place.files().len(), 2, "of what was refused nothing stays");
    let whole = copy::store(b"theirs".to_vec(), &artifacts.0.blobs).await.unwrap();
    let theirs = ArtifactRow { namespace: "other".to_owned(), ..row("d", &whole) };
    artifacts.commit(whole, theirs).await.unwrap();
    assert_eq!(artifacts.usage("team").await.unwrap(), Usage { count: 2, bytes: 10 });
}

#[tokio::test]
async fn a_list_has_the_newest_first_and_the_next_page_begins_where_the_last_ended() {
    let place = TestDirectory::new("pages");
    let artifacts = place.open().await;
    for name in ["a", "b", "c"] {
        keep(&artifacts, name, name).await.unwrap();
    }
    let page = artifacts.list(all(), 2).await.unwrap();
    let names = |rows: &[ArtifactRow]| rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&page), ["c", "b"]);
    let rest = ArtifactFilter { below: Some(page[1].number), ..all() };
    assert_eq!(names(&artifacts.list(rest, 2).await.unwrap()), ["a"]);
    for which in [
        ArtifactFilter { sandbox: Some("x".to_owned()), ..all() },
        ArtifactFilter { namespace: Some("x".to_owned()), ..all() },
        ArtifactFilter { category: Some("image".to_owned()), ..all() },
        ArtifactFilter { until_ms: Some(1), ..all() },
        ArtifactFilter { since_ms: Some(now_ms() + 9999), ..all() },
        ArtifactFilter { run: Some(1), ..all() },
    ] {
        assert!(artifacts.list(which, 9).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_content_that_was_changed_under_us_is_not_given_out() {
    let place = TestDirectory::new("changed");
    let artifacts = place.open().await;
    let artifact = keep(&artifacts, "a", "as it was").await.unwrap();
    let path = place.0.artifacts().join(&artifact.digest[..2]).join(&artifact.digest);
    fs::write(path, "short").unwrap();
    let refused = artifacts.read_range(&artifact, 0, 9).await.unwrap_err();
    assert!(matches!(refused, ArtifactError::Damaged { bytes: 5, size: 9, .. }), "{refused}");
}

#[test]
fn neither_a_digest_nor_an_id_can_be_a_path() {
    for wrong in ["", "..", "../../etc/passwd", &"A".repeat(64), &"0".repeat(63)] {
        assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        assert!(wrong.parse::<ArtifactId>().is_err(), "{wrong}");
    }
    assert!("0".repeat(64).parse::<Digest>().is_ok());
}

use std::time::{Duration, SystemTime};

use super::*;
use crate::limits::{PARTIAL_AGE_MAX, PARTIALS_MAX};

/// A store in its own directory, which is removed with it.
struct TestStore {
    root: PathBuf,
    blobs: Blobs,
}

impl TestStore {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("burrow-blobs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let blobs = Blobs::open(&root).unwrap();
        Self { root, blobs }
    }

    /// The number of partial contents.
    fn partials(&self) -> usize {
        fs::read_dir(self.root.join(PARTIAL)).unwrap().count()
    }

    async fn begin(&self, content: &[u8]) -> Partial {
        match self.blobs.begin(Digest::of(content), content.len() as u64).await.unwrap() {
            BlobState::Partial(partial) => partial,
            BlobState::Whole => panic!("it is there already"),
        }
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[tokio::test]
async fn a_content_is_there_once_it_is_whole() {
    let place = TestStore::new("whole");
    let digest = Digest::of(b"content");
    let mut partial = place.begin(b"content").await;
    partial.write(b"con").unwrap();
    assert!(!place.blobs.has(&digest));
    assert!(matches!(place.blobs.open_blob(&digest), Err(BlobError::Missing { .. })));
    partial.write(b"tent").unwrap();
    partial.finish().unwrap();
    assert_eq!(place.blobs.size(&digest).unwrap(), 7);
    assert_eq!(place.blobs.read(&digest).unwrap(), b"content");
    assert_eq!(place.blobs.list().unwrap(), [digest]);
    assert_eq!(place.partials(), 0);
    assert!(matches!(place.blobs.begin(digest, 7).await.unwrap(), BlobState::Whole));
    assert!(place.blobs.remove(&digest).unwrap() && !place.blobs.remove(&digest).unwrap());
    assert_eq!(place.blobs.list().unwrap(), []);
}

#[tokio::test]
async fn a_dropped_attempt_is_gone_on_with() {
    let place = TestStore::new("resumed");
    let mut partial = place.begin(b"content").await;
    partial.write(b"cont").unwrap();
    drop(partial);
    let mut partial = place.begin(b"content").await;
    assert_eq!(partial.offset(), 4);
    partial.write(b"ent").unwrap();
    partial.finish().unwrap();
    assert_eq!(place.blobs.read(&Digest::of(b"content")).unwrap(), b"content");
}

#[tokio::test]
async fn short_contents_stay_and_wrong_ones_are_removed() {
    let place = TestStore::new("wrong");
    let mut partial = place.begin(b"content").await;
    partial.write(b"cont").unwrap();
    assert!(matches!(partial.finish(), Err(BlobError::Length { wanted: 7, found: 4, .. })));
    assert_eq!(place.partials(), 1);
    let mut partial = place.begin(b"content").await;
    partial.write(b"ENT").unwrap();
    assert!(matches!(partial.finish(), Err(BlobError::Digest { .. })));
    assert_eq!(place.partials(), 0);
    let mut partial = place.begin(b"content").await;
    assert_eq!(partial.offset(), 0);
    assert!(matches!(partial.write(b"contents"), Err(BlobError::Length { found: 8, .. })));
    assert_eq!(place.partials(), 0);
    assert!(!place.blobs.has(&Digest::of(b"content")));
}

#[tokio::test]
async fn a_partial_longer_than_the_content_is_begun_again() {
    let place = TestStore::new("longer");
    let path = place.root.join(PARTIAL).join(Digest::of(b"content").hex());
    fs::write(path, b"something else altogether").unwrap();
    let mut partial = place.begin(b"content").await;
    assert_eq!(partial.offset(), 0);
    partial.write(b"content").unwrap();
    partial.finish().unwrap();
}

#[tokio::test]
async fn the_second_who_wants_a_content_waits_for_the_first() {
    let place = TestStore::new("second");
    let mut first = place.begin(b"content").await;
    let blobs = place.blobs.clone();
    let second = tokio::spawn(async move { blobs.begin(Digest::of(b"content"), 7).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!second.is_finished());
    first.write(b"content").unwrap();
    first.finish().unwrap();
    assert!(matches!(second.await.unwrap().unwrap(), BlobState::Whole));
    assert_eq!(place.partials(), 0);
}

#[tokio::test]
async fn the_second_goes_on_where_the_first_gave_up() {
    let place = TestStore::new("gave-up");
    let mut first = place.begin(b"content").await;
    let blobs = place.blobs.clone();
    let second = tokio::spawn(async move { blobs.begin(Digest::of(b"content"), 7).await });
    first.write(b"con").unwrap();
    // Removed under the first one's lock, so the second waits for a file that is gone.
    assert!(first.write(b"far too much").is_err());
    drop(first);
    let BlobState::Partial(second) = second.await.unwrap().unwrap() else { panic!("not whole") };
    assert_eq!(second.offset(), 0);
    assert!(is_there(&place, b"content"));
}

fn is_there(place: &TestStore, content: &[u8]) -> bool {
    place.root.join(PARTIAL).join(Digest::of(content).hex()).exists()
}

#[tokio::test]
async fn small_contents_come_and_go_in_one_piece() {
    let place = TestStore::new("small");
    let digest = place.blobs.put(b"{}".to_vec()).await.unwrap();
    assert_eq!(place.blobs.put(b"{}".to_vec()).await.unwrap(), digest);
    assert_eq!(place.blobs.read(&digest).unwrap(), b"{}");
    fs::write(place.blobs.path(&digest), b"[]").unwrap();
    assert!(matches!(place.blobs.read(&digest), Err(BlobError::Digest { .. })));
    let large = Digest::of(b"large");
    let file = File::create(place.blobs.path(&large)).unwrap();
    file.set_len(DOCUMENT_BYTES_MAX + 1).unwrap();
    assert!(matches!(place.blobs.read(&large), Err(BlobError::TooLarge { .. })));
    let begun = place.blobs.begin(Digest::of(b"larger"), BLOB_BYTES_MAX + 1).await;
    assert!(matches!(begun, Err(BlobError::TooLarge { .. })));
}

#[tokio::test]
async fn forgotten_partials_are_swept_and_locked_ones_are_not() {
    let place = TestStore::new("swept");
    let held = place.begin(b"held").await;
    let directory = place.root.join(PARTIAL);
    let old = SystemTime::now() - PARTIAL_AGE_MAX - Duration::from_secs(60);
    let aged =
        |path: &Path| File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    aged(&directory.join(Digest::of(b"held").hex()));
    let forgotten = directory.join(Digest::of(b"forgotten").hex());
    fs::write(&forgotten, b"forg").unwrap();
    aged(&forgotten);
    fs::write(directory.join("no digest"), b"").unwrap();
    for number in 0..PARTIALS_MAX + 5 {
        fs::write(directory.join(Digest::of(&number.to_le_bytes()).hex()), b"x").unwrap();
    }
    Blobs::open(&place.root).unwrap();
    assert!(is_there(&place, b"held") && !is_there(&place, b"forgotten"));
    assert!(!directory.join("no digest").exists());
    assert_eq!(place.partials(), PARTIALS_MAX + 1);
    drop(held);
    Blobs::open(&place.root).unwrap();
    assert!(!is_there(&place, b"held"));
}

//! Lines that break, disks that are full or lie, and what is left of it.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use image::blobs::{BlobError, Blobs};
use image::digest::Digest;
use image::registry::PullError;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tests::registry::{Layout, Line, Registry, is_here};
use tests::skip;

use super::scene::Scene;

const MIB: u64 = 1 << 20;

/// A registry with an image in it whose only layer has some MiB.
fn with_image(layer_bytes: u64) -> Option<(Registry, Layout)> {
    if !is_here() {
        return None;
    }
    let (registry, image) = (Registry::start(""), Layout::image(&[layer_bytes]));
    registry.push(&image, "app", &[]);
    Some((registry, image))
}

#[tokio::test]
async fn a_blob_that_is_corrupted_at_the_registry_is_refused() {
    let Some((registry, image)) = with_image(2 * MIB) else { return };
    let scene = Scene::new();
    let path = registry.blob_path(&image.layers[0]);
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(b"something else", 12_345).unwrap();
    let error = scene.pull(&format!("{}/app", registry.host())).await.unwrap_err();
    let PullError::Digest { wanted, found, .. } = &error else { panic!("{error}") };
    assert!(*wanted == image.layers[0] && found != wanted);
    // The configuration is good, and is all that stays.
    assert_eq!((scene.blobs.list().unwrap().len(), scene.partials()), (1, 0));
    assert!(!scene.blobs.has(&image.layers[0]) && !scene.blobs.has(&image.manifest));
}

#[tokio::test]
async fn a_blob_that_is_shortened_at_the_registry_is_refused() {
    let Some((registry, image)) = with_image(2 * MIB) else { return };
    let scene = Scene::new();
    let path = registry.blob_path(&image.layers[0]);
    OpenOptions::new().write(true).open(path).unwrap().set_len(MIB).unwrap();
    let error = scene.pull(&format!("{}/app", registry.host())).await.unwrap_err();
    assert!(matches!(error, PullError::Length { found: MIB, .. }), "{error}");
    assert!(!scene.blobs.has(&image.layers[0]));
}

#[tokio::test]
async fn a_digest_that_is_not_there_and_a_manifest_that_is_another_are_distinguished() {
    let Some((registry, image)) = with_image(1000) else { return };
    let scene = Scene::new();
    let by = |digest: Digest| format!("{}/app@{digest}", registry.host());
    let error = scene.pull(&by(Digest::of(b"nothing"))).await.unwrap_err();
    assert!(matches!(error, PullError::NotFound { .. }), "{error}");
    let path = registry.blob_path(&image.manifest);
    let text =
        fs::read_to_string(&path).unwrap().replace("\"schemaVersion\":2", "\"schemaVersion\": 2");
    fs::write(&path, text).unwrap();
    // The registry may notice by itself; whatever it does, nothing is taken for what it is not.
    let error = scene.pull(&by(image.manifest)).await.unwrap_err();
    assert!(matches!(error, PullError::Digest { .. } | PullError::Status { .. }), "{error}");
    assert_eq!(scene.blobs.list().unwrap(), []);
}

#[tokio::test]
async fn a_pull_over_a_line_that_is_cut_once_goes_on_where_it_was() {
    let Some((registry, image)) = with_image(8 * MIB) else { return };
    let (scene, line) = (Scene::new(), Line::to(registry.port()));
    line.cut_after(5 * MIB);
    let name = format!("localhost:{}/app", line.port);
    let pulling = scene.pull(&name);
    tokio::pin!(pulling);
    let deadline = tokio::time::Instant::now() + tests::PATIENCE;
    let pulled = loop {
        assert!(tokio::time::Instant::now() < deadline, "not pulled");
        tokio::select! {
            pulled = &mut pulling => break pulled.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(1)) => {
                if line.came() > 5 * MIB {
                    line.mend();
                }
            }
        }
    };
    assert!(scene.blobs.has(&image.layers[0]));
    assert!(pulled.fetched_bytes < 9 * MIB, "{}", pulled.fetched_bytes);
    assert!(scene.progress.borrow().trouble.is_some(), "it was never cut");
}

#[tokio::test]
async fn a_pull_that_failed_is_resumed_with_fewer_bytes() {
    let Some((registry, image)) = with_image(8 * MIB) else { return };
    let (scene, line) = (Scene::new(), Line::to(registry.port()));
    line.cut_after(6 * MIB);
    let name = format!("localhost:{}/app", line.port);
    let error = scene.pull(&name).await.unwrap_err();
    assert!(matches!(error, PullError::Cut { .. }), "{error}");
    assert_eq!(scene.partials(), 1);
    line.mend();
    let before = line.came();
    let pulled = scene.pull(&name).await.unwrap();
    let second = line.came() - before;
    assert!(second < 3 * MIB, "the second attempt has fetched {second} bytes");
    assert!(pulled.fetched_bytes < 3 * MIB);
    let bytes = fs::read(scene.blobs.path(&image.layers[0])).unwrap();
    assert_eq!(Digest::of(&bytes), image.layers[0]);
    assert_eq!(scene.partials(), 0);
}

#[tokio::test]
async fn a_dropped_pull_leaves_what_it_has_and_nothing_else() {
    let Some((registry, image)) = with_image(32 * MIB) else { return };
    let scene = Scene::new();
    let name = format!("{}/app", registry.host());
    let deadline = tokio::time::Instant::now() + tests::PATIENCE;
    let some = async {
        let mut seen = scene.progress.subscribe();
        while seen.borrow_and_update().bytes() < MIB {
            seen.changed().await.unwrap();
        }
    };
    tokio::select! {
        pulled = scene.pull(&name) => panic!("{pulled:?} was too quick"),
        () = some => {}
    }
    assert!(tokio::time::Instant::now() < deadline);
    assert!(!scene.blobs.has(&image.layers[0]) && scene.partials() == 1);
    let pulled = scene.pull(&name).await.unwrap();
    assert!(pulled.fetched_bytes < 32 * MIB, "{}", pulled.fetched_bytes);
}

#[tokio::test]
async fn a_full_disk_is_reported_and_nothing_partial_stays_on_it() {
    let Some((registry, image)) = with_image(8 * MIB) else { return };
    let mut scene = Scene::new();
    let small = scene.path().join("small");
    fs::create_dir(&small).unwrap();
    let mounted = mount(Some("tmpfs"), &small, Some("tmpfs"), MsFlags::empty(), Some("size=4m"));
    if let Err(error) = mounted {
        skip(&format!("no file system of a test's own can be mounted: {error}"));
        return;
    }
    scene.blobs = Blobs::open(&small.join("blobs")).unwrap();
    let error = scene.pull(&format!("{}/app", registry.host())).await.unwrap_err();
    let left = fs::read_dir(small.join("blobs/partial")).unwrap().count();
    let whole = scene.blobs.has(&image.layers[0]);
    umount2(&small, MntFlags::MNT_DETACH).unwrap();
    assert!(matches!(error, PullError::Blob(BlobError::Full { .. })), "{error}");
    assert_eq!((left, whole), (0, false));
}

//! What is kept, shared, found and removed.

use std::os::unix::fs::MetadataExt;

use super::*;
use crate::store::User;

fn nobody() -> Vec<User> {
    Vec::new()
}

/// Adds an image with this name and these layers.
async fn image(place: &TestStore, name: &str, layers: &[TestLayer]) -> Digest {
    let layout = format!("layout-{}", name.replace([':', '/'], "-"));
    let digest = write_layout(&place.file(&layout), layers, &json!({}));
    place.import(&layout, Some(name)).await.expect("an image");
    digest
}

fn layer(name: &str) -> TestLayer {
    TestLayer::packed(Archive::default().file(name, name), gzip)
}

#[tokio::test]
async fn a_layer_is_kept_once_whatever_images_have_it() {
    let place = TestStore::new("once");
    image(&place, "one", &[layer("base"), layer("a")]).await;
    image(&place, "two", &[layer("base"), layer("b")]).await;
    assert_eq!(place.names("layers").len(), 3);
    assert_eq!(place.names("roots").len(), 2);
    let base = |name: &str| {
        let lease = place.images.lease(&place.images.find(name).unwrap()).unwrap();
        fs::metadata(lease.root.join("base")).unwrap().ino()
    };
    assert_eq!(base("one"), base("two"));
}

#[tokio::test]
async fn an_image_is_found_by_every_name_that_it_has() {
    let place = TestStore::new("found");
    let digest = image(&place, "base:1", &[layer("a")]).await;
    let hex = digest.hex();
    for text in [
        "base:1",
        "docker.io/library/base:1",
        &digest.to_string(),
        &hex,
        &hex[..12],
        &format!("base@{digest}"),
    ] {
        assert_eq!(place.images.find(text).expect(text).digest, digest, "{text}");
    }
    let elsewhere = format!("other@{digest}");
    for text in ["base", "base:2", &"0".repeat(64), &hex[..8], &elsewhere] {
        assert!(place.images.find(text).is_err(), "{text}");
    }
}

#[tokio::test]
async fn a_name_with_a_digest_means_what_was_once_from_there_and_nothing_else() {
    let place = TestStore::new("from-there");
    let old = image(&place, "team/app:1", &[layer("old")]).await;
    let other = image(&place, "team/other:1", &[layer("other")]).await;
    image(&place, "team/app:1", &[layer("new")]).await;
    let find = |name: &str, digest: Digest| place.images.find(&format!("{name}@{digest}"));
    assert_eq!(find("team/app", old).unwrap().digest, old, "though the name means another now");
    assert_eq!(find("team/app:2", old).unwrap().digest, old, "the digest is what counts");
    for (name, digest) in [("team/app", other), ("team/other", old), ("x.example/team/app", old)] {
        let error = find(name, digest).unwrap_err();
        assert!(matches!(error, ImageError::NotFound { .. }), "{name}: {error}");
    }
}

#[tokio::test]
async fn a_name_that_moves_on_leaves_the_old_image_for_prune() {
    let place = TestStore::new("moves");
    let first = image(&place, "app", &[layer("base"), layer("a")]).await;
    let second = image(&place, "app", &[layer("base"), layer("b")]).await;
    assert_eq!(place.images.find("app").unwrap().digest, second);
    let used = || vec![User { digest: first, name: "default/box".to_owned() }];
    assert_eq!(place.images.prune(used).unwrap().images, []);
    let pruned = place.images.prune(nobody).unwrap();
    assert_eq!((pruned.images, pruned.layers, pruned.blobs), (vec![first], 1, 3));
    assert_eq!(place.names("layers").len(), 2);
    assert!(place.images.lease(&place.images.find("app").unwrap()).is_ok());
}

#[tokio::test]
async fn an_image_in_use_stays_and_says_who_has_it() {
    let place = TestStore::new("used");
    let digest = image(&place, "app", &[layer("a")]).await;
    let used = || vec![User { digest, name: "team/web".to_owned() }];
    let error = place.images.remove("app", used).unwrap_err().to_string();
    assert!(error.contains("team/web"), "{error}");
    let lease = place.images.lease(&place.images.find("app").unwrap()).unwrap();
    assert!(matches!(place.images.remove("app", nobody), Err(ImageError::InUse { .. })));
    assert_eq!(place.images.prune(nobody).unwrap().images, []);
    drop(lease);
    assert!(place.images.remove("app", nobody).unwrap().image);
    place.assert_empty();
}

#[tokio::test]
async fn the_last_name_takes_the_image_along() {
    let place = TestStore::new("names");
    image(&place, "one", &[layer("a")]).await;
    let digest = image(&place, "two", &[layer("a")]).await;
    let removed = place.images.remove("one", nobody).unwrap();
    assert_eq!(
        (removed.image, removed.names.as_slice()),
        (false, ["docker.io/library/one:latest".to_owned()].as_slice())
    );
    assert!(place.images.find("two").is_ok() && place.images.find("one").is_err());
    image(&place, "three", &[layer("a")]).await;
    let removed = place.images.remove(&digest.to_string(), nobody).unwrap();
    assert_eq!((removed.image, removed.names.len()), (true, 2));
    place.assert_empty();
}

#[tokio::test]
async fn opening_the_store_removes_half_made_entries() {
    let place = TestStore::new("leftovers");
    image(&place, "app", &[layer("a")]).await;
    let store = place.path.join("state/images");
    for kind in ["layers", "roots", "imports"] {
        let left = store.join(kind).join("0123.new/tree/deep");
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("f"), "x").unwrap();
    }
    // Not while somebody uses the store.
    let shared = place.images.share().unwrap();
    Images::open(&paths(&place.path)).unwrap();
    assert_eq!(place.names("imports"), ["0123.new"]);
    drop(shared);
    let again = Images::open(&paths(&place.path)).unwrap();
    for (kind, count) in [("layers", 1), ("roots", 1), ("imports", 0)] {
        assert_eq!(place.names(kind).len(), count, "{kind}");
    }
    assert!(again.lease(&again.find("app").unwrap()).is_ok());
}

#[tokio::test]
async fn every_state_that_a_crash_can_leave_is_one_that_works() {
    let place = TestStore::new("crash");
    let digest = image(&place, "app", &[layer("base"), layer("a")]).await;
    let store = place.path.join("state/images");
    // A root, a layer and a record that are missing.
    for gone in [
        format!("roots/{}", digest.hex()),
        format!("layers/{}", layer("base").diff_id.hex()),
        format!("layers/{}", layer("a").diff_id.hex()),
    ] {
        fs::remove_dir_all(store.join(&gone)).unwrap();
        fs::remove_dir_all(store.join(format!("roots/{}", digest.hex()))).ok();
        let again = Images::open(&paths(&place.path)).unwrap();
        let lease = again.lease(&again.find("app").unwrap()).expect(&gone);
        assert_eq!(fs::read_to_string(lease.root.join("base")).unwrap(), "base", "{gone}");
    }
    fs::remove_file(store.join(format!("known/{}.json", digest.hex()))).unwrap();
    let again = Images::open(&paths(&place.path)).unwrap();
    assert!(matches!(again.find("app"), Err(ImageError::NotFound { .. })));
    again.prune(nobody).unwrap();
    image(&place, "app", &[layer("base"), layer("a")]).await;
}

#[tokio::test]
async fn two_who_want_the_same_image_at_once_both_get_it() {
    let place = TestStore::new("at-once");
    write_layout(&place.file("layout"), &[layer("base"), layer("a")], &json!({}));
    let (one, other) =
        tokio::join!(place.import("layout", Some("app")), place.import("layout", Some("same")),);
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    assert_eq!(place.images.find("app").unwrap(), place.images.find("same").unwrap());
    assert_eq!((place.names("layers").len(), place.names("imports").len()), (2, 0));
}

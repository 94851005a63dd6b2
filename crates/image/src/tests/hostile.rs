//! What a hostile layer may try: each attempt is refused and leaves nothing.

use super::*;
use crate::layer::LayerError;
use crate::layer::limits::DEPTH_MAX;

/// Refuses an image whose second layer is this archive; the first is a good one.
async fn refused(name: &str, layer: TestLayer) -> ImageError {
    let place = TestStore::new(name);
    let below = TestLayer::plain(Archive::default().dir("etc").file("etc/known", "below"));
    let error = place.root(&[below, layer]).await.expect_err(name);
    place.assert_empty();
    error
}

async fn refused_layer(name: &str, archive: Archive) -> LayerError {
    match refused(name, TestLayer::packed(archive, gzip)).await {
        ImageError::Layer { source, .. } => source,
        other => panic!("{name}: {other}"),
    }
}

#[tokio::test]
async fn paths_that_climb_or_are_absolute_are_refused() {
    for path in ["../precious", "a/../../precious", "/etc/passwd"] {
        let error = refused_layer("climb", Archive::default().file(path, "evil")).await;
        assert!(matches!(error, LayerError::Archive(_)), "{path}: {error}");
        let error = refused_layer("climb-link", Archive::default().hard("h", path)).await;
        assert!(matches!(error, LayerError::Archive(_)), "{path}: {error}");
    }
}

#[tokio::test]
async fn a_planted_link_leads_nowhere() {
    for way in ["../../../../..", "/", "/tmp", ".", "etc"] {
        let archive = Archive::default().link("way", way).file("way/precious", "evil");
        let error = refused_layer("planted", archive).await;
        assert!(matches!(error, LayerError::ThroughSymlink { .. }), "{way}: {error}");
        let archive = Archive::default().link("way", way).hard("h", "way/precious");
        let error = refused_layer("planted-hard", archive).await;
        assert!(matches!(error, LayerError::ThroughSymlink { .. }), "{way}: {error}");
        let archive = Archive::default().link("way", way).dir("way/below");
        let error = refused_layer("planted-dir", archive).await;
        assert!(matches!(error, LayerError::ThroughSymlink { .. }), "{way}: {error}");
    }
}

#[tokio::test]
async fn a_hard_link_to_what_is_in_no_layer_is_refused() {
    let layer = TestLayer::plain(Archive::default().hard("h", "precious"));
    let error = refused("hard-out", layer).await;
    assert!(error.to_string().contains("hard link"), "{error}");
    let layer = TestLayer::plain(Archive::default().hard("h", "etc"));
    let error = refused("hard-dir", layer).await;
    assert!(error.to_string().contains("hard link"), "{error}");
    let error = refused_layer("hard-self", Archive::default().hard("h", "h")).await;
    assert!(matches!(error, LayerError::BadLink { .. }), "{error}");
    let archive = Archive::default().dir("own").hard("h", "own");
    let error = refused_layer("hard-own-dir", archive).await;
    assert!(matches!(error, LayerError::BadLink { .. }), "{error}");
}

#[tokio::test]
async fn devices_are_refused_the_whiteouts_of_overlays_among_them() {
    for kind in [
        Kind::CharDevice { major: 0, minor: 0 },
        Kind::CharDevice { major: 1, minor: 3 },
        Kind::BlockDevice { major: 8, minor: 0 },
    ] {
        let error = refused_layer("device", Archive::default().put("d", kind, 0o666, b"")).await;
        assert!(matches!(error, LayerError::Device { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_file_of_a_terabyte_is_refused_by_its_word_alone() {
    let huge = Archive::default().put("huge", Kind::File { size: 1 << 40 }, 0o644, b"");
    let error = refused_layer("huge", huge).await;
    assert!(matches!(error, LayerError::TooLarge { .. }), "{error}");
    let sparse = Archive::default().pax("GNU.sparse.realsize", b"1099511627776").file("s", "");
    let error = refused_layer("sparse", sparse).await;
    assert!(matches!(error, LayerError::Archive(_)), "{error}");
}

#[tokio::test]
async fn more_than_the_bounds_is_refused() {
    let deep = "d/".repeat(DEPTH_MAX) + "f";
    let error = refused_layer("deep", Archive::default().file(&deep, "")).await;
    assert!(matches!(error, LayerError::TooDeep { .. }), "{error}");
    let error = refused_layer("long", Archive::default().file(&"n".repeat(256), "")).await;
    assert!(matches!(error, LayerError::NameTooLong { .. }), "{error}");
}

#[test]
fn entries_and_bytes_are_counted() {
    use crate::layer::{Bounds, unpack};
    let place = TestStore::new("counted");
    let archive = Archive::default().file("a", "1234").file("b", "5678").end();
    for (entries_max, bytes_max, fits) in [(2, 8, true), (1, 8, false), (2, 7, false)] {
        let into = place.file(&format!("{entries_max}-{bytes_max}"));
        fs::create_dir_all(&into).expect("a directory");
        let bounds = Bounds { bytes_max, entries_max };
        assert_eq!(
            unpack(archive.as_slice(), &into, bounds).is_ok(),
            fits,
            "{entries_max} {bytes_max}"
        );
    }
}

#[tokio::test]
async fn a_bomb_is_ended_long_before_it_has_burst() {
    let zeros = vec![0; 1 << 20];
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let size = 600 << 20;
    let header = Archive::default().put("zeros", Kind::File { size }, 0o644, b"").0;
    encoder.write_all(&header[..512]).expect("memory");
    for _ in 0..600 {
        encoder.write_all(&zeros).expect("memory");
    }
    encoder.write_all(END_OF_ARCHIVE).expect("memory");
    let blob = encoder.finish().expect("memory");
    let layer = TestLayer { blob, diff_id: Digest::of(b"") };
    let error = refused("bomb", layer).await;
    let is_ratio = matches!(error, ImageError::Layer { source: LayerError::Ratio { .. }, .. });
    assert!(is_ratio, "{error}");
}

#[tokio::test]
async fn whiteouts_that_are_more_than_a_name_are_refused() {
    let zero = Kind::File { size: 0 };
    for archive in [
        Archive::default().file(".wh.x", "content"),
        Archive::default().dir(".wh.x"),
        Archive::default().file(".wh.x/y", ""),
        Archive::default().put(".wh.", zero.clone(), 0o644, b""),
        Archive::default().put(".wh..", zero.clone(), 0o644, b""),
        Archive::default().put("a/.wh...", zero.clone(), 0o644, b""),
    ] {
        let error = refused_layer("whiteout", archive).await;
        assert!(matches!(error, LayerError::Whiteout { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_whiteout_through_a_link_of_a_lower_layer_is_refused() {
    let place = TestStore::new("whiteout-through");
    let below = Archive::default().dir("real").file("real/f", "x").link("way", "real");
    let above = Archive::default().file("way/.wh.f", "");
    let error = place.root(&[TestLayer::plain(below), TestLayer::plain(above)]).await;
    assert!(matches!(error, Err(ImageError::Compose(_))), "{error:?}");
    place.assert_empty();
}

#[tokio::test]
async fn a_name_cannot_be_a_directory_and_a_file() {
    let archive = Archive::default().dir("a").file("a/f", "x").file("a", "now a file");
    let error = refused_layer("collision", archive).await;
    assert!(matches!(error, LayerError::Collision { .. }), "{error}");
}

#[tokio::test]
async fn attributes_that_overlays_read_are_refused() {
    for name in ["trusted.overlay.redirect", "user.overlay.metacopy"] {
        let key = format!("SCHILY.xattr.{name}");
        let archive = Archive::default().pax(&key, b"/etc").file("f", "x");
        let error = refused_layer("overlay", archive).await;
        assert!(matches!(error, LayerError::OverlayAttribute { .. }), "{error}");
    }
}

#[tokio::test]
async fn truncated_and_damaged_layers_are_refused() {
    let good = TestLayer::packed(Archive::default().file("f", &"x".repeat(9_000)), gzip);
    let cut = TestLayer { blob: good.blob[..good.blob.len() - 9].to_vec(), ..good.clone() };
    let error = refused("cut", cut).await;
    assert!(matches!(error, ImageError::Layer { .. }), "{error}");
    let other = TestLayer { diff_id: Digest::of(b"other"), ..good.clone() };
    let error = refused("diff-id", other).await;
    assert!(matches!(error, ImageError::DiffId { .. }), "{error}");
    let garbage = TestLayer { blob: b"no archive at all".to_vec(), diff_id: good.diff_id };
    let error = refused("garbage", garbage).await;
    assert!(matches!(error, ImageError::Layer { .. }), "{error}");
}

#[tokio::test]
async fn a_layer_that_is_not_what_its_digest_says_is_refused() {
    let place = TestStore::new("digest");
    let layer = TestLayer::plain(Archive::default().file("f", "x"));
    write_layout(&place.file("layout"), std::slice::from_ref(&layer), &json!({}));
    let blob = place.file("layout/blobs/sha256").join(Digest::of(&layer.blob).hex());
    let mut damaged = layer.blob;
    damaged[600] ^= 1;
    fs::write(blob, damaged).expect("the layout");
    let error = place.import("layout", Some("test")).await.expect_err("damaged");
    assert!(matches!(error, ImageError::Blob(_)), "{error}");
    place.assert_empty();
}

//! Registries that want to cost more than an image does.

use std::time::Duration;

use super::play::{Image, Reply, Server, answer, message};
use super::*;

#[tokio::test]
async fn an_image_comes_from_a_registry_that_is_played() {
    let (image, scene) = (Image::small(), Scene::new());
    let played = image.clone();
    let server = Server::start(move |request, _| played.reply(request)).await;
    let pulled = scene.pull(&server).await.unwrap();
    assert_eq!(pulled.manifest, Digest::of(&image.manifest));
    assert_eq!(scene.blobs.read(&pulled.layers[0].digest).unwrap(), image.layer);
    // Two layers of the same content are one.
    assert_eq!(
        (pulled.layers.len(), server.count(|request| request.is_blob(&image.layer))),
        (2, 1)
    );
    let not_there = server.name("nothing").parse().unwrap();
    let quiet = Server::start(|_, _| answer(404, &[], b"no JSON at all")).await;
    let missing = pull(&not_there, &scene.options, &scene.blobs, &scene.progress).await;
    assert_eq!(missing.unwrap().name, not_there);
    let error = scene.pull(&quiet).await.unwrap_err();
    assert!(matches!(error, PullError::NotFound { .. }), "{error}");
}

/// The results of a pull when the layer is answered so, and when the manifest is.
async fn layer_answered(reply: Reply) -> (PullError, usize, Scene) {
    let (image, mut scene) = (Image::small(), Scene::new());
    scene.options.times.stall = Duration::from_millis(150);
    scene.options.times.head = Duration::from_millis(300);
    let layer = image.layer.clone();
    let server = Server::start(move |request, _| {
        if request.is_blob(&image.layer) { reply.clone() } else { image.reply(request) }
    });
    let server = server.await;
    let error = scene.pull(&server).await.unwrap_err();
    assert!(!scene.blobs.has(&Digest::of(&layer)));
    (error, server.count(|request| request.is_blob(&layer)), scene)
}

async fn manifest_answered(reply: Reply) -> (PullError, usize) {
    let mut scene = Scene::new();
    scene.options.times.stall = Duration::from_millis(150);
    scene.options.times.head = Duration::from_millis(300);
    let server = Server::start(move |_, _| reply.clone()).await;
    let error = scene.pull(&server).await.unwrap_err();
    assert_eq!((scene.blobs.list().unwrap(), scene.partials()), (vec![], 0));
    (error, server.requests().len())
}

const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunk(bytes: usize) -> Vec<u8> {
    [format!("{bytes:x}\r\n").as_bytes(), &vec![b'x'; bytes], b"\r\n"].concat()
}

#[tokio::test]
async fn bodies_without_end_are_left() {
    let endless = Reply::Endless(CHUNKED.to_vec(), chunk(60_000), Duration::ZERO);
    let (error, _) = manifest_answered(endless.clone()).await;
    assert!(matches!(error, PullError::TooLarge { .. }), "{error}");
    let (error, count, scene) = layer_answered(endless).await;
    assert!(matches!(error, PullError::TooLarge { bytes_max: 7, .. }), "{error}");
    assert_eq!(count, 1);
    let files = fs::read_dir(scene.root.join("partial")).unwrap().flatten();
    assert_eq!(files.map(|entry| entry.metadata().unwrap().len()).sum::<u64>(), 0);
}

#[tokio::test]
async fn lengths_that_are_not_the_promised_ones_are_refused_at_once() {
    let (error, count, _) = layer_answered(answer(200, &[], b"a layer and more")).await;
    assert!(matches!(error, PullError::Length { wanted: 7, found: 16, .. }), "{error}");
    assert_eq!(count, 1);
    let (error, _, _) = layer_answered(answer(200, &[], b"")).await;
    assert!(matches!(error, PullError::Length { found: 0, .. }), "{error}");
    let (error, _, _) = layer_answered(answer(200, &[], b"A LAYER")).await;
    assert!(matches!(error, PullError::Digest { .. }), "{error}");
    let packed = answer(200, &[("content-encoding", "gzip")], b"a layer");
    let (error, _, _) = layer_answered(packed).await;
    assert!(matches!(error, PullError::Malformed { .. }), "{error}");
}

#[tokio::test]
async fn a_dripping_server_is_as_slow_as_a_silent_one() {
    let silent = Reply::Silent(b"HTTP/1.1 200 OK\r\n".to_vec());
    let (error, count) = manifest_answered(silent).await;
    assert!(matches!(error, PullError::Slow { what: PullStep::Head, .. }), "{error}");
    assert_eq!(count, 5);
    let head = b"HTTP/1.1 200 OK\r\n".to_vec();
    let pause = Duration::from_millis(20);
    let (error, _) = manifest_answered(Reply::Endless(head, b"x: y\r\n".to_vec(), pause)).await;
    assert!(matches!(error, PullError::Slow { .. } | PullError::Malformed { .. }), "{error}");
    let drip = Reply::Endless(CHUNKED.to_vec(), chunk(1), pause);
    let (error, _) = manifest_answered(drip).await;
    assert!(matches!(error, PullError::Slow { what: PullStep::Body, .. }), "{error}");
    let stopped = Reply::Silent(message(200, &[], b"a layer")[..40].to_vec());
    let (error, count, scene) = layer_answered(stopped).await;
    assert!(matches!(error, PullError::Slow { .. }), "{error}");
    assert_eq!((count, scene.partials()), (5, 1));
}

#[tokio::test]
async fn heads_without_end_are_left() {
    let line = format!("x-long: {}\r\n", "x".repeat(1000)).into_bytes();
    let head = b"HTTP/1.1 200 OK\r\n".to_vec();
    let (error, count) = manifest_answered(Reply::Endless(head, line, Duration::ZERO)).await;
    assert!(matches!(error, PullError::Malformed { .. }), "{error}");
    assert_eq!(count, 1);
    let (error, _) = manifest_answered(Reply::Cut(b"SSH-2.0-OpenSSH\r\n".to_vec())).await;
    assert!(matches!(error, PullError::Malformed { .. }), "{error}");
}

#[tokio::test]
async fn invalid_manifests_are_refused() {
    for (body, why) in [
        (&b"<html>"[..], "expected value"),
        (br#"{"schemaVersion":1,"fsLayers":[]}"#, "docker's first manifest format"),
        (br#"{"schemaVersion":2,"mediaType":"application/x"}"#, "not a container image"),
    ] {
        let (error, _) = manifest_answered(answer(200, &[], body)).await;
        assert!(matches!(error, PullError::Unusable(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let lie = [("docker-content-digest", Digest::of(b"x").to_string())];
    let lie: Vec<_> = lie.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (error, _) = manifest_answered(answer(200, &lie, &Image::small().manifest)).await;
    assert!(matches!(error, PullError::Digest { .. }), "{error}");
}

#[tokio::test]
async fn an_index_that_leads_into_itself_is_left() {
    let inner = Digest::of(b"x");
    let index = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[
            {{"mediaType":"x","digest":"{inner}","size":1}}]}}"#
    );
    // It cannot name itself, so it names something else.
    let (error, count) = manifest_answered(answer(200, &[], index.as_bytes())).await;
    assert!(matches!(error, PullError::Digest { .. }), "{error}");
    assert_eq!(count, 2);
}

#[tokio::test]
async fn more_than_is_allowed_is_refused_before_it_travels() {
    let (image, mut scene) = (Image::small(), Scene::new());
    let server = Server::start(move |request, _| image.reply(request)).await;
    scene.options.bounds.layer_bytes_max = 6;
    let error = scene.pull(&server).await.unwrap_err();
    assert!(matches!(
        error,
        PullError::Unusable(UnsupportedImage::Bytes { bytes: 7, bytes_max: 6 })
    ));
    scene.options.bounds = Bounds { image_bytes_max: 13, ..Bounds::default() };
    let error = scene.pull(&server).await.unwrap_err();
    assert!(
        matches!(error, PullError::Unusable(UnsupportedImage::Bytes { bytes: 14, .. })),
        "{error}"
    );
    assert_eq!(server.count(|request| request.path.contains("/blobs/")), 0);
}

//! Lines that break, servers that are busy, and who gives up when.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::play::{Image, Reply, Server, answer, message, offset};
use super::*;

#[tokio::test]
async fn a_cut_layer_goes_on_from_where_it_was() {
    let (image, scene) = (Image::of_bytes(600_000), Scene::new());
    let played = image.clone();
    let server = Server::start(move |request, _| {
        if !request.is_blob(&played.layer) {
            return played.reply(request);
        }
        let from = offset(request).unwrap_or(0);
        let to = (from + 250_000).min(played.layer.len());
        let whole = played.layer.len();
        let range = format!("bytes {from}-{}/{whole}", whole - 1);
        let status = if from > 0 { 206 } else { 200 };
        let message = message(status, &[("content-range", &range)], &played.layer[from..]);
        let head = message.len() - (whole - from);
        Reply::Cut(message[..head + to - from].to_vec())
    });
    let server = server.await;
    let pulled = scene.pull(&server).await.unwrap();
    assert_eq!(fs::read(scene.blobs.path(&pulled.layers[0].digest)).unwrap(), image.layer);
    let request = server.requests();
    let offsets: Vec<_> =
        request.iter().filter(|request| request.is_blob(&image.layer)).map(offset).collect();
    assert_eq!(offsets, [None, Some(250_000), Some(500_000)]);
    assert!(pulled.fetched_bytes < 602_000, "{}", pulled.fetched_bytes);
}

#[tokio::test]
async fn repeated_cuts_without_progress_end_the_pull() {
    let (image, scene) = (Image::of_bytes(1000), Scene::new());
    let layer = image.layer.clone();
    let server = Server::start(move |request, _| {
        if request.is_blob(&image.layer) { Reply::Cut(Vec::new()) } else { image.reply(request) }
    });
    let server = server.await;
    let error = scene.pull(&server).await.unwrap_err();
    assert!(matches!(error, PullError::Cut { .. }), "{error}");
    assert!(server.count(|request| request.is_blob(&layer)) <= 10);
    assert!(scene.progress.borrow().trouble.is_some());
}

#[tokio::test]
async fn a_server_that_knows_no_ranges_is_read_past_what_is_here() {
    let (image, scene) = (Image::of_bytes(400_000), Scene::new());
    let attempts = AtomicUsize::new(0);
    let played = image.clone();
    let server = Server::start(move |request, _| {
        if !request.is_blob(&played.layer) {
            return played.reply(request);
        }
        let whole = message(200, &[], &played.layer);
        match attempts.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::Cut(whole[..300_000].to_vec()),
            _ => Reply::Whole(whole),
        }
    });
    let server = server.await;
    let pulled = scene.pull(&server).await.unwrap();
    assert_eq!(fs::read(scene.blobs.path(&pulled.layers[0].digest)).unwrap(), image.layer);
}

/// Blobs with a partial layer from an earlier pull.
async fn with_left(image: &Image, left: &[u8]) -> Scene {
    let scene = Scene::new();
    let begun = scene.blobs.begin(Digest::of(&image.layer), image.layer.len() as u64);
    let crate::blobs::BlobState::Partial(mut partial) = begun.await.unwrap() else { panic!() };
    partial.write(left).unwrap();
    drop(partial);
    scene
}

#[tokio::test]
async fn a_wrong_partial_blob_is_fetched_again_once() {
    let image = Image::of_bytes(1000);
    let scene = with_left(&image, b"not how it begins").await;
    let played = image.clone();
    let server = Server::start(move |request, _| played.reply(request)).await;
    scene.pull(&server).await.unwrap();
    let request = server.requests();
    let offsets: Vec<_> =
        request.iter().filter(|request| request.is_blob(&image.layer)).map(offset).collect();
    assert_eq!(offsets, [Some(17), None]);
}

#[tokio::test]
async fn a_partial_blob_beyond_the_servers_size_is_fetched_again() {
    let image = Image::of_bytes(1000);
    let scene = with_left(&image, &image.layer[..10]).await;
    let played = image.clone();
    let server = Server::start(move |request, _| match offset(request) {
        Some(_) => answer(416, &[], b""),
        None => played.reply(request),
    });
    let server = server.await;
    scene.pull(&server).await.unwrap();
    let refused = Server::start(move |request, _| match offset(request) {
        Some(from) => answer(206, &[("content-range", &format!("bytes {}-9/10", from + 1))], b"x"),
        None => image.reply(request),
    });
    let other = Image::of_bytes(1000);
    let scene = with_left(&other, &other.layer[..10]).await;
    let error = scene.pull(&refused.await).await.unwrap_err();
    assert!(matches!(error, PullError::Malformed { .. }), "{error}");
}

#[tokio::test]
async fn a_busy_registry_is_asked_again_and_not_forever() {
    let (image, scene) = (Image::small(), Scene::new());
    let server = Server::start(move |request, before| match before {
        0 => answer(503, &[], b""),
        1 => answer(429, &[("retry-after", "0")], b""),
        2 => answer(500, &[], b""),
        _ => image.reply(request),
    });
    let server = server.await;
    scene.pull(&server).await.unwrap();
    let limited = br#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow\u001b[0m down"}]}"#;
    let server = Server::start(move |_, _| answer(429, &[], limited)).await;
    let error = Scene::new().pull(&server).await.unwrap_err();
    assert!(matches!(error, PullError::Status { status: 429, .. }), "{error}");
    assert!(error.to_string().ends_with("429: slow[0m down"), "{error}");
    assert_eq!(server.requests().len(), 5);
    // An hour is longer than a pull waits.
    let server = Server::start(|_, _| answer(503, &[("retry-after", "3600")], b"")).await;
    Scene::new().pull(&server).await.unwrap_err();
    assert_eq!(server.requests().len(), 1);
    let server = Server::start(|_, _| answer(418, &[], b"")).await;
    Scene::new().pull(&server).await.unwrap_err();
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_registry_is_waited_for_as_long_as_it_says() {
    let teller = watch::Sender::default();
    let mut retries = Retries::new(Duration::from_millis(500), ProgressSender(&teller));
    let busy = |after: Option<u64>| PullError::Status {
        at: String::new(),
        status: 503,
        message: RegistryMessage::default(),
        retry_after: after.map(Duration::from_secs),
    };
    let mut waits = Vec::new();
    for after in [None, Some(7), None, Some(0)] {
        let since = tokio::time::Instant::now();
        retries.after(busy(after)).await.unwrap();
        waits.push(since.elapsed().as_millis());
    }
    assert_eq!(waits.iter().map(|ms| ms / 100).collect::<Vec<_>>(), [5, 70, 20, 40]);
    assert!(retries.after(busy(None)).await.is_err());
}

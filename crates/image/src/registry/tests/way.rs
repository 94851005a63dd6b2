//! Redirects: where they may lead, and what goes along.

use super::play::{Image, Server, answer};
use super::*;

#[tokio::test]
async fn a_blob_elsewhere_is_fetched_without_credentials() {
    let (image, mut scene) = (Image::small(), Scene::new());
    let played = image.clone();
    let store = Server::start(move |_, _| answer(200, &[], &played.layer)).await;
    let to = store.url("/signed?secret=1");
    let layer = image.layer.clone();
    let server = Server::start(move |asked, _| match asked.header("authorization") {
        None => answer(401, &[("www-authenticate", "Basic realm=x")], b""),
        Some(_) if asked.is_blob(&image.layer) => answer(307, &[("location", &to)], b""),
        Some(_) => image.reply(asked),
    });
    let server = server.await;
    let host = server.name("");
    scene.credentials(&format!(r#"{{"auths":{{"{host}":{{"username":"u","password":"p"}}}}}}"#));
    let pulled = scene.pull(&server).await.unwrap();
    assert!(scene.blobs.has(&Digest::of(&layer)) && pulled.layers.len() == 2);
    let asked = store.asked();
    assert_eq!((asked.len(), asked[0].path.as_str()), (1, "/signed?secret=1"));
    assert_eq!(asked[0].header("authorization"), None);
    assert!(server.count(|asked| asked.header("authorization") == Some("Basic dTpw")) >= 3);
}

#[tokio::test]
async fn a_pull_may_be_a_task_of_its_own() {
    let (image, scene) = (Image::small(), Scene::new());
    let server = Server::start(move |asked, _| image.reply(asked)).await;
    let (blobs, options, progress) =
        (scene.blobs.clone(), scene.options.clone(), scene.progress.clone());
    let reference: Reference = server.name("app:v1").parse().unwrap();
    let task = tokio::spawn(async move { pull(&reference, &options, &blobs, &progress).await });
    assert_eq!(task.await.unwrap().unwrap().layers.len(), 2);
    assert!(scene.progress.borrow().layers[0].is_whole);
}

async fn redirected(to: &str) -> (PullError, usize) {
    let to = to.to_owned();
    let server = Server::start(move |_, _| answer(302, &[("location", &to)], b"")).await;
    let error = Scene::new().pull(&server).await.unwrap_err();
    (error, server.asked().len())
}

#[tokio::test]
async fn redirects_that_lead_nowhere_good_are_not_followed() {
    let (error, count) = redirected("/again").await;
    assert!(matches!(error, PullError::Redirects { .. }), "{error}");
    assert_eq!(count, 6);
    let (error, _) = redirected("http://images.example/x?signature=abc").await;
    assert!(matches!(error, PullError::Downgrade { .. }), "{error}");
    assert!(!error.to_string().contains("abc"), "{error}");
    for nowhere in ["ftp://x/", "http://user:word@localhost/", ""] {
        let (error, _) = redirected(nowhere).await;
        assert!(
            matches!(error, PullError::Redirect { .. } | PullError::Redirects { .. }),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_dropped_pull_closes_its_connection() {
    let (image, scene) = (Image::small(), Scene::new());
    let layer = image.layer.clone();
    let server = Server::start(move |asked, _| {
        if asked.is_blob(&image.layer) {
            return play::Reply::Silent(play::message(200, &[], &image.layer)[..42].to_vec());
        }
        image.reply(asked)
    });
    let server = server.await;
    let asked = async {
        while server.count(|asked| asked.is_blob(&layer)) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        pulled = scene.pull(&server) => panic!("{pulled:?}"),
        () = asked => {}
    }
    assert!(!scene.blobs.has(&Digest::of(&layer)));
    // Whoever comes next has the blob to himself.
    let begun = scene.blobs.begin(Digest::of(&layer), layer.len() as u64);
    let begun = tokio::time::timeout(Duration::from_secs(10), begun).await.unwrap();
    assert!(matches!(begun.unwrap(), crate::blobs::BlobState::Partial(_)));
}

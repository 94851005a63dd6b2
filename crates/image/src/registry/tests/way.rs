//! Redirects: where they may lead, and what is sent there.

use super::play::{Image, Server, answer};
use super::*;

#[tokio::test]
async fn a_blob_elsewhere_is_fetched_without_credentials() {
    let (image, mut scene) = (Image::small(), Scene::new());
    let played = image.clone();
    let store = Server::start(move |_, _| answer(200, &[], &played.layer)).await;
    scene.names(&store);
    let to = store.url("/signed?secret=1");
    let layer = image.layer.clone();
    let server = Server::start(move |request, _| match request.header("authorization") {
        None => answer(401, &[("www-authenticate", "Basic realm=x")], b""),
        Some(_) if request.is_blob(&image.layer) => answer(307, &[("location", &to)], b""),
        Some(_) => image.reply(request),
    });
    let server = server.await;
    let host = server.name("");
    scene.credentials(&format!(r#"{{"auths":{{"{host}":{{"username":"u","password":"p"}}}}}}"#));
    let pulled = scene.pull(&server).await.unwrap();
    assert!(scene.blobs.has(&Digest::of(&layer)) && pulled.layers.len() == 2);
    let request = store.requests();
    assert_eq!((request.len(), request[0].path.as_str()), (1, "/signed?secret=1"));
    assert_eq!(request[0].header("authorization"), None);
    assert!(server.count(|request| request.header("authorization") == Some("Basic dTpw")) >= 3);
}

#[tokio::test]
async fn a_pull_may_be_a_task_of_its_own() {
    let (image, scene) = (Image::small(), Scene::new());
    let server = Server::start(move |request, _| image.reply(request)).await;
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
    (error, server.requests().len())
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

/// The error after a redirect to a forbidden place, and how many requests arrived there.
async fn sent_to(port: u16, places: &[&str]) -> Vec<String> {
    let mut bytes = Vec::new();
    for place in places {
        let to = format!("{place}:{port}/");
        let redirects = Server::start(move |_, _| answer(302, &[("location", &to)], b"")).await;
        let realm = format!("Bearer realm=\"{place}:{port}/\"");
        let tokens =
            Server::start(move |_, _| answer(401, &[("www-authenticate", &realm)], b"")).await;
        for server in [redirects, tokens] {
            let error = Scene::new().pull(&server).await.unwrap_err();
            assert!(matches!(error, PullError::NotPublic { .. }), "{place}: {error}");
            bytes.push(error.to_string());
        }
    }
    bytes
}

#[tokio::test]
async fn a_registry_leads_nobody_to_this_host_or_its_network_whether_somebody_listens_or_not() {
    let places = [
        "https://127.0.0.1",
        "https://localhost",
        "https://[::1]",
        "https://[::ffff:127.0.0.1]",
        "https://0.0.0.0",
        "https://169.254.169.254",
        "https://10.0.0.1",
        "https://192.168.1.1",
        "http://127.0.0.1",
    ];
    let listens = Server::start(|_, _| answer(200, &[], b"")).await;
    let closed = {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap().port()
    };
    let open = sent_to(listens.port, &places).await;
    let without_port = |requests: &[String], port: u16| -> Vec<String> {
        requests.iter().map(|one| one.replace(&format!(":{port}"), "")).collect()
    };
    let shut = sent_to(closed, &places).await;
    assert_eq!(without_port(&open, listens.port), without_port(&shut, closed));
    assert!(listens.requests().is_empty());
}

#[tokio::test]
async fn a_registry_that_a_client_names_is_on_the_public_internet_or_configured() {
    let (image, mut scene) = (Image::small(), Scene::new());
    let server = Server::start(move |request, _| image.reply(request)).await;
    scene.options = scene.options.clone().for_clients();
    let error = scene.pull(&server).await.unwrap_err();
    assert!(matches!(error, PullError::NotPublic { .. }), "{error}");
    assert!(error.to_string().contains("[registries.\"localhost:"), "{error}");
    assert!(server.requests().is_empty());
    let host = server.name("").trim_end_matches('/').parse().unwrap();
    scene.options.registries.insert(host, Registry::default());
    scene.pull(&server).await.unwrap();
}

#[tokio::test]
async fn a_dropped_pull_closes_its_connection() {
    let (image, scene) = (Image::small(), Scene::new());
    let layer = image.layer.clone();
    let server = Server::start(move |request, _| {
        if request.is_blob(&image.layer) {
            return play::Reply::Silent(play::message(200, &[], &image.layer)[..42].to_vec());
        }
        image.reply(request)
    });
    let server = server.await;
    let request = async {
        while server.count(|request| request.is_blob(&layer)) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        pulled = scene.pull(&server) => panic!("{pulled:?}"),
        () = request => {}
    }
    assert!(!scene.blobs.has(&Digest::of(&layer)));
    // The next pull gets the blob's lock.
    let begun = scene.blobs.begin(Digest::of(&layer), layer.len() as u64);
    let begun = tokio::time::timeout(Duration::from_secs(10), begun).await.unwrap();
    assert!(matches!(begun.unwrap(), crate::blobs::BlobState::Partial(_)));
}

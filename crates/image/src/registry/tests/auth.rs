//! Tokens: where they come from, how long they are valid, and who must not see them.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::play::{Image, ReceivedRequest, Reply, Server, answer};
use super::*;

/// A registry that wants the last token of its own token server, `TOKEN-N`. `realm` is added to
/// that server's address.
fn guarded(
    image: Image,
    tokens: AtomicUsize,
    expires_in: u64,
) -> impl Fn(&ReceivedRequest, usize) -> Reply {
    move |request, _| {
        if request.path.starts_with("/token") {
            let number = tokens.fetch_add(1, Ordering::SeqCst) + 1;
            let body = format!(r#"{{"access_token":"TOKEN-{number}","expires_in":{expires_in}}}"#);
            return answer(200, &[], body.as_bytes());
        }
        let good = format!("Bearer TOKEN-{}", tokens.load(Ordering::SeqCst));
        if request.header("authorization") == Some(&good) {
            return image.reply(request);
        }
        let host = request.header("host").unwrap_or_default();
        let challenge = format!(
            "Bearer realm=\"http://{host}/token\",service=\"a service\",scope=\"repository:app:pull,push\""
        );
        answer(401, &[("www-authenticate", &challenge)], b"")
    }
}

#[tokio::test]
async fn strangers_get_a_token_where_the_registry_gives_them() {
    let scene = Scene::new();
    let server = Server::start(guarded(Image::small(), AtomicUsize::new(0), 300)).await;
    scene.pull(&server).await.unwrap();
    let requests = server.requests();
    let tokens: Vec<_> =
        requests.iter().filter(|requests| requests.path.starts_with("/token")).collect();
    // One token for all requests, only to read, and requested anonymously.
    assert_eq!(tokens.len(), 1);
    assert_eq!(tokens[0].path, "/token?service=a%20service&scope=repository%3Aapp%3Apull");
    assert_eq!((tokens[0].method.as_str(), tokens[0].header("authorization")), ("GET", None));
}

#[tokio::test]
async fn a_token_that_is_no_longer_valid_is_fetched_again() {
    let (image, scene) = (Image::small(), Scene::new());
    let layer = image.layer.clone();
    let play = guarded(image, AtomicUsize::new(0), 300);
    let refused = AtomicUsize::new(0);
    let server = Server::start(move |request, before| {
        // Refuses the token, whatever it was good for until now.
        if request.is_blob(&layer) && refused.fetch_add(1, Ordering::SeqCst) == 0 {
            let host = request.header("host").unwrap_or_default();
            let challenge = format!("Bearer realm=\"http://{host}/token\"");
            return answer(401, &[("www-authenticate", &challenge)], b"");
        }
        play(request, before)
    });
    let server = server.await;
    scene.pull(&server).await.unwrap();
    assert_eq!(server.count(|request| request.path.starts_with("/token")), 2);
}

#[tokio::test]
async fn a_token_of_identity_is_given_for_one_of_access() {
    let mut scene = Scene::new();
    let server = Server::start(guarded(Image::small(), AtomicUsize::new(0), 300)).await;
    let host = server.name("");
    scene.credentials(&format!(r#"{{"auths":{{"{host}":{{"identitytoken":"I&D"}}}}}}"#));
    scene.pull(&server).await.unwrap();
    let requests = server.requests();
    let token = requests.iter().find(|requests| requests.path.starts_with("/token")).unwrap();
    assert_eq!((token.method.as_str(), token.path.as_str()), ("POST", "/token"));
    assert_eq!(
        token.body,
        "grant_type=refresh_token&client_id=burrow&service=a%20service\
         &scope=repository%3Aapp%3Apull&refresh_token=I%26D"
    );
}

async fn challenged(
    challenge: &'static str,
    credentials: bool,
) -> (PullError, Vec<ReceivedRequest>) {
    let mut scene = Scene::new();
    let server =
        Server::start(move |_, _| answer(401, &[("www-authenticate", challenge)], b"")).await;
    if credentials {
        let host = server.name("");
        scene.credentials(&format!(
            r#"{{"auths":{{"{host}":{{"username":"me","password":"hunter2"}}}}}}"#
        ));
    }
    let error = scene.pull(&server).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    (error, server.requests())
}

#[tokio::test]
async fn nothing_is_sent_to_token_servers_at_odd_places() {
    for odd in [
        "Bearer realm=\"http://tokens.example/\"",
        "Bearer realm=\"ftp://localhost/\"",
        "Bearer realm=\"/token\"",
        "Bearer realm=\"https://me:word@tokens.example/\"",
    ] {
        let (error, requests) = challenged(odd, true).await;
        assert!(matches!(error, PullError::Realm { .. }), "{error}");
        assert_eq!(requests.len(), 1);
    }
    let (error, requests) = challenged("Negotiate", true).await;
    assert!(matches!(error, PullError::Challenge { .. }), "{error}");
    assert_eq!(requests.len(), 1);
}

#[tokio::test]
async fn a_second_refusal_ends_the_pull() {
    let (error, requests) = challenged("Basic realm=x", true).await;
    assert!(matches!(error, PullError::Denied { .. }), "{error}");
    assert_eq!(requests.len(), 2);
    let (error, requests) = challenged("Basic realm=x", false).await;
    assert!(matches!(error, PullError::Anonymous { .. }), "{error}");
    assert_eq!(requests.len(), 1);
}

#[tokio::test]
async fn a_token_server_that_talks_nonsense_is_not_quoted() {
    for nonsense in ["hunter2", "{}", r#"{"token":""}"#, r#"{"token":"a\nb"}"#] {
        let server = Server::start(move |request, _| {
            if request.path.starts_with("/token") {
                return answer(200, &[], nonsense.as_bytes());
            }
            let host = request.header("host").unwrap_or_default();
            let challenge = format!("Bearer realm=\"http://{host}/token\"");
            answer(401, &[("www-authenticate", &challenge)], b"")
        });
        let error = Scene::new().pull(&server.await).await.unwrap_err();
        let is_right = matches!(error, PullError::Malformed { .. } | PullError::Credentials(_));
        assert!(is_right && !format!("{error:?}").contains("hunter2"), "{error:?}");
    }
}

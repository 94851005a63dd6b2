//! Tokens: where they come from, how long they hold, and to whom nothing is said.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::play::{Asked, Image, Reply, Server, answer};
use super::*;

/// A registry that wants the token which its own token server gives out last, `TOKEN-N`. `realm` is
/// added to the address of that server.
fn guarded(image: Image, tokens: AtomicUsize, expires_in: u64) -> impl Fn(&Asked, usize) -> Reply {
    move |asked, _| {
        if asked.path.starts_with("/token") {
            let number = tokens.fetch_add(1, Ordering::SeqCst) + 1;
            let body = format!(r#"{{"access_token":"TOKEN-{number}","expires_in":{expires_in}}}"#);
            return answer(200, &[], body.as_bytes());
        }
        let good = format!("Bearer TOKEN-{}", tokens.load(Ordering::SeqCst));
        if asked.header("authorization") == Some(&good) {
            return image.reply(asked);
        }
        let host = asked.header("host").unwrap_or_default();
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
    let asked = server.asked();
    let tokens: Vec<_> = asked.iter().filter(|asked| asked.path.starts_with("/token")).collect();
    // Once for all, to read alone, and without a word about who asks.
    assert_eq!(tokens.len(), 1);
    assert_eq!(tokens[0].path, "/token?service=a%20service&scope=repository%3Aapp%3Apull");
    assert_eq!((tokens[0].method.as_str(), tokens[0].header("authorization")), ("GET", None));
}

#[tokio::test]
async fn a_token_that_is_no_longer_good_is_got_anew() {
    let (image, scene) = (Image::small(), Scene::new());
    let layer = image.layer.clone();
    let play = guarded(image, AtomicUsize::new(0), 300);
    let refused = AtomicUsize::new(0);
    let server = Server::start(move |asked, before| {
        // Whatever it was good for until now.
        if asked.is_blob(&layer) && refused.fetch_add(1, Ordering::SeqCst) == 0 {
            let host = asked.header("host").unwrap_or_default();
            let challenge = format!("Bearer realm=\"http://{host}/token\"");
            return answer(401, &[("www-authenticate", &challenge)], b"");
        }
        play(asked, before)
    });
    let server = server.await;
    scene.pull(&server).await.unwrap();
    assert_eq!(server.count(|asked| asked.path.starts_with("/token")), 2);
}

#[tokio::test]
async fn a_token_of_identity_is_given_for_one_of_access() {
    let mut scene = Scene::new();
    let server = Server::start(guarded(Image::small(), AtomicUsize::new(0), 300)).await;
    let host = server.name("");
    scene.credentials(&format!(r#"{{"auths":{{"{host}":{{"identitytoken":"I&D"}}}}}}"#));
    scene.pull(&server).await.unwrap();
    let asked = server.asked();
    let token = asked.iter().find(|asked| asked.path.starts_with("/token")).unwrap();
    assert_eq!((token.method.as_str(), token.path.as_str()), ("POST", "/token"));
    assert_eq!(
        token.body,
        "grant_type=refresh_token&client_id=burrow&service=a%20service\
         &scope=repository%3Aapp%3Apull&refresh_token=I%26D"
    );
}

async fn challenged(challenge: &'static str, credentials: bool) -> (PullError, Vec<Asked>) {
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
    (error, server.asked())
}

#[tokio::test]
async fn nothing_is_said_to_token_servers_at_odd_places() {
    for odd in [
        "Bearer realm=\"http://tokens.example/\"",
        "Bearer realm=\"ftp://localhost/\"",
        "Bearer realm=\"/token\"",
        "Bearer realm=\"https://me:word@tokens.example/\"",
    ] {
        let (error, asked) = challenged(odd, true).await;
        assert!(matches!(error, PullError::Realm { .. }), "{error}");
        assert_eq!(asked.len(), 1);
    }
    let (error, asked) = challenged("Negotiate", true).await;
    assert!(matches!(error, PullError::Challenge { .. }), "{error}");
    assert_eq!(asked.len(), 1);
}

#[tokio::test]
async fn who_is_refused_twice_does_not_ask_for_ever() {
    let (error, asked) = challenged("Basic realm=x", true).await;
    assert!(matches!(error, PullError::Denied { .. }), "{error}");
    assert_eq!(asked.len(), 2);
    let (error, asked) = challenged("Basic realm=x", false).await;
    assert!(matches!(error, PullError::Anonymous { .. }), "{error}");
    assert_eq!(asked.len(), 1);
}

#[tokio::test]
async fn a_token_server_that_talks_nonsense_is_not_quoted() {
    for nonsense in ["hunter2", "{}", r#"{"token":""}"#, r#"{"token":"a\nb"}"#] {
        let server = Server::start(move |asked, _| {
            if asked.path.starts_with("/token") {
                return answer(200, &[], nonsense.as_bytes());
            }
            let host = asked.header("host").unwrap_or_default();
            let challenge = format!("Bearer realm=\"http://{host}/token\"");
            answer(401, &[("www-authenticate", &challenge)], b"")
        });
        let error = Scene::new().pull(&server.await).await.unwrap_err();
        let is_right = matches!(error, PullError::Malformed { .. } | PullError::Credentials(_));
        assert!(is_right && !format!("{error:?}").contains("hunter2"), "{error:?}");
    }
}

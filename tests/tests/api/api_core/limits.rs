//! How many runs there may be at once, of one key and of all.

use tests::eventually;
use tests::http::Client;
use tests::server::Server;

use super::{a_run_is_under_way, answers_as_usual, bash, create};

fn at_the_limit(options: &[&str], status: u16, code: &str) {
    let server = Server::start(&[&["--dev"], options].concat());
    let client = Client::new(server.url());
    create(&client, "box");
    bash(&client, "box", "true").expect(200);
    std::thread::scope(|scope| {
        // The two may meet, and either be the one that is refused.
        let busy = scope.spawn(|| {
            loop {
                let answered = bash(&Client::new(server.url()), "box", "sleep 2; echo done");
                if answered.status == 200 {
                    return answered;
                }
            }
        });
        let mut refused = None;
        eventually("a run too many", || {
            let next = bash(&client, "box", "true");
            refused = (next.status != 200).then_some(next);
            refused.is_some()
        });
        let refused = refused.unwrap().expect(status);
        assert_eq!(refused.code(), code);
        assert!(refused.header("retry-after").is_some_and(|text| text.parse::<u64>().is_ok()));
        assert!(refused.json()["hint"].is_string());
        // What is no run is served as ever.
        answers_as_usual(&client);
        assert_eq!(busy.join().unwrap().expect(200).json()["stdout"], "done\n");
    });
    bash(&client, "box", "true").expect(200);
}

#[test]
fn a_key_that_has_all_its_runs_under_way_is_asked_to_retry() {
    at_the_limit(&["--set", "server.runs_per_key_max=1"], 429, "limit_reached");
}

#[test]
fn a_server_that_has_all_its_runs_under_way_says_so() {
    at_the_limit(&["--set", "server.runs_max=1"], 503, "unavailable");
}

#[test]
fn a_client_that_is_gone_gives_its_run_back() {
    let server = Server::start(&["--dev", "--set", "server.runs_max=1"]);
    let client = Client::new(server.url());
    create(&client, "box");
    let connection = client.raw();
    let body = r#"{"language":"bash","code":"sleep 60"}"#;
    super::raw::send(
        &connection,
        format!(
            "POST {}/run HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
            super::path_of("box"),
            body.len()
        ),
    );
    // A run that asks too early would take the place itself.
    a_run_is_under_way(&client);
    assert_eq!(bash(&client, "box", "true").status, 503);
    drop(connection);
    eventually("its place is free again", || bash(&client, "box", "true").status == 200);
}

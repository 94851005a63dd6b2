//! Apps of the frameworks, as people write them.

use serde_json::{Value, json};
use tests::door::{BOX, open};
use tests::frameworks::frameworks;
use tests::http::{Answer, Client};

use super::{fetch, host_port, is_reached, nothing_is_left, start};

const FLASK: &str = "
from flask import Flask
app = Flask(__name__)

@app.route('/')
def hello():
    return f'hello from {__name__}'
";

/// A client that starts apps with the interpreter that has the frameworks.
struct Starts<'a> {
    client: &'a Client,
    python: String,
}

impl<'a> Starts<'a> {
    fn new(client: &'a Client) -> Option<Self> {
        let python = frameworks()?.join("bin/python").to_string_lossy().into_owned();
        Some(Self { client, python })
    }

    fn ask(&self, kind: &str, code: &str) -> Answer {
        start(self.client, &json!({ "type": kind, "code": code, "python": self.python }))
    }

    /// Starts one that answers, and ends it when it has been looked at.
    fn with(&self, kind: &str, code: &str, look: impl FnOnce(&Value)) {
        let app = self.ask(kind, code).expect(201).json();
        look(&app);
        let name = app["app"].as_str().expect("a name");
        self.client.delete(&format!("{BOX}/apps/{name}")).expect(204);
        assert!(!is_reached(host_port(&app)));
    }

    /// The log of one that does not come to answer.
    fn failure(&self, kind: &str, code: &str) -> String {
        let refused = self.ask(kind, code).expect(422).json();
        assert_eq!(refused["code"], "app_failed", "{refused}");
        refused["details"]["log"].as_str().expect("a log").to_owned()
    }
}

#[test]
fn a_flask_app_is_served_however_it_is_written() {
    let (server, client) = open();
    let Some(starts) = Starts::new(&client) else { return };
    starts.with("flask", FLASK, |app| {
        assert_eq!((&app["app"], &app["guest_port"]), (&json!("flask"), &json!(5000)));
        assert_eq!(fetch(app, "/").expect(200).text(), "hello from __main__");
        assert_eq!(fetch(app, "/none").status, 404);
        let log = client.get(&format!("{BOX}/apps/flask/log")).expect(200).json();
        assert!(log["log"].as_str().expect("text").contains("\"GET / HTTP/1.1\" 200"), "{log}");
    });
    let under_main = format!(
        "{FLASK}
if __name__ == '__main__':
    app.run(host='0.0.0.0', port=9999, debug=True)
"
    );
    let at_top_level = format!("{FLASK}\napp.run(port=9999)\n");
    let called_otherwise = FLASK.replace("app", "web");
    let of_a_factory = "
import flask
def create_app():
    made = flask.Flask('made')
    made.add_url_rule('/', view_func=lambda: 'hello from a factory')
    return made
";
    for code in [&under_main, &at_top_level, &called_otherwise, of_a_factory] {
        starts.with("flask", code, |app| {
            let output = fetch(app, "/").expect(200).text();
            assert!(output.starts_with("hello from"), "{output}\n{code}");
        });
    }
    nothing_is_left(&server, &client);
}

#[test]
fn code_that_does_not_come_to_serve_is_reported_with_its_traceback() {
    let (server, client) = open();
    let Some(starts) = Starts::new(&client) else { return };
    let crashes = starts.failure("flask", &format!("{FLASK}\nprint('so far')\n1 / 0\n"));
    assert!(crashes.contains("so far") && crashes.contains("ZeroDivisionError"), "{crashes}");
    let broken = starts.failure("flask", "from flask import Flask\napp = = Flask\n");
    assert!(broken.contains("SyntaxError"), "{broken}");
    let imports = starts.failure("flask", "import no_such_module\n");
    assert!(imports.contains("No module named 'no_such_module'"), "{imports}");
    let empty = starts.failure("flask", "x = 1\n");
    assert!(empty.contains("there is no app"), "{empty}");
    let two = FLASK.replace("app", "one") + &FLASK.replace("app", "two");
    let two = starts.failure("flask", &two);
    assert!(two.contains("several apps (one, two)"), "{two}");
    nothing_is_left(&server, &client);
}

#[test]
fn an_asgi_app_is_served_however_it_is_written() {
    let (server, client) = open();
    let Some(starts) = Starts::new(&client) else { return };
    let code = "
from fastapi import FastAPI
api = FastAPI()

@api.get('/double/{number}')
async def double(number: int):
    return {'answer': 2 * number}
";
    let under_main = format!(
        "{code}
if __name__ == '__main__':
    import uvicorn
    uvicorn.run('main:api', host='0.0.0.0', port=9999, reload=True, workers=4)
"
    );
    for code in [code, &under_main, &under_main.replace("'main:api'", "api")] {
        starts.with("fastapi", code, |app| {
            assert_eq!(fetch(app, "/double/21").expect(200).json(), json!({ "answer": 42 }));
            assert_eq!(fetch(app, "/double/x").status, 422);
        });
    }
    let bare = "
async def app(scope, receive, send):
    if scope['type'] == 'http':
        await send({'type': 'http.response.start', 'status': 200, 'headers': []})
        await send({'type': 'http.response.body', 'body': b'bare'})
";
    starts.with("fastapi", bare, |app| assert_eq!(fetch(app, "/").text(), "bare"));
    nothing_is_left(&server, &client);
}

#[test]
fn a_streamlit_script_is_served() {
    let (server, client) = open();
    let Some(starts) = Starts::new(&client) else { return };
    starts.with("streamlit", "import streamlit as st\nst.title('hello')\n", |app| {
        assert_eq!(app["guest_port"], 8501);
        assert_eq!(fetch(app, "/_stcore/health").expect(200).text(), "ok");
        assert!(fetch(app, "/").expect(200).text().contains("<title>Streamlit</title>"));
    });
    nothing_is_left(&server, &client);
}

#[test]
fn missing_modules_are_reported_before_anything_is_started() {
    let (server, client) = open();
    server.ok(&["exec", "box", "--", "python3", "-m", "venv", "--without-pip", "/tmp/bare"]);
    let ask = |kind: &str, code: &str, python: &str| {
        start(&client, &json!({ "type": kind, "code": code, "python": python })).expect(422).json()
    };
    let bare = "/tmp/bare/bin/python";
    let lacks = ask("flask", FLASK, bare);
    assert_eq!(lacks["code"], "module_missing");
    assert_eq!(lacks["details"], json!({ "python": bare, "modules": ["flask"] }));
    let hint = lacks["hint"].as_str().expect("a hint");
    assert!(hint.contains("/tmp/bare/bin/python -m pip install flask"), "{hint}");
    let lacks = ask("fastapi", "from fastapi import FastAPI\napp = FastAPI()", bare);
    assert_eq!(lacks["details"]["modules"], json!(["uvicorn", "fastapi"]));
    assert_eq!(ask("streamlit", "", bare)["details"]["modules"], json!(["streamlit"]));
    assert_eq!(ask("flask", FLASK, "/no/python")["code"], "spawn_failed");
    let broken = ask("flask", FLASK, "/bin/false");
    assert_eq!(broken["code"], "spawn_failed");
    nothing_is_left(&server, &client);
}

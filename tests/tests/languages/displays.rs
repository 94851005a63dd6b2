//! What Python code shows: forms of its own objects, and what the common libraries draw, without a
//! display. The libraries come from `PyPI` into an environment below `target/`, once.

use agent_client::guest::{Guest, Ran, RunCode};
use protocol::repl::{Display, DisplayRole, Happening, OpenContext, RunEnd};
use tests::contexts::{context, ran, run, stderr, stdout};
use tests::libraries::SCIENCE;
use tests::sandbox::Sandbox;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// A context whose Python has the libraries; none, with a reason, when they cannot be had.
fn with_libraries() -> Option<OpenContext> {
    let home = tests::libraries::python_with("displays", &SCIENCE)?;
    let mut ask = context("python");
    let text = |path: &str| home.join(path).to_string_lossy().as_ref().into();
    ask.program = Some(text("bin/python"));
    ask.env = vec![("MPLCONFIGDIR".into(), text("fonts"))];
    Some(ask)
}

fn shown(ran: &Ran) -> Vec<&Display> {
    let shown = ran.events.iter().filter_map(|event| match &event.what {
        Happening::Display(shown) => Some(shown),
        _ => None,
    });
    shown.collect()
}

fn form<'a>(display: &'a Display, mime: &str) -> &'a [u8] {
    let found = display.data.iter().find(|datum| datum.mime == mime);
    let offered: Vec<_> = display.data.iter().map(|datum| &datum.mime).collect();
    found.unwrap_or_else(|| panic!("no {mime} among {offered:?}")).data.as_bytes()
}

fn text(display: &Display, mime: &str) -> String {
    String::from_utf8(form(display, mime).to_vec()).expect("UTF-8")
}

/// Runs code that must end well and say nothing on stderr.
async fn show(guest: &Guest, ask: &OpenContext, code: &str) -> Ran {
    let done = ran(guest, RunCode::new(ask.clone(), code)).await;
    assert_eq!((&done.finished.end, stderr(&done).as_str()), (&RunEnd::Ok {}, ""), "{done:?}");
    done
}

#[tokio::test]
async fn figures_are_shown_without_a_display() {
    let Some(ask) = with_libraries() else { return };
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nprint('before')\nplt.show()\n\
                print('after')";
    let drawn = show(guest, &ask, code).await;
    let [figure] = shown(&drawn)[..] else { panic!("{:?}", drawn.events) };
    assert_eq!(figure.role, DisplayRole::Shown);
    assert!(form(figure, "image/png").starts_with(PNG));
    assert!(text(figure, "text/plain").starts_with("<Figure size"));
    let order: Vec<_> =
        drawn.events.iter().map(|event| matches!(event.what, Happening::Display(_))).collect();
    assert_eq!(order, [false, true, false], "{:?}", drawn.events);

    // Figures that are left open are shown at the end of their run, and not once more.
    let left =
        show(guest, &ask, "plt.figure(); plt.plot([1])\nplt.figure(); plt.plot([2]); None").await;
    assert_eq!(shown(&left).len(), 2);
    assert!(
        shown(&show(guest, &ask, "plt.get_fignums() and 1/0").await)
            .iter()
            .all(|it| it.role == DisplayRole::Value)
    );

    let value =
        show(guest, &ask, "figure, axes = plt.subplots()\naxes.bar([1, 2], [3, 4])\nfigure").await;
    let [figure] = shown(&value)[..] else { panic!("{:?}", value.events) };
    assert_eq!(figure.role, DisplayRole::Value);
    assert!(form(figure, "image/png").starts_with(PNG));

    let saved = "figure.savefig('/tmp/figure.svg')\nfrom burrow import artifact\n\
                 artifact('/tmp/figure.svg', mime='image/svg+xml')";
    let saved = show(guest, &ask, saved).await;
    let file = saved.events.iter().find_map(|event| match &event.what {
        Happening::Artifact(file) => Some(file),
        _ => None,
    });
    let file = file.expect("an artifact");
    assert_eq!((file.name.as_str(), file.mime.as_str()), ("figure.svg", "image/svg+xml"));
    assert!(file.bytes > 1000);
    sandbox.end().await;
}

#[tokio::test]
async fn images_are_shown() {
    let Some(ask) = with_libraries() else { return };
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code =
        "from PIL import Image\nimage = Image.new('RGB', (8, 8), 'red')\nimage.show()\nimage";
    let drawn = show(guest, &ask, code).await;
    let [first, value] = shown(&drawn)[..] else { panic!("{:?}", drawn.events) };
    assert_eq!((first.role, value.role), (DisplayRole::Shown, DisplayRole::Value));
    for image in [first, value] {
        assert!(form(image, "image/png").starts_with(PNG));
    }
    sandbox.end().await;
}

#[tokio::test]
async fn tables_and_arrays_are_shown() {
    let Some(ask) = with_libraries() else { return };
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code = "import pandas as pd\nframe = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})\nframe";
    let table = show(guest, &ask, code).await;
    let [frame] = shown(&table)[..] else { panic!("{:?}", table.events) };
    assert!(text(frame, "text/html").contains("<table"));
    assert_eq!(text(frame, "text/plain"), "   a  b\n0  1  x\n1  2  y");
    assert!(!frame.data.iter().any(|datum| datum.mime == "text/latex"), "{:?}", frame.data);
    let series = show(guest, &ask, "frame['a']").await;
    assert!(text(shown(&series)[0], "text/plain").starts_with("0    1\n1    2\n"));
    let array = show(guest, &ask, "import numpy as np\nnp.arange(3) * 2").await;
    assert_eq!(text(shown(&array)[0], "text/plain"), "array([0, 2, 4])");
    let large = show(guest, &ask, "pd.DataFrame(np.zeros((10**6, 3)))").await;
    assert!(text(shown(&large)[0], "text/html").len() < 100_000);
    sandbox.end().await;
}

#[tokio::test]
async fn interactive_figures_come_as_data() {
    let Some(ask) = with_libraries() else { return };
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code =
        "import plotly.graph_objects as go\nfigure = go.Figure(go.Bar(y=[1, 2]))\nfigure.show()";
    let drawn = show(guest, &ask, code).await;
    assert_eq!(stdout(&drawn), "");
    let plots = shown(&drawn);
    let data = plots.iter().flat_map(|shown| &shown.data);
    let data: Vec<_> =
        data.filter(|datum| datum.mime == "application/vnd.plotly.v1+json").collect();
    let [data] = data[..] else { panic!("{:?}", drawn.events) };
    let data: serde_json::Value = serde_json::from_slice(data.data.as_bytes()).expect("JSON");
    assert_eq!(data["data"][0]["type"], "bar");
    assert!(plots.iter().any(|shown| text(shown, "text/html").contains("plotly")));
    let value = show(guest, &ask, "figure").await;
    let bundles = shown(&value);
    form(bundles[0], "application/vnd.plotly.v1+json");
    sandbox.end().await;
}

#[tokio::test]
async fn an_object_offers_its_forms() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let ask = context("python");
    let code = r"
import base64
class Forms:
    def _repr_html_(self): return '<b>html</b>'
    def _repr_markdown_(self): return '# markdown'
    def _repr_svg_(self): return '<svg/>'
    def _repr_png_(self): return b'\x89PNG\r\n\x1a\n...'
    def _repr_latex_(self): return '$x$'
    def _repr_json_(self): return {'a': [1, None]}
    def _repr_pdf_(self): return base64.b64encode(b'%PDF').decode()
    def __repr__(self): return 'Forms()'
Forms()
";
    let answer = show(guest, &ask, code).await;
    let [value] = shown(&answer)[..] else { panic!("{:?}", answer.events) };
    for (mime, expected) in [
        ("text/html", b"<b>html</b>".as_slice()),
        ("text/markdown", b"# markdown"),
        ("image/svg+xml", b"<svg/>"),
        ("image/png", b"\x89PNG\r\n\x1a\n..."),
        ("text/latex", b"$x$"),
        ("application/json", br#"{"a": [1, null]}"#),
        ("application/pdf", b"%PDF"),
        ("text/plain", b"Forms()"),
    ] {
        assert_eq!(form(value, mime), expected, "{mime}");
    }

    let code = "class Bundle:\n    def _repr_mimebundle_(self, include=None, exclude=None):\n        \
                return {'text/plain': 'p', 'text/html': 'h', 'x/y': {'z': 1}}, {'text/html': {'wide': True}}\n\
                Bundle()";
    let answer = show(guest, &ask, code).await;
    let bundle = shown(&answer)[0];
    assert_eq!(text(bundle, "x/y"), r#"{"z": 1}"#);
    let metadata: serde_json::Value =
        serde_json::from_str(bundle.metadata.as_ref().expect("metadata")).expect("JSON");
    assert_eq!(metadata["text/html"]["wide"], true);

    let narrowed = show(guest, &ask, "display(Forms(), include=['text/html'])").await;
    let mimes: Vec<_> = shown(&narrowed)[0].data.iter().map(|datum| datum.mime.as_str()).collect();
    assert_eq!(mimes, ["text/html"]);
    let raw = show(guest, &ask, "display({'text/html': '<i>', 'text/plain': 'i'}, raw=True)").await;
    assert_eq!(text(shown(&raw)[0], "text/html"), "<i>");
    sandbox.end().await;
}

#[tokio::test]
async fn a_form_that_fails_leaves_the_others() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code = "class Half:\n    def _repr_html_(self): return 1/0\n    def __repr__(self): return 'Half()'\nHalf()";
    let result = run(guest, "python", code).await;
    assert_eq!(result.finished.end, RunEnd::Ok {});
    assert_eq!(text(shown(&result)[0], "text/plain"), "Half()");
    assert!(stderr(&result).contains("ZeroDivisionError"), "{}", stderr(&result));
    sandbox.end().await;
}

#[tokio::test]
async fn a_display_is_updated_by_later_code() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let ask = context("python");
    let first =
        show(guest, &ask, "handle = display('one', display_id=True)\nhandle.update('two')").await;
    let [one, two] = shown(&first)[..] else { panic!("{:?}", first.events) };
    assert_eq!((one.role, two.role), (DisplayRole::Shown, DisplayRole::Update));
    assert!(one.id.is_some());
    assert_eq!(one.id, two.id);
    let code =
        "from burrow import update_display\nupdate_display('three', display_id=handle.display_id)";
    let later = show(guest, &ask, code).await;
    let [three] = shown(&later)[..] else { panic!("{:?}", later.events) };
    assert_eq!((three.role, &three.id), (DisplayRole::Update, &one.id));
    let named = show(guest, &ask, "display(1, display_id='mine'); None").await;
    assert_eq!(shown(&named)[0].id.as_deref(), Some("mine"));
    sandbox.end().await;
}

#[tokio::test]
async fn oversized_displays_are_reported_and_the_rest_is_shown() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code = "class Large:\n    def _repr_html_(self): return 'x' * (17 << 20)\n    \
                def __repr__(self): return 'Large()'\nLarge()";
    let result = run(guest, "python", code).await;
    let [value] = shown(&result)[..] else { panic!("{:?}", result.finished) };
    let mimes: Vec<_> = value.data.iter().map(|datum| datum.mime.as_str()).collect();
    assert_eq!(mimes, ["text/plain"]);
    assert!(
        stderr(&result).contains("text/html of 17825792 bytes is too large"),
        "{}",
        stderr(&result)
    );
    // A text is cut instead.
    let result = run(guest, "python", "'y' * (20 << 20)").await;
    let plain = text(shown(&result)[0], "text/plain");
    assert!(plain.len() < 2 << 20 && plain.contains("left out"), "{}", plain.len());
    // What just fits comes as a whole.
    let code = "class Fits:\n    def _repr_html_(self): return 'z' * (14 << 20)\nfor n in range(2):\n    \
                print(n)\n    display(Fits())";
    let result = run(guest, "python", code).await;
    assert_eq!(stdout(&result), "0\n1\n");
    for fits in shown(&result) {
        assert_eq!(form(fits, "text/html").len(), 14 << 20);
    }
    assert_eq!(shown(&result).len(), 2);
    assert_eq!(stdout(&run(guest, "python", "print('next')").await), "next\n");
    sandbox.end().await;
}

#[tokio::test]
async fn code_for_notebooks_runs_without_one() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code = "from IPython.display import display, HTML, Markdown, Latex, SVG, JSON, clear_output\n\
                from IPython import get_ipython\nclear_output(wait=True)\nassert get_ipython() is None\n\
                for form in HTML('<b>'), Markdown('# m'), Latex('$l$'), SVG('<svg/>'), JSON({'a': 1}): display(form)";
    let answer = show(guest, &context("python"), code).await;
    let expected =
        ["text/html", "text/markdown", "text/latex", "image/svg+xml", "application/json"];
    assert_eq!(shown(&answer).len(), expected.len());
    for (display, mime) in shown(&answer).into_iter().zip(expected) {
        form(display, mime);
    }
    sandbox.end().await;
}

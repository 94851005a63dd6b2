//! What notebooks write beside Python, in contexts as in notebooks: magics, shell commands, cells of
//! other languages, and whole notebooks. And that none of it changes what is Python.

use agent_client::guest::Guest;
use protocol::repl::RunEnd;
use serde_json::json;
use tests::contexts::{run, stderr, stdout, value};
use tests::sandbox::Sandbox;

/// What a run has printed, once it has ended well.
async fn output_of(guest: &Guest, code: &str) -> String {
    let done = run(guest, "python", code).await;
    assert_eq!(done.finished.end, RunEnd::Ok {}, "{code}: {}{done:?}", stderr(&done));
    stdout(&done)
}

/// The traceback of a run that must fail.
async fn refused(guest: &Guest, code: &str) -> String {
    let done = run(guest, "python", code).await;
    assert_eq!(done.finished.end, RunEnd::Error {}, "{code}: {done:?}");
    done.error().expect("an error").traceback.clone()
}

#[tokio::test]
async fn commands_and_magics_of_notebooks_run_in_contexts() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    for (code, expected) in [
        ("x = 6\n!echo got {x * 7} $x $HOSTNAME_NOT", "got 42 6\n"),
        ("lines = !printf 'a\\nb\\n'\nprint(lines)", "['a', 'b']\n"),
        ("for n in range(2):\n    !echo line {n}", "line 0\nline 1\n"),
        ("def f(inner):\n    !echo {inner} \\\n      more\nf(9)", "9 more\n"),
        ("%matplotlib inline\n%config InlineBackend.figure_format = 'retina'\nprint(1)", "1\n"),
        ("%cd /tmp\n!pwd", "/tmp\n/tmp\n"),
        ("%env COLOUR=red\n!echo $COLOUR", "env: COLOUR=red\nred\n"),
        ("%%bash\nfor n in 1 2; do echo $n; done", "1\n2\n"),
        ("%%writefile /tmp/words.txt\na\n b\n", "Wrote /tmp/words.txt\n"),
        ("!cat /tmp/words.txt", "a\n b\n"),
        ("%%capture kept\nprint('quiet')\n!echo child", ""),
        ("print(kept.stdout.split())", "['quiet', 'child']\n"),
    ] {
        assert_eq!(output_of(guest, code).await, expected, "{code}");
    }
    let timed = output_of(guest, "%timeit -n 5 -r 2 sum(range(10))").await;
    assert!(timed.contains("per loop") && timed.contains("2 runs, 5 loops"), "{timed}");
    let done = run(guest, "python", "%%time\nimport math\nmath.floor(7.5)").await;
    assert!(stdout(&done).contains("Wall time: "), "{done:?}");
    assert_eq!(value(&done).as_deref(), Some("7"));
    assert_eq!(value(&run(guest, "python", "!exit 3\n_exit_code").await).as_deref(), Some("3"));
    let pip = run(guest, "python", "%pip --version").await;
    let raised = pip.error().map_or_else(String::new, |error| error.traceback.clone());
    assert!((stdout(&pip) + &raised).contains("pip"), "{pip:?}");
    sandbox.end().await;
}

#[tokio::test]
async fn unsupported_notation_suggests_an_alternative() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    for (code, expected) in [
        ("%nosuch", "%nosuch is not here; these are: "),
        ("%debug", "%debug is not here: read the traceback"),
        ("x = 1\n%%time", "%%time must be the first line of the code"),
        ("%bash", "write %%bash as the first line"),
        ("%%bash\nexit 3", "returned non-zero exit status 3"),
        ("%%time\n1/0", "line 2"),
    ] {
        let shown = refused(guest, code).await;
        assert!(shown.contains(expected), "{code}: {shown}");
        assert!(!shown.contains("<burrow>"), "{code}: {shown}");
    }
    sandbox.end().await;
}

#[tokio::test]
async fn python_that_looks_like_a_magic_stays_python() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code = "n = (7\n%4)\ntext = '''\n!echo no\n%pwd\n'''\nprint(n, text.split(), n != 3)";
    assert_eq!(output_of(guest, code).await, "3 ['!echo', 'no', '%pwd'] False\n");
    for code in ["x = 'a %d'\n% 5", "x = = 3", "%pwd\nx = = 3", "print('x' 'y"] {
        let shown = refused(guest, code).await;
        assert!(shown.contains("SyntaxError"), "{code}: {shown}");
    }
    sandbox.end().await;
}

#[tokio::test]
async fn a_notebook_runs_cell_by_cell_until_one_fails() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let cell = |source: &str| json!({ "cell_type": "code", "source": source, "outputs": [], "execution_count": null });
    let notebook = json!({
        "cells": [
            { "cell_type": "markdown", "source": ["# words"] },
            cell("a = 1\n%matplotlib inline\nprint('first')"),
            cell("%%bash\necho second"),
            cell("1 / 0"),
            cell("print('never')"),
        ],
        "metadata": { "kernelspec": { "name": "python3", "language": "python" } },
        "nbformat": 4, "nbformat_minor": 5
    });
    let done = run(guest, "python", &notebook.to_string()).await;
    assert_eq!(stdout(&done), "first\nsecond\n", "{done:?}");
    let shown = &done.error().expect("the third cell fails").traceback;
    assert!(shown.contains("[4]\", line 1") && shown.contains("1 / 0"), "{shown}");
    assert_eq!(output_of(guest, "print(a)").await, "1\n");
    let about = json!({ "kernelspec": { "language": "R" } });
    let other = json!({ "cells": [], "metadata": about, "nbformat": 4, "nbformat_minor": 5 });
    let shown = refused(guest, &other.to_string()).await;
    assert!(shown.contains("this is a notebook of R"), "{shown}");
    for (literal, shown) in [
        ("{\"nbformat\": 4}", "{'nbformat': 4}"),
        ("{\"cells\": [], \"nbformat\": 4}", "{'cells': [], 'nbformat': 4}"),
    ] {
        assert_eq!(value(&run(guest, "python", literal).await).as_deref(), Some(shown));
    }
    sandbox.end().await;
}

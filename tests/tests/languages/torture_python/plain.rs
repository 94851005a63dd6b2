//! Rows of code that means no harm: values, names, source texts, output, input, warnings.

use tests::torture::{Case, End, Text, case};

use super::row;

const MEGABYTE: usize = 1 << 20;

/// Values, and what is state from run to run.
pub fn values() -> Vec<Case> {
    vec![
        case("hello", "print('hello')").out("hello\n"),
        case("no newline", "print('x', end='')").out("x"),
        case("both outputs", "import sys; print('e', file=sys.stderr); print('o')")
            .out("o\n")
            .err("e\n"),
        case("a value", "1 + 1").value("2"),
        case("none is no value", "None"),
        case("a call without a value", "[].sort()"),
        case("the value behind statements", "q = 3\nq * 2").value("6"),
        case("the value behind a semicolon", "q = 4; q").value("4"),
        case("no value but a statement", "q = 5; q; q = 6"),
        case("an expression in a block is no value", "if True:\n    5"),
        case("a string with a newline", "'a\\nb'").value("'a\\nb'"),
        case("many lines of one value", "(1 +\n\n 2 +\n 3)\n\n").value("6"),
        case("the last value", "41").value("41"),
        case("is remembered", "_ + 1").value("42"),
        case("a function", "def f(a, *, b=2):\n    return a + b\nf(1)").value("3"),
        case("is there later", "f(2, b=3)").value("5"),
        row(
            "a class of blank lines",
            r"
            class Thing:

                def one(self):

                    return 1


                two = 2

            Thing().one() + Thing.two
            ",
        )
        .value("3"),
        case("a decorator", "@staticmethod\ndef g(): pass\n"),
        case("the module's name", "__name__").value("'__main__'"),
        case("the module", "import sys; vars(sys.modules['__main__']) is globals()").value("True"),
        case("no file", "__file__").error("NameError"),
        case("arguments", "import sys; sys.argv").value("['']"),
        case("packages of the directory", "import sys; sys.path[0]").value("''"),
        case("streams", STREAMS).value("(0, 1, 2, 'utf-8', 'utf-8', False, True)"),
        case(
            "annotations",
            "from __future__ import annotations\ndef h(a: no): 5\nh.__annotations__",
        )
        .value("{'a': 'no'}"),
        case("are of that run alone", "def h(a: no): 5").error("NameError"),
        row(
            "an instance of a class of an earlier run that is pickled",
            "
            import pickle
            again = pickle.loads(pickle.dumps(Thing()))
            type(again) is Thing, Thing.__module__
            ",
        )
        .value("(True, '__main__')"),
        case(
            "a context variable",
            "import contextvars as c\nv = c.ContextVar('v')\nv.set(1) and None",
        ),
        case("is kept", "v.get()").value("1"),
        case("and set in a task", "import asyncio\nawait asyncio.sleep(0)\nv.set(2) and None"),
        case("is kept as well", "v.get()").value("2"),
        case("a value that fails", "class Bad:\n    def __repr__(self): 1/0\nBad()")
            .error("ZeroDivisionError"),
        case("a value that exits", "class Bad:\n    def __repr__(self): exit(4)\nBad()")
            .ends(End::Exited(4)),
        case("a value of no text", "class Bad:\n    def __repr__(self): return 5\nBad()")
            .error("TypeError"),
        case("another way to show values", SHOWN_OTHERWISE).out("<7>\n"),
        case("and the first again", "sys.displayhook = sys.__displayhook__\n8").value("8"),
        case("logging", "import logging; logging.warning('hey')").err("WARNING:root:hey\n"),
        case("logging of a later run", "logging.error('you')").err("ERROR:root:you\n"),
        case("printing is redirected", REDIRECTED).value("'inside\\n'"),
        case("a line is one write", WRITES).out("0 and 0\n1 and 1\n2 and 2\n").value("3"),
        case("print is print", "print.__name__, print.__module__, __builtins__.print is print")
            .value("('print', 'builtins', True)"),
        case("nothing to print to", "import sys\nkept = sys.stdout; sys.stdout = None\nprint(1)"),
        case("and again", "sys.stdout = kept\nprint(2, 3, sep=None, end=None)").out("2 3\n"),
        case("a separator of another kind", "print(1, sep=2)").error("TypeError"),
        case("code that runs code", "exec('z = 1\\nprint(z)'); eval('z + 1')")
            .out("1\n")
            .value("2"),
        case("the exit is not the end", "import atexit; atexit.register(print, 'bye') and None"),
        case("a trace of the code's own", TRACED).value("True"),
        case(
            "a thousand modules",
            "import email, http.client, json, xml.dom.minidom, unittest.mock",
        ),
        case("a mock is no figure", "unittest.mock.MagicMock() and None"),
    ]
}

const STREAMS: &str = "import sys\n(sys.stdin.fileno(), sys.stdout.fileno(), sys.stderr.fileno(), \
    sys.stdout.encoding, sys.stdin.encoding, sys.stdout.isatty(), sys.stdout is sys.__stdout__)";
/// How often three lines are written, by the kernel's count.
const WRITES: &str = "
def writes(): return int(open('/proc/self/io').read().split('syscw: ')[1].split()[0])
before = writes()
for i in range(3): print(i, 'and', i)
writes() - before";
const SHOWN_OTHERWISE: &str = "import sys\nsys.displayhook = lambda v: print('<%r>' % v)\n7";
const REDIRECTED: &str = "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as s:\n \
    print('inside')\ns.getvalue()";
const TRACED: &str = "import sys\nseen = []\nsys.settrace(lambda *a: seen.append(a[1]))\n\
    (lambda: 1)()\nsys.settrace(None)\n'call' in seen";

/// What source text may look like.
pub fn sources() -> Vec<Case> {
    vec![
        case("nothing", ""),
        case("blanks", " \n\n\t "),
        case("a comment", "# nothing"),
        case("a comment behind", "7 # seven").value("7"),
        case("blank lines in a function", "def f():\n\n    x = 1\n\n    return x\n\nf()")
            .value("1"),
        case("tabs", "if 1:\n\tprint(1)\n\tprint(2)").out("1\n2\n"),
        case("tabs and blanks", "if 1:\n        print(1)\n\tprint(2)").error("TabError"),
        case("carriage returns", "print(1)\r\nif 1:\r\n    print(2)\r\n\r\n7\r\n")
            .out("1\n2\n")
            .value("7"),
        case("carriage returns alone", "print(1)\rprint(2)\r").out("1\n2\n"),
        case("carriage returns in a string", "len('''a\r\nb''')").value("3"),
        case("a form feed", "print(1)\n\x0cprint(2)").out("1\n2\n"),
        case("a byte order mark", "\u{feff}print('é')").out("é\n"),
        case("a byte order mark and statements", "\u{feff}x = 1\nx").value("1"),
        case("NUL in a string", "'a\0b'").error("SyntaxError"),
        case("NUL in code", "print(1)\n\0").error("SyntaxError").err_any(),
        case("bytes that are not UTF-8", b"print(1)\n'\xff'".as_slice()).error("SyntaxError"),
        case("a lone surrogate in bytes", b"x = '\xed\xa0\x80'".as_slice()).error("SyntaxError"),
        case("a lone surrogate", "'\\ud800'").value("'\\ud800'"),
        case("a lone surrogate printed", "print('\\ud800')").out("\\ud800\n"),
        case("a lone surrogate that was a byte", "print('\\udcff')").out("\u{fffd}\n"),
        case("a lone surrogate in an error", "raise ValueError('\\ud800')").error("ValueError"),
        case("beyond the basic plane", "ℼ = '\u{1f600}'\nlen(π)").value("1"),
        case("another coding", b"# -*- coding: latin-1 -*-\nprint('\xe9', len('\xe9'))".as_slice())
            .out("é 1\n"),
        case("an unknown coding", "# coding: nonsense\nprint(1)").error("SyntaxError"),
        case("an unclosed quote", "print('abc").error("SyntaxError"),
        case("an unclosed double quote", "x = \"abc\nmore").error("SyntaxError"),
        case("an unclosed long quote", "x = '''abc\n\nmore").error("SyntaxError"),
        case("an unclosed long double quote", "x = \"\"\"abc").error("SyntaxError"),
        case("an unclosed place in a string", "f'{1 +'").error("SyntaxError"),
        case("an unclosed parenthesis", "foo(1,").error("SyntaxError"),
        case("an unclosed bracket", "[1, 2\n\n").error("SyntaxError"),
        case("an unclosed brace", "{'a': 1").error("SyntaxError"),
        case("too many brackets", "x = 1)").error("SyntaxError"),
        case("a backslash at the end", "x = 1 \\").error("SyntaxError"),
        case("an unfinished block", "if True:\nx = 1").error("IndentationError"),
        case("no statement", "x = = 1").error("SyntaxError"),
        case("an older print", "print 1").error("SyntaxError"),
        case("a first line that is indented", "  x = 1").error("IndentationError"),
        case("a line of no block", "if 1:\n    x = 1\n  y = 2").error("IndentationError"),
        case("return outside", "return 5").error("SyntaxError"),
        case("yield outside", "x = yield 5").error("SyntaxError"),
        case("break outside", "break").error("SyntaxError"),
        case("await of nothing", "await 5").error("TypeError"),
        case("nothing of it runs", "print('before')\nx = = 1").error("SyntaxError"),
        case("a magic of a notebook", "%matplotlib inline"),
        case("no magic of anybody", "%nosuch").error("UsageError"),
        case("a prompt of another shell", ">>> 1").error("SyntaxError"),
        case("a long line", format!("len('{}')", "x".repeat(1_000_000))).value("1000000"),
    ]
}

/// What Python 3.8 says otherwise.
pub fn newer_sources() -> Vec<Case> {
    vec![
        case("a block without end", "if True:").error("IndentationError"),
        case("brackets in brackets", "(".repeat(100_000)).error("SyntaxError"),
    ]
}

/// Long source texts.
pub fn large_sources() -> Vec<Case> {
    let line = format!("lines = 1 # {}\n", "x".repeat(87));
    vec![
        case("10 MB of a comment", format!("#{}\n'end'", "x".repeat(10 * MEGABYTE))).value("'end'"),
        case("10 MB of a string", format!("len('''{}''')", "\nx".repeat(5 * MEGABYTE)))
            .value("10485760"),
        case("10 MB of lines", format!("{}'end'", line.repeat(10 * MEGABYTE / 100))).value("'end'"),
        case("an error behind 10 MB", format!("{}1/0", line.repeat(10 * MEGABYTE / 100)))
            .error("ZeroDivisionError"),
        case("a wrong line behind 10 MB", format!("{}x = = 1", line.repeat(10 * MEGABYTE / 100)))
            .error("SyntaxError"),
    ]
}

/// Output, from a byte to some thousand lines, and who may write it.
pub fn output() -> Vec<Case> {
    let numbers: String = (0..10_000).map(|n: u32| n.to_string() + "\n").collect();
    vec![
        case("10,000 lines", "for i in range(10000): print(i)").out(numbers),
        case("both at once", BOTH).out("1\n".repeat(9999)).err("2\n".repeat(9999)),
        case("bytes that are not UTF-8", "import sys\nsys.stdout.buffer.write(b'a\\xff\\xfe\\0b')")
            .out("a\u{fffd}\u{fffd}\0b")
            .value("5"),
        case("bytes below that", "import os; os.write(1, b'\\xff\\n'); os.write(2, b'e\\n')")
            .out("\u{fffd}\n")
            .err("e\n")
            .value("2"),
        case("no buffer in between", IN_BETWEEN).out("1\n2\n3\n4\n5\n6\n"),
        case("a file of a descriptor", "with open(1, 'w', closefd=False) as f: f.write('w\\n')")
            .out("w\n"),
        case("a path of a descriptor", "with open('/dev/stdout', 'w') as f: f.write('w\\n')")
            .out("w\n"),
        case("the output is closed", "import sys; sys.stdout.close(); print('still')")
            .out("still\n"),
        case("the other too", "sys.stderr.close(); print('still', file=sys.stderr)").err("still\n"),
        case("the output is taken apart", "sys.stdout.detach()").error("UnsupportedOperation"),
        case("the output is configured", "sys.stdout.reconfigure(line_buffering=True); print('é')")
            .out("é\n"),
        case(
            "another coding of the output",
            "sys.stdout.reconfigure(encoding='latin-1'); print('é')",
        )
        .out("\u{fffd}\n"),
        case("the first again", "sys.stdout.reconfigure(encoding='utf-8', errors='burrow')"),
        case("another output in one run", "import io; sys.stdout = io.StringIO(); print('gone')"),
        case("is the first in the next", "print('here')").out("here\n"),
        case("no output at all", "sys.stdout = sys.stderr = None; print('gone')"),
        case("is the first as well", "print('here', file=sys.stderr)").err("here\n"),
        case("a progress bar", "for i in range(3): print('\\r%d' % i, end='')").out("\r0\r1\r2"),
        case("escape codes are the code's own", "print('\\x1b[31mred\\x1b[0m')")
            .out("\u{1b}[31mred\u{1b}[0m\n"),
        case("no lines are added", "print()\nprint('a\\n\\n')").out("\na\n\n\n"),
    ]
}

const BOTH: &str = "import sys\nfor i in range(9999):\n    print(1)\n    print(2, file=sys.stderr)";
const IN_BETWEEN: &str = "import os, sys, subprocess\n\
    print(1); os.write(1, b'2\\n'); sys.stdout.write('3\\n')\n\
    subprocess.run(['echo', '4']); sys.stdout.buffer.write(b'5\\n'); os.system('echo 6') or None";

/// More output than anybody keeps in memory twice.
pub fn large_output() -> Vec<Case> {
    vec![
        case("100 MB in one line", "import sys; sys.stdout.write('x' * 10**8) and None")
            .out_bytes(100_000_000),
        case(
            "100 MB in lines of one byte",
            "import sys; sys.stdout.write('x\\n' * (5 * 10**7)) and None",
        )
        .out_bytes(100_000_000),
        Case {
            stderr: Text::Bytes(100_000_000),
            ..case("100 MB on the other", "import sys; sys.stderr.write('x' * 10**8) and None")
        },
        case("200,000 single prints", "for i in range(200_000): print('x')")
            .out("x\n".repeat(200_000)),
    ]
}

/// Nobody answers in these rows, so that every question meets the end of a file.
pub fn input() -> Vec<Case> {
    vec![
        case("input", "input('name? ')").error("EOFError"),
        case("a secret", "import getpass; getpass.getpass()").error("EOFError"),
        case("a line", "import sys; sys.stdin.readline()").value("''"),
        case("all lines", "sys.stdin.read(), list(sys.stdin), sys.stdin.buffer.read()")
            .value("('', [], b'')"),
        case("descriptor 0", "import os; os.read(0, 10)").value("b''"),
        case("what children read", "import subprocess; subprocess.run('cat').returncode")
            .value("0"),
        case("the terminal", "open('/dev/tty')").error("OSError"),
        case("the input is closed", "sys.stdin.close(); sys.stdin.read()").value("''"),
        case(
            "an input of the code's own",
            "import io; sys.stdin = io.StringIO('fed\\n'); input('? ')",
        )
        .out("? ")
        .value("'fed'"),
        case("is the first in the next", "input()").error("EOFError"),
        case("a debugger", "breakpoint()").out_any().error("BdbQuit"),
        case("a shell in the shell", "import code; code.interact(banner='', exitmsg='')")
            .out_any()
            .err_any(),
        case("help", "help(len)").out_has("Return the number of items"),
        case("input in a thread", INPUT_IN_THREAD).value("['EOFError']"),
    ]
}

const INPUT_IN_THREAD: &str = "import threading\nsaid = []\ndef work():\n    try: input()\n    \
    except BaseException as e: said.append(type(e).__name__)\n\
    t = threading.Thread(target=work); t.start(); t.join()\nsaid";

/// What is reported beside errors.
pub fn warned() -> Vec<Case> {
    vec![
        case("a warning", "import warnings; warnings.warn('mind')")
            .err_has("UserWarning: mind\n  import warnings; warnings.warn('mind')\n"),
        case("a warning again", "for _ in range(2): warnings.warn('mind')").err_has("UserWarning"),
        case("a deprecated thing of the code's own", "warnings.warn('old', DeprecationWarning)")
            .err_has("DeprecationWarning: old"),
        case("a warning of the compiler", "y = 5\ny is 5").err_has("SyntaxWarning").value("True"),
        case("warnings are errors", "warnings.simplefilter('error'); warnings.warn('bad')")
            .error("UserWarning"),
        case("and are not", "warnings.resetwarnings(); warnings.simplefilter('ignore')"),
        case("as here", "warnings.warn('unheard')"),
        case(
            "a coroutine that is not awaited",
            "warnings.resetwarnings()\nasync def c(): pass\nc()\nc = 0",
        )
        .err_has("never awaited"),
        case("a finalizer that fails", "class D:\n    def __del__(self): 1/0\nD() and None")
            .err_has("ZeroDivisionError"),
    ]
}

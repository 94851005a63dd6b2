//! Rows of code that ruins what it shares with the driver, each in a context of its own, and what must
//! hold there afterwards.

use std::time::Duration;

use protocol::repl::RunEnd;
use tests::contexts::{run, run_within, stdout};
use tests::sandbox::Sandbox;
use tests::torture::{Case, End, case};

/// What a ruined interpreter still does.
pub fn still() -> Vec<Case> {
    vec![
        case("hello", "process.stdout.write('hello\\n'); undefined").out("hello\n"),
        case("a value", "1 + 1").value("2"),
        case("await", "await 3").value("3"),
        case("a syntax error", "x = = 1").error("SyntaxError"),
        case("an error", "null.x").error("TypeError"),
        case("a number thrown", "throw 5").error("number"),
        case("exit", "process.exit(2)").ends(End::Exited(2)),
        case("a loop", "for (;;);").within_ms(200),
        case("a value after that", "2 + 2").value("4"),
    ]
}

/// The ruin: a name and the code.
pub const RUINS: &[(&str, &str)] = &[
    (
        "a polluted Object.prototype",
        "Object.defineProperty(Object.prototype, 'x', { get() { throw 1 }, configurable: true }); \
        Object.prototype.toJSON = () => 5; Object.prototype.then = undefined; Object.prototype.get = 1; delete Object.prototype.get",
    ),
    (
        "names of the driver's in Object.prototype",
        "for (const k of ['id', 'run', 'code', 'input', 'type', 'exceptionDetails', 'fd', 'stdio', 'status', 'mime', 'data']) \
        Object.prototype[k] = 'polluted'",
    ),
    (
        "ruined strings and patterns",
        "for (const k of ['split', 'slice', 'replace', 'indexOf', 'startsWith', 'trim', 'match', 'charCodeAt', 'repeat']) \
        String.prototype[k] = () => { throw new Error(k) }; RegExp.prototype.exec = () => { throw 2 }; RegExp.prototype.test = null",
    ),
    (
        "ruined promises",
        "Promise.prototype.then = () => { throw 4 }; Promise.resolve = Promise.reject = Promise.all = null; globalThis.Promise = null",
    ),
    (
        "ruined JSON, Math, Object, Reflect",
        "JSON.stringify = JSON.parse = null; Math.min = Math.max = () => NaN; Object.keys = Object.assign = Object.defineProperty = null; Reflect.apply = Reflect.ownKeys = null",
    ),
    (
        "ruined errors",
        "Error.prepareStackTrace = () => { throw 6 }; Error.captureStackTrace = null; Error.stackTraceLimit = 0; globalThis.Error = null; globalThis.SyntaxError = undefined",
    ),
    (
        "a stack limit that throws",
        "Object.defineProperty(Error, 'stackTraceLimit', { get() { throw 7 }, set() { throw 8 } })",
    ),
    ("an overwritten console", "globalThis.console = null"),
    ("an overwritten process", "globalThis.process = { exit() {}, stdout: null }"),
    ("a deleted process", "delete globalThis.process"),
    (
        "an overwritten process.stdout",
        "Object.defineProperty(process, 'stdout', { value: null, configurable: true })",
    ),
    (
        "ruined process",
        "for (const k of ['nextTick', 'cpuUsage', 'cwd', 'kill', 'resourceUsage', '_fatalException', 'emit', 'on', 'hrtime']) process[k] = () => { throw new Error(k) }",
    ),
    (
        "ruined emitters",
        "const { EventEmitter } = require('events'); EventEmitter.prototype.on = EventEmitter.prototype.once = EventEmitter.prototype.removeListener = null",
    ),
    (
        "a ruined fs",
        "for (const k of Object.keys(fs)) if (typeof fs[k] === 'function') fs[k] = () => { throw new Error(k) }",
    ),
    (
        "ruined timers",
        "globalThis.setTimeout = globalThis.setImmediate = globalThis.clearTimeout = globalThis.queueMicrotask = null",
    ),
    (
        "a ruined util",
        "const util = require('util'); util.inspect = null; try { util.types.isProxy = null } catch {}",
    ),
    (
        "ruined modules",
        "const M = require('module'); M._load = M._resolveFilename = M.prototype.require = M.prototype._compile = null; M._nodeModulePaths = () => null",
    ),
    (
        "ruined contexts",
        "const a = require('async_hooks').AsyncLocalStorage.prototype; a.getStore = a.enterWith = a.run = () => { throw 9 }",
    ),
    (
        "a ruined inspector",
        "const s = require('inspector').Session.prototype; s.post = s.connect = s.disconnect = () => { throw 10 }",
    ),
    (
        "deleted globals",
        "for (const k of ['fs', 'Buffer', 'Object', 'Array', 'Promise', 'Symbol', 'Error', 'Reflect', 'Math', 'JSON', 'String', 'setTimeout', 'setImmediate', 'queueMicrotask', 'require', 'Atomics', 'SharedArrayBuffer', 'Uint8Array', 'Function', 'RegExp', 'console']) \
        delete globalThis[k]",
    ),
    (
        "frozen globals",
        "for (const o of [Object, Array, Function, Promise, Error, String, RegExp, Map, Uint8Array, Buffer]) { Object.freeze(o.prototype); Object.freeze(o) }",
    ),
    (
        "a frozen process and console",
        "Object.freeze(process); Object.freeze(console); Object.freeze(fs)",
    ),
    ("a frozen global object", "Object.freeze(globalThis)"),
    ("another prototype of the global object", "Object.setPrototypeOf(globalThis, null)"),
    (
        "a mutable symbol",
        "Object.defineProperty(Symbol, Symbol.hasInstance, { value: () => { throw 12 } }); Symbol.for = null",
    ),
    (
        "hooks of every promise",
        "require('async_hooks').createHook({ init() {}, before() {}, after() {}, promiseResolve() {} }).enable()",
    ),
    ("a handler that swallows everything", "process.on('unhandledRejection', () => {})"),
    (
        "a debugger of its own",
        "const own = new (require('inspector').Session)(); own.connect(); own.post('Runtime.enable'); own.post('Debugger.enable')",
    ),
    ("closed outputs", "for (const fd of [0, 1, 2]) fs.closeSync(fd)"),
    (
        "a closed run's output",
        "for (let fd = 4; fd < 100; fd++) try { if (fs.readlinkSync('/proc/self/fd/' + fd).includes('burrow')) fs.closeSync(fd) } catch {}",
    ),
    (
        "garbage in the control channel",
        "for (const text of ['', 'garbage', '\\0'.repeat(40), 'x'.repeat(60000)]) fs.writeSync(3, text)",
    ),
    ("fewer privileges", "process.setgid(65534); process.setuid(65534)"),
    (
        "a full descriptor table",
        "globalThis.held = []; try { for (;;) held.push(fs.openSync('/dev/null')) } catch {} for (let n = 0; n < 8; n++) fs.closeSync(held.pop())",
    ),
];

/// What neither Node's own parts nor the driver stand: the interpreter may be lost, but never hangs.
pub const FATAL: &[(&str, &str)] = &[
    (
        "setters in Object.prototype",
        "for (const k of ['id', 'run', 'message', 'name', 'done', 'value', 'error']) \
        Object.defineProperty(Object.prototype, k, { set() { throw new Error('set') }, get() { return undefined }, configurable: true })",
    ),
    (
        "a ruined Array.prototype",
        "for (const k of ['push', 'pop', 'shift', 'slice', 'splice', 'map', 'join', 'forEach', 'concat', 'indexOf', 'includes', 'filter']) \
        Array.prototype[k] = () => { throw new Error(k) }; Array.prototype[Symbol.iterator] = null",
    ),
    (
        "a setter at an index",
        "Object.defineProperty(Array.prototype, '0', { set() { throw 1 }, get() { return 'polluted' }, configurable: true })",
    ),
    (
        "ruined functions",
        "Function.prototype.call = Function.prototype.apply = Function.prototype.bind = () => { throw 3 }",
    ),
    (
        "ruined typed arrays",
        "Uint8Array.prototype.set = Uint8Array.prototype.subarray = null; Buffer.from = Buffer.alloc = Buffer.concat = () => { throw 5 }; \
        Buffer.prototype.toString = Buffer.prototype.utf8Slice = Buffer.prototype.write = null",
    ),
    (
        "a ruined Atomics",
        "Atomics.load = Atomics.store = Atomics.wait = Atomics.notify = () => { throw 11 }",
    ),
];

/// In the run itself nothing of it is an error.
pub fn ruin(code: &str) -> Case {
    case("the ruin", format!("{code}; undefined")).out_any().err_any()
}

const SPEAKS: &str = "console.log(1)";

/// There is no deadline here: either the ruined interpreter goes on, or it ends by itself.
#[tokio::test]
async fn a_crash_of_node_ends_without_a_deadline() {
    if !tests::have_or_skip("node") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let mut wrong = Vec::new();
    let version = run(&sandbox.guest, "node", "process.version").await;
    let version = tests::contexts::value(&version).unwrap_or_default();
    for (number, (name, code)) in FATAL.iter().enumerate() {
        // There Node itself stands it neither, in other ways: 18 hangs until a deadline, and 24 answers
        // every run with an error.
        if *name == "a setter at an index"
            && ["'v18.", "'v24."].iter().any(|v| version.starts_with(v))
        {
            continue;
        }
        let context = format!("fatal{number}:node");
        // The ruin itself may be the end of it, or the run after it; then the next finds a whole one.
        let mut lost = false;
        for code in [&format!("{code}; undefined"), SPEAKS, SPEAKS] {
            let ran = run(&sandbox.guest, &context, code);
            let Ok(ran) = tokio::time::timeout(Duration::from_secs(15), ran).await else {
                wrong.push(format!("{name}: it hangs"));
                break;
            };
            let finished = &ran.finished;
            let output = if code == SPEAKS { "1\n" } else { "" };
            let is_well = finished.end == RunEnd::Ok {} && stdout(&ran) == output;
            let may_fail = code != SPEAKS || !(lost || finished.state_kept);
            if !is_well && !may_fail {
                wrong.push(format!("{name}: {:?}", finished.end));
            }
            lost |= !finished.state_kept;
        }
        let context = format!("fatal{number}").parse().expect("a name");
        sandbox.guest.close_context(&context).await.expect("closed");
    }
    sandbox.end().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Errors without number, which are nothing like a ruin.
const FLOODS: &[&str] = &[
    "for (let n = 0; n < 50000; n++) Promise.reject(new Error('many'))",
    "for (let n = 0; n < 5000; n++) setImmediate(() => { throw new Error('many') })",
    "for (let n = 0; n < 5000; n++) setTimeout(() => { throw new Error('many') }, 1)",
    "const deep = () => { try { deep() } finally { process.exit(3) } }; deep()",
];

#[tokio::test]
async fn many_errors_are_no_ruin() {
    if !tests::have_or_skip("node") {
        return;
    }
    let sandbox = Sandbox::start().await;
    for code in FLOODS {
        let flooded = run(&sandbox.guest, "flood:node", code).await;
        assert!(flooded.finished.state_kept, "{code}: {:?}", flooded.finished.end);
        let after = run(&sandbox.guest, "flood:node", SPEAKS).await;
        assert!(after.finished.state_kept, "{code}: {:?}", after.finished.end);
        assert_eq!(stdout(&after), "1\n", "{code}");
    }
    sandbox.end().await;
}

/// Each child keeps JavaScript from hearing anything, and the next one is there at once: whether the
/// interrupt gets in between is a race, and the interpreter's end is the honest last resort.
#[tokio::test]
async fn a_loop_of_children_that_are_waited_for_ends_one_way_or_the_other() {
    if !tests::have_or_skip("node") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let code = "for (;;) require('child_process').spawnSync('sleep', ['100'])";
    for _ in 0..3 {
        let ended = run_within(&sandbox.guest, "node", code, Duration::from_millis(200)).await;
        assert!(matches!(ended.finished.end, RunEnd::TimedOut { .. }), "{:?}", ended.finished);
        let next = run(&sandbox.guest, "node", SPEAKS).await;
        assert_eq!(stdout(&next), "1\n");
    }
    sandbox.end().await;
}

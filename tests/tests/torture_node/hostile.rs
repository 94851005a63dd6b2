//! Rows of code that ruins what it shares with the driver, each in a context of its own, and what must
//! hold there afterwards.

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

/// What neither Node's own parts nor the driver stand: the interpreter may be lost.
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

//! Rows of code that ends badly: errors, exits, endless loops, crashes.

use tests::torture::{Case, End, Text, case};

/// Errors of every kind.
pub fn errors() -> Vec<Case> {
    vec![
        case("an unknown name", "console.log('before'); nope; console.log('after')")
            .out("before\n")
            .error("ReferenceError"),
        case("an error of one's own", "class Mine extends Error {} throw new Mine('x')")
            .error("Mine"),
        case("a number thrown", "throw 42").error("number"),
        case("a string thrown", "throw 'text'").error("string"),
        case("null thrown", "throw null").error("null"),
        case("undefined thrown", "throw undefined").error("undefined"),
        case("an object thrown", "throw { a: 1 }").error("Object"),
        case("an object without prototype thrown", "throw Object.create(null)").error("Object"),
        case("a function thrown", "throw () => {}").error("Function"),
        case("a symbol thrown", "throw Symbol('s')").error("symbol"),
        case("a proxy thrown", HOSTILE_PROXY).error("Proxy"),
        case(
            "a revoked proxy thrown",
            "const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); throw proxy",
        )
        .error("Proxy"),
        case("an error whose properties throw", HOSTILE_ERROR).error("Error"),
        case(
            "an error whose stack is a number",
            "throw Object.assign(new Error('x'), { stack: 5 })",
        )
        .error("Error"),
        case("an error whose name is an object", "const n = new Error('x'); n.name = {}; throw n")
            .error("[object Object]"),
        case(
            "a hostile toString thrown",
            "throw { toString() { throw 1 }, get constructor() { throw 2 } }",
        )
        .error("Object"),
        case("a getter that never returns, thrown", "throw { get constructor() { for (;;); } }")
            .within_ms(300),
        case("an error that is its own cause", "const o = new Error('x'); o.cause = o; throw o")
            .error("Error"),
        case("an aggregate", "await Promise.any([Promise.reject(1)])").error("AggregateError"),
        case(
            "an error of another realm",
            "require('vm').runInNewContext('throw new TypeError(1)')",
        )
        .error("TypeError"),
        case("a long message", "throw new Error('m'.repeat(3e7))").error("Error"),
        case(
            "a long stack",
            "Error.stackTraceLimit = 1e6; function f(n) { if (n) f(n - 1); \
              throw new Error('deep') } try { f(5000) } finally { Error.stackTraceLimit = 10 }",
        )
        .error("Error"),
        case("prepareStackTrace throws", "Error.prepareStackTrace = () => { throw 1 }; null.x")
            .error("TypeError"),
        case("and is taken away", "delete Error.prepareStackTrace; undefined"),
        case("recursion", "function f() { f() } f()").error("RangeError"),
        case("recursion in a getter", "const r = { get r() { return this.r } }; r.r")
            .error("RangeError"),
        case("a string that is too long", "'x'.repeat(2 ** 30)").error("RangeError"),
        case("an array that is too long", "new Array(-1)").error("RangeError"),
        case("a buffer that is too large", "Buffer.alloc(2 ** 53)").error("RangeError"),
        case("a rejection", "Promise.reject(new TypeError('now'))").error("TypeError"),
        case("a rejection beside the value", "Promise.reject(new TypeError('now')); 1")
            .error("TypeError"),
        case("a rejection with no error", "Promise.reject(42); 1")
            .error("UnhandledPromiseRejection"),
        case(
            "a rejection in an async function",
            "(async () => { await 0; null.x })(); \
              await new Promise(done => setTimeout(done, 50))",
        )
        .error("TypeError"),
        case("a rejection that is handled at once", "Promise.reject(1).catch(() => {}); 1")
            .value("1"),
        case(
            "a rejection that is handled in time",
            "const p = Promise.reject(1); await 0; \
              p.catch(() => {}); 1",
        )
        .value("1"),
        case(
            "an error in a timer",
            "setTimeout(() => { throw new RangeError('cb') }, 5); \
              await new Promise(() => {})",
        )
        .error("RangeError"),
        case(
            "an error in an immediate",
            "setImmediate(() => { throw new RangeError('cb') }); \
              await new Promise(() => {})",
        )
        .error("RangeError"),
        case("an error in a tick", "process.nextTick(() => { throw new RangeError('cb') }); 1")
            .error("RangeError"),
        case("an error in a microtask", "queueMicrotask(() => { throw new RangeError('cb') }); 1")
            .error("RangeError"),
        case(
            "an error in an event",
            "new (require('events'))().emit('error', new RangeError('ev'))",
        )
        .error("RangeError"),
        case(
            "an error of a file that is read",
            "fs.readFile('/nope', e => { throw e }); \
              await new Promise(() => {})",
        )
        .error("Error"),
        case(
            "a handler of the code's own",
            "process.once('uncaughtException', e => console.log('own', e));\n\
              setTimeout(() => { throw 5 }, 5); await new Promise(done => setTimeout(done, 50)); 8",
        )
        .out("own 5\n")
        .value("8"),
        case(
            "a handler of rejections",
            "process.once('unhandledRejection', e => console.log('own', e));\n\
              Promise.reject(3); await new Promise(done => setTimeout(done, 20)); 8",
        )
        .out("own 3\n")
        .value("8"),
        case(
            "an error after an error",
            "setTimeout(() => { throw 2 }); throw new TypeError('first')",
        )
        .error("TypeError")
        .late(Text::Any),
        case("what that left", "await new Promise(done => setTimeout(done, 20)); 1").value("1"),
    ]
}

const HOSTILE_PROXY: &str =
    "throw new Proxy(new Error('x'), { get() { throw 1 }, getPrototypeOf() { throw 2 } })";
const HOSTILE_ERROR: &str = "const e = new Error('x');\n\
    for (const name of ['stack', 'message', 'name', 'cause', 'constructor'])\n\
      Object.defineProperty(e, name, { get() { throw 5 } });\nthrow e";

/// The end of a run by its own word.
pub fn exits() -> Vec<Case> {
    let exited = |name, code: &'static str, status| case(name, code).ends(End::Exited(status));
    vec![
        exited("exit", "console.log('before'); process.exit(3); console.log('after')", 3)
            .out("before\n"),
        exited("exit with nothing", "process.exit()", 0),
        exited("exit with a string", "process.exit('7')", 7),
        exited("exit with too much", "process.exit(259)", 3),
        exited("exit with less than nothing", "process.exit(-1)", 255),
        exited(
            "exit that is caught",
            "try { process.exit(4) } catch { console.log(1) } finally { console.log(2) }",
            4,
        ),
        exited(
            "exit in a timer",
            "setTimeout(() => process.exit(5), 5); await new Promise(() => {})",
            5,
        ),
        exited(
            "exit in an immediate",
            "setImmediate(() => process.exit(6)); await new Promise(() => {})",
            6,
        ),
        exited(
            "exit in a tick",
            "process.nextTick(() => process.exit(7)); await new Promise(() => {})",
            7,
        ),
        exited(
            "exit in a microtask",
            "Promise.resolve().then(() => process.exit(8)); await new Promise(() => {})",
            8,
        ),
        exited(
            "exit behind an await",
            "await new Promise(done => setTimeout(done, 5)); process.exit(9)",
            9,
        ),
        exited("exit in an async function", "(async () => { process.exit(10) })(); for (;;);", 10),
        exited("exit in a getter", "[{ get a() { process.exit(11) } }].map(o => o.a)", 11),
        exited(
            "exit in an event",
            "const e = new (require('events'))(); e.on('x', () => process.exit(12)); e.emit('x')",
            12,
        ),
        exited(
            "exit in a module",
            "fs.writeFileSync('/tmp/exits.js', 'process.exit(13)'); require('/tmp/exits.js')",
            13,
        ),
        exited("exit of another kind", "process.reallyExit(14)", 14),
        exited("exit amid output", "process.stdout.write('x'.repeat(1e6)); process.exit(15)", 15)
            .out_bytes(1_000_000),
        case("exitCode alone ends nothing", "process.exitCode = 16; console.log('on')").out("on\n"),
        exited("exit with that code", "process.exit()", 16),
        exited("and it is used up", "process.exit()", 0),
        case(
            "listeners of the exit wait for the end",
            "process.on('exit', () => console.log('bye')); \
              process.on('beforeExit', () => console.log('before')); 1",
        )
        .value("1"),
        exited("as they do here", "process.exit(2)", 2),
        case(
            "and are taken away",
            "process.removeAllListeners('exit'); \
              process.removeAllListeners('beforeExit'); undefined",
        ),
    ]
}

/// What an interrupt must end, with the state kept.
pub fn endless() -> Vec<Case> {
    let endless = |name, code: &'static str| case(name, code).within_ms(250);
    vec![
        endless("a loop", "for (;;);"),
        endless("a loop in a function", "function f() { while (true) {} } f()"),
        endless(
            "a loop that catches",
            "for (;;) { try { for (;;); } catch {} finally { for (;;); } }",
        ),
        endless(
            "a generator",
            "function* g() { try { for (;;) yield 1 } finally { for (;;); } } for (const x of g());",
        ),
        endless("recursion that catches", "function f() { try { f() } catch { f() } } f()"),
        endless("a promise that never comes", "await new Promise(() => {})"),
        endless("awaits", "for (;;) await null"),
        endless(
            "microtasks",
            "(function f() { Promise.resolve().then(f) })(); await new Promise(() => {})",
        ),
        endless("microtasks of the queue", "(function f() { queueMicrotask(f) })()"),
        endless("ticks", "(function f() { process.nextTick(f) })(); await new Promise(() => {})"),
        endless(
            "ticks and microtasks",
            "(function f() { process.nextTick(() => Promise.resolve().then(f)) })(); await new Promise(() => {})",
        ),
        endless("immediates", "(function f() { setImmediate(f) })(); await new Promise(() => {})"),
        endless(
            "a loop in an immediate",
            "setImmediate(() => {}); setImmediate(() => { for (;;); }); await new Promise(() => {})",
        ),
        endless(
            "a loop in a timer",
            "setTimeout(() => { for (;;); }); await new Promise(() => {})",
        ),
        endless("a loop in a microtask", "queueMicrotask(() => { for (;;); })"),
        endless("a loop in a tick", "process.nextTick(() => { for (;;); })"),
        endless("a loop in a finally of an await", "try { await 0 } finally { for (;;); }"),
        endless("a loop behind a rejection", "try { await Promise.reject(1) } catch { for (;;); }"),
        endless(
            "a loop in an event",
            "const e = new (require('events'))(); e.on('x', () => { for (;;); }); e.emit('x')",
        ),
        endless(
            "a loop in a callback of the file system",
            "fs.readFile('/etc/passwd', () => { for (;;); }); await new Promise(() => {})",
        ),
        endless("a loop in a constructor", "class A { constructor() { for (;;); } } new A()"),
        endless("a loop in a trap", "new Proxy({}, { get() { for (;;); } }).x"),
        endless("a loop in toJSON", "JSON.stringify({ toJSON() { for (;;); } })"),
        endless("a loop in a comparison", "[2, 1].sort(() => { for (;;); })"),
        endless(
            "a loop as a value is shown",
            "({ [Symbol.for('nodejs.util.inspect.custom')]() { for (;;); } })",
        ),
        endless("a loop in WebAssembly", WASM_LOOP),
        endless("a loop of another realm", "require('vm').runInNewContext('for (;;);')"),
        endless(
            "a loop in a module",
            "fs.writeFileSync('/tmp/spins.js', 'for (;;);'); require('/tmp/spins.js')",
        ),
        endless(
            "a loop in an imported module",
            "fs.writeFileSync('/tmp/spins.mjs', 'for (;;);'); await import('/tmp/spins.mjs')",
        ),
        endless(
            "a module that never comes",
            "fs.writeFileSync('/tmp/waits.mjs', 'await new Promise(() => setTimeout(() => {}, 1e9))'); await import('/tmp/waits.mjs')",
        ),
        endless("a pattern", "/(a+)+$/.test('a'.repeat(40) + 'b')"),
        endless("Atomics.wait", "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)"),
        endless("an endless log", "for (;;) console.log('spam')").out_any(),
        endless("an endless log of errors", "for (;;) console.error('spam')").err_any(),
        endless(
            "a handler of SIGINT",
            "process.on('SIGINT', () => console.log('mine')); for (;;);",
        )
        .out_any()
        .late(Text::Any),
        endless("no handler of SIGINT", "process.removeAllListeners('SIGINT'); for (;;);"),
        endless(
            "an endless interval",
            "setInterval(() => { for (;;); }, 1); await new Promise(() => {})",
        ),
        endless("execSync", "require('child_process').execSync('sleep 100')"),
        endless(
            "a child",
            "const c = require('child_process').spawn('sleep', ['100']); await new Promise(done => c.on('exit', done)); await new Promise(() => {})",
        ),
        endless(
            "a worker that is waited for",
            "globalThis.w = new (require('worker_threads').Worker)('for (;;);', { eval: true }); await new Promise(done => w.on('exit', done))",
        ),
        case("the worker is ended", "await w.terminate(); 1").value("1"),
        endless(
            "an answer that never comes",
            "const s = require('net').createServer().listen('/tmp/never.sock'); await new Promise(() => {})",
        ),
        case("the server is closed", "await new Promise(done => s.close(done)); 1").value("1"),
        endless(
            "a child that ignores the interrupt",
            "require('child_process').execSync(\"trap '' INT; sleep 100 & wait; sleep 100\")",
        ),
        endless("input in a loop", "for (;;) fs.readFileSync(0)"),
    ]
}

const WASM_LOOP: &str = "new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, \
    1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 9, 1, 7, 0, 3, 64, 12, 0, 11, 11])))\
    .exports.f()";

/// What only the end of the interpreter ends.
pub fn stuck() -> Vec<Case> {
    let stuck = |name, code: &'static str| case(name, code).within_ms(250).loses_state();
    vec![
        stuck(
            "a FIFO that nobody writes to is opened",
            "require('child_process').execSync('mkfifo /tmp/fifo'); fs.openSync('/tmp/fifo')",
        ),
        stuck(
            "a FIFO that nobody writes to is read",
            "fs.readSync(fs.openSync('/tmp/fifo', 'r+'), Buffer.alloc(1))",
        ),
    ]
}

/// Crashes, each with its cause. Heaps are limited to 64 MB here.
pub fn crashes() -> Vec<Case> {
    let dies = |name, code: &'static str, signal| {
        case(name, code).ends(End::Signal(signal)).out("before\n")
    };
    vec![
        dies("killed by itself", "console.log('before'); process.kill(process.pid, 9); for (;;);", 9),
        dies("an abort", "console.log('before'); process.abort()", 6).err_any(),
        dies("a violation", "console.log('before'); process.kill(process.pid, 'SIGSEGV'); for (;;);", 11),
        dies("terminated by itself", "console.log('before'); process.kill(process.pid); await new Promise(() => {})", 15),
        dies("hung up on by itself", "console.log('before'); process.kill(process.pid, 'SIGHUP'); await new Promise(() => {})", 1),
        dies("a full heap", "console.log('before'); const all = []; for (;;) all.push(new Array(1000).fill(Math.random()))", 6)
            .err_has("heap out of memory"),
        dies("a full heap of strings", "console.log('before'); const all = {}; for (let n = 0; ; n++) all['k' + n] = 'v' + n", 6)
            .err_has("heap out of memory"),
        dies("the control channel is closed", "console.log('before'); fs.closeSync(3); 1", 9),
        dies("the control channel is another's", "console.log('before'); fs.closeSync(3); fs.openSync('/dev/null'); 1", 9),
    ]
}

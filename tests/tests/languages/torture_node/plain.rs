//! Rows of code that means no harm: values, names, source texts, output, modules, children.

use tests::torture::{Case, case};

const MEGABYTE: usize = 1 << 20;

/// Values, and names that are declared again.
pub fn values() -> Vec<Case> {
    vec![
        case("hello", "console.log('hello')").out("hello\n"),
        case("no newline", "process.stdout.write('x'); undefined").out("x"),
        case("both outputs", "console.error('e'); console.log('o')").out("o\n").err("e\n"),
        case("a value", "1 + 1").value("2"),
        case("undefined is no value", "undefined"),
        case("null", "null").value("null"),
        case("a string with a newline", "'a\\nb'").value("'a\\nb'"),
        case("minus zero, bigint, symbol", "[-0, 10n, Symbol('s')]")
            .value("[ -0, 10n, Symbol(s) ]"),
        case("an object in braces", "{ a: 1 }").value("{ a: 1 }"),
        case("a block", "{ let q = 3; q * 2 }").value("6"),
        case("a function", "function named() {}; named").value("[Function: named]"),
        case("a promise is awaited by no one", "[Promise.resolve(4)]").value("[ Promise { 4 } ]"),
        case("const", "const c = 1; let l = 1; class K { one() {} }"),
        case("const again", "const c = 2; let l = 2; class K { two() {} }"),
        case("and what they are now", "[c, l, typeof new K().two]").value("[ 2, 2, 'function' ]"),
        case("a function", "function again() {}"),
        case("a variable of its name", "var again = 5; again").value("5"),
        case("top-level await", "const t = await Promise.resolve(5); t").value("5"),
        case("await of a timer", "await new Promise(done => setTimeout(done, 20, 'rung'))")
            .value("'rung'"),
        case("await in a loop", "let s = 0; for (const n of [1, 2]) s += await n; s").value("3"),
        case("for await", "let q = 0; for await (const n of [1, 2]) q += n; q").value("3"),
        case("a rejected await that is caught", "try { await Promise.reject(1) } catch (e) { e }")
            .value("1"),
        case("a thenable", "({ then: 1 })").value("{ then: 1 }"),
        case("a label", "a: for (;;) { break a } 5").value("5"),
        case("strict code", "'use strict'; (function () { return this })() === undefined")
            .value("true"),
        case("this", "this === globalThis").value("true"),
        case("a proxy", "new Proxy({}, { get() { throw 1 }, ownKeys() { throw 2 } })")
            .value("Proxy [ {}, { get: [Function: get], ownKeys: [Function: ownKeys] } ]"),
        case(
            "a value that will not be shown",
            "({ get a() { throw 1 }, get constructor() { throw 2 } })",
        )
        .value("{ a: [Getter], constructor: [Getter] }"),
        case("a value that throws as it is shown", SHOWN_BADLY).error("RangeError"),
        case("a circle", "const o = {}; o.o = o; o").value("<ref *1> { o: [Circular *1] }"),
    ]
}

const SHOWN_BADLY: &str =
    "({ [Symbol.for('nodejs.util.inspect.custom')]() { throw new RangeError('no') } })";

/// What source text may look like.
pub fn sources() -> Vec<Case> {
    let mut comment = vec![b'x'; 10 * MEGABYTE];
    comment.splice(0..2, *b"/*");
    comment.extend_from_slice(b"*/ 'end'");
    let text = format!("'{}'.length", "t".repeat(10 * MEGABYTE));
    let lines = "globalThis.lines = 1;\n".repeat(10 * MEGABYTE / 22) + "'end'";
    let import = format!("/*{}*/ import 'fs'; 'end'", "import \n".repeat(MEGABYTE / 8));
    vec![
        case("nothing", ""),
        case("blanks", " \n\n\t "),
        case("a comment", "// nothing"),
        case("a comment behind", "7 // seven").value("7"),
        case("blank lines in a function", "function f() {\n\n  return 1\n\n}\n\nf()").value("1"),
        case("tabs", "\tif (1) {\t9 }").value("9"),
        case("carriage returns", "const z = 1;\r\nz + 1\r\n").value("2"),
        case("carriage returns in a template", "`a\r\nb`.length").value("3"),
        case("a byte order mark", "\u{feff}5").value("5"),
        case("NUL in a string", "'a\0b'.length").value("3"),
        case("NUL in code", "5;\0").error("SyntaxError"),
        case("bytes that are not UTF-8", b"'\xff\xed\xa0\x80'.length".as_slice()).value("4"),
        case("a lone surrogate", "'\\ud800'.length").value("1"),
        case("a lone surrogate printed", "process.stdout.write('\\ud800'); undefined")
            .out("\u{fffd}"),
        case("beyond the basic plane", "'\u{1f600}'.length").value("2"),
        case("an unclosed quote", "'abc").error("SyntaxError"),
        case("an unclosed quote again", "\"abc\nmore").error("SyntaxError"),
        case("an unclosed template", "`abc").error("SyntaxError"),
        case("an unclosed place in a template", "`abc${1 + ").error("SyntaxError"),
        case("an unclosed parenthesis", "foo(1,").error("SyntaxError"),
        case("an unclosed bracket", "[1, 2").error("SyntaxError"),
        case("an unclosed brace", "function f() {").error("SyntaxError"),
        case("an unclosed comment", "/* abc").error("SyntaxError"),
        case("an unclosed pattern", "/abc").error("SyntaxError"),
        case("too many braces", "}").error("SyntaxError"),
        case("an escape from what wraps the code", "})(); (() => {").error("SyntaxError"),
        case("no statement", "x = = 1").error("SyntaxError"),
        case("return outside", "return 5").error("SyntaxError"),
        case("nothing of it runs", "console.log('before'); x = = 1").error("SyntaxError"),
        case("a source map's address", "1 //# sourceMappingURL=data:,x").value("1"),
        case("another name for the code", "1 //# sourceURL=other.js").value("1"),
        case("10 MB of a comment", comment).value("'end'"),
        case("10 MB of a string", text).value("10485760"),
        case("10 MB of lines", lines).value("'end'"),
        case("imports in a long comment", import).value("'end'"),
        case("deep brackets", "[".repeat(100_000) + &"]".repeat(100_000)).error("RangeError"),
    ]
}

/// Output, from a byte to 100 MB.
pub fn output() -> Vec<Case> {
    let numbers: String = (0..10_000).fold(String::new(), |all, n| all + &n.to_string() + "\n");
    vec![
        case("10,000 lines", "for (let i = 0; i < 10000; i++) console.log(i)").out(numbers),
        case("100 MB in one line", "process.stdout.write('x'.repeat(1e8)); undefined")
            .out_bytes(100_000_000),
        case("100 MB in lines of one byte", "process.stdout.write('x\\n'.repeat(5e7)); undefined")
            .out_bytes(100_000_000),
        case("a byte at a time", "for (let i = 0; i < 2e5; i++) process.stdout.write('x')")
            .out_bytes(200_000)
            .value("true"),
        case("both at once", "for (let i = 0; i < 9999; i++) { console.log(1); console.error(2) }")
            .out("1\n".repeat(9999))
            .err("2\n".repeat(9999)),
        case("bytes that are not UTF-8", BYTES).out("a\u{fffd}\u{fffd}b\0"),
        case("encodings", "process.stdout.write('6869', 'hex'); console.log()").out("hi\n"),
        case("a callback", "await new Promise(done => process.stdout.write('x', done)); undefined")
            .out("x"),
        case("fs.writeSync in between", "console.log(1); fs.writeSync(1, '2\\n'); console.log(3)")
            .out("1\n2\n3\n"),
        case("fs.write", "await new Promise(done => fs.write(1, 'w\\n', done)); console.log('x')")
            .out("w\nx\n"),
        case("fs.writeFileSync of a descriptor", "fs.writeFileSync(2, 'w\\n')").err("w\n"),
        case("/dev/stdout", "fs.writeFileSync('/dev/stdout', 'w\\n')").out("w\n"),
        case(
            "a stream piped",
            "require('stream').Readable.from(['a', 'b']).pipe(process.stdout); \
              await new Promise(done => setTimeout(done, 30)); undefined",
        )
        .out("ab"),
        case("an ended output", "process.stdout.end('e'); process.stdout.write('f'); undefined")
            .out("ef"),
        case("a destroyed output", "process.stdout.destroy(); console.log('still')").out("still\n"),
        case("console.group", "console.group('g'); console.log('i'); console.groupEnd()")
            .out("g\n  i\n"),
        case("what is no terminal", "[process.stdout.isTTY, process.stdin.isTTY]")
            .value("[ undefined, undefined ]"),
        case("no colours", "console.log({ a: 1, b: 'x' })").out("{ a: 1, b: 'x' }\n"),
        case("a promise logged", "console.log(Promise.resolve(4))").out("Promise { 4 }\n"),
        case("a warning", "process.emitWarning('careful')").err_has("Warning: careful"),
    ]
}

const BYTES: &str = "process.stdout.write(Buffer.from([97, 255, 254, 98, 0])); undefined";

/// Packages and files of the working directory; [`PROJECT`] has made them.
pub fn modules() -> Vec<Case> {
    vec![
        case("require of a package", "require('cjs').hi()").value("'cjs'"),
        case("require of a file", "require('./file').x + require('./file.js').x").value("2"),
        case("require of JSON", "require('./data.json').k").value("[ 1, 2 ]"),
        case("import() of a package", "(await import('esm')).hi()").value("'esm'"),
        case("import() of CommonJS", "(await import('cjs')).default.hi()").value("'cjs'"),
        case("import() of a file", "(await import('./file.mjs')).x").value("7"),
        case("import() with two faces", "[(await import('dual')).default, require('dual')]")
            .value("[ 'imported', 'required' ]"),
        case(
            "static import",
            "import D, { hi as hello, 'a-b' as ab } from 'esm';\n\
              [D, hello(), ab]",
        )
        .value("[ 'default', 'esm', 'ab' ]"),
        case("static import of everything", "import * as all from './file.mjs'; all.x").value("7"),
        case("static import of CommonJS", "import cjs from 'cjs'\nimport 'cjs'\ncjs.hi()")
            .value("'cjs'"),
        case(
            "static import of Node's own",
            "import fs2, { readFileSync } from 'node:fs';\n\
              fs2.readFileSync === readFileSync",
        )
        .value("true"),
        case("imported again", "import { x } from './file.mjs'; x").value("7"),
        case("import in a function", "const load = name => import(name); (await load('esm')).hi()")
            .value("'esm'"),
        case("import in a template", "`${(await import('esm')).hi()} import('x')`")
            .value("\"esm import('x')\""),
        case("import as a name", "({ import: 1 }).import").value("1"),
        case("import.meta", "import.meta.url").value("'file:///tmp/project/%3Crepl%3E'"),
        case("an export that is not there", "import { nothere } from 'esm'").error("SyntaxError"),
        case("a package that is not there", "require('nopackage')").error("Error"),
        case("a package that is not there, imported", "await import('nopackage')").error("Error"),
        case("a file with a syntax error", "require('./bad.js')").error("SyntaxError"),
        case("a module that throws", "await import('./throws.mjs')").error("TypeError"),
        case("a module that awaits", "(await import('./awaits.mjs')).slow").value("'at last'"),
        case(
            "another working directory",
            "process.chdir('/tmp/project/other'); require('./file').x",
        )
        .value("2"),
        case("and back", "process.chdir('..'); require('./file').x").value("1"),
        case(
            "a removed working directory",
            "fs.mkdirSync('/tmp/gone'); process.chdir('/tmp/gone');\
              fs.rmdirSync('/tmp/gone'); console.log('here')",
        )
        .out("here\n"),
        case("require in a removed directory", "typeof require('os').cpus").value("'function'"),
        case("import in a removed directory", "typeof (await import('os')).cpus")
            .value("'function'"),
        case("cwd in a removed directory", "process.cwd()").error("Error"),
        case("a child in a removed directory", "require('child_process').execSync('echo 1') + ''")
            .value("'1\\n'")
            .err_any(),
        case("out of the removed directory", "process.chdir('/tmp/project'); process.cwd()")
            .value("'/tmp/project'"),
        case(
            "the prompt's names",
            "[typeof module, typeof exports, typeof require.resolve, \
              typeof __filename, process.argv.length]",
        )
        .value("[ 'object', 'object', 'function', 'undefined', 1 ]"),
    ]
}

/// Makes the packages that [`modules`] loads.
pub const PROJECT: &str = r"
const place = '/tmp/project';
const file = (name, text) => {
  fs.mkdirSync(require('path').dirname(`${place}/${name}`), { recursive: true });
  fs.writeFileSync(`${place}/${name}`, text);
};
file('node_modules/cjs/index.js', 'exports.hi = () => `cjs`');
file('node_modules/esm/package.json', '{ `type`: `module`, `exports`: `./main.js` }'.replaceAll('`', '\x22'));
file('node_modules/esm/main.js', 'export default `default`; export const hi = () => `esm`; const ab = `ab`; export { ab as \x22a-b\x22 }');
file('node_modules/dual/package.json', '{ `exports`: { `import`: `./i.mjs`, `require`: `./r.cjs` } }'.replaceAll('`', '\x22'));
file('node_modules/dual/i.mjs', 'export default `imported`');
file('node_modules/dual/r.cjs', 'module.exports = `required`');
file('file.js', 'exports.x = 1');
file('file.mjs', 'export const x = 7');
file('data.json', '{ `k`: [1, 2] }'.replaceAll('`', '\x22'));
file('bad.js', 'x = = 1');
file('throws.mjs', 'null.x');
file('awaits.mjs', 'export const slow = await new Promise(done => setTimeout(done, 20, `at last`))');
file('other/file.js', 'exports.x = 2');
process.chdir(place);
";

/// Processes and threads that code starts.
pub fn children() -> Vec<Case> {
    vec![
        case("execSync", "require('child_process').execSync('echo hi; echo no >&2') + ''")
            .value("'hi\\n'").err("no\n"),
        case("execSync that inherits", "console.log(1); require('child_process')\
              .execSync('echo 2; echo e >&2', { stdio: 'inherit' }); console.log(3)")
            .out("1\n2\n3\n").err("e\n"),
        case("spawnSync that inherits", "console.log(1); require('child_process')\
              .spawnSync('echo', ['2'], { stdio: ['ignore', 1, process.stderr] }); console.log(3)")
            .out("1\n2\n3\n"),
        case("spawn that inherits", "console.log(1); const { spawn } = require('child_process');\n\
              const child = spawn('echo', ['2'], { stdio: 'inherit' });\n\
              await new Promise(done => child.on('exit', done)); console.log(3)")
            .out("1\n2\n3\n"),
        case("a child's input is at its end", "require('child_process')\
              .execSync('cat; echo end', { stdio: 'inherit' }); undefined").out("end\n"),
        case("a child that fails", "require('child_process').execSync('exit 3')").error("Error"),
        case("a child that is not there", "require('child_process').spawn('/no/program'); \
              await new Promise(() => {})").error("Error"),
        case("no descriptor of ours in a child", "require('child_process').execSync('ls /proc/self/fd') + ''")
            .value("'0\\n1\\n2\\n3\\n'"),
        case("a fork that answers", "fs.writeFileSync('/tmp/fork.js', 'process.send(1 + 1)');\
              const forked = require('child_process').fork('/tmp/fork.js');\n\
              await new Promise(done => forked.on('message', done))").value("2"),
        case("a worker that prints", "const { Worker } = require('worker_threads');\n\
              const w = new Worker(`console.log('from a worker'); process.exitCode = 3`, { eval: true });\n\
              await new Promise(done => w.on('exit', done))").out("from a worker\n").value("3"),
        case("a worker that exits", "const w = new Worker('process.exit(5)', { eval: true });\n\
              await new Promise(done => w.on('exit', done))").value("5"),
        case("a worker that throws", "new Worker('throw new TypeError(1)', { eval: true });\n\
              await new Promise(() => {})").error("TypeError"),
        case("a worker that spins", "globalThis.spinner = new Worker('for (;;);', { eval: true }); 1")
            .value("1"),
        case("the worker is ended", "await spinner.terminate(); 1").value("1"),
        case("a background child holds nothing up", "require('child_process')\
              .spawn('sleep', ['100'], { stdio: 'inherit', detached: true }); console.log('hi')")
            .out("hi\n"),
    ]
}

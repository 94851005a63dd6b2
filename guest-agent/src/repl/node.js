// Burrow's driver for Node, 18 to 24. The agent sends it over descriptor 3 and speaks with it as
// docs/reference/drivers.md says. Two threads: the main one evaluates and writes to the control channel; the
// other one reads the channel, so that an interrupt is heard while the main one is busy.
//
// The code of the runs shares the process with this, so whatever is needed after the first run is a
// private reference, and arrays are walked by index: globals and prototypes may be anything later.
// Descriptor 3 is inherited by nobody: Node marks all that it finds at its start close-on-exec.
(() => {
'use strict';

const globe = globalThis;
const { Array, Atomics, Buffer, Error, JSON, Math, Object, Promise, Proxy, RegExp, String } = globe;
const { RangeError, SyntaxError, WeakMap, console, process, require } = globe;
const { load: loadAt, notify, store: storeAt, wait: waitAt } = Atomics;
const fs = require('fs');
const path = require('path');
const Module = require('module');
const childProcess = require('child_process');
const { Session } = require('inspector');
const { AsyncLocalStorage, executionAsyncResource } = require('async_hooks');
const { EventEmitter } = require('events');
const { Readable, Writable } = require('stream');
const { MessageChannel, Worker } = require('worker_threads');
const { inspect, types: { isNativeError, isProxy, isUint8Array } } = require('util');
const timers = require('timers');
const { pathToFileURL } = require('url');
const { onInit } = require('v8').promiseHooks;
const { Script, runInThisContext } = require('vm');

const uncurry = (method) => Function.prototype.call.bind(method);
const uncurried = (proto) => new Proxy(proto, { get: (_, name) => uncurry(proto[name]) });
const { apply, ownKeys } = globe.Reflect;
const { defineProperty, getOwnPropertyDescriptor: descriptorOf, getPrototypeOf, keys } = Object;
const { closeSync, fstatSync, openSync, readSync, statSync, writeSync } = fs;
const { cpuUsage, cwd, exit: exitNode, kill, nextTick, pid, reallyExit, resourceUsage } = process;
const { _kill: signalTo, uptime } = process;
const { O_WRONLY } = fs.constants;
const { isArray } = Array;
const { isView } = globe.ArrayBuffer;
const { setImmediate: immediately } = timers;
const { stringify } = JSON;
const { max, min, trunc } = Math;
const { alloc, byteLength, concat, from: bytesOf } = Buffer;
const { exec } = uncurried(RegExp.prototype);
const textual = uncurried(String.prototype);
const { indexOf: find, repeat, replace: replaced, slice, split, trim } = textual;
const { join, sort } = uncurried(Array.prototype);
const buffered = uncurried(Buffer.prototype);
const { set: copyInto, subarray: view, utf8Slice: utf8, write: writeText } = buffered;
const emitting = uncurried(EventEmitter.prototype);
const { listenerCount, on: listen, once: listenOnce, removeListener: unlisten } = emitting;
const { connect: connectTo, disconnect, post } = uncurried(Session.prototype);
const { then } = uncurried(Promise.prototype);
const { set: setIn } = uncurried(WeakMap.prototype);
const Immediate = immediately(() => {}).constructor;
const handleFatal = process._fatalException;
const formatStack = Error.prepareStackTrace;
const ignored = () => {};

const CONTROL = 3;
const HEAD_BYTES = 17;
const PART_BYTES = 65000;
const SCRATCH_BYTES = 65536;
const LATE_BYTES = 1 << 20;
const DISPLAY_BYTES = 16 << 20;
const TEXT_CHARS = 2 << 20;
const ERROR_CHARS = 200000;
const FRAMES_MAX = 100;
const SOURCES_MAX = 64;
const MATCHES_MAX = 200;
const FAILURES_MAX = 1000;
const FAILING_SECONDS = 3;

// What both threads see: the run that is on, or 0; how often `seen` has come; whether the channel
// is the other thread's to read; how many messages that one has passed on.
const RUN = 0;
const SEEN = 1;
const GATE = 2;
const PASSED = 3;
const shared = new Int32Array(new SharedArrayBuffer(16));
const pause = new Int32Array(new SharedArrayBuffer(4));

let directory = null;
let session = null;
let current = null;
let closing = false;
// Whether the last run ended by itself, and by no error.
let lastWell = false;
// The other thread, and the port that it speaks by.
let hearer = null;
// While it is not zero the driver is amid something that an interrupt must not cut.
let critical = 0;
// Whether something is being cut off. What Node takes for an uncaught exception meanwhile is the
// cut.
let cutting = false;
// The numbers of the runs that were interrupted.
const dead = { __proto__: null };
let anyDead = false;

function attempt(what, otherwise) {
  try {
    return what();
  } catch {
    return otherwise;
  }
}

// Code can ruin what Node's own parts, or this, cannot do without. A crash, which the agent tells of
// and starts anew after, is better then than a run that never ends.
function die() {
  signalTo(pid, 9);
}

function orDie(what) {
  try {
    return what();
  } catch {
    return die();
  }
}

// The control channel as it is read. The other thread compiles this too, so it names nothing from
// outside but globals.
function hearing(readSync, concat, utf8) {
  const { wait } = Atomics;
  const view = Function.prototype.call.bind(Uint8Array.prototype.subarray);
  const packet = new Uint8Array(65536);
  const pause = new Int32Array(new SharedArrayBuffer(4));

  // The bytes of the next message; null when the agent is gone.
  function receive() {
    const parts = [];
    for (;;) {
      let length = 0;
      try {
        length = readSync(3, packet, 0, 65536, null);
      } catch (error) {
        if (error.code !== 'EAGAIN' && error.code !== 'EINTR') return null;
        wait(pause, 0, 0, 1);
        continue;
      }
      if (length === 0) return null;
      parts[parts.length] = packet.slice(1, length);
      if (packet[0] === 0) return parts.length === 1 ? parts[0] : concat(parts);
    }
  }

  // A message's name and content. MessagePack without floats; maps have no prototype.
  function decode(bytes) {
    let at = 0;
    const number = (width) => {
      let value = 0;
      for (const end = at + width; at < end; at++) value = value * 256 + bytes[at];
      return value;
    };
    const text = (length) => utf8(bytes, at, at += length);
    const binary = (length) => view(bytes, at, at += length);
    const list = (length) => {
      const items = [];
      for (let index = 0; index < length; index++) items[index] = value();
      return items;
    };
    const map = (length) => {
      const fields = { __proto__: null };
      for (let index = 0; index < length; index++) {
        const name = value();
        fields[name] = value();
      }
      return fields;
    };
    const value = () => {
      const tag = bytes[at++];
      if (tag < 0x80) return tag;
      if (tag < 0x90) return map(tag & 15);
      if (tag < 0xa0) return list(tag & 15);
      if (tag < 0xc0) return text(tag & 31);
      if (tag >= 0xe0) return tag - 256;
      if (tag < 0xc4) return tag === 0xc0 ? null : tag === 0xc3;
      if (tag < 0xc7) return binary(number(1 << (tag - 0xc4)));
      if (tag < 0xd4) return number(1 << (tag & 3));
      if (tag < 0xdc) return text(number(1 << (tag - 0xd9)));
      if (tag < 0xde) return list(number(tag === 0xdc ? 2 : 4));
      return map(number(tag === 0xde ? 2 : 4));
    };
    const message = value();
    if (typeof message === 'string') return [message, {}];
    for (const name in message) return [name, message[name]];
    return ['', {}];
  }

  return { receive, decode };
}

const { receive, decode } = hearing(readSync, concat, utf8);

// The control channel as it is written, by the main thread alone.
let scratch = alloc(SCRATCH_BYTES);
let filled = 0;
let token = null;
let channel = 0;

function room(bytes) {
  if (filled + bytes <= scratch.length) return;
  const grown = alloc(2 * (filled + bytes));
  copyInto(grown, view(scratch, 0, filled));
  scratch = grown;
}

function putHead(tag, value, width) {
  room(9);
  scratch[filled] = tag;
  for (let at = filled + width; at > filled; at--) {
    scratch[at] = value % 256;
    value = trunc(value / 256);
  }
  filled += 1 + width;
}

function putBytes(tag, length, write) {
  putHead(tag, length, 4);
  room(length);
  write(length);
  filled += length;
}

function put(value) {
  if (typeof value === 'string') {
    putBytes(0xdb, byteLength(value), (length) => writeText(scratch, value, filled, length));
  } else if (typeof value === 'number') {
    putHead(0xcf, max(0, trunc(value)), 8);
  } else if (typeof value === 'boolean') {
    putHead(value ? 0xc3 : 0xc2, 0, 0);
  } else if (value === null || value === undefined) {
    putHead(0xc0, 0, 0);
  } else if (isUint8Array(value)) {
    putBytes(0xc6, value.length, () => copyInto(scratch, value, filled));
  } else if (isArray(value)) {
    putHead(0xdd, value.length, 4);
    for (let index = 0; index < value.length; index++) put(value[index]);
  } else {
    const names = keys(value);
    putHead(0xdf, names.length, 4);
    for (let index = 0; index < names.length; index++) {
      put(names[index]);
      put(value[names[index]]);
    }
  }
}

// Writes all of it, however often it must wait.
function writeWhole(fd, bytes, at, end) {
  while (at < end) {
    try {
      at += writeSync(fd, bytes, at, end - at);
    } catch (error) {
      if (error.code !== 'EAGAIN' && error.code !== 'EINTR') throw error;
      waitAt(pause, 0, 0, 1);
    }
  }
}

// Each part's head is written over the end of the part before it, which is sent by then. Without
// the channel, or with another file in its place, nobody would hear of this process again.
function send(name, fields) {
  critical++;
  filled = HEAD_BYTES;
  put({ [name]: fields });
  try {
    if (fstatSync(CONTROL).ino !== channel) kill(pid, 'SIGKILL');
    for (let at = HEAD_BYTES; at < filled; at += PART_BYTES) {
      const end = min(at + PART_BYTES, filled);
      copyInto(scratch, token, at - HEAD_BYTES);
      scratch[at - 1] = end < filled ? 1 : 0;
      writeWhole(CONTROL, scratch, at - HEAD_BYTES, end);
    }
  } catch {
    kill(pid, 'SIGKILL');
  }
  if (scratch.length > LATE_BYTES) scratch = alloc(SCRATCH_BYTES);
  critical--;
}

// Sends what has a place among the output, and waits until the agent has it there.
function sendInOrder(name, fields, ordered) {
  const before = loadAt(shared, SEEN);
  fields.sync = ordered;
  send(name, fields);
  while (ordered && loadAt(shared, SEEN) === before) waitAt(shared, SEEN, before);
}

// Which run it is that speaks is known from the asynchronous context, which holds its number. What
// the current one says goes into its own FIFOs, at once; what an earlier one says is told as late.
const als = new AsyncLocalStorage();
const { enterWith, getStore } = als;
const enter = (id) => apply(enterWith, als, [id]);
const speaker = () => attempt(() => apply(getStore, als, []));
const isCurrent = (id) => current !== null && (id === undefined || id === current.id);

function openOutputs() {
  const open = (name, otherwise) => {
    const file = `${directory}/${name}`;
    return directory === null ? otherwise : attempt(() => openSync(file, O_WRONLY), otherwise);
  };
  return [open('out', 1), open('err', 2)];
}

function say(index, bytes) {
  const id = speaker();
  if (!isCurrent(id)) {
    if (id !== undefined) sayLate(id, index, bytes);
    else attempt(() => writeWhole(1 + index, bytes, 0, bytes.length));
    return;
  }
  current.said = true;
  try {
    writeWhole(current.fds[index], bytes, 0, bytes.length);
  } catch {
    // The code has closed it.
    current.fds = openOutputs();
    attempt(() => writeWhole(current.fds[index], bytes, 0, bytes.length));
  }
}

function sayLate(id, index, bytes) {
  for (let at = 0; at < bytes.length; at += LATE_BYTES) {
    const some = view(bytes, at, min(at + LATE_BYTES, bytes.length));
    send('late', { run: id, stderr: index === 1, bytes: some });
  }
}

// Standard output or error. Nothing is buffered, so that nothing is lost at an exit or a crash, and
// the machinery of streams is gone around, so that an interrupt amid a write leaves no trace.
class Output extends Writable {
  constructor(index) {
    super({ decodeStrings: false, emitClose: false, autoDestroy: false });
    this.fd = 1 + index;
    this._type = 'pipe';
    this._isStdio = true;
    const write = (chunk, encoding, callback) => {
      const named = typeof encoding === 'string' ? encoding : undefined;
      const done = typeof encoding === 'function' ? encoding : callback;
      say(index, isUint8Array(chunk) ? chunk : bytesOf(chunk, named));
      if (typeof done === 'function') nextTick(done, null);
      return true;
    };
    defineProperty(this, 'write', { value: write, configurable: true, writable: true });
  }

  end(chunk, encoding, callback) {
    const isFirst = typeof chunk === 'function';
    const done = isFirst ? chunk : typeof encoding === 'function' ? encoding : callback;
    if (chunk !== undefined && chunk !== null && chunk !== done) this.write(chunk, encoding);
    nextTick(() => {
      if (typeof done === 'function') done();
      this.emit('finish');
    });
    return this;
  }

  destroy() {
    return this;
  }
}

const stdout = new Output(0);
const stderr = new Output(1);

// Requests for input that have no answer yet, by number.
const asked = { __proto__: null };
let requests = 0;

function ask(prompt, secret, answered, dropped) {
  const request = ++requests;
  asked[request] = { answered, dropped, id: current.id };
  send('input', { run: current.id, request, prompt, secret });
}

function answer(request, line) {
  const pending = asked[request];
  if (pending === undefined) return;
  delete asked[request];
  enter(pending.id);
  if (typeof line === 'string') line = bytesOf(line);
  pending.answered(line === undefined ? null : line);
}

const endsLine = (line) => line.length > 0 && line[line.length - 1] === 10;

// Standard input: each line is asked of the caller when the code reads it. Streams read ahead of
// those who listen, who may have had enough with the last line, so it is asked for a turn later.
class Input extends Readable {
  #wanted = false;

  constructor() {
    super({ highWaterMark: 0 });
    this.fd = 0;
    listen(this, 'resume', () => this.want());
  }

  _read() {
    this.#wanted = true;
    immediately(() => this.want());
  }

  want() {
    const heard = !this.isPaused() || listenerCount(this, 'readable') > 0;
    if (!this.#wanted || !heard || current === null || current.aside) return;
    this.#wanted = false;
    if (!current.input) {
      this.push(null);
      return;
    }
    const given = (line) => {
      this.push(line === null || endsLine(line) ? line : concat([line, bytesOf('\n')]));
    };
    ask('', false, given, () => {
      this.#wanted = true;
    });
  }
}

let stdin = null;

function input() {
  if (stdin === null || stdin.destroyed || stdin.readableEnded) stdin = new Input();
  return stdin;
}

// Children, and writes to descriptors 1 and 2, take the run's own outputs; those of an earlier run,
// whose outputs are closed, the interpreter's.
function outputOf(fd) {
  if (!isCurrent(speaker())) return fd;
  current.said = true;
  return current.fds[fd - 1];
}

function routed(stdio) {
  if (stdio === 'inherit') return [0, outputOf(1), outputOf(2)];
  if (!isArray(stdio)) return stdio;
  const routes = [];
  for (let index = 0; index < stdio.length; index++) {
    const one = stdio[index];
    const fd = one === 'inherit' ? index : one === stdout ? 1 : one === stderr ? 2 : one;
    routes[index] = fd === 1 || fd === 2 ? outputOf(fd) : one;
  }
  return routes;
}

function replace(holder, name, make) {
  const value = make(holder[name]);
  defineProperty(value, 'name', { value: name });
  defineProperty(holder, name, { value, configurable: true, enumerable: true, writable: true });
}

// What an earlier run writes to a descriptor; the interpreter's own would count as the current run's.
function fileLate(id, index, data, from, length) {
  if (isArray(data)) {
    let written = 0;
    for (let at = 0; at < data.length; at++) written += fileLate(id, index, data[at]);
    return written;
  }
  let bytes = data;
  if (!isView(data)) {
    const named = typeof from === 'string' ? from : length;
    bytes = bytesOf(`${data}`, typeof named === 'string' ? named : undefined);
  } else {
    const { offset = 0, length: count = length } = typeof from === 'number' ? { offset: from } : from || {};
    const first = data.byteOffset + offset;
    bytes = bytesOf(data.buffer, first, count === undefined ? data.byteLength - offset : count);
  }
  sayLate(id, index, bytes);
  return bytes.length;
}

function routeOutputs() {
  const isOptions = (value) => value !== null && typeof value === 'object' && !isArray(value);
  const routeOptions = (native) => function (...args) {
    const last = args.length - 1;
    if (isOptions(args[last])) args[last] = { ...args[last], stdio: routed(args[last].stdio) };
    return apply(native, this, args);
  };
  replace(childProcess.ChildProcess.prototype, 'spawn', routeOptions);
  replace(childProcess, 'spawnSync', routeOptions);
  replace(childProcess, 'execSync', routeOptions);
  replace(childProcess, 'execFileSync', routeOptions);
  const routeFile = (native) => function (...args) {
    const isOutput = args[0] === 1 || args[0] === 2;
    const id = speaker();
    if (isOutput && id !== undefined && !isCurrent(id)) return fileLate(id, args[0] - 1, args[1], args[2], args[3]);
    if (isOutput) args[0] = outputOf(args[0]);
    return apply(native, this, args);
  };
  replace(fs, 'writeSync', routeFile);
  replace(fs, 'writevSync', routeFile);
  replace(fs, 'writeFileSync', routeFile);
  replace(fs, 'appendFileSync', routeFile);
  // The run could be over, and its descriptor another's, before a thread came to write.
  replace(fs, 'write', (native) => function (...args) {
    const callback = args[args.length - 1];
    const isOutput = args[0] === 1 || args[0] === 2;
    if (!isOutput || typeof callback !== 'function') return apply(native, this, args);
    args.length--;
    let failure = null;
    let written = 0;
    try {
      written = apply(fs.writeSync, fs, args);
    } catch (error) {
      failure = error;
    }
    nextTick(callback, failure, written, args[1]);
  });
}

// `require` and `import()` are those of a file in the working directory, made anew when that is
// another. A module that is compiled as a file is all that gives code the loader's own `import()`
// in each of these versions: what the inspector evaluates has none.
let home = null;

function here() {
  const place = attempt(cwd, '/');
  if (home !== null && home.place === place) return home;
  const file = path.join(place, '<repl>');
  const module = new Module(file, undefined);
  module.filename = file;
  module.paths = Module._nodeModulePaths(place);
  module._compile('module.exports = [require, (name, options) => import(name, options)];', file);
  module.loaded = true;
  const [require, load] = module.exports;
  module.exports = {};
  home = { place, file, module, require, load };
  return home;
}

// What `import(`, `import.meta` and `import … from` are written as; strings that are evaluated by
// `eval` are not. It is as long as they are, so that columns stay true.
const IMPORT = 'ımport';

// By what name each module was imported: what it exports does not tell.
const imported = new WeakMap();

// What code of the host's own needs, and `initial`: what the globals were at the start.
const aside = {
  imported,
  kept: {},
  require: (name) => here().require(name),
  say: (text) => say(0, bytesOf(text)),
  post(method, params) {
    let answer;
    post(session, method, params, (_, result) => {
      answer = result;
    });
    return answer;
  },
};

function importing(name, options) {
  const attributes = options && (options.with || options.assert);
  const loading = here().load(name, attributes && { with: attributes, assert: attributes });
  return then(loading, (exports) => {
    attempt(() => setIn(imported, exports, name));
    return exports;
  });
}

const importable = {
  // A module's exports, of which those that it lacks are an error as they are to the loader.
  named: (namespace, name) => new Proxy(namespace, {
    get(target, key) {
      if (key in target) return target[key];
      const lack = `does not provide an export named '${String(key)}'`;
      throw new SyntaxError(`The requested module '${name}' ${lack}`);
    },
  }),
  get meta() {
    const { place, file, require } = here();
    const resolve = (name) => {
      const found = require.resolve(name);
      return path.isAbsolute(found) ? pathToFileURL(found).href : found;
    };
    return { dirname: place, filename: file, url: pathToFileURL(file).href, resolve };
  },
  // Code of the host's own: a function, which is given this instead of globals.
  beside: (act) => act(aside),
  // For the other thread.
  interrupt,
};

// A reading of code that knows its tokens, as far as imports and open ends need it. It takes `{`
// for a block where a grammar would have to decide.
const NAME = String.raw`[\w$\u0080-\uffff]+`;
const TOKEN = new RegExp([
  String.raw`([\s\uFEFF]+|\/\/.*|<!--.*|\/\*[^]*?(?:\*\/|($)))`,
  String.raw`([\w$\\\u0080-\uffff]+)`,
  String.raw`(['"])(?:\\(?:\r\n|[^])|(?!\4)[^\\\n])*(?:\4|(\\$|(?<=\\\r?\n)$))?`,
  String.raw`\+\+|--|\.\.\.|[^]`,
].join('|'), 'y');
const TEMPLATE = /(?:\\[^]|\$(?!\{)|[^\\`$])*(`|\$\{|\\?$)/y;
const PATTERN = /\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\/\w*/y;
const OPERATORS = 'await|case|delete|do|else|in|instanceof|new|of|return|throw|typeof|void|yield';
const BEFORE_OPERAND = new RegExp(`^(?:${OPERATORS})$`);
const BEFORE_CONDITION = /^(?:if|while|for|with)$/;
const CALL = /import(?:\s|\/\*[^]*?\*\/)*[(.]/y;
const CLAUSE = new RegExp([
  String.raw`import\s*(?:(${NAME})\s*(?:,\s*)?)?`,
  String.raw`(?:\*\s*as\s+(${NAME})\s*|\{([^}]*)\}\s*)?(?:from\s*)?`,
  String.raw`(?:'([^'\n]+)'|"([^"\n]+)")(?:\s*(?:with|assert)\s*(\{[^}]*\}))?`,
].join(''), 'y');

function matchAt(pattern, text, at) {
  pattern.lastIndex = at;
  return exec(pattern, text);
}

function read(code) {
  let edited = '';
  let copied = 0;
  let open = false;
  let excess = false;
  let brackets = null;
  // Whether what came last ends an operand, so that a slash divides.
  let operand = false;
  let last = '';
  for (let at = 0; at < code.length;) {
    const pattern = code[at] === '/' && !operand ? matchAt(PATTERN, code, at) : null;
    const match = (pattern !== null && code[at + 1] !== '*' && pattern) || matchAt(TOKEN, code, at);
    const text = match[0];
    const start = at;
    at += text.length;
    if (match[2] !== undefined || match[5] !== undefined) open = true;
    if (match === pattern || match[4] !== undefined) {
      operand = true;
    } else if (match[1] !== undefined) {
      continue;
    } else if (match[3] !== undefined) {
      const isImport = text === 'import' && last !== '.';
      const edit = isImport ? importAt(code, start, brackets === null) : null;
      if (edit !== null) {
        edited += slice(code, copied, start) + edit.text;
        copied = edit.end;
        at = edit.end;
      }
      operand = last === '.' || exec(BEFORE_OPERAND, text) === null;
    } else if (text === '(' || text === '[' || text === '{') {
      const condition = exec(BEFORE_CONDITION, last) !== null;
      brackets = { template: false, condition, outer: brackets };
      operand = false;
    } else if (text === '`' || (text === '}' && brackets !== null && brackets.template)) {
      if (text === '}') brackets = brackets.outer;
      const rest = matchAt(TEMPLATE, code, at);
      at += rest[0].length;
      operand = rest[1] === '`';
      if (rest[1] === '${') brackets = { template: true, condition: false, outer: brackets };
      else if (!operand) open = true;
    } else if (text === ')' || text === ']' || text === '}') {
      operand = text === ']' || (text === ')' && brackets !== null && !brackets.condition);
      if (brackets === null) excess = true;
      else brackets = brackets.outer;
    } else if (text !== '++' && text !== '--') {
      operand = false;
    }
    last = text;
  }
  return { text: edited + slice(code, copied), open, excess, unclosed: brackets !== null };
}

// How the import that begins at `at` is written, and where it ends.
function importAt(code, at, outermost) {
  if (matchAt(CALL, code, at) !== null) return { text: IMPORT, end: at + IMPORT.length };
  const clause = outermost ? matchAt(CLAUSE, code, at) : null;
  if (clause === null) return null;
  const [whole, byDefault, namespace, names, single, double, attributes] = clause;
  const name = stringify(single || double);
  const options = attributes === undefined ? '' : `, { with: ${attributes} }`;
  const load = `await ${IMPORT}(${name}${options})`;
  let picked = byDefault === undefined ? '' : `default: ${byDefault}, `;
  if (names !== undefined) picked += replaced(names, /\sas\s/g, ': ');
  const from = `${IMPORT}.named(${namespace || load}, ${name})`;
  let text = byDefault === undefined && names === undefined ? '' : `{ ${picked} } = ${from}`;
  if (namespace !== undefined) text = `${namespace} = ${load}${text && `, ${text}`}`;
  const lines = max(0, split(whole, '\n').length - split(text, '\n').length);
  text = `${text ? 'const ' : 'void '}${text || load};${repeat('\n', lines)}`;
  return { text, end: at + whole.length };
}

function withImports(code) {
  return find(code, 'import') < 0 ? code : attempt(() => read(code).text, code);
}

// As in Node's own prompt, what begins with a brace is an object if it can be one.
function asExpression(code) {
  if (exec(/^\s*\{/, code) === null || exec(/;\s*$/, code) !== null) return code;
  return attempt(() => new Script(`async () => (${code}\n)`) && `(${code}\n)`, code);
}

// Errors. The code of the last runs is kept for the lines that they tell of.
let sources = { __proto__: null };
let sourceCount = 0;

function remember(name, code) {
  if (++sourceCount % SOURCES_MAX === 0) sources = { __proto__: null };
  sources[name] = code;
}

function lineOf(name, line) {
  const code = sources[name];
  return (code !== undefined && split(code, '\n')[line - 1]) || '';
}

// A stack without the driver's frames, and without what called the driver.
function cleaned(text) {
  const lines = split(text, '\n');
  const kept = [];
  let beneath = false;
  for (let index = 0; index < lines.length; index++) {
    const line = lines[index];
    if (exec(/^\s*at /, line) === null) beneath = false;
    else if (find(line, 'node:inspector:') >= 0) beneath = true;
    else if (find(line, 'burrow:driver:') >= 0) continue;
    if (!beneath) kept[kept.length] = line;
  }
  return join(kept, '\n');
}

// The same for what the code itself makes of a stack, in those versions that let the format be
// kept.
function formatted(error, sites) {
  const kept = [];
  for (let index = 0; index < sites.length; index++) {
    const file = fileOf(sites[index]);
    if (file === 'node:inspector' && fileOf(sites[index + 1]) === 'burrow:driver') break;
    if (file !== 'burrow:driver') kept[kept.length] = sites[index];
  }
  return formatStack(error, kept);
}

const fileOf = (site) => site && site.getScriptNameOrSourceURL();

function framesOf(stack) {
  const lines = split(stack, '\n');
  const frames = [];
  for (let index = lines.length - 1; index >= 0 && frames.length < FRAMES_MAX; index--) {
    const match = exec(/^\s*at (?:(.*) \()?(.+?):(\d+):\d+\)?$/, lines[index]);
    if (match === null) continue;
    const line = +match[3];
    frames[frames.length] = frame(match[2], line, match[1] || '');
  }
  return frames;
}

function frame(file, line, name) {
  return { file, line, function: name, source: trim(lineOf(file, line)) };
}

function nameOf(value) {
  if (value === null) return 'null';
  if (typeof value !== 'object' && typeof value !== 'function') return typeof value;
  if (isProxy(value)) return 'Proxy';
  const made = attempt(() => `${value.constructor.name}`, '');
  if (made !== '' && made !== 'Error' && made !== 'DOMException') return made;
  return attempt(() => `${value.name || made || 'Object'}`, 'Error');
}

function shown(value) {
  const { defaultOptions } = inspect;
  return inspect(value, { __proto__: null, ...defaultOptions, colors: false, showProxy: true });
}

function described(error) {
  const kind = nameOf(error);
  const derived = () => error instanceof Error;
  if (isProxy(error) || !(isNativeError(error) || attempt(derived, false))) {
    const message = attempt(() => shown(error), kind);
    return { kind, message, traceback: `Uncaught ${message}`, frames: [] };
  }
  const message = attempt(() => `${error.message}`, '');
  const stack = cleaned(attempt(() => `${error.stack}`, ''));
  const brief = stack || `${kind}: ${message}`;
  const whole = attempt(() => inspect(error, { __proto__: null, colors: false }), brief);
  return { kind, message, traceback: cleaned(whole), frames: framesOf(stack) };
}

// What could not even be compiled. Its stack is the driver's; where it is, the inspector tells.
function refused(run, details) {
  const text = (details.exception && details.exception.description) || details.text;
  const summary = split(text, '\n    at ')[0];
  const match = exec(/^(?:(\w+): )?([^]*)$/, summary);
  const line = details.lineNumber + 1;
  const source = lineOf(run.name, line);
  const mark = repeat(' ', min(details.columnNumber, source.length));
  const traceback = `${run.name}:${line}\n${source}\n${mark}^\n\n${summary}`;
  const frames = [frame(run.name, line, '')];
  return { kind: match[1] || 'SyntaxError', message: match[2], traceback, frames };
}

function report(run, fields) {
  run.failed = true;
  fields.run = run.id;
  fields.message = slice(fields.message, 0, ERROR_CHARS);
  fields.traceback = slice(join(split(fields.traceback, run.name), run.label), 0, ERROR_CHARS);
  for (let index = 0; index < fields.frames.length; index++) {
    if (fields.frames[index].file === run.name) fields.frames[index].file = run.label;
  }
  sendInOrder('error', fields, run.said);
  run.said = false;
}

// What nothing caught: of the run that is on, its end; of an earlier one, late words.
function uncaught(error) {
  const id = speaker();
  if (isCurrent(id)) {
    const run = current;
    if (run.failed) return;
    orDie(() => {
      report(run, described(error));
      concludeSoon(run);
    });
  } else if (id === undefined || dead[id] === undefined) {
    say(1, bytesOf(`${described(error).traceback}\n`));
  }
}

// What Node calls the driver by may fail each time, and then neither the end of a run nor a message
// ever gets through. Rejections are no sign of it, as they come in any number before the next turn;
// nor are other errors, unless it goes on for long.
let failures = 0;
let failingSince = 0;

function countFailure() {
  const isDue = (current !== null && current.ending) || heard !== loadAt(shared, PASSED);
  if (!isDue) failures = 0;
  else if (failures++ === 0) failingSince = uptime();
  else if (failures > FAILURES_MAX && uptime() - failingSince > FAILING_SECONDS) die();
}

// Node's own handler is told that somebody listens, and tidies up after the throw.
function fatal(error, fromPromise) {
  if (!fromPromise) countFailure();
  if (cutting) return true;
  const listeners = listenerCount(process, 'uncaughtException');
  const handled = listeners > 0 || process.hasUncaughtExceptionCaptureCallback();
  try {
    if (!handled) listenOnce(process, 'uncaughtException', uncaught);
    handleFatal(error, fromPromise);
  } catch (another) {
    uncaught(another);
  }
  if (!handled) unlisten(process, 'uncaughtException', uncaught);
  return true;
}

// Ends whatever runs on the main thread, in a way that no `catch` or `finally` sees. Node keeps a
// stack of asynchronous contexts, which cut off callbacks leave as it was, and aborts when it finds
// it so. The end of the termination is told just before it looks.
function unwind() {
  cutting = true;
  attempt(mendImmediates);
  post(session, 'Runtime.terminateExecution', clearContexts);
}

// What clears the stack is the handling of an uncaught exception, so one is feigned, which nobody
// must hear of. Node also makes an immediate for it, which it could not while the stack is wrong.
function clearContexts() {
  cutting = false;
  const { setImmediate } = timers;
  const emit = descriptorOf(process, 'emit');
  attempt(() => {
    timers.setImmediate = ignored;
    defineProperty(process, 'emit', { __proto__: null, configurable: true, value: () => true });
    handleFatal(new Error('unwound'), false);
  });
  attempt(() => {
    timers.setImmediate = setImmediate;
    if (emit === undefined) delete process.emit;
    else defineProperty(process, 'emit', emit);
  });
}

// An immediate that is cut off is met again by Node at the head of those after it, as one that has
// run, which it cannot stand. So it is made one that has not, and does nothing. It is counted twice
// then, for which one is made that is counted and never runs.
function mendImmediates() {
  const running = executionAsyncResource();
  if (!(running instanceof Immediate) || !running._destroyed || running._idlePrev === null) return;
  running._destroyed = false;
  running._onImmediate = ignored;
  const first = immediately(ignored);
  const never = immediately(ignored);
  const last = immediately(ignored);
  first._idleNext = last;
  last._idlePrev = first;
  never.unref();
}

// The other thread has this evaluated within whatever runs, and again until the run is over. With
// nothing beneath, either nothing runs, and what would be cut off is the answer to this; or a
// microtask has just ended. Amid its timers and hooks, Node is better not cut off. As there may be
// nothing else to be met, every other time it is done all the same. It must return before it is cut
// off itself, or the inspector would take that for the end of it all. No patterns are matched here:
// one may be what runs.
function interrupt(id, blind) {
  // What an earlier run has left may be busy before this one has even begun.
  if (critical > 0 || (current !== null && current.id !== id)) return;
  const { stackTraceLimit, prepareStackTrace } = Error;
  let lines = [];
  attempt(() => {
    Error.stackTraceLimit = 20;
    Error.prepareStackTrace = formatStack;
    lines = split(new Error('').stack, '\n');
    Error.stackTraceLimit = stackTraceLimit;
    Error.prepareStackTrace = prepareStackTrace;
  });
  let at = 1;
  while (at < lines.length && find(lines[at], 'burrow:driver:') >= 0) at++;
  at++;
  if (!blind && isDelicate(lines, at)) return;
  if (current !== null && current.where === '') {
    for (; at < lines.length; at++) current.where += `\n${lines[at]}`;
  }
  unwind();
}

function isDelicate(lines, at) {
  if (at >= lines.length || find(lines[at], 'node:internal/timers:') >= 0) return true;
  for (const end = min(at + 6, lines.length); at < end; at++) {
    const isHook = find(lines[at], 'node:internal/async_hooks:') >= 0;
    if (isHook && find(lines[at], 'callbackTrampoline') < 0) return true;
  }
  return false;
}

// A signal belongs to no run. What others who listen for it say is said by the run that it was meant
// for, which may be over already.
let signalled = false;
let unsignalled;

function attribute() {
  enter(unsignalled === undefined && current !== null ? current.id : unsignalled);
  unsignalled = undefined;
  signalled = true;
}

function interrupted(id) {
  const run = current;
  if (run === null || run.id !== id) return;
  critical++;
  dead[id] = true;
  anyDead = true;
  if (!signalled) unsignalled = id;
  // The other thread reads on, which the order of what follows depends on.
  storeAt(shared, RUN, 0);
  notify(shared, RUN);
  const message = 'the run was interrupted';
  const where = cleaned(run.where);
  const traceback = `Interrupted: ${message}${where}`;
  const frames = framesOf(where);
  report(run, { kind: 'Interrupted', message, traceback, frames });
  end(run, 'error', true);
}

// `process.exit` ends a run, not the interpreter. It must not return, and what it unwinds must not
// be swallowed. Called by what an earlier run has left, it ends only what called it.
function exit(code = process.exitCode) {
  if (closing) return apply(exitNode, process, [code]);
  process.exitCode = undefined;
  if (isCurrent(speaker())) {
    const run = current;
    run.exit = trunc(+code || 0) & 255;
    concludeSoon(run);
  }
  unwind();
  for (;;);
}

// Displays.
const DISPLAY = globe.Symbol.for('burrow.display');

function formsOf(bundle) {
  const forms = [];
  const mimes = keys(bundle);
  for (let index = 0; index < mimes.length; index++) {
    const data = bundle[mimes[index]];
    const plain = typeof data === 'string' || isUint8Array(data);
    forms[index] = { mime: mimes[index], data: plain ? data : stringify(data) };
  }
  return forms;
}

function isBundle(value) {
  if (value === null || typeof value !== 'object' || isProxy(value)) return false;
  const proto = getPrototypeOf(value);
  const mimes = keys(value);
  for (let index = 0; index < mimes.length; index++) {
    if (exec(/^[\w.+-]+\/[\w.+-]+$/, mimes[index]) === null) return false;
  }
  return (proto === null || proto === Object.prototype) && mimes.length > 0;
}

// A value in all its forms: what it offers itself, and the text that Node's prompt would show.
function formsOfValue(value) {
  const isObject = (typeof value === 'object' && value !== null) || typeof value === 'function';
  const offers = isObject && !isProxy(value) && typeof value[DISPLAY] === 'function';
  const forms = offers ? formsOf(value[DISPLAY]()) : [];
  for (let index = 0; index < forms.length; index++) {
    if (forms[index].mime === 'text/plain') return forms;
  }
  const text = shown(value);
  const data = text.length > TEXT_CHARS ? `${slice(text, 0, TEXT_CHARS)}…` : text;
  forms[forms.length] = { mime: 'text/plain', data };
  return forms;
}

function show(role, data, id, metadata) {
  let bytes = 0;
  for (let index = 0; index < data.length; index++) bytes += byteLength(data[index].data);
  if (bytes > DISPLAY_BYTES) throw new RangeError(`a display of ${bytes} bytes is too large`);
  const fields = { role, id, data };
  if (metadata !== undefined) fields.metadata = stringify(metadata);
  offer('display', fields, role === 'value');
}

// A value is the last thing but for the end: only what came before it matters.
function offer(name, fields, last) {
  const id = speaker();
  const live = isCurrent(id);
  fields.run = live ? current.id : id;
  sendInOrder(name, fields, live && (!last || current.said));
  if (live) current.said = false;
}

let displays = 0;

function display(value, options) {
  const { id = `display-${pid}-${++displays}`, metadata } = options || {};
  const render = (role, what) => {
    show(role, isBundle(what) ? formsOf(what) : formsOfValue(what), `${id}`, metadata);
  };
  render('shown', value);
  return { id, update: (what) => render('update', what) };
}

function artifact(file, options) {
  const { name, mime } = options || {};
  const whole = path.resolve(`${file}`);
  const { size } = statSync(whole);
  offer('artifact', { path: whole, name, mime, size }, false);
}

function inputLine(prompt, options) {
  const { secret } = options || {};
  return new Promise((resolve) => {
    const given = (line) => resolve(line && utf8(line, 0, line.length - (endsLine(line) ? 1 : 0)));
    if (current === null || !current.input) resolve(null);
    else ask(prompt === undefined ? '' : `${prompt}`, !!secret, given, () => resolve(null));
  });
}

// Runs.
function connect() {
  session = new Session();
  connectTo(session);
}

function begin(message) {
  critical++;
  repair();
  const { run: id, code } = message;
  const label = message.name || `run-${id}`;
  const run = {
    id,
    label,
    // The inspector takes no name with white space or quotes in it.
    name: attempt(() => replaced(label, /[\s'"]/g, '_'), label),
    input: message.input,
    aside: message.aside,
    fds: openOutputs(),
    cpu: cpuUsage(),
    // Whether it has said anything that the agent may not have read.
    said: false,
    failed: false,
    thrown: false,
    value: undefined,
    refusal: null,
    settled: false,
    // Whether the end is due at the next turn of the loop.
    ending: false,
    exit: undefined,
    where: '',
    promise: null,
    pending: true,
  };
  current = run;
  storeAt(shared, RUN, id);
  enter(id);
  critical--;
  if (stdin !== null) stdin.want();
  const text = typeof code === 'string' ? code : utf8(code, 0, code.length);
  evaluate(run, text[0] === '\uFEFF' ? slice(text, 1) : text);
  enter(undefined);
}

// Evaluates as the inspector's prompt does: top-level await, names declared again, the last value.
// The promise of it all is the first that evaluating makes. It must be held while it is pending,
// because the inspector would tell of its collection amid the collection, and Node would abort; and
// taken from there, values and errors are themselves and not their descriptions.
function evaluate(run, code) {
  remember(run.name, code);
  const text = run.aside
    ? `void await ${IMPORT}.beside(async (aside) => {${code}\n})`
    : asExpression(withImports(code));
  const expression = `${text}\n//# sourceURL=${run.name}`;
  const stop = onInit((promise) => {
    run.promise = promise;
    stop();
  });
  const asked = { expression, replMode: true, silent: true, objectGroup: 'run' };
  post(session, 'Runtime.evaluate', asked, (error, result) => {
    run.pending = false;
    if (run.promise !== null || error) return;
    run.refusal = orDie(() => refused(run, result.exceptionDetails));
    settle(run, true, undefined);
  });
  if (run.promise === null) {
    stop();
    return;
  }
  // Nothing that the code has made of promises has a say in it.
  defineProperty(run.promise, 'constructor', { value: undefined });
  const returned = (result) => settle(run, false, descriptorOf(result, '.repl_result').value);
  then(run.promise, returned, (error) => settle(run, true, error));
}

// The end is put off by one turn of the loop, so that rejections which nobody handles are known.
function settle(run, thrown, value) {
  if (run.settled) return;
  run.settled = true;
  run.thrown = thrown;
  run.value = value;
  orDie(() => concludeSoon(run));
}

function concludeSoon(run) {
  immediately(() => orDie(() => conclude(run)));
  run.ending = true;
}

function conclude(run) {
  failures = 0;
  if (current !== run) return;
  enter(run.id);
  if (run.exit === undefined && !run.failed) {
    try {
      if (run.thrown) report(run, run.refusal || described(run.value));
      else if (run.value !== undefined) show('value', formsOfValue(run.value));
    } catch (error) {
      report(run, described(error));
    }
  }
  enter(undefined);
  if (current !== run) return;
  end(run, run.exit !== undefined ? 'exit' : run.failed ? 'error' : 'ok', false);
}

function end(run, status, cut) {
  critical++;
  cutting = false;
  current = null;
  for (const request in asked) {
    const { dropped } = asked[request];
    delete asked[request];
    dropped();
  }
  // What is still pending must never tell of its collection.
  if (run.pending) {
    disconnect(session);
    connect();
  } else if (run.value !== undefined || run.refusal !== null) {
    post(session, 'Runtime.releaseObjectGroup', { objectGroup: 'run' });
  }
  for (let index = 0; index < 2; index++) {
    if (run.fds[index] > 2) attempt(() => closeSync(run.fds[index]));
  }
  const { maxRSS, systemCPUTime, userCPUTime } = resourceUsage();
  storeAt(shared, RUN, 0);
  notify(shared, RUN);
  send('done', {
    run: run.id,
    status,
    code: run.exit,
    interrupted: cut,
    cpu_us: systemCPUTime + userCPUTime - run.cpu.system - run.cpu.user,
    memory_bytes_peak: maxRSS * 1024,
  });
  if (!run.aside) lastWell = status === 'ok';
  run.promise = null;
  run.value = undefined;
  critical--;
}

// Puts back what a run cannot do without, if an earlier one has taken it away.
let givenModule = null;

function repair() {
  const { module } = here();
  const isStream = (stream) => typeof stream === 'object' && typeof stream.write === 'function';
  const areStreams = () => isStream(process.stdout) && isStream(process.stderr);
  attempt(() => {
    if (globe.process !== process) give('process', process);
    if (globe.console === null || typeof globe.console !== 'object') give('console', console);
    if (!attempt(areStreams, false)) defineStreams();
    if (process._fatalException !== fatal) process._fatalException = fatal;
    // The inspector's messages are made with it.
    if (Object.prototype.toJSON !== undefined) delete Object.prototype.toJSON;
    // Node itself takes this global back after its main script.
    const isOurs = givenModule === null || globe.module === givenModule;
    if (module !== givenModule && isOurs) give('module', module);
  });
  givenModule = module;
  standSignals();
}

function standSignals() {
  if (listenerCount(process, 'SIGINT') === 0) listen(process, 'SIGINT', attribute);
  signalled = false;
}

function give(name, value) {
  defineProperty(globe, name, { value, configurable: true, enumerable: false, writable: true });
}

function defineStreams() {
  const streams = { stdin: input, stdout: () => stdout, stderr: () => stderr };
  for (const name in streams) {
    defineProperty(process, name, { configurable: true, enumerable: true, get: streams[name] });
  }
}

// Questions about code.
function check(message) {
  const { text, open, excess, unclosed } = read(message.code);
  let state = open ? 'incomplete' : excess ? 'invalid' : 'complete';
  if (state === 'complete') {
    try {
      new Script(`(async () => {${text}\n})`, { filename: 'code' });
    } catch (error) {
      const at = exec(/^code:(\d+)/, `${error.stack}`);
      const beyond = at !== null && +at[1] > split(text, '\n').length;
      // Of an open call, some versions tell the last argument's place.
      const isCall = unclosed && find(error.message, 'missing )') === 0;
      const isObject = asExpression(text) !== text;
      state = beyond || isCall ? 'incomplete' : isObject ? 'complete' : 'invalid';
    }
  }
  send('checked', { ask: message.ask, state });
}

const CHAIN = /(?:^|[^\w$.)\]])([A-Za-z_$][\w$]*(?:\??\.[A-Za-z_$][\w$]*|\[\d+\])*)\??\.([\w$]*)$/;
const BARE = /(?:^|[^\w$.])([A-Za-z_$][\w$]*)?$/;
const STEP = /[A-Za-z_$][\w$]*|\d+/g;
const KEYWORDS = 'async await break case catch class const continue debugger default delete do '
  + 'else export extends false finally for function if import in instanceof let new null return '
  + 'static super switch this throw true try typeof undefined var void while with yield';

// A value and its prototypes, as far as looking at them runs no code.
function lineage(value) {
  const found = [];
  while (value !== null && value !== undefined && !isProxy(value)) {
    found[found.length] = Object(value);
    value = getPrototypeOf(Object(value));
  }
  return found;
}

function peek(value, name) {
  const holders = lineage(value);
  for (let index = 0; index < holders.length; index++) {
    const own = descriptorOf(holders[index], name);
    if (own !== undefined) return own.value;
  }
  return undefined;
}

function completions(code) {
  const found = { __proto__: null };
  const chain = exec(CHAIN, code);
  const bare = chain === null ? exec(BARE, code) : null;
  const stem = (chain !== null ? chain[2] : bare !== null ? bare[1] : '') || '';
  const add = (names) => {
    for (let index = 0; index < names.length; index++) {
      const name = names[index];
      const fits = typeof name === 'string' && slice(name, 0, stem.length) === stem;
      if (fits && exec(/^[A-Za-z_$][\w$]*$/, name) !== null) found[name] = true;
    }
  };
  const addMembers = (value) => {
    const holders = lineage(value);
    for (let index = 0; index < holders.length; index++) add(ownKeys(holders[index]));
  };
  if (chain !== null) {
    const root = matchAt(STEP, chain[1], 0)[0];
    const own = descriptorOf(globe, root);
    const isModule = own !== undefined && own.get !== undefined && Module.isBuiltin(root);
    let value = isModule ? require(root) : own !== undefined ? own.value : runInThisContext(root);
    for (let step = exec(STEP, chain[1]); step !== null; step = exec(STEP, chain[1])) {
      value = peek(value, step[0]);
    }
    addMembers(value);
  } else if (bare !== null) {
    post(session, 'Runtime.globalLexicalScopeNames', {}, (error, result) => {
      if (!error) add(result.names);
    });
    addMembers(globe);
    add(split(KEYWORDS, ' '));
  }
  const matches = sort(keys(found));
  if (matches.length > MATCHES_MAX) matches.length = MATCHES_MAX;
  return { stem, matches };
}

function complete({ ask, code, cursor }) {
  const before = utf8(bytesOf(code), 0, cursor);
  const { stem, matches } = attempt(() => completions(before), { stem: '', matches: [] });
  const start = cursor - byteLength(stem);
  send('completions', { ask, start, end: cursor, matches });
}

// The other thread. It interrupts by having `interrupt` evaluated; if not even that can be called,
// because the stack is full, the bare termination remains. The number on the port then ends the run
// in a turn of its own.
function listening(require, hearing) {
  const { shared, port } = require('worker_threads').workerData;
  const { Session } = require('inspector');
  const utf8 = (bytes, from, to) => Buffer.prototype.utf8Slice.call(bytes, from, to);
  const { receive, decode } = hearing(require('fs').readSync, Buffer.concat, utf8);
  const turn = () => new Promise(setImmediate);

  // Node waits at its end for sessions that are connected, and says so: so only while it is needed.
  async function interrupt(run) {
    const session = new Session();
    session.connectToMainThread();
    for (let times = 1; Atomics.load(shared, 0) === run; times++) {
      const blind = times > 3 && times % 2 === 0;
      let failed = false;
      port.postMessage(run);
      const expression = `ımport.interrupt(${run}, ${blind})`;
      session.post('Runtime.evaluate', { expression }, (error, result) => {
        failed = !error && result.exceptionDetails !== undefined;
      });
      Atomics.wait(shared, 0, run, Math.min(2 ** times, 50));
      await turn();
      if (failed && Atomics.load(shared, 0) === run) await terminate(session);
    }
    session.disconnect();
  }

  // It may come when nothing runs, and would cut off whatever comes next: that must be nothing.
  async function terminate(session) {
    let over = false;
    session.post('Runtime.terminateExecution', () => {
      over = true;
    });
    while (!over) {
      port.postMessage(0);
      Atomics.wait(shared, 2, 1, 1);
      await turn();
    }
  }

  (async () => {
    Atomics.wait(shared, 2, 0);
    for (;;) {
      const bytes = receive();
      if (bytes === null) process.kill(process.pid, 'SIGKILL');
      const [name, message] = decode(bytes);
      if (name === 'seen') {
        Atomics.add(shared, 1, 1);
        Atomics.notify(shared, 1);
      } else if (name === 'interrupt') {
        await interrupt(message.run);
      } else {
        if (name === 'run') Atomics.store(shared, 0, message.run);
        Atomics.add(shared, 3, 1);
        port.postMessage(bytes);
        if (name === 'close') return;
      }
    }
  })();
}

// The end of the context is the end of a script: what still has to happen happens first, unless the
// last run has ended as a script would have, too.
function close() {
  closing = true;
  process.reallyExit = reallyExit;
  if (!lastWell) apply(exitNode, process, []);
  hearer.port.unref();
  hearer.worker.unref();
}

function handle(name, message) {
  switch (name) {
    case 'open':
      ({ token, directory = null } = message);
      send('ready', { version: process.versions.node, program: process.execPath });
      break;
    case 'run':
      begin(message);
      break;
    case 'input':
      answer(message.request, message.line);
      break;
    case 'complete':
      complete(message);
      break;
    case 'check':
      check(message);
      break;
    case 'close':
      close();
      break;
  }
}

// How many of the messages that were passed on have come.
let heard = 0;

function hear(message) {
  critical = 0;
  failures = 0;
  enter(undefined);
  if (typeof message === 'number') return orDie(() => interrupted(message));
  heard++;
  const said = orDie(() => decode(message));
  try {
    handle(said[0], said[1]);
  } catch (error) {
    if (said[0] === 'run' && current === null) die();
    throw error;
  }
}

// Where contexts are tracked by hooks, they mark promises and other objects, for all to see who
// print one. Each mark becomes a private field instead, which nobody sees and which is quick to
// set.
class Marked extends function (object) { return object; } {
  #marks = [];

  constructor(object) {
    super(object);
  }

  static hide(holder, mark, at) {
    const get = function () {
      return #marks in this ? this.#marks[at] : undefined;
    };
    const set = function (value) {
      if (!(#marks in this)) new Marked(this);
      this.#marks[at] = value;
    };
    defineProperty(holder, mark, { configurable: true, get, set });
  }
}

function hideMarks() {
  enter(0);
  const marks = ownKeys(new Promise(ignored));
  enter(undefined);
  for (let at = 0; at < marks.length; at++) {
    const holder = marks[at] === als.kResourceStore ? Object.prototype : Promise.prototype;
    Marked.hide(holder, marks[at], at);
  }
}

function prepare() {
  channel = fstatSync(CONTROL).ino;
  hideMarks();
  connect();
  defineStreams();
  // Without the inspector's share in it, which would keep all that was ever logged.
  const plain = new console.Console({ stdout, stderr });
  for (const name in plain) {
    if (typeof plain[name] === 'function') console[name] = plain[name];
  }
  routeOutputs();
  // What an interrupted run does by ticks must end: no other callback would ever come between.
  replace(process, 'nextTick', (native) => function (...args) {
    if (!anyDead || dead[speaker()] !== true) apply(native, this, args);
  });
  if (formatStack !== undefined) Error.prepareStackTrace = formatted;
  process.exit = exit;
  process.reallyExit = exit;
  process._fatalException = fatal;
  process.argv.length = 1;
  process.execArgv = [];
  delete process._eval;
  delete process.env.BURROW_REPL;
  standSignals();
  listen(process, 'removeListener', standSignals);
  const requiring = { require: (name) => here().require(name) }.require;
  requiring.resolve = (...args) => here().require.resolve(...args);
  requiring.resolve.paths = (name) => here().require.resolve.paths(name);
  requiring.main = undefined;
  requiring.extensions = Module._extensions;
  requiring.cache = Module._cache;
  give('require', requiring);
  give('display', display);
  give('burrow', { display, artifact, input: inputLine });
  Object.defineProperties(importing, Object.getOwnPropertyDescriptors(importable));
  defineProperty(importing, 'name', { value: 'import' });
  defineProperty(globe, IMPORT, { value: Object.freeze(importing) });
  delete globe.__filename;
  delete globe.__dirname;
  aside.initial = Object.getOwnPropertyDescriptors(globe);
  Module.syncBuiltinESMExports();
}

// The main thread reads the channel itself until the first run comes: there is nothing to interrupt
// before that, and the other thread takes its time to start. That run is put off to the event loop,
// because a main script that is cut short ends the process.
function start() {
  prepare();
  for (;;) {
    const bytes = receive();
    if (bytes === null) kill(pid, 'SIGKILL');
    const said = decode(bytes);
    const { port1, port2 } = new MessageChannel();
    if (said[0] === 'run') {
      storeAt(shared, RUN, said[1].run);
      storeAt(shared, PASSED, 1);
      port1.on('message', () => {
        port1.close();
        hear(bytes);
      });
      port2.postMessage(0);
      break;
    }
    handle(said[0], said[1]);
    if (hearer !== null) continue;
    const workerData = { shared, port: port2 };
    const source = `(${listening})(require, ${hearing})`;
    const worker = new Worker(source, { eval: true, workerData, transferList: [port2] });
    port1.on('message', hear);
    hearer = { worker, port: port1 };
  }
  storeAt(shared, GATE, 1);
  notify(shared, GATE);
}

start();
})();

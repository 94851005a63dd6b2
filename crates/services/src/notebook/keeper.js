// Persistent contexts, the guest's side, for Node 18 to 24: what the variables of a living
// interpreter are is written into a directory between runs, and read into a fresh interpreter later.
//
// The host's bridge has this evaluated once as code of its own (docs/reference/drivers.md, `aside`), and then
// calls `save`, `restore` (a promise) and `forget` of `aside.kept.keeper`, with `stringify` for what
// they return, as the code may have broken its own. Nothing here speaks with the agent. No getter,
// setter or trap of the code's is called by a save, but for the `stack` of errors.
//
// What is in the directory:
//
//     manifest.json   what there is; replaced by rename, after all that it names has been written
//     <digest>        a blob: one group of variables
//
// Each object is visited once, by a walk without recursion, which makes a record of it. Variables
// that have an object in common are one group; a function or class that is itself a variable is
// referred to by its name instead, which the group then `needs`, so that the instances of a class
// do not all end in one group. References by name that lead back make one group too. A blob is the
// digest's first 40 characters by name, so what has not changed is not written again.
//
// A blob is lines of JSON (a head, then arrays of records, one for each object) and after them raw
// bytes: the contents of the buffers among the records, in their order. A record is
//
//     [kind, content, prototype, properties, closed, flags]
//
// as far as it is not the default; prototype 0 is the kind's own. Properties are keys and values in
// turn, a number before a key is its flags. A value is JSON's own or an array: `[7]` is the record 7,
// and with a string first it is something that JSON does not have, or that is found elsewhere.
//
// A function is its source text, if what it closes over has none of the names that are in it. A
// class is made anew by its text, so its static initializers and computed names are evaluated again
// at a restore; what they made is then replaced by what was kept. Methods that are held beside their
// class are kept as functions of their own.
//
// What cannot be kept is reported, with a reason and the path to it; a variable is never half there.
// Lost by design: the state of modules, what code has changed of builtins, globals that are named by
// symbols, whether an arrow function was in strict mode, and that small Buffers share memory.
//
// The keeper lives in a realm of its own, so that nothing that code does to prototypes and globals is
// seen by it.
const vm = aside.require('vm');
const realm = vm.createContext({ __proto__: null });
const textOf = vm.runInContext('(f) => Function.prototype.toString.call(f)', realm);
const make = vm.runInContext(`(${textOf(keeper)})`, realm);
aside.kept.keeper = make(aside, vm, vm.runInThisContext('this'));

function keeper(aside, vm, main) {
'use strict';

const { Array, BigInt, DataView, Date, Error, Float64Array, Function, JSON, Map, Math } = globalThis;
const { Number, Object, Reflect, RegExp, Set, String, Symbol, Uint8Array, WeakMap } = globalThis;
const { ArrayBuffer, Boolean } = globalThis;
const { apply, ownKeys } = Reflect;
const { defineProperty, getOwnPropertyDescriptor: descriptorOf, getPrototypeOf, is } = Object;
const { isExtensible, preventExtensions, setPrototypeOf } = Object;
const { isArray } = Array;
const { parse, stringify } = JSON;
const now = Date.now;

const fs = { ...aside.require('fs') };
const { createHash } = aside.require('crypto');
const { Buffer } = aside.require('buffer');
const { EventEmitter } = aside.require('events');
const Module = aside.require('module');
const { URL } = aside.require('url');
const hrefOf = descriptorOf(URL.prototype, 'href').get;
const types = { ...aside.require('util').types };
const timers = { ...aside.require('timers') };
const { isProxy } = types;
const BUILTINS = new Set(copyOf(Module.builtinModules));
const process = aside.require('process');
const { chdir, cwd, versions: { node: version } } = process;
const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = fs.constants;
const { alloc: allocate, from: bytesOf } = Buffer;
const sliceOf = Uint8Array.prototype.subarray;

const FORMAT = 1;
const DIGEST_CHARS = 40;
const JSON_BYTES_MAX = 64 << 20;
const REASON_CHARS_MAX = 300;
const PATH_CHARS_MAX = 200;
const LABEL_CHARS_MAX = 60;
// What part of the time that is left a single variable may take, so that some is left for others.
const PATIENCE_SHARE = 0.5;
// What part of the time the walk may take; the rest is for writing.
const WALKING_SHARE = 0.7;
// How many steps there are between two looks at the clock.
const STEPS = 512;
// Text is turned into bytes in pieces of this size.
const PIECE_CHARS = 1 << 20;
// How many records share a line.
const LINE_RECORDS = 64;
const WRITE_BYTES_MAX = 1 << 28;
// From so many on, an array of numbers alone is kept as bytes.
const NUMBERS_MIN = 16;
// What a record takes about, beside its text.
const RECORD_BYTES = 16;
const NUMBER_BYTES = 8;
// Of arrays that are longer, the names are asked for in another way.
const LARGE = 4096;
// How deep builtins are looked through for natives, and at how many at most.
const DEPTH_MAX = 3;
const NATIVES_MAX = 50000;
// The global that objects pass through on their way to the inspector, for that moment alone.
const PASSAGE = 'burrow:keeper';
const INHERITED = 'inherited';
const WRITABLE = 1;
const ENUMERABLE = 2;
const CONFIGURABLE = 4;
const ACCESSOR = 8;
const PLAIN_FLAGS = WRITABLE | ENUMERABLE | CONFIGURABLE;

const intrinsic = (name) => aside.initial[name] && aside.initial[name].value;
const protoOf = (name) => intrinsic(name) && intrinsic(name).prototype;
const OBJECT = protoOf('Object');
const ARRAY = protoOf('Array');
const FUNCTION = protoOf('Function');
const textOf = (f) => apply(Function.prototype.toString, f, []);
const FUNCTIONS = ['()=>{}', 'async()=>{}', 'function*(){}', 'async function*(){}'];
const FUNCTION_PROTOS = new Set(FUNCTIONS.map((text) => getPrototypeOf(inMain(text))));
const NATIVE = /\{\s*\[native code\]\s*\}$/;

const getterOf = (proto, name) => descriptorOf(proto, name).get;
const TYPED = getPrototypeOf(Uint8Array.prototype);
const typedName = getterOf(TYPED, Symbol.toStringTag);
const viewOf = (name) => [getterOf(TYPED, name), getterOf(DataView.prototype, name)];
const [typedBuffer, viewBuffer] = viewOf('buffer');
const [typedOffset, viewOffset] = viewOf('byteOffset');
const [typedBytes, viewBytes] = viewOf('byteLength');
const typedLength = getterOf(TYPED, 'length');
const bufferBytes = getterOf(ArrayBuffer.prototype, 'byteLength');
const resizable = descriptorOf(ArrayBuffer.prototype, 'resizable');
const FLAGS = Object.entries({
  hasIndices: 'd', global: 'g', ignoreCase: 'i', multiline: 'm', dotAll: 's', unicode: 'u',
  unicodeSets: 'v', sticky: 'y',
}).filter(([name]) => name in RegExp.prototype)
  .map(([name, flag]) => [getterOf(RegExp.prototype, name), flag]);
const sourceOf = getterOf(RegExp.prototype, 'source');

const ERRORS = ['Error', 'AggregateError', 'EvalError', 'RangeError', 'ReferenceError', 'SyntaxError',
  'TypeError', 'URIError'];
const ERROR_NAMES = new Map(ERRORS.map((name) => [protoOf(name), name]));
const TYPED_NAMES = ['Int8Array', 'Uint8Array', 'Uint8ClampedArray', 'Int16Array', 'Uint16Array',
  'Int32Array', 'Uint32Array', 'Float16Array', 'Float32Array', 'Float64Array', 'BigInt64Array',
  'BigUint64Array', 'DataView'];
// An object may inherit from these without having anything that its properties do not show.
const OPEN_PROTOS = new Set([OBJECT, ARRAY, FUNCTION, EventEmitter.prototype, Buffer.prototype]);
for (const name of [...ERRORS, ...TYPED_NAMES, 'Map', 'Set', 'Date', 'RegExp', 'ArrayBuffer', 'String',
  'Number', 'Boolean', 'BigInt', 'Symbol']) {
  if (protoOf(name)) OPEN_PROTOS.add(protoOf(name));
}
OPEN_PROTOS.add(getPrototypeOf(protoOf('Uint8Array')));

const REFUSED = Object.entries({
  isPromise: 'a promise',
  isWeakMap: 'a WeakMap',
  isWeakSet: 'a WeakSet',
  isGeneratorObject: 'a generator',
  isMapIterator: 'an iterator',
  isSetIterator: 'an iterator',
  isSharedArrayBuffer: 'shared memory',
  isArgumentsObject: 'an arguments object',
  isKeyObject: 'a key',
  isCryptoKey: 'a key',
  isExternal: 'a native handle',
}).map(([test, words]) => [types[test], words]).filter(([test]) => test !== undefined);
// Objects of the host's, by the names of their classes.
const WORDS = {
  __proto__: null,
  Timeout: 'a timer', Immediate: 'a timer', Interval: 'a timer',
  Socket: 'an open socket', TLSSocket: 'an open socket', ClientRequest: 'an open socket',
  Server: 'a server', ChildProcess: 'a process', Worker: 'a worker', MessagePort: 'a message port',
  ReadStream: 'an open file', WriteStream: 'an open file', FileHandle: 'an open file',
  FSWatcher: 'a watcher', WeakRef: 'a weak reference', FinalizationRegistry: 'a finalizer',
};
const TIMERS = new Set();
for (const [set, clear] of [['setTimeout', 'clearTimeout'], ['setImmediate', 'clearImmediate']]) {
  const timer = timers[set](() => {}, 1);
  timers[clear](timer);
  TIMERS.add(getPrototypeOf(timer));
}
const EMITTER_SYMBOLS = symbolsOf(new EventEmitter());

class Refused {
  constructor(reason, label) {
    this.reason = reason;
    this.label = label;
  }
}

// Is over a limit, which is nothing that others who refer to it would be lost for.
class Over extends Refused {}

// Arrays that come from the other realm, whose methods are the code's to break.
function copyOf(list) {
  const copy = [];
  if (list !== undefined) for (let at = 0; at < list.length; at++) copy[at] = list[at];
  return copy;
}

function ask(method, params) {
  const told = aside.post(method, params) || {};
  for (const name of ['result', 'names', 'internalProperties', 'privateProperties']) {
    if (isArray(told[name])) told[name] = copyOf(told[name]);
  }
  return told;
}

function inMain(text) {
  return vm.runInThisContext(`(${text})`);
}

function symbolsOf(value) {
  const found = new Map();
  for (const key of ownKeys(value)) if (typeof key === 'symbol') found.set(key, key.description);
  return found;
}

function attempt(what, otherwise) {
  try {
    return what();
  } catch {
    return otherwise;
  }
}

function describe(error) {
  const told = attempt(() => {
    const isError = types.isNativeError(error);
    if (error instanceof Refused) return error.reason;
    return isError ? `${error.name}: ${error.message}` : `${error}`;
  }, 'an error that cannot be told');
  return told.slice(0, REASON_CHARS_MAX);
}

// Files. All are below the directory, which is held open.
class Store {
  constructor(path) {
    fs.mkdirSync(path, { recursive: true, mode: 0o700 });
    this.fd = fs.openSync(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    const held = `/proc/self/fd/${this.fd}`;
    this.base = fs.existsSync(`${held}/.`) ? held : path;
  }

  close() {
    fs.closeSync(this.fd);
  }

  read(name, most) {
    const fd = fs.openSync(`${this.base}/${name}`, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    try {
      const found = fs.fstatSync(fd);
      if (!found.isFile() || found.size > most) throw new Error(`${name} is too large`);
      const bytes = allocate(found.size);
      let at = 0;
      while (at < bytes.length) {
        const read = fs.readSync(fd, bytes, at, Math.min(bytes.length - at, WRITE_BYTES_MAX), null);
        if (read === 0) throw new Error(`${name} is cut off`);
        at += read;
      }
      return bytes;
    } finally {
      fs.closeSync(fd);
    }
  }

  readManifest() {
    return attempt(() => {
      const found = parse(textFrom(this.read('manifest.json', JSON_BYTES_MAX)));
      return typeof found === 'object' && !isArray(found) ? found : null;
    }, null);
  }

  write(name, chunks) {
    this.remove('.new');
    const fd = fs.openSync(`${this.base}/.new`, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    try {
      for (const chunk of chunks) {
        for (let at = 0; at < chunk.length;) {
          at += fs.writeSync(fd, chunk, at, Math.min(chunk.length - at, WRITE_BYTES_MAX));
        }
      }
    } finally {
      fs.closeSync(fd);
    }
    fs.renameSync(`${this.base}/.new`, `${this.base}/${name}`);
  }

  has(name, size) {
    return attempt(() => {
      const found = fs.lstatSync(`${this.base}/${name}`);
      return found.isFile() && found.size === size;
    }, false);
  }

  remove(name) {
    attempt(() => fs.unlinkSync(`${this.base}/${name}`));
  }

  removeOthers(kept) {
    for (const name of copyOf(fs.readdirSync(this.base))) {
      if (/^[0-9a-f]{40}$/.test(name) && !kept.has(name)) this.remove(name);
    }
  }
}

function textFrom(bytes) {
  return apply(Buffer.prototype.utf8Slice, bytes, [0, bytes.length]);
}

// Tokens of source text, as far as telling names from strings, comments and patterns needs it.
const TOKEN = new RegExp([
  String.raw`([\s\uFEFF]+|\/\/[^\n\r\u2028\u2029]*|\/\*[^]*?\*\/)`,
  String.raw`(#?[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*)`,
  String.raw`\d[\w.]*|(["'])(?:\\[^]|(?!\3)[^\\])*\3|\.\.\.|=>|\+\+|--|[^]`,
].join('|'), 'uy');
const TEMPLATE = /(?:\\[^]|\$(?!\{)|[^\\`$])*(`|\$\{|$)/y;
const PATTERN = /\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\/\w*/y;
const OPERATOR = /^(?:await|case|delete|do|else|in|instanceof|new|of|return|throw|typeof|void|yield)$/;
const CONDITION = /^(?:if|while|for|with)$/;

function matchAt(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

// The names in a text, and its outermost tokens with their places.
function tokensOf(text) {
  const names = new Set();
  const outer = [];
  const open = [];
  let operand = false;
  let last = '';
  for (let at = 0; at < text.length;) {
    const start = at;
    const pattern = text[at] === '/' && !operand && !/[/*]/.test(text[at + 1]);
    const match = (pattern && matchAt(PATTERN, text, at)) || matchAt(TOKEN, text, at);
    const token = match[0];
    at += token.length;
    if (match[1] !== undefined) continue;
    const closes = token === '}' || token === ')' || token === ']';
    let from = null;
    if (closes) from = open.pop() || null;
    const opens = token === '{' || token === '(' || token === '[';
    if (open.length === 0 && !opens) outer.push({ token, start: closes && from ? from.start : start, end: at });
    if (match[2] !== undefined) {
      if (last !== '.') names.add(token);
      operand = last === '.' || !OPERATOR.test(token);
    } else if (token === '`' || (token === '}' && from && from.template)) {
      const rest = matchAt(TEMPLATE, text, at);
      at += rest[0].length;
      operand = rest[1] !== '${';
      if (!operand) open.push({ template: true, start });
    } else if (opens) {
      open.push({ condition: CONDITION.test(last), start });
      operand = false;
    } else if (closes) {
      operand = token === ']' || (token === ')' && !(from && from.condition));
    } else {
      operand = /^[\d"']/.test(token) || ((token === '++' || token === '--') && operand);
    }
    last = token;
  }
  return { names, outer };
}

const compiles = (text) => attempt(() => new vm.Script(text) && true, false);

// The inspector, which tells of functions what the language does not.
class Inspector {
  constructor() {
    this.holder = null;
  }

  // The inspector's name of an object.
  idOf(value) {
    const group = { objectGroup: 'keeper', silent: true };
    if (this.holder === null) {
      this.object = { value: undefined };
      const given = pass(this.object, () => {
        return ask('Runtime.evaluate', { expression: `this['${PASSAGE}']`, ...group });
      });
      this.holder = given.result.objectId;
    }
    this.object.value = value;
    const functionDeclaration = 'function () { return this.value; }';
    const asked = { objectId: this.holder, functionDeclaration, ...group };
    const { objectId } = ask('Runtime.callFunctionOn', asked).result;
    this.object.value = undefined;
    return objectId;
  }

  // The object that the inspector names so.
  objectOf(told) {
    if (told.objectId === undefined) {
      if (told.unserializableValue !== undefined) return inMain(told.unserializableValue);
      return told.value;
    }
    const functionDeclaration = 'function (value) { this.value = value; }';
    const given = { objectId: this.holder, functionDeclaration, arguments: [{ objectId: told.objectId }] };
    ask('Runtime.callFunctionOn', given);
    const { value } = this.object;
    this.object.value = undefined;
    return value;
  }

  propertiesOf(objectId) {
    return ask('Runtime.getProperties', { objectId, ownProperties: true });
  }

  release() {
    if (this.holder !== null) ask('Runtime.releaseObjectGroup', { objectGroup: 'keeper' });
    this.holder = null;
  }
}

// Does something while the object is a global.
function pass(value, what) {
  defineProperty(main, PASSAGE, { value, configurable: true, enumerable: false, writable: true });
  try {
    return what();
  } finally {
    delete main[PASSAGE];
  }
}

const inspector = new Inspector();

// What is known of functions. Neither the text nor what a function closes over changes.
const analyses = new WeakMap();

function analyse(f) {
  let found = analyses.get(f);
  if (found === undefined) {
    found = analyseAnew(f);
    analyses.set(f, found);
  }
  return found;
}

function internalsOf(f) {
  const found = new Map();
  for (const one of inspector.propertiesOf(inspector.idOf(f)).internalProperties || []) {
    found.set(one.name, one.value);
  }
  return found;
}

function analyseAnew(f) {
  const text = textOf(f);
  const told = { text, form: 'native', reason: null, names: new Set(), outer: [] };
  if (NATIVE.test(text)) {
    told.isBound = internalsOf(f).has('[[TargetFunction]]');
    return told;
  }
  const { names, outer } = tokensOf(text);
  told.names = names;
  told.outer = outer;
  const first = outer.length > 0 ? outer[0].token : '';
  told.form = first === 'class' ? 'class' : compiles(`(${text}\n)`) ? 'function' : 'method';
  const isArrow = told.form === 'function' && outer.some(({ token }) => token === '=>');
  // Only where strict mode was asked for outside of the text does this say something.
  const isPlain = told.form === 'function' && first === 'function' && outer[1].token !== '*';
  told.strict = isPlain && descriptorOf(f, 'arguments') === undefined;
  told.hidden = told.form === 'class' && [...names].some((name) => name[0] === '#');
  if (told.form === 'method' && !compiles(`({${text}\n})`)) {
    told.reason = 'a function whose text means nothing by itself';
  } else if (told.form === 'method' && names.has('super')) {
    told.reason = 'a method with `super`';
  } else if (told.form === 'method' && hasComputedName(text, outer)) {
    told.reason = 'a method with a computed name';
  } else if (isArrow && (names.has('this') || names.has('arguments'))) {
    told.reason = `a closure over \`${names.has('this') ? 'this' : 'arguments'}\``;
  } else {
    told.reason = closureOf(f, told);
  }
  return told;
}

function hasComputedName(text, outer) {
  const at = outer.find(({ token }) => token !== 'async' && token !== '*' && token !== 'get' && token !== 'set');
  return at.token === ']' && !/^\[\s*Symbol\.\w+\s*\]$/.test(text.slice(at.start, at.end));
}

// What the function closes over, in words; null if it is nothing that it has the name of.
function closureOf(f, { form, names, outer }) {
  const scopes = internalsOf(f).get('[[Scopes]]');
  if (scopes === undefined) return 'a function of which nothing is known';
  const own = form === 'class' && outer.length > 1 ? outer[1].token : null;
  const list = inspector.propertiesOf(scopes.objectId).result;
  for (let at = 0; at < list.length; at++) {
    const scope = list[at].value;
    if (scope === undefined || /^(?:Global|Script)/.test(scope.description)) continue;
    for (const { name } of inspector.propertiesOf(scope.objectId).result) {
      if (at === 0 && name === own) continue;
      if (names.has(name) || names.has('eval')) return `a closure over \`${name}\``;
    }
  }
  return null;
}

// Where the base of a class stands in its text, or null.
function heritageOf({ outer }) {
  const at = outer.findIndex(({ token }) => token === 'extends');
  if (at < 0 || at > 2) return null;
  const from = outer[at + 1];
  const before = outer[outer.length - 2];
  const isName = from === before && /^[\p{ID_Start}$_]/u.test(from.token);
  return { from: from.start, to: before.end, isName };
}

// What a fresh interpreter has too. Modules are known by their exports.
class Host {
  constructor() {
    this.modules = new Map();
    this.loaded = '';
    this.natives = null;
    this.globals = new Map([[main, ['g']]]);
    for (const name of ownKeys(aside.initial)) {
      const { value } = aside.initial[name];
      const isObject = typeof value === 'object' && value !== null;
      if (isObject && typeof name === 'string' && value !== main) this.globals.set(value, ['l', '', name]);
    }
  }

  update() {
    const builtins = copyOf(process.moduleLoadList);
    const cache = Module._cache;
    const files = ownKeys(cache);
    const loaded = `${builtins.length} ${files.length}`;
    if (loaded === this.loaded) return;
    this.loaded = loaded;
    this.natives = null;
    this.modules.clear();
    for (const entry of builtins) {
      const name = /^NativeModule (.*)$/.exec(entry);
      if (name !== null && BUILTINS.has(name[1]) && !/^_|^internal/.test(name[1])) {
        attempt(() => this.modules.set(aside.require(name[1]), name[1]));
      }
    }
    for (const file of files) {
      const held = descriptorOf(cache, file);
      const exported = held && held.value && descriptorOf(held.value, 'exports');
      const value = exported && exported.value;
      const isObject = (typeof value === 'object' && value !== null) || typeof value === 'function';
      if (isObject && typeof file === 'string' && !/\.json$/.test(file) && !this.modules.has(value)) {
        this.modules.set(value, nameOfFile(file));
      }
    }
  }

  // How to find an object of the host's again; undefined if it is none.
  find(value) {
    if (this.natives === null) this.index();
    return this.natives.get(value);
  }

  index() {
    const natives = new Map();
    const left = [];
    const add = (value, path, depth) => {
      const isObject = (typeof value === 'object' && value !== null) || typeof value === 'function';
      if (!isObject || isProxy(value) || natives.has(value) || natives.size > NATIVES_MAX) return;
      natives.set(value, path);
      if (depth < DEPTH_MAX) left.push({ value, path, depth: depth + 1 });
    };
    for (const name of ownKeys(aside.initial)) {
      const { value } = aside.initial[name];
      if (typeof name === 'string' && value !== main) add(value, ['l', '', name], 0);
    }
    for (const [value, name] of this.modules) {
      const isBuiltin = BUILTINS.has(name);
      add(value, ['l', name], isBuiltin ? 0 : DEPTH_MAX - 1);
    }
    for (const { value, path, depth } of left) {
      for (const key of ownKeys(value)) {
        const own = descriptorOf(value, key);
        const step = typeof key === 'string' ? key : nameOfSymbol(key);
        if (own !== undefined && 'value' in own && step !== undefined) add(own.value, [...path, step], depth);
      }
    }
    FUNCTIONS.forEach((text, at) => {
      const proto = getPrototypeOf(inMain(text));
      if (!natives.has(proto)) natives.set(proto, ['f', at]);
    });
    const typed = getPrototypeOf(protoOf('Uint8Array'));
    if (!natives.has(typed)) natives.set(typed, ['t']);
    this.natives = natives;
  }

  // The module that a value is, as the manifest has it; null if it is none.
  moduleOf(value) {
    if (types.isModuleNamespaceObject(value)) {
      const name = aside.imported && importedName(value);
      return name === undefined ? null : { module: name, imported: true };
    }
    const name = this.modules.get(value);
    return name === undefined ? null : { module: name };
  }
}

function importedName(namespace) {
  const name = apply(WeakMap.prototype.get, aside.imported, [namespace]);
  return typeof name === 'string' ? name : undefined;
}

function nameOfFile(file) {
  const below = /^.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file);
  if (below === null) return file;
  const isMain = () => Module.createRequire(`${cwd()}/_`).resolve(below[1]) === file;
  return attempt(isMain, false) ? below[1] : file;
}

// Well-known and registered symbols, as an array; undefined for others.
const KNOWN = new Map();
for (const name of ownKeys(Symbol)) {
  if (typeof Symbol[name] === 'symbol') KNOWN.set(Symbol[name], name);
}

function nameOfSymbol(symbol) {
  const known = KNOWN.get(symbol);
  if (known !== undefined) return ['y', known];
  const key = Symbol.keyFor(symbol);
  if (key !== undefined) return ['k', key];
  const own = EMITTER_SYMBOLS.get(symbol);
  return own === undefined ? undefined : ['e', own];
}

const host = new Host();

function flagsOf(own) {
  return (own.writable ? WRITABLE : 0) | (own.enumerable ? ENUMERABLE : 0)
    | (own.configurable ? CONFIGURABLE : 0);
}

// Saving.
class Variable {
  constructor(name, value) {
    this.names = [name];
    this.value = value;
    this.nodes = [];
    this.functions = [];
    this.needs = new Set();
    this.size = 0;
    this.reason = null;
    this.because = null;
    this.group = [this];
  }

  lose(reason, because) {
    this.reason = reason.slice(0, REASON_CHARS_MAX);
    if (because) this.because = because.slice(0, PATH_CHARS_MAX);
  }
}

// A step of a path that is no property.
class Label {
  constructor(text, key) {
    this.text = text;
    this.key = key;
  }
}

function labelText(label) {
  if (label === undefined) return '';
  if (typeof label === 'number') return `[${label}]`;
  if (typeof label === 'symbol') return `[${String(label).slice(0, LABEL_CHARS_MAX)}]`;
  if (label instanceof Label) {
    if (label.key === undefined) return label.text;
    const { key } = label;
    const isObject = (typeof key === 'object' && key !== null) || typeof key === 'function';
    const shown = isObject ? '…' : typeof key === 'string' ? stringify(key) : String(key);
    return `.get(${shown.slice(0, LABEL_CHARS_MAX)})`;
  }
  if (/^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(label)) return `.${label}`;
  return `[${stringify(label.slice(0, LABEL_CHARS_MAX))}]`;
}

const PROTO = new Label('.__proto__');
const BESIDE_ELEMENTS = ['length'];
const NOTHING = [];
const ITEM = new Label('.<item>');
const KEY = new Label('.<key>');

// The walk through all that the variables have.
class Walk {
  constructor(variables, limits) {
    this.end = now() + limits.time_max_ms;
    this.until = now() + limits.time_max_ms * WALKING_SHARE;
    this.limits = limits;
    this.nodes = new Map();
    this.spoiled = new Map();
    this.rules = new Map();
    this.bytes = 0;
    this.steps = 0;
    // Functions that are variables are referred to by name.
    this.named = new Map();
    for (const variable of variables) {
      if (typeof variable.value === 'function') this.named.set(variable.value, variable);
    }
  }

  walk(variable) {
    const began = now();
    if (began >= this.until) return variable.lose('no time: it was not reached');
    this.variable = variable;
    this.deadline = began + (this.until - began) * PATIENCE_SHARE;
    this.patience = (this.deadline - began) / 1000;
    this.size = 0;
    this.met = new Set();
    this.node = null;
    const { nodes } = variable;
    try {
      variable.content = this.encode(variable.value);
      for (let at = 0; at < nodes.length; at++) {
        this.node = nodes[at];
        this.step();
        this.node.record = this.record(this.node.value);
      }
    } catch (error) {
      this.giveUp(variable, error);
      return;
    }
    variable.size = this.size;
    this.bytes += this.size;
    for (const other of this.met) unite(variable, other);
  }

  giveUp(variable, error) {
    const reason = error instanceof Refused ? error.reason : describe(error);
    const culprit = this.node;
    let path = error instanceof Refused ? labelText(error.label) : '';
    path += error.path || '';
    for (let node = culprit; node !== null; node = node.parent) {
      if (!(error instanceof Over)) this.spoiled.set(node.value, { reason, path });
      path = labelText(node.label) + path;
    }
    this.drop(variable);
    variable.lose(reason, path === '' ? null : variable.names[0] + path);
  }

  // Undoes the walk through a variable.
  drop(variable) {
    for (const node of variable.nodes) this.nodes.delete(node.value);
    this.bytes -= variable.size;
    Object.assign(variable, { nodes: [], functions: [], needs: new Set(), size: 0 });
  }

  // Functions come first, so that it is known of most whether they are lost when others refer to them.
  // Those that refer to a lost one anyway are walked again, with all that they share values with.
  walkAll(variables, hurried) {
    const rank = ({ names, value }) => {
      if (names.some((name) => hurried.has(name))) return 3;
      return Object(value) !== value ? 0 : typeof value === 'function' ? 1 : 2;
    };
    const ranked = [0, 1, 2, 3].map((wanted) => variables.filter((variable) => rank(variable) === wanted));
    let left = ranked.flat();
    while (left.length > 0) {
      for (const variable of left) this.walk(variable);
      const again = new Set();
      for (const { reason, needs, group } of variables) {
        if (reason !== null || ![...needs].some((need) => need.reason !== null)) continue;
        for (const variable of group) again.add(variable);
      }
      for (const variable of again) {
        this.drop(variable);
        variable.group = [variable];
      }
      left = [...again];
    }
  }

  step() {
    if (++this.steps % STEPS === 0) this.check();
  }

  check() {
    if (now() > this.deadline) throw new Over(`no time: it took more than ${this.patience.toFixed(1)} s`);
    if (this.size > this.limits.value_bytes_max) {
      throw new Over(`too large: it has more than ${this.limits.value_bytes_max} bytes`);
    }
    if (this.bytes + this.size > this.limits.bytes_max) {
      throw new Over(`too large: all together have more than ${this.limits.bytes_max} bytes`);
    }
  }

  take(bytes) {
    this.size += bytes;
    if (this.size > this.limits.value_bytes_max) this.check();
  }

  // Values.
  encode(value, label) {
    switch (typeof value) {
      case 'string':
        this.take(value.length);
        return value;
      case 'number':
        this.size += NUMBER_BYTES;
        if (value - value === 0 && !is(value, -0)) return value;
        return ['n', is(value, -0) ? '-0' : String(value)];
      case 'boolean':
        return value;
      case 'undefined':
        return ['u'];
      case 'bigint': {
        const digits = value.toString(16);
        this.take(digits.length);
        return ['b', digits];
      }
      case 'symbol':
        return nameOfSymbol(value) || this.refer(value, label);
      default:
        return value === null ? null : this.refer(value, label);
    }
  }

  refer(value, label) {
    const { variable } = this;
    const isProto = typeof value === 'object' && !isProxy(value);
    const owner = isProto ? ownerOf(value) : typeof value === 'function' ? value : null;
    const other = owner === null ? undefined : this.named.get(owner);
    if (other !== undefined && owner !== variable.value) {
      if (other.reason !== null) {
        throw new Refused(`it refers to ${other.names[0]}, which is lost: ${other.reason}`, label);
      }
      variable.needs.add(other);
      return [isProto ? 'w' : 'v', other.names[0]];
    }
    const node = this.nodes.get(value);
    if (node !== undefined) {
      if (node.variable !== variable) this.met.add(node.variable);
      return node.ref;
    }
    const spoiled = this.spoiled.get(value);
    if (spoiled !== undefined) {
      const refused = new Refused(spoiled.reason, label);
      refused.path = spoiled.path;
      throw refused;
    }
    const known = host.globals.get(value);
    if (known !== undefined) return known;
    const made = { value, ref: [0], record: null, bytes: null, parent: this.node, label, variable };
    this.nodes.set(value, made);
    variable.nodes.push(made);
    this.size += RECORD_BYTES;
    return made.ref;
  }

  // Records.
  record(value) {
    if (typeof value === 'symbol') return ['Y', this.encode(value.description)];
    if (isProxy(value)) throw new Refused('a proxy');
    const module = host.moduleOf(value);
    if (module !== null) return [module.imported ? 'I' : 'Q', module.module];
    if (typeof value === 'function') return this.recordFunction(value);
    if (OPEN_PROTOS.has(value)) return ['L', host.find(value)];
    if (isArray(value)) return this.recordArray(value);
    const proto = getPrototypeOf(value);
    for (const [test, words] of REFUSED) if (test(value)) throw new Refused(words);
    if (types.isMap(value)) return this.finish(value, 'M', this.entries(value), 'Map');
    if (types.isSet(value)) return this.finish(value, 'S', this.items(value), 'Set');
    if (types.isDate(value)) {
      const time = apply(Date.prototype.getTime, value, []);
      return this.finish(value, 'D', time === time ? time : null, 'Date');
    }
    if (types.isRegExp(value)) {
      let flags = '';
      for (const [get, flag] of FLAGS) if (apply(get, value, [])) flags += flag;
      return this.finish(value, 'R', [apply(sourceOf, value, []), flags], 'RegExp');
    }
    if (types.isNativeError(value)) return this.recordError(value);
    if (types.isArrayBuffer(value)) return this.recordBuffer(value);
    if (types.isTypedArray(value) || types.isDataView(value)) return this.recordView(value);
    if (types.isBoxedPrimitive(value)) return this.recordBoxed(value);
    if (types.isModuleNamespaceObject(value)) throw new Refused('a module whose name is not known');
    const owner = ownerOf(value);
    if (owner !== null) return this.recordPrototype(value, owner);
    if (proto === URL.prototype) return ['W', this.encode(apply(hrefOf, value, []))];
    const found = proto !== OBJECT && proto !== null ? host.find(value) : undefined;
    if (found !== undefined) return ['L', found];
    this.checkInstance(value, proto);
    return this.finish(value, 'O', 0, 'Object');
  }

  // The prototype, the properties, and whether there may be more of them.
  finish(value, kind, content, normal, options = {}) {
    const proto = getPrototypeOf(value);
    const own = typeof normal === 'string' ? protoOf(normal) : normal;
    let told = 0;
    if (proto === null) told = null;
    else if (proto !== own && !options.anyProto) told = this.encodeHostOr(proto, PROTO);
    const properties = this.properties(value, options);
    const record = [kind, content, told, properties, isExtensible(value) ? 0 : 1, options.flags || 0];
    const isBare = properties.length === 0;
    const isDefault = [false, kind === 'O', told === 0, isBare, record[4] === 0, record[5] === 0];
    while (isDefault[record.length - 1]) record.length--;
    return record;
  }

  encodeHostOr(value, label) {
    const owner = isProxy(value) ? null : typeof value === 'function' ? value : ownerOf(value);
    const isKnown = this.nodes.has(value) || this.named.has(owner);
    const found = isKnown ? undefined : host.find(value);
    return found !== undefined && !isOwned(value) ? found : this.encode(value, label);
  }

  properties(value, { skip = ignored, members = null, list = ownKeys(value), from = 0 }) {
    const told = [];
    for (let at = from; at < list.length; at++) {
      this.step();
      const key = list[at];
      const own = descriptorOf(value, key);
      if (own === undefined || skip(key, own)) continue;
      const isAccessor = !('value' in own);
      const flags = flagsOf(own) | (isAccessor ? ACCESSOR : 0);
      if (flags !== PLAIN_FLAGS) told.push(flags);
      if (typeof key === 'string') this.take(key.length);
      told.push(typeof key === 'string' ? key : this.encode(key, key));
      if (isAccessor) {
        told.push(this.member(own.get, key, members, 'get'), this.member(own.set, key, members, 'set'));
      } else {
        told.push(this.member(own.value, key, members));
      }
    }
    return told;
  }

  // A value of a property; `m` if the text of the class has it.
  member(value, label, members, role) {
    const isNew = typeof value === 'function' && !this.nodes.has(value) && !this.named.has(value);
    if (members !== null && isNew) {
      const { form, text } = analyse(value);
      if (form === 'method' && members.includes(text) && isPlainMethod(value)) return ['m'];
    }
    return this.encode(value, role === undefined ? label : new Label(`.${role} ${String(label)}`));
  }

  entries(value) {
    const told = [];
    apply(Map.prototype.forEach, value, [(item, key) => {
      this.step();
      told.push(this.encode(key, KEY), this.encode(item, new Label('', key)));
    }]);
    return told;
  }

  items(value) {
    const told = [];
    apply(Set.prototype.forEach, value, [(item) => {
      this.step();
      told.push(this.encode(item, ITEM));
    }]);
    return told;
  }

  // The names of properties; of a large array without its elements, if it has nothing else. To name
  // those takes long, and cannot be cut short.
  namesOf(value, length, usual) {
    if (length > LARGE) {
      const asked = { objectId: inspector.idOf(value), ownProperties: true, nonIndexedPropertiesOnly: true };
      const { result } = ask('Runtime.getProperties', asked);
      const told = result.map(({ name, symbol }) => (symbol === undefined ? name : ''));
      const names = told.filter((name) => name !== '__proto__');
      if (names.length === usual.length && names.every((name, at) => name === usual[at])) return usual;
    }
    return ownKeys(value);
  }

  recordArray(value) {
    const { length } = value;
    const list = this.namesOf(value, length, BESIDE_ELEMENTS);
    const count = list === BESIDE_ELEMENTS ? length : list.indexOf('length');
    const lengthOwn = descriptorOf(value, 'length');
    const options = { skip: (key) => key === 'length', list, flags: lengthOwn.writable ? 0 : ENUMERABLE };
    if (count !== length || length === 0) return this.finish(value, 'A', [length], 'Array', options);
    const items = Array(length);
    let numbers = length >= NUMBERS_MIN;
    let same = -1;
    for (let at = 0; at < length; at++) {
      this.step();
      const own = descriptorOf(value, at);
      const flags = own !== undefined && 'value' in own ? flagsOf(own) : ACCESSOR;
      if (same < 0) same = flags;
      if (flags !== same || flags === ACCESSOR) {
        options.list = ownKeys(value);
        return this.finish(value, 'A', [length], 'Array', options);
      }
      items[at] = own.value;
      numbers = numbers && typeof own.value === 'number';
    }
    // A frozen array's elements all have its flags.
    options.from = list === BESIDE_ELEMENTS ? 0 : count;
    options.flags |= (PLAIN_FLAGS - same) << 2;
    if (numbers) {
      this.take(NUMBER_BYTES * length);
      const packed = new Float64Array(items);
      this.node.bytes = new Uint8Array(packed.buffer);
      return this.finish(value, 'N', length, 'Array', options);
    }
    const told = Array(length + 1);
    told[0] = length;
    for (let at = 0; at < length; at++) {
      this.step();
      told[at + 1] = this.encode(items[at], at);
    }
    return this.finish(value, 'A', told, 'Array', options);
  }

  recordError(value) {
    let name = 'Error';
    for (let proto = getPrototypeOf(value); proto !== null && !isProxy(proto); proto = getPrototypeOf(proto)) {
      if (ERROR_NAMES.has(proto)) {
        name = ERROR_NAMES.get(proto);
        break;
      }
    }
    const stack = attempt(() => value.stack);
    const told = typeof stack === 'string' ? stack : null;
    if (told !== null) this.take(told.length);
    this.checkInstance(value, getPrototypeOf(value));
    const own = descriptorOf(value, 'stack');
    const isFixed = own !== undefined && !own.configurable;
    const content = [name, told, isFixed ? 0 : WRITABLE | CONFIGURABLE];
    return this.finish(value, 'E', content, name, { skip: (key) => key === 'stack' });
  }

  recordBuffer(value) {
    if (resizable !== undefined && apply(resizable.get, value, [])) throw new Refused('a resizable buffer');
    const length = apply(bufferBytes, value, []);
    this.take(length);
    this.node.bytes = new Uint8Array(value);
    return this.finish(value, 'B', length, 'ArrayBuffer');
  }

  recordView(value) {
    const isTyped = types.isTypedArray(value);
    const name = isTyped ? apply(typedName, value, []) : 'DataView';
    const buffer = apply(isTyped ? typedBuffer : viewBuffer, value, []);
    const offset = apply(isTyped ? typedOffset : viewOffset, value, []);
    const bytes = apply(isTyped ? typedBytes : viewBytes, value, []);
    if (types.isSharedArrayBuffer(buffer)) throw new Refused('shared memory');
    const length = isTyped ? apply(typedLength, value, []) : bytes;
    const list = this.namesOf(value, isTyped ? length : 0, NOTHING);
    const options = { list, from: isTyped && list !== NOTHING ? length : 0 };
    // Node cuts small Buffers from a larger piece, of which the rest is not this variable's.
    const isPooled = getPrototypeOf(value) === Buffer.prototype && bytes < apply(bufferBytes, buffer, [])
      && apply(bufferBytes, buffer, []) === Buffer.poolSize;
    if (isPooled) {
      this.take(bytes);
      this.node.bytes = new Uint8Array(buffer, offset, bytes);
      return this.finish(value, 'U', bytes, Buffer.prototype, options);
    }
    return this.finish(value, 'T', [name, this.encode(buffer, 'buffer'), offset, length], name, options);
  }

  recordBoxed(value) {
    const kinds = { Number, String, Boolean, BigInt, Symbol };
    for (const name of ownKeys(kinds)) {
      const inner = attempt(() => [apply(kinds[name].prototype.valueOf, value, [])], null);
      if (inner === null) continue;
      const skip = (key) => name === 'String' && (key === 'length' || /^\d+$/.test(String(key)));
      return this.finish(value, 'X', this.encode(inner[0]), name, { skip });
    }
    throw new Refused('a boxed value');
  }

  recordFunction(value) {
    const told = analyse(value);
    if (told.form === 'native' || told.reason !== null) {
      const found = host.find(value);
      if (found !== undefined) return ['L', found];
      if (told.isBound) return this.recordBound(value);
      throw new Refused(told.form === 'native' ? 'a native function' : told.reason);
    }
    const { form, text } = told;
    if (told.hidden) this.checkHidden(value, (one) => one.value === undefined || one.value.type !== 'function');
    this.variable.functions.push(told);
    this.take(text.length);
    const inherits = descriptorOf(value, 'prototype');
    const proto = inherits && inherits.value;
    const isOwn = proto && ownerOf(proto) === value;
    const isBare = form !== 'class' && proto && (isOwn || isGeneratorProto(proto)) && isBarePrototype(proto, value);
    const content = [form, text, told.strict ? 1 : 0, 0];
    const isMade = form === 'class' || isOwn || isBare;
    if (isMade && !isBare) content[3] = this.encode(proto, 'prototype');
    const skip = (key, own) => (key === 'prototype' && (isMade || !own.value))
      || ((key === 'arguments' || key === 'caller') && own.value === null);
    const anyProto = form !== 'class' && FUNCTION_PROTOS.has(getPrototypeOf(value));
    const members = form === 'class' ? text : null;
    return this.finish(value, 'F', content, FUNCTION, { skip, members, anyProto });
  }

  recordBound(value) {
    const internals = internalsOf(value);
    const target = inspector.objectOf(internals.get('[[TargetFunction]]'));
    const self = inspector.objectOf(internals.get('[[BoundThis]]'));
    const list = inspector.objectOf(internals.get('[[BoundArgs]]'));
    const content = [this.encode(target, new Label('.<target>')), this.encode(self, new Label('.<this>'))];
    for (let at = 0; at < list.length; at++) {
      content.push(this.encode(list[at], new Label(`.<argument ${at}>`)));
    }
    return this.finish(value, 'K', content, FUNCTION);
  }

  recordPrototype(value, owner) {
    const content = this.encode(owner, 'constructor');
    const told = analyse(owner);
    const members = told.form === 'class' ? told.text : null;
    const skip = (key, own) => key === 'constructor' && flagsOf(own) === (WRITABLE | CONFIGURABLE);
    return this.finish(value, 'P', content, OBJECT, { skip, members });
  }

  // Whether an object may have what its properties do not show.
  checkInstance(value, proto) {
    if (proto === OBJECT || proto === null) return;
    let rule = this.rules.get(proto);
    if (rule === undefined) {
      rule = this.ruleOf(proto);
      this.rules.set(proto, rule);
    }
    if (rule.reason !== null) throw new Refused(rule.reason);
    if (rule.hidden) this.checkHidden(value, () => true);
  }

  // What is private can be seen by the inspector, but not be made again.
  checkHidden(value, counts) {
    this.check();
    const { privateProperties = [] } = inspector.propertiesOf(inspector.idOf(value));
    const found = privateProperties.find(counts);
    if (found !== undefined) throw new Refused(`it has the private \`${found.name}\``);
  }

  ruleOf(proto) {
    let hidden = false;
    for (; proto !== null; proto = getPrototypeOf(proto)) {
      if (isProxy(proto)) return { reason: 'a proxy', hidden };
      if (TIMERS.has(proto)) return { reason: 'a timer', hidden };
      if (OPEN_PROTOS.has(proto)) continue;
      const tag = descriptorOf(proto, Symbol.toStringTag);
      if (tag && typeof tag.value === 'string' && / (?:Iterator|Generator)$/.test(tag.value)) {
        return { reason: 'an iterator', hidden };
      }
      const owner = ownerOf(proto);
      if (owner === null) {
        const path = host.find(proto);
        if (path !== undefined) return { reason: `an object of the host's: ${path[path.length - 1]}`, hidden };
        continue;
      }
      const told = analyse(owner);
      hidden = hidden || told.hidden === true;
      if (told.reason === null && told.form !== 'native') continue;
      const path = host.find(owner);
      const own = descriptorOf(owner, 'name');
      const name = own && typeof own.value === 'string' ? own.value : '';
      if (path !== undefined || told.form === 'native') {
        return { reason: WORDS[name] || `an object of the host's: ${name}`, hidden };
      }
      if (WORDS[name] !== undefined) return { reason: WORDS[name], hidden };
    }
    return { reason: null, hidden };
  }
}

function ignored() {
  return false;
}

// The function or class whose `prototype` an object is, or null.
function ownerOf(value) {
  const own = descriptorOf(value, 'constructor');
  const owner = own && own.value;
  if (typeof owner !== 'function' || isProxy(owner)) return null;
  const back = descriptorOf(owner, 'prototype');
  return back !== undefined && back.value === value ? owner : null;
}

function isOwned(value) {
  const owner = typeof value === 'object' ? ownerOf(value) : value;
  if (typeof owner !== 'function') return false;
  const told = analyse(owner);
  return told.form !== 'native' && told.reason === null;
}

// Whether it is what a generator function's generators inherit from.
function isGeneratorProto(proto) {
  const above = getPrototypeOf(proto);
  if (above === null || isProxy(above) || descriptorOf(proto, 'constructor') !== undefined) return false;
  const tag = descriptorOf(above, Symbol.toStringTag);
  return tag !== undefined && (tag.value === 'Generator' || tag.value === 'AsyncGenerator');
}

// Whether a prototype is as its function has made it.
function isBarePrototype(proto, owner) {
  const list = ownKeys(proto);
  if (!isExtensible(proto)) return false;
  if (list.length === 0) return true;
  const own = descriptorOf(proto, 'constructor');
  return list.length === 1 && own !== undefined && own.value === owner && getPrototypeOf(proto) === OBJECT
    && flagsOf(own) === (WRITABLE | CONFIGURABLE);
}

function isPlainMethod(value) {
  return ownKeys(value).every((key) => key === 'length' || key === 'name' || key === 'prototype')
    && FUNCTION_PROTOS.has(getPrototypeOf(value)) && isExtensible(value);
}

function unite(one, other) {
  if (one.group === other.group) return;
  const isSmaller = one.group.length < other.group.length;
  const [large, small] = isSmaller ? [other.group, one.group] : [one.group, other.group];
  for (const variable of small) {
    large.push(variable);
    variable.group = large;
  }
}

// What is unavailable, by directory: it stays in the store until its name is somebody else's.
const waiting = new Map();

function save(path, limits) {
  const store = new Store(path);
  try {
    return keep(store, `${path}`, limits);
  } finally {
    inspector.release();
    store.close();
  }
}

function keep(store, path, limits) {
  const before = store.readManifest() || {};
  host.update();
  const { entries, lost, modules } = namesNow();
  const taken = [...entries.keys(), ...lost.map(({ name }) => name), ...ownKeys(modules)];
  const carried = carry(path, new Set(taken));
  Object.assign(modules, carried.modules);
  const variables = gather(entries);
  const walk = new Walk(variables, limits);
  for (const { bytes } of carried.groups) walk.bytes += bytes;
  const lostBefore = isArray(before.lost) ? before.lost : [];
  const hurried = lostBefore.filter(({ reason }) => /^no time: it took/.test(reason));
  walk.walkAll(variables, new Set(hurried.map(({ name }) => name)));
  uniteCircles(variables);
  const groups = writeGroups(store, variables, walk, limits, carried.groups);
  spread(variables);
  const manifest = told(variables, entries, lost, groups, carried, modules);
  manifest.generation = (Number(before.generation) || 0) + 1;
  manifest.mark = limits.mark;
  store.write('manifest.json', [bytesOf(stringify(manifest))]);
  store.removeOthers(new Set(manifest.groups.map(({ digest }) => digest)));
  return { state: 'done', generation: manifest.generation };
}

// The names that code has made, with their values; those whose values cannot be had are lost.
function namesNow() {
  const entries = new Map();
  const lost = [];
  const modules = { __proto__: null };
  const add = (name, value, declared, flags) => {
    const module = value !== null && typeof value !== 'number' && Object(value) === value && !isProxy(value)
      ? host.moduleOf(value) : null;
    if (module !== null) modules[name] = { ...module, unavailable: false, declared };
    else entries.set(name, { value, declared, flags: flags | CONFIGURABLE });
  };
  const lexical = readLexical();
  for (const name of ownKeys(main).sort(byText)) {
    if (typeof name !== 'string' || name === PASSAGE || name === 'module') continue;
    const own = descriptorOf(main, name);
    const start = aside.initial[name];
    const isSame = start && ('value' in start ? is(start.value, own.value) : !('value' in own));
    if (isSame || (start && !('value' in start) && isLazy(name, own.value))) continue;
    if (lexical.has(name)) {
      lost.push({ name: `globalThis.${name}`, type: typeof own.value, reason: 'a declaration has the same name' });
    } else if (!('value' in own)) {
      lost.push({ name, type: 'accessor', reason: 'accessor property' });
    } else {
      add(name, own.value, 'var', flagsOf(own));
    }
  }
  for (const [name, { value, declared, error }] of lexical) {
    if (error) lost.push({ name, type: 'undefined', reason: 'its declaration has not come to its end' });
    else add(name, value, declared, PLAIN_FLAGS);
  }
  const sorted = new Map([...entries].sort(([one], [other]) => byText(one, other)));
  return { entries: sorted, lost, modules };
}

function byText(one, other) {
  const [a, b] = [String(one), String(other)];
  return a < b ? -1 : a > b ? 1 : 0;
}

// Some globals of Node's become values when they are first used.
function isLazy(name, value) {
  if (BUILTINS.has(name) || Object(value) !== value || isProxy(value)) return false;
  if (typeof value === 'function') return analyse(value).form === 'native' || analyse(value).reason !== null;
  const proto = getPrototypeOf(value);
  return proto !== OBJECT && proto !== null && !isArray(value);
}

function readLexical() {
  const { names = [] } = ask('Runtime.globalLexicalScopeNames', {});
  const unique = [...new Set(names)].sort(byText);
  const reader = (name) => `[${stringify(name)}]: [() => ${name}, () => { ${name} = ${name}; }]`;
  const all = attempt(() => inMain(`{__proto__: null, ${unique.map(reader).join()}}`), null);
  const found = new Map();
  for (const name of unique) {
    const pair = all !== null ? all[name] : attempt(() => inMain(`{${reader(name)}}`)[name], null);
    if (pair === null) continue;
    try {
      const value = pair[0]();
      const declared = attempt(() => pair[1]() || 'let', 'const');
      found.set(name, { value, declared });
    } catch {
      found.set(name, { error: true });
    }
  }
  return found;
}

// Several names of one object are one variable.
function gather(entries) {
  const variables = [];
  const known = new Map();
  for (const [name, { value }] of entries) {
    const isObject = Object(value) === value || typeof value === 'symbol';
    const same = isObject ? known.get(value) : undefined;
    if (same !== undefined) {
      same.names.push(name);
      continue;
    }
    const variable = new Variable(name, value);
    variables.push(variable);
    if (isObject) known.set(value, variable);
  }
  return variables;
}

function carry(path, taken) {
  const { groups = [], modules = {} } = waiting.get(path) || {};
  const left = { groups: [], modules: {} };
  for (const group of groups) {
    const names = group.names.map((member) => member.filter((name) => !taken.has(name)));
    if (names.some((member) => member.length > 0)) left.groups.push({ ...group, names });
  }
  for (const name of ownKeys(modules)) if (!taken.has(name)) left.modules[name] = modules[name];
  return left;
}

// Groups that refer to what could not be written are lost too.
function spread(variables) {
  for (let changed = true; changed;) {
    changed = false;
    for (const { reason: lost, needs, group } of variables) {
      const need = lost === null ? [...needs].find((one) => one.reason !== null) : undefined;
      if (need === undefined) continue;
      for (const variable of group) {
        const reason = `it refers to ${need.names[0]}, which is lost: ${need.reason}`;
        if (variable.reason === null) variable.lose(reason);
      }
      changed = true;
    }
  }
}

// Groups that need each other are one.
function uniteCircles(variables) {
  const kept = variables.filter(({ reason }) => reason === null);
  const reached = new Map();
  for (const { group } of kept) if (!reached.has(group)) reached.set(group, reach(group));
  const first = new Map([...reached.keys()].map((group) => [group, group[0]]));
  for (const [group, found] of reached) {
    for (const other of found) {
      if (other !== group && reached.get(other).has(group)) unite(first.get(group), first.get(other));
    }
  }
}

function reach(group) {
  const found = new Set();
  const left = [group];
  while (left.length > 0) {
    for (const variable of left.pop()) {
      for (const need of variable.needs) {
        if (need.group === group || found.has(need.group)) continue;
        found.add(need.group);
        left.push(need.group);
      }
    }
  }
  return found;
}

function writeGroups(store, variables, walk, limits, carried) {
  const groups = new Set();
  for (const variable of variables) if (variable.reason === null) groups.add(variable.group);
  let total = 0;
  for (const { bytes } of carried) total += bytes;
  const written = [];
  for (const group of groups) {
    group.sort((one, other) => byText(one.names[0], other.names[0]));
    try {
      if (now() > walk.end) throw new Over('no time: it was not reached');
      const { chunks, bytes, digest, imports } = encodeGroup(group, walk);
      if (total + bytes > limits.bytes_max) {
        throw new Over(`too large: all together have more than ${limits.bytes_max} bytes`);
      }
      if (!store.has(digest, bytes)) store.write(digest, chunks);
      total += bytes;
      const needs = new Set();
      for (const { needs: all } of group) {
        for (const need of all) if (need.group !== group) needs.add(need.names[0]);
      }
      const names = group.map((variable) => variable.names);
      written.push({ digest, bytes, names, needs: [...needs].sort(byText), imports });
      for (const variable of group) Object.assign(variable, { digest, bytes });
    } catch (error) {
      const isRefusal = error instanceof Refused;
      const reason = isRefusal ? error.reason : `it cannot be written: ${describe(error)}`;
      for (const variable of group) variable.lose(reason);
    }
  }
  return written;
}

function encodeGroup(members, walk) {
  const nodes = members.flatMap((variable) => variable.nodes);
  nodes.forEach((node, at) => {
    node.ref[0] = at;
  });
  const modules = nodes.filter(({ record }) => record[0] === 'I').map(({ record }) => record[1]);
  const imports = [...new Set(modules)];
  const chunks = [];
  let bytes = 0;
  let text = '';
  const hash = createHash('sha256');
  const put = (chunk) => {
    chunks.push(chunk);
    hash.update(chunk);
    bytes += chunk.length;
  };
  const line = (value) => {
    text += `${stringify(value)}\n`;
    if (text.length > PIECE_CHARS) {
      put(bytesOf(text));
      text = '';
      if (now() > walk.end) throw new Over('no time: it was not reached');
    }
  };
  line({ format: FORMAT, records: nodes.length, roots: members.map(({ content }) => content) });
  for (let at = 0; at < nodes.length; at += LINE_RECORDS) {
    line(nodes.slice(at, at + LINE_RECORDS).map(({ record }) => record));
  }
  if (text !== '') put(bytesOf(text));
  for (const node of nodes) if (node.bytes !== null) put(node.bytes);
  return { chunks, bytes, imports, digest: hash.digest('hex').slice(0, DIGEST_CHARS) };
}

function told(variables, entries, lost, groups, carried, modules) {
  const list = [];
  const whole = new Set(groups.map(({ digest }) => digest));
  for (const variable of variables) {
    for (const name of variable.names) {
      const kind = kindOf(variable.value);
      const { declared, flags } = entries.get(name);
      if (variable.reason !== null) {
        const because = variable.because === null ? {} : { because_of: variable.because };
        lost.push({ name, type: kind, reason: variable.reason, ...because });
      } else {
        const { digest, bytes } = variable;
        list.push({ name, kind, digest, bytes, declared, ...(flags === PLAIN_FLAGS ? {} : { flags }) });
      }
    }
  }
  for (const group of carried.groups) {
    const { digest, bytes, unavailable } = group;
    for (const name of group.names.flat()) {
      list.push({ name, kind: '', digest, bytes, declared: group.declared[name], unavailable });
    }
  }
  const gone = new Set(lost.map(({ name }) => name));
  const depends = [];
  for (const { names, functions, reason } of variables) {
    if (reason !== null || gone.size === 0) continue;
    const uses = new Set();
    for (const f of functions) for (const name of f.names) if (gone.has(name)) uses.add(name);
    if (uses.size > 0) depends.push({ name: names[0], uses: [...uses].sort(byText) });
  }
  const held = groups.filter(({ digest, names }) => whole.has(digest)
    && list.some((entry) => entry.digest === digest && names[0].includes(entry.name)));
  return {
    format: FORMAT,
    node: version.split('.').map(Number),
    variables: list.sort((one, other) => byText(one.name, other.name)),
    groups: [...held, ...carried.groups],
    lost: lost.sort((one, other) => byText(one.name, other.name)),
    depends,
    modules,
    cwd: attempt(() => cwd(), null),
  };
}

function kindOf(value) {
  if (value === null) return 'null';
  if (typeof value !== 'object' && typeof value !== 'function') return typeof value;
  if (isProxy(value)) return 'Proxy';
  if (typeof value === 'function') return analyse(value).form === 'class' ? 'class' : 'function';
  if (isArray(value)) return 'Array';
  for (let proto = getPrototypeOf(value); proto !== null && !isProxy(proto); proto = getPrototypeOf(proto)) {
    const own = descriptorOf(proto, 'constructor');
    const owner = own && own.value;
    const name = typeof owner === 'function' && !isProxy(owner) ? descriptorOf(owner, 'name') : undefined;
    const isText = name !== undefined && typeof name.value === 'string' && name.value !== '';
    if (isText) return name.value.slice(0, LABEL_CHARS_MAX);
  }
  return 'Object';
}

// Restoring.
const IMPORT = 'ımport';
const maker = (name) => intrinsic(name);
const NONE = { state: 'empty', generation: 0, restored: [], lost: [], depends: [], unavailable: [] };

async function restore(path) {
  const store = new Store(path);
  try {
    const manifest = store.readManifest();
    if (manifest === null) return { ...NONE };
    const { format, generation, lost, depends } = manifest;
    if (format !== FORMAT) return { ...NONE, state: 'foreign', format };
    const report = { state: 'restored', generation, restored: [], lost, depends, unavailable: [] };
    if (typeof manifest.cwd === 'string') attempt(() => chdir(manifest.cwd));
    const missing = await restoreModules(manifest.modules, report);
    host.update();
    const groups = await restoreGroups(store, manifest, report);
    waiting.set(`${path}`, { groups, modules: missing });
    return report;
  } finally {
    inspector.release();
    store.close();
  }
}

async function restoreModules(modules, report) {
  const missing = {};
  for (const name of ownKeys(modules)) {
    const { module, imported, declared } = modules[name];
    try {
      bind(name, await load(module, imported), declared, PLAIN_FLAGS);
      report.restored.push(name);
    } catch (error) {
      missing[name] = { ...modules[name], unavailable: true };
      report.unavailable.push({ name, reason: describe(error) });
    }
  }
  return missing;
}

// A module that was thenable would be taken for a promise, so it goes by as a member.
async function load(module, imported) {
  return imported ? main[IMPORT](module) : aside.require(module);
}

// Those that miss something the first time may find it when others are there, as long as it helps.
async function restoreGroups(store, manifest, report) {
  const loaded = new Map();
  const entries = new Map(manifest.variables.map((entry) => [entry.name, entry]));
  const failures = new Map();
  let left = manifest.groups;
  for (let before = -1; left.length !== before && left.length > 0;) {
    before = left.length;
    const again = [];
    for (const group of left) {
      try {
        await restoreGroup(store, group, loaded, entries);
        report.restored.push(...group.names.flat());
      } catch (error) {
        failures.set(group, describe(error));
        again.push(group);
      }
    }
    left = again;
  }
  return left.map((group) => {
    const unavailable = failures.get(group);
    const declared = {};
    for (const name of group.names.flat()) {
      const entry = entries.get(name);
      declared[name] = entry === undefined ? 'var' : entry.declared;
      report.unavailable.push({ name, reason: unavailable });
    }
    return { ...group, unavailable, declared };
  });
}

async function restoreGroup(store, group, loaded, entries) {
  for (const need of group.needs) {
    if (!loaded.has(need)) throw new Refused(`it refers to ${need}, which is not available`);
  }
  const bytes = readBlob(store, group);
  const imports = new Map();
  for (const name of group.imports || []) imports.set(name, await load(name, true));
  const values = new Build(bytes, group.names, loaded, imports).build();
  group.names.forEach((names, at) => {
    for (const name of names) {
      const { declared, flags = PLAIN_FLAGS } = entries.get(name);
      bind(name, values[at], declared, flags);
      loaded.set(name, values[at]);
    }
  });
}

function readBlob(store, { digest, bytes: size }) {
  if (!/^[0-9a-f]{40}$/.test(digest)) throw new Refused('the blob has no name');
  const bytes = store.read(digest, size);
  const found = createHash('sha256').update(bytes).digest('hex').slice(0, DIGEST_CHARS);
  if (found !== digest) throw new Refused('the blob is damaged');
  return bytes;
}

// Makes a value a variable again, of the kind that it was.
function bind(name, value, declared, flags) {
  if (declared !== 'let' && declared !== 'const') {
    const writable = (flags & WRITABLE) !== 0;
    const enumerable = (flags & ENUMERABLE) !== 0;
    defineProperty(main, name, { value, configurable: true, enumerable, writable });
    return;
  }
  const expression = `${declared} ${name} = this['${PASSAGE}'][0];`;
  pass([value], () => ask('Runtime.evaluate', { expression, replMode: true, silent: true }));
  const found = attempt(() => [inMain(name)], []);
  if (found.length === 0 || !is(found[0], value)) throw new Refused(`\`${declared} ${name}\` is not possible`);
}

// One blob on its way into the interpreter: each record becomes an object, and then gets its content.
class Build {
  constructor(bytes, names, loaded, imports) {
    this.loaded = loaded;
    this.imports = imports;
    let at = 0;
    const line = () => {
      const end = apply(Uint8Array.prototype.indexOf, bytes, [10, at]);
      if (end < 0) throw new Refused('the blob is cut off');
      const text = apply(Buffer.prototype.utf8Slice, bytes, [at, end]);
      at = end + 1;
      return parse(text);
    };
    this.head = line();
    if (this.head.format !== FORMAT) throw new Refused('the blob has another format');
    this.records = [];
    while (this.records.length < this.head.records) this.records.push(...line());
    this.bytes = this.records.map(([kind, content]) => {
      const size = kind === 'N' ? content * NUMBER_BYTES : kind === 'B' || kind === 'U' ? content : 0;
      at += size;
      return apply(sliceOf, bytes, [at - size, at]);
    });
    this.made = Array(this.records.length);
    this.isMade = new Uint8Array(this.records.length);
    this.roots = new Map();
    names.forEach((all, index) => {
      for (const name of all) this.roots.set(name, this.head.roots[index]);
    });
  }

  build() {
    for (let at = 0; at < this.records.length; at++) this.make(at);
    for (let at = 0; at < this.records.length; at++) this.fill(this.made[at], this.records[at], at);
    return this.head.roots.map((root) => this.value(root));
  }

  value(told) {
    if (!isArray(told)) return told;
    const [kind, content] = told;
    if (typeof kind === 'number') return this.make(kind);
    switch (kind) {
      case 'n': return Number(content);
      case 'u': return undefined;
      case 'b': return content[0] === '-' ? -BigInt(`0x${content.slice(1)}`) : BigInt(`0x${content}`);
      case 'v': return this.named(content);
      case 'w': return this.named(content).prototype;
      default: return find(told);
    }
  }

  named(name) {
    const root = this.roots.get(name);
    if (root !== undefined) return this.value(root);
    if (!this.loaded.has(name)) throw new Refused(`it refers to ${name}, which is not available`);
    return this.loaded.get(name);
  }

  make(at) {
    if (this.isMade[at]) return this.made[at];
    const [kind, content] = this.records[at];
    const made = this.shell(kind, content, this.bytes[at]);
    this.made[at] = made;
    this.isMade[at] = 1;
    return made;
  }

  shell(kind, content, bytes) {
    switch (kind) {
      case 'O': return new (maker('Object'))();
      case 'A': case 'N': return new (maker('Array'))();
      case 'M': return new (maker('Map'))();
      case 'S': return new (maker('Set'))();
      case 'D': return new (maker('Date'))(content === null ? NaN : content);
      case 'R': return new (maker('RegExp'))(content[0], content[1]);
      case 'E': {
        const error = content[0] === 'AggregateError' ? new (maker(content[0]))([]) : new (maker(content[0]))();
        delete error.errors;
        return error;
      }
      case 'B': {
        const buffer = new (maker('ArrayBuffer'))(content);
        new Uint8Array(buffer).set(bytes);
        return buffer;
      }
      case 'U': return bytesOf(bytes);
      case 'T': return new (maker(content[0]))(this.value(content[1]), content[2], content[3]);
      case 'X': return maker('Object')(this.value(content));
      case 'Y': return isArray(content) ? Symbol() : Symbol(content);
      case 'F': return evaluate(content);
      case 'K': {
        const [target, ...rest] = content.map((told) => this.value(told));
        return apply(Function.prototype.bind, target, rest);
      }
      case 'W': return new URL(content);
      case 'P': return this.value(content).prototype;
      case 'L': return find(content);
      case 'Q': return aside.require(content);
      case 'I': return this.imports.get(content);
      default: throw new Refused(`the blob has a record of the unknown kind ${kind}`);
    }
  }

  fill(made, [kind, content, proto = 0, properties = [], closed = 0, flags = 0], at) {
    if ('LQIYW'.includes(kind)) return;
    if (kind === 'A') this.fillArray(made, content, flags);
    if (kind === 'N') this.fillNumbers(made, at, flags);
    if (kind === 'M') {
      for (let index = 0; index < content.length; index += 2) {
        apply(Map.prototype.set, made, [this.value(content[index]), this.value(content[index + 1])]);
      }
    }
    if (kind === 'S') for (const item of content) apply(Set.prototype.add, made, [this.value(item)]);
    if (kind === 'E') {
      delete made.stack;
      if (content[1] !== null) define(made, 'stack', { value: content[1] }, content[2]);
    }
    const normal = kind === 'P' ? OBJECT : kind === 'F' && content[0] === 'class' ? FUNCTION : undefined;
    const above = proto === 0 ? normal : this.value(proto);
    if (above !== undefined && getPrototypeOf(made) !== above) setPrototypeOf(made, above);
    this.fillProperties(made, properties, kind);
    if ((kind === 'A' || kind === 'N') && (flags & ENUMERABLE)) defineProperty(made, 'length', { writable: false });
    if (closed) preventExtensions(made);
  }

  fillArray(made, content, flags) {
    const own = PLAIN_FLAGS - (flags >> 2);
    made.length = content[0];
    for (let index = 1; index < content.length; index++) {
      const value = this.value(content[index]);
      if (own === PLAIN_FLAGS) made[index - 1] = value;
      else define(made, index - 1, { value }, own);
    }
  }

  fillNumbers(made, at, flags) {
    const own = PLAIN_FLAGS - (flags >> 2);
    const numbers = new Float64Array(new Uint8Array(this.bytes[at]).buffer);
    for (let index = 0; index < numbers.length; index++) {
      if (own === PLAIN_FLAGS) made[index] = numbers[index];
      else define(made, index, { value: numbers[index] }, own);
    }
  }

  fillProperties(made, properties, kind) {
    const known = new Set();
    for (let at = 0; at < properties.length;) {
      const flags = typeof properties[at] === 'number' ? properties[at++] : PLAIN_FLAGS;
      const key = this.value(properties[at++]);
      known.add(key);
      const [first, second] = [properties[at++], flags & ACCESSOR ? properties[at++] : undefined];
      this.fillProperty(made, key, flags, first, second);
    }
    if (kind !== 'F' && kind !== 'P') return;
    for (const key of ownKeys(made)) {
      const isGiven = key === 'prototype' || key === 'constructor' || key === 'arguments' || key === 'caller';
      if (!known.has(key) && !isGiven) delete made[key];
    }
  }

  fillProperty(made, key, flags, first, second) {
    const old = descriptorOf(made, key);
    const isMember = (told) => isArray(told) && told[0] === 'm';
    const member = (role) => {
      if (old === undefined || typeof old[role] !== 'function') {
        throw new Refused(`the class has no \`${String(key)}\``);
      }
      return old[role];
    };
    if (flags & ACCESSOR) {
      const get = isMember(first) ? member('get') : this.value(first);
      const set = isMember(second) ? member('set') : this.value(second);
      define(made, key, { get, set }, flags);
      return;
    }
    const value = isMember(first) ? member('value') : this.value(first);
    if (old === undefined || !('value' in old) || !is(old.value, value) || flagsOf(old) !== flags) {
      define(made, key, { value }, flags);
    }
  }
}

function define(made, key, own, flags) {
  const told = { ...own, configurable: (flags & CONFIGURABLE) !== 0, enumerable: (flags & ENUMERABLE) !== 0 };
  if ('value' in own) told.writable = (flags & WRITABLE) !== 0;
  defineProperty(made, key, told);
}

// What the interpreter has anyway.
function find(told) {
  const [kind, content, ...steps] = told;
  switch (kind) {
    case 'g': return main;
    case 'y': return Symbol[content];
    case 'k': return Symbol.for(content);
    case 'e': {
      for (const [symbol, name] of EMITTER_SYMBOLS) if (name === content) return symbol;
      break;
    }
    case 'f': return getPrototypeOf(inMain(FUNCTIONS[content]));
    case 't': return getPrototypeOf(protoOf('Uint8Array'));
    case 'l': {
      let found = content === '' ? intrinsic(steps.shift()) : aside.require(content);
      for (const step of steps) {
        const own = descriptorOf(Object(found), isArray(step) ? find(step) : step);
        found = own && own.value;
      }
      if (found !== undefined) return found;
      break;
    }
  }
  throw new Refused(`${stringify(told).slice(0, LABEL_CHARS_MAX)} is not there`);
}

// A function by its text.
function evaluate([form, text, strict]) {
  if (form === 'class') return evaluateClass(text);
  if (form === 'function') return strict ? vm.runInThisContext(`'use strict';(${text}\n)`) : inMain(`${text}\n`);
  const holder = inMain(`{${text}\n}`);
  const own = descriptorOf(holder, ownKeys(holder)[0]);
  return own.value || own.get || own.set;
}

// The base is set later, but there must be one, and the text must stay what it is if it can.
function evaluateClass(text) {
  const heritage = heritageOf(tokensOf(text));
  if (heritage === null || text.slice(heritage.from, heritage.to) === 'null') return inMain(`${text}\n`);
  const base = inMain('class {}');
  const name = text.slice(heritage.from, heritage.to);
  const found = heritage.isName ? attempt(() => inMain(`typeof ${name}`), 'object') : 'object';
  if (found === 'function') return inMain(`${text}\n`);
  if (found === 'undefined' && descriptorOf(main, name) === undefined) {
    defineProperty(main, name, { value: base, configurable: true, enumerable: false, writable: true });
    try {
      return inMain(`${text}\n`);
    } finally {
      delete main[name];
    }
  }
  const changed = `${text.slice(0, heritage.from)}${INHERITED}${text.slice(heritage.to)}`;
  return inMain(`(${INHERITED}) => (${changed}\n)`)(base);
}

// Lets go what is unavailable and has one of these names.
function forget(path, names) {
  const held = waiting.get(`${path}`);
  if (held === undefined) return;
  const gone = new Set(copyOf(names));
  for (const group of held.groups) {
    group.names = group.names.map((member) => member.filter((name) => !gone.has(name)));
  }
  for (const name of gone) delete held.modules[name];
}

return { save, restore, forget, stringify };
}

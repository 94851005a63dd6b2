"""Tests of keeper.js in real interpreters, with the real driver: `test_node.py NODE [TEST...]`."""
import json
import os
import shutil
import sys
import tempfile
import textwrap
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from driver import KEEPER, Context, read

NODE = shutil.which("node")

# Name, code before, what must hold in the interpreter after it.
KEPT = [
    ("atoms", "var a=1, b='é\\u{1F600}', c=2.5, d=null, e, f=true, g=10n**40n, h=-7n, i=NaN, j=-0, k=-Infinity, l='\\ud800'", """
        assert.deepStrictEqual([a,b,c,d,e,f,g,h,i,k,l], [1,'é\\u{1F600}',2.5,null,undefined,true,10n**40n,-7n,NaN,-Infinity,'\\ud800']);
        assert(Object.is(j, -0)); assert('e' in globalThis)"""),
    ("declarations", "const c=1; let l=2; var v=3; w=4; class K {}; function f() {}", """
        assert.throws(() => { c = 2 }, TypeError); l = 5; assert.strictEqual(l, 5);
        assert.strictEqual(globalThis.v, 3); assert.strictEqual(globalThis.w, 4); assert.strictEqual(typeof globalThis.f, 'function');
        for (const n of ['c','l','K']) assert(!(n in globalThis)); assert.strictEqual(typeof K, 'function')"""),
    ("containers", "const m=new Map([[{a:1},new Set([1,'x'])],[NaN,undefined]]), s=new Set([m]), d=new Date(5), bad=new Date(NaN), zero=[new Date(0), Object(0), new ArrayBuffer(0), Object('')], r=/a(b)/giy; r.lastIndex=2", """
        assert.strictEqual([...m][0][0].a, 1); assert([...m.values()][0].has('x')); assert(m.has(NaN)); assert(s.has(m));
        assert.strictEqual(d.getTime(), 5); assert(Number.isNaN(bad.getTime())); assert.deepStrictEqual(zero, [new Date(0), Object(0), new ArrayBuffer(0), Object('')]);
        assert.strictEqual(r.source + r.flags + r.lastIndex, 'a(b)giy2'); assert(r instanceof RegExp && m instanceof Map)"""),
    ("aliases", "let a=[]; let b=a; const c=b; var d=a", "assert(a===b && b===c && c===globalThis.d)"),
    ("identity_across_variables", "const inner={}; let a=[inner]; let b={x:inner}; let m=new Map([[inner,1]])", "assert(a[0]===b.x && a[0]===inner && m.get(a[0])===1)"),
    ("identity_of_nobodys_own", "let a=[{n:1}]; let b=[a[0]]", "assert(a[0]===b[0] && a[0].n===1)"),
    ("cycles", "const a={}; a.self=a; const b=[a]; a.b=b; const m=new Map(); m.set(m,m)", "assert(a.self===a && a.b===b && b[0]===a && m.get(m)===m)"),
    ("views_share_memory", "const buffer=new ArrayBuffer(16); const x=new Uint8Array(buffer,4,4), y=new DataView(buffer), z=new Float64Array(buffer); x[0]=7", """
        assert.strictEqual(y.getUint8(4), 7); x[1]=9; assert.strictEqual(y.getUint8(5), 9); assert(z.buffer===buffer && x.length===4 && x.byteOffset===4)"""),
    ("buffers_stay_buffers", "const b=Buffer.from('hello'), big=Buffer.alloc(20000, 3), a=new BigInt64Array([1n,-2n])", """
        assert(Buffer.isBuffer(b) && b.toString()==='hello' && b.length===5); assert(Buffer.isBuffer(big) && big[19999]===3); assert.strictEqual(a[1], -2n)"""),
    ("arrays", "const holes=[1,,3]; holes.extra='x'; const sparse=[]; sparse[4e9]=1; const none=new Array(5); const numbers=Array.from({length:1000},(_, i)=>i/3); numbers[3]=-0; const frozen=Object.freeze([1,[2]])", """
        assert(!(1 in holes) && holes.length===3 && holes.extra==='x'); assert(sparse.length===4e9+1 && sparse[4e9]===1); assert(none.length===5 && !(0 in none));
        assert(numbers[999]===333 && Object.is(numbers[3],-0) && Array.isArray(numbers)); assert(Object.isFrozen(frozen) && frozen[1][0]===2)"""),
    ("errors", "class Mine extends TypeError { constructor(m) { super(m); this.code=7 } }; const e=new Mine('boo', ); const c=new Error('out',{cause:e}); const all=new AggregateError([e],'all')", """
        assert(e instanceof Mine && e instanceof TypeError && e.message==='boo' && e.code===7); assert(require('util').types.isNativeError(e));
        assert(c.cause===e && c.stack.startsWith('Error: out')); assert(all.errors[0]===e)"""),
    ("flags_and_prototypes", "const bare=Object.create(null); bare.x=1; const base={hi(){return this.n}}; const heir=Object.create(base,{n:{value:3}}); const sealed=Object.seal({a:1}); const odd=Object.defineProperty({},'k',{value:1,writable:true})", """
        assert(Object.getPrototypeOf(bare)===null && bare.x===1); assert(heir.hi()===3 && Object.getPrototypeOf(heir)===base);
        assert(Object.isSealed(sealed)); const d=Object.getOwnPropertyDescriptor(odd,'k'); assert(d.writable && !d.enumerable && !d.configurable)"""),
    ("property_names", "const o={'a b':1,[Symbol.iterator]:2,[Symbol.for('r')]:3,['__proto__']:4,'10':5}", """
        assert(o['a b']===1 && o[Symbol.iterator]===2 && o[Symbol.for('r')]===3 && o[10]===5); assert.strictEqual(Object.getOwnPropertyDescriptor(o,'__proto__').value, 4)"""),
    ("symbols", "const u=Symbol('mine'); const w=Symbol.asyncIterator; const r=Symbol.for('r'); const o={[u]:1}", "assert(o[u]===1 && u.description==='mine' && w===Symbol.asyncIterator && r===Symbol.for('r'))"),
    ("boxed", "const n=new Number(3), s=new String('abc'), b=Object(5n)", "assert(n+1===4 && s.length===3 && s[1]==='b' && s instanceof String && typeof b==='object' && b===b && BigInt(b)===5n)"),
    ("functions", "let k=2; function f(x, y=3) { return k*x+y } f.tag={t:1}; const arrow=x=>x+k; const as=async (x)=>x; function* g() { yield 1; yield 2 } async function* ag() { yield 3 } const named=function self(n) { return n ? self(n-1) : 'end' }", """
        assert(f(1)===5 && f.tag.t===1 && f.name==='f' && f.length===1); k=5; assert(arrow(1)===6 && arrow.name==='arrow'); assert.deepStrictEqual([...g()],[1,2]);
        assert(named(3)==='end' && named.name==='self'); assert(as(1) instanceof Promise); assert(String(f).startsWith('function f(x, y=3)')); assert(new f(1) instanceof f)"""),
    ("functions_of_each_other", "function even(n) { return n===0 || odd(n-1) } function odd(n) { return n!==0 && even(n-1) } even.other=odd; odd.other=even", "assert(even(10) && !odd(10) && even.other===odd && odd.other===even)"),
    ("methods_within_objects", "const o={n:2, m(){return this.n}, async am(){return 1}, *gm(){yield 3}, get twice(){return this.n*2}, set both(v){this.n=v}, f:()=>9, [Symbol.iterator]() { return [1][Symbol.iterator]() }}", """
        assert(o.m()===2 && o.twice===4 && o.f()===9); o.both=5; assert(o.n===5); assert.deepStrictEqual([...o.gm()],[3]); assert.deepStrictEqual([...o],[1]); assert(o.m.name==='m' && !('prototype' in o.m))"""),
    ("strict_functions", "var inner=(0,eval)(`'use strict'; (function inner(){return this})`)", "assert(inner()===undefined)"),
    ("constructors_of_old", "function P(n){this.n=n} P.prototype.get=function(){return this.n}; P.all=[]; function Q(){} Q.prototype=Object.create(P.prototype); Q.prototype.constructor=Q; const p=new P(4); const q=new Q(); q.n=6; P.all.push(p)", """
        assert(p instanceof P && p.get()===4 && P.all[0]===p); assert(q instanceof Q && q instanceof P && q.get()===6); assert(new P(1).get()===1)"""),
    ("classes", """
        class A { static count=3; #p=5; field=1; constructor(n){this.n=n} get twice(){return this.n*2} static make(n){return new this(n)} hidden(){return this.#p} }
        class B extends A { twice2(){ return super.twice+1 } }
        A.count=8; A.prototype.added=function(){return this.n}; class C { v=1 }; const c=new C(); let b = new (class extends C { w=2 })
        """, """
        assert(A.count===8 && A.make(2).twice===4 && A.make(1).hidden()===5 && A.make(3).added()===3);
        const b2=new B(4); assert(b2.twice2()===9 && b2 instanceof A && Object.getPrototypeOf(B)===A); assert(c instanceof C && c.v===1 && c.constructor===C);
        assert(b.w===2 && b instanceof C && b.constructor.name==='');
        assert(!Object.keys(A.prototype).includes('twice') && Object.keys(A.prototype).includes('added')); assert.throws(() => A(), TypeError)"""),
    ("instances_of_heirs", "class V { constructor(x){this.x=x} len(){return this.x} } class W extends V { len(){return super.len()*2} } const all=[new V(1), new W(2)]; class L extends Array { last(){return this[this.length-1]} } const l=L.from([1,2,3]); class D extends Map { two(){return this.get(2)} } const d=new D([[2,'b']])", """
        assert(all[0].len()===1 && all[1].len()===4 && all[1] instanceof V); assert(l.last()===3 && l.length===3 && l instanceof L && Array.isArray(l)); assert(d.two()==='b' && d.size===1)"""),
    ("classes_without_names_of_their_own", "const M = Base => class extends Base { mixed(){return 1} }; class Root { r(){return 2} }; class Mixed extends M(Root) {}; const K=class { k(){return 3} }", "assert(new K().k()===3 && K.name==='K'); assert(new Root().r()===2)"),
    ("a_changed_class", "class T { static gone=1; m(){return 1} n(){return 2} }; delete T.gone; delete T.prototype.n; T.prototype.m=function(){return 'new'}", "assert(!('gone' in T) && T.prototype.n===undefined && new T().m()==='new')"),
    ("emitters", "const { EventEmitter } = require('events'); class E extends EventEmitter {}; const e=new E(); e.n=0; e.on('go', function () { this.n++ })", "e.emit('go'); assert(e.n===1 && e instanceof EventEmitter)"),
    ("builtins_by_path", "const m=Math.max, l=console.log, o={j:JSON, p:Promise, g:globalThis}, q=require('fs').readFileSync, t=setTimeout, bound=Math.min.bind(null, 3), proto=Array.prototype", """
        assert(m===Math.max && o.j===JSON && o.p===Promise && o.g===globalThis && q===require('fs').readFileSync && t===setTimeout && bound(5)===3 && proto===Array.prototype)"""),
    ("urls", "const u=new URL('http://a/b?c=d#e'), o={u}", "assert(o.u===u && u.href==='http://a/b?c=d#e' && u instanceof URL && u.searchParams.get('c')==='d')"),
    ("the_process", "const p=process, o={p:process, b:Buffer, c:console, e:process.env}", "assert(p===process && o.p===process && o.b===Buffer && o.c===console && o.e===process.env)"),
    ("modules", "const fs=require('fs'), path=await import('path'); var os=require('os'); const o={fs, path}; import { join } from 'path'", """
        assert(fs===require('fs') && path.sep==='/' && globalThis.os===require('os') && o.fs===fs && o.path===path); assert.throws(() => { fs = 1 }); assert(join('a','b')==='a/b')"""),
    ("names_of_builtins", "url='here'; var test=3; function stream(){return 1}", "assert(url==='here' && test===3 && stream()===1)"),
    ("templates_and_patterns_in_text", "function f(s) { const c=`a${s ? `b${s}` : '}'}c`; return /[\"'`/]/.test(c) ? 1 : c.length / 2 / 1 } class X { m() { return `}` + '{' } }", "assert(f('zz')===2.5 && new X().m()==='}{')"),
    ("a_method_held_beside_its_class", "class A { m(){return 5} }; const held=A.prototype.m", "assert(held()===5)"),
    ("deep_nesting", "let deep=null; for (let i=0;i<100000;i++) deep={deep}", "let n=0; for (let d=deep; d; d=d.deep) n++; assert.strictEqual(n, 100000)"),
    ("closures_that_use_nothing", "function mk(){ let n=0; return [()=>n++, ()=>7] } const seven=mk()[1]", "assert(seven()===7)"),
    ("import_within_functions", "async function later() { return (await import('path')).sep }", "assert.strictEqual(await later(), '/')"),
]

# Name, code, variable, part of the reason, path to it.
LOST = [
    ("closure", "const c=(() => { let count=0; return () => count++ })()", "c", "a closure over `count`", None),
    ("closure_within", "const o={deep:[{f:(() => { let count=0; return () => count++ })()}]}", "o", "a closure over `count`", "o.deep[0].f"),
    ("closure_in_a_map", "const m=new Map([['k', (() => { let count=0; return () => count++ })()]])", "m", "a closure over `count`", 'm.get("k")'),
    ("closure_over_this", "class A { constructor(){ this.f=() => this } }; const a=new A()", "a", "a closure over `this`", "a.f"),
    ("closure_by_eval", "const f=(() => { let x=1; return (s) => eval(s) })()", "f", "a closure over `x`", None),
    ("local_class", "const i=(() => { let n=0; return new (class Local { m(){return n} }) })()", "i", "a closure over `n`", None),
    ("promise", "const p={p:Promise.resolve(1)}", "p", "a promise", "p.p"),
    ("proxy", "const p=new Proxy({}, {get(){throw 1}, ownKeys(){throw 2}, getOwnPropertyDescriptor(){throw 3}, getPrototypeOf(){throw 4}})", "p", "a proxy", None),
    ("proxy_as_prototype", "const p=Object.create(new Proxy({}, {getPrototypeOf(){throw 4}}))", "p", "a proxy", None),
    ("weak_map", "const w=[new WeakMap()]", "w", "a WeakMap", "w[0]"),
    ("weak_reference", "const w=new WeakRef({})", "w", "a weak reference", None),
    ("generator", "function* g(){yield 1}; const it=g()", "it", "a generator", None),
    ("iterator", "const it=[1][Symbol.iterator]()", "it", "an iterator", None),
    ("map_iterator", "const it=new Map().keys()", "it", "an iterator", None),
    ("socket", "const s=new (require('net').Socket)()", "s", "an open socket", None),
    ("server", "const s={s:require('http').createServer()}", "s", "a server", "s.s"),
    ("timer", "const t=setInterval(()=>{}, 1e9); t.unref()", "t", "a timer", None),
    ("accessor", "Object.defineProperty(globalThis, 'acc', {get(){ throw new Error('was run') }, configurable:true})", "acc", "accessor property", None),
    ("private_fields", "class A { #secret=1; get(){return this.#secret} }; const a=new A()", "a", "private `#secret`", None),
    ("static_private_fields", "class A { static #n=1; static up(){return ++A.#n} }; A.up()", "A", "private `#n`", None),
    ("stream", "const s=require('stream').Readable.from([1])", "s", "an object of the host's", None),
    ("foreign_realm", "const o=require('vm').runInNewContext('({a: []})')", "o", "an object of the host's", None),
    ("host_object", "const f=new Intl.NumberFormat()", "f", "an object of the host's", None),
    ("shared_memory", "const s=new SharedArrayBuffer(8)", "s", "shared memory", None),
    ("arguments", "const a=(function(){return arguments})(1)", "a", "an arguments object", None),
    ("method_with_super", "const o={__proto__:{m(){}}, m(){ return super.m() }}", "o", "a method with `super`", "o.m"),
    ("unfinished_declaration", "try { let y = 1 } catch {}", None, None, None),
]


def write(path, data):
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


class Case(unittest.TestCase):
    def setUp(self):
        self.home = os.path.realpath(tempfile.mkdtemp())
        self.directory = self.home + "/kept"
        self.contexts = []

    def tearDown(self):
        for context in self.contexts:
            context.close()
        shutil.rmtree(self.home)

    def context(self, **how):
        context = Context(NODE, self.home, **how)
        self.contexts.append(context)
        return context

    def saved(self, code, **limits):
        context = self.context()
        context.run(textwrap.dedent(code))
        return context, context.save(self.directory, **limits)

    def restored(self):
        context = self.context()
        return context, context.restore(self.directory)

    def holds(self, context, code):
        context.run("{ const assert = require('assert'); %s }" % textwrap.dedent(code))

    def lost(self, manifest):
        return {entry["name"]: entry for entry in manifest["lost"]}

    def digests(self, manifest):
        return {entry["name"]: entry["digest"] for entry in manifest["variables"]}

    def blobs(self):
        return {
            name: os.stat(os.path.join(self.directory, name)).st_mtime_ns
            for name in os.listdir(self.directory)
            if len(name) == 40
        }


class Kept(Case):
    def keeps(self, before, after):
        first, manifest = self.saved(before)
        self.assertEqual(manifest["lost"], [])
        second, told = self.restored()
        self.assertEqual(told["unavailable"], [])
        self.assertEqual(told["state"], "restored")
        names = {entry["name"] for entry in manifest["variables"]} | set(manifest["modules"])
        self.assertEqual(set(told["restored"]), names)
        again = second.save(self.directory)
        self.assertEqual(again["lost"], [])
        changed = [n for n, d in self.digests(manifest).items() if self.digests(again).get(n) != d]
        self.assertEqual(changed, self.rewritten)
        declared = lambda m: {entry["name"]: (entry["kind"], entry["declared"]) for entry in m["variables"]}
        self.assertEqual(declared(manifest), declared(again))
        self.holds(second, after)

    # The text of a class whose base was an expression is another one afterwards.
    rewritten = []


for name, before, after in KEPT:
    def test(self, before=before, after=after, name=name):
        self.rewritten = ["Mixed"] if name == "classes_without_names_of_their_own" else []
        self.keeps(before, after)

    setattr(Kept, "test_" + name, test)


class Lost(Case):
    pass


for name, code, variable, reason, path in LOST[:-1]:
    def test(self, code=code, variable=variable, reason=reason, path=path):
        context, manifest = self.saved(code + "; var beside=1")
        told = self.lost(manifest)
        self.assertIn(variable, told)
        self.assertIn(reason, told[variable]["reason"])
        if path is not None:
            self.assertEqual(told[variable]["because_of"], path)
        self.assertIn("beside", self.digests(manifest))
        self.assertNotIn(variable, self.digests(manifest))
        _, restored = self.restored()
        self.assertEqual(restored["unavailable"], [])
        self.assertIn(variable, [entry["name"] for entry in restored["lost"]])

    setattr(Lost, "test_" + name, test)


class Stored(Case):
    def test_nothing_is_written_again_when_nothing_changed(self):
        context, manifest = self.saved("let a=[1]; class A {}; const i=new A(); function f(){}; const b=Buffer.alloc(1e6)")
        before = self.blobs()
        again = context.save(self.directory)
        self.assertEqual(self.blobs(), before)
        self.assertEqual(again["generation"], manifest["generation"] + 1)
        context.run("a.push(2)")
        context.save(self.directory)
        after = self.blobs()
        self.assertEqual(len(set(after) - set(before)), 1)
        self.assertEqual(len(set(before) - set(after)), 1)

    def test_instances_do_not_make_one_group_with_their_class(self):
        _, manifest = self.saved("class A {}; const a=new A(), b=new A(); function f(){}; const o={f}")
        groups = {group["names"][0][0]: group for group in manifest["groups"]}
        self.assertEqual(groups["a"]["needs"], ["A"])
        self.assertEqual(groups["b"]["needs"], ["A"])
        self.assertEqual(groups["o"]["needs"], ["f"])
        self.assertEqual(len(groups), 5)

    def test_variables_that_share_an_object_make_one_group(self):
        _, manifest = self.saved("let a=[{}]; let b=[a[0]]; let c=b; let d=[{}]")
        names = sorted(group["names"] for group in manifest["groups"])
        self.assertEqual(names, [[["a"], ["b", "c"]], [["d"]]])

    def test_deleted_and_reassigned_names_go(self):
        context, _ = self.saved("x=1; let y=[1]; var z=2")
        context.run("delete globalThis.x; y=Promise.resolve()")
        manifest = context.save(self.directory)
        self.assertEqual(set(self.digests(manifest)), {"z"})
        self.assertEqual(self.lost(manifest)["y"]["reason"], "a promise")
        self.assertEqual(len(self.blobs()), 1)

    def test_what_depends_on_what_is_lost_is_told(self):
        _, manifest = self.saved("const sock=new (require('net').Socket)(); function send(){ return sock.write(1) } function other(){ return {}.sock + 'sock' /* sock */ } const o={m(){ return sock }}")
        self.assertEqual(manifest["depends"], [{"name": "o", "uses": ["sock"]}, {"name": "send", "uses": ["sock"]}])
        _, told = self.restored()
        self.assertEqual(told["depends"], manifest["depends"])

    def test_who_refers_to_what_is_lost_is_lost_with_it(self):
        _, manifest = self.saved("const f=(() => { let n=0; return () => n++ })(); const o={f}; const p=[o]; class A { static p=Promise.resolve() }; const a=new A()")
        told = self.lost(manifest)
        self.assertEqual(set(told), {"f", "o", "p", "A", "a"})
        self.assertIn("it refers to f, which is lost: a closure over `n`", told["o"]["reason"])
        self.assertEqual(told["A"]["because_of"], "A.p")

    def test_others_that_share_with_a_lost_one_are_kept(self):
        _, manifest = self.saved("const shared={n:1}; let a=[shared, Promise.resolve()]; let b=[shared]")
        self.assertEqual(set(self.lost(manifest)), {"a"})
        second, _ = self.restored()
        self.holds(second, "assert(b[0]===shared && shared.n===1)")

    def test_what_is_too_large_is_lost_with_that_reason(self):
        _, manifest = self.saved("let big='x'.repeat(100000); let part={}; let tree=[part, Buffer.alloc(100000)]; let small=[part]; let n=Array(20000).fill(1)", value_bytes_max=50000)
        told = self.lost(manifest)
        self.assertEqual(set(told), {"big", "tree", "n"})
        self.assertIn("more than 50000 bytes", told["big"]["reason"])
        self.assertEqual(set(self.digests(manifest)), {"part", "small"})

    def test_all_together_are_bounded(self):
        _, manifest = self.saved("let a=Buffer.alloc(30000), b=Buffer.alloc(30000,1), c=Buffer.alloc(30000,2), d=1", bytes_max=70000)
        self.assertEqual(set(self.lost(manifest)), {"c"})
        self.assertIn("all together", self.lost(manifest)["c"]["reason"])
        self.assertLess(sum(g["bytes"] for g in manifest["groups"]), 70000)
        self.assertIn("d", self.digests(manifest))

    def test_time_is_bounded_and_some_is_left_for_others(self):
        context = self.context()
        context.run("let huge=[]; for (let i=0;i<3e6;i++) huge.push({i}); let zz=1")
        began = time.monotonic()
        manifest = context.save(self.directory, time_max_ms=400)
        self.assertLess(time.monotonic() - began, 3)
        self.assertIn("no time", self.lost(manifest)["huge"]["reason"])
        self.assertIn("zz", self.digests(manifest))

    def test_a_damaged_blob_is_told_and_carried_on(self):
        _, manifest = self.saved("let a=[1,2,3]; let b='fine'")
        path = os.path.join(self.directory, self.digests(manifest)["a"])
        data = read(path)
        write(path, data.replace(b"2", b"9"))
        second, told = self.restored()
        self.assertEqual(told["restored"], ["b"])
        self.assertEqual(told["unavailable"], [{"name": "a", "reason": "the blob is damaged"}])
        second.run("if (typeof a !== 'undefined') throw a")
        again = second.save(self.directory)
        self.assertIn("a", self.digests(again))
        write(path, data)
        third, told = self.restored()
        self.assertEqual(told["unavailable"], [])
        self.holds(third, "assert(a[1]===2)")

    def test_a_blob_that_is_missing_is_told(self):
        _, manifest = self.saved("let a=[1]")
        os.unlink(os.path.join(self.directory, self.digests(manifest)["a"]))
        _, told = self.restored()
        self.assertIn("ENOENT", told["unavailable"][0]["reason"])

    def test_missing_modules_are_unavailable_until_they_are_there(self):
        package = os.path.join(self.home, "node_modules/tool")
        os.makedirs(package)
        write(package + "/index.js", "module.exports = { use() { return 1 }, deep: {} }")
        _, manifest = self.saved("const tool=require('tool'); const use=tool.use; let o={tool}; let plain=1")
        self.assertEqual(manifest["modules"]["tool"]["module"], "tool")
        os.rename(package, package + ".away")
        second, told = self.restored()
        self.assertEqual({entry["name"] for entry in told["unavailable"]}, {"tool", "o"} | ({"use"} & {e["name"] for e in told["unavailable"]}))
        manifest = second.save(self.directory)
        self.assertTrue(manifest["modules"]["tool"]["unavailable"])
        self.assertIn("o", self.digests(manifest))
        os.rename(package + ".away", package)
        third, told = self.restored()
        self.assertEqual(told["unavailable"], [])
        self.holds(third, "assert(tool.use()===1 && o.tool===tool && plain===1 && use()===1)")

    def test_what_is_unavailable_goes_when_it_is_assigned_or_forgotten(self):
        _, manifest = self.saved("let a=[1]; let b=[2]; let c=[3]")
        for name in "abc":
            path = os.path.join(self.directory, self.digests(manifest)[name])
            data = read(path)
            write(path, data + b"x")
        second, told = self.restored()
        self.assertEqual(len(told["unavailable"]), 3)
        second.run("let a=5")
        second.aside("aside.kept.keeper.forget(%s, ['b'])" % json.dumps(self.directory))
        manifest = second.save(self.directory)
        self.assertEqual(set(self.digests(manifest)), {"a", "c"})
        self.assertEqual({g["names"][0][0] for g in manifest["groups"]}, {"a", "c"})

    def test_an_empty_directory_and_another_format_are_told(self):
        first = self.context()
        self.assertEqual(first.restore(self.directory)["state"], "empty")
        write(self.directory + "/manifest.json", '{"format": 99}')
        self.assertEqual(first.restore(self.directory)["state"], "foreign")
        write(self.directory + "/manifest.json", '{"format"')
        self.assertEqual(first.restore(self.directory)["state"], "empty")

    def test_the_directory_is_restored(self):
        os.mkdir(self.home + "/sub")
        self.saved("process.chdir('sub')")
        second, _ = self.restored()
        self.assertEqual(second.run("console.log(process.cwd())").strip(), self.home + "/sub")

    def test_nothing_is_written_through_links(self):
        os.mkdir(self.home + "/elsewhere")
        os.symlink(self.home + "/elsewhere", self.directory)
        context = self.context()
        context.run("let a=1")
        call = "aside.kept.keeper.save(%s, {time_max_ms: 1000, bytes_max: 1e9, value_bytes_max: 1e9})" % json.dumps(self.directory)
        context.aside(call, expect="error")
        self.assertEqual(os.listdir(self.home + "/elsewhere"), [])
        os.unlink(self.directory)
        manifest = context.save(self.directory)
        write(self.home + "/victim", "safe")
        blob = os.path.join(self.directory, self.digests(manifest)["a"])
        for name in (blob, self.directory + "/.new", self.directory + "/manifest.json"):
            if os.path.exists(name):
                os.unlink(name)
            os.symlink(self.home + "/victim", name)
        context.save(self.directory)
        self.assertEqual(read(self.home + "/victim"), b"safe")
        self.assertFalse(os.path.islink(blob))

    def test_other_files_are_left_and_old_blobs_are_removed(self):
        context, _ = self.saved("let a=1")
        write(self.directory + "/readme", "x")
        write(self.directory + "/" + "a" * 40, "x")
        context.save(self.directory)
        self.assertIn("readme", os.listdir(self.directory))
        self.assertEqual(len(self.blobs()), 1)

    def test_broken_prototypes_and_globals_do_not_matter(self):
        context = self.context()
        context.run("""
            let a=[1,{x:new Map([[1,2]])}]; class A { m(){return 1} }; const i=new A(); function f(){return a}
            for (const name of ['map','filter','forEach','join','slice','concat','indexOf','includes','flat','sort','some','every','find']) Array.prototype[name]=() => { throw 'array' }
            Map.prototype.get=Map.prototype.set=Map.prototype.forEach=() => { throw 'map' }; JSON.stringify=JSON.parse=() => { throw 'json' };
            Object.defineProperty=Object.keys=Object.getOwnPropertyDescriptor=Reflect.ownKeys=() => { throw 'object' }
            Array.prototype[Symbol.iterator]=undefined; Function.prototype.toString=() => 'class {}';
            Promise.prototype.then=() => { throw 'then' }; RegExp.prototype.exec=() => null; String.prototype.split=undefined
            Object.prototype.toString=() => 'x'; Object.prototype.kind='polluted'; Array.prototype.toJSON=() => 'x'; Map=Set=WeakMap=Date=undefined
            """)
        manifest = context.save(self.directory)
        self.assertLessEqual({"a", "A", "i", "f"}, set(self.digests(manifest)))
        second, told = self.restored()
        self.assertLessEqual({"a", "A", "i", "f"}, set(told["restored"]))
        second.run("delete Object.prototype.kind; if (a[1].x.get(1) !== 2 || i.m() !== 1 || f() !== a) throw 1")

    def test_a_keeper_that_comes_after_the_code_works(self):
        context = self.context(keeper=False)
        context.run("let a=1; class A {}; url='x'; Array.prototype.map=() => { throw 1 }; JSON.stringify=null")
        context.aside(read(KEEPER).decode())
        context.aside("aside.kept.keeper.save(%s, {time_max_ms: 1000, bytes_max: 1e9, value_bytes_max: 1e9})" % json.dumps(self.directory))
        manifest = json.loads(read(self.directory + "/manifest.json"))
        self.assertEqual(set(self.digests(manifest)), {"a", "A", "url"})

    def test_declarations_can_be_made_again_after_a_restore(self):
        self.saved("const c=1; let l=2; class K { m(){return 1} }; function f(){return 1}; const fs=require('fs')")
        second, _ = self.restored()
        second.run("const c=10; let l=20; class K { m(){return 2} }; function f(){return 2}; const fs=3")
        second.run("if (c+l+new K().m()+f()+fs !== 37) throw new Error(c+l)")
        second.run("const c=4; let l=5; l++; if (c+l !== 10) throw 1")
        manifest = second.save(self.directory)
        declared = {entry["name"]: entry["declared"] for entry in manifest["variables"]}
        self.assertEqual((declared["c"], declared["l"], declared["K"]), ("const", "let", "let"))

    def test_no_getter_of_the_code_is_run_by_a_save(self):
        context, _ = self.saved("let ran=0; const o={get x(){ran++; return 1}}; class A { static get s(){ran++} get y(){ran++} }; const a=new A(); const arr=[]; Object.defineProperty(arr,0,{get(){ran++},enumerable:true,configurable:true}); const e=Object.defineProperty(new Map(), 'size', {get(){ran++}}); const r=/x/; Object.defineProperty(r,'flags',{get(){ran++}}); 0")
        context.run("if (ran !== 0) throw ran")

    def test_globals_of_the_interpreter_are_not_variables(self):
        context, manifest = self.saved("fetch; crypto; performance; structuredClone; fs; path; process; Buffer; console.log(1); globalThis.navigator; module")
        self.assertEqual(manifest["variables"], [])
        self.assertEqual(manifest["lost"], [])

    def test_the_same_state_gives_the_same_manifest_over_many_lives(self):
        context, manifest = self.saved("let n=0; const list=[]; class A { constructor(){this.t=n++} }; function add(){ list.push(new A()); return list.length }")
        for life in range(4):
            context, told = self.restored()
            self.assertEqual(told["unavailable"], [])
            context.run("if (add() !== %d) throw new Error(list.length)" % (life + 1))
            context.save(self.directory)


# Values made of numbers that depend on the seed alone, with parts that they share.
RANDOM = """
    var build = function (seed) {
      const next = (most) => { seed = (seed * 1103515245 + 12345) % 2147483648; return Math.floor(seed / 65536) % most; };
      const pool = [];
      const atom = () => [next(100), -next(9) / 7, 'text' + next(50), 'é\\u{1F600}', null, undefined, true, BigInt(next(99)) ** 20n, NaN, -0, Symbol.iterator][next(11)];
      const value = (depth) => {
        if (depth > 5 || next(3) === 0) return pool.length > 0 && next(4) === 0 ? pool[next(pool.length)] : atom();
        const made = [() => [], () => ({}), () => new Map(), () => new Set(), () => new Date(next(1e6)), () => Buffer.from('b' + next(99)),
          () => new Float32Array([next(9), 0.5]), () => /x+/g, () => Object.create(null), () => new RangeError('e' + next(9)), () => Object(next(9))][next(11)]();
        pool.push(made);
        for (let count = next(6); count > 0; count--) {
          if (Array.isArray(made)) made.length < 20 && next(9) === 0 ? made.length += 2 : made.push(value(depth + 1));
          else if (made instanceof Map) made.set(value(depth + 1), value(depth + 1));
          else if (made instanceof Set) made.add(value(depth + 1));
          else if (!ArrayBuffer.isView(made)) made['k' + next(9)] = value(depth + 1);
        }
        if (next(15) === 0 && !ArrayBuffer.isView(made)) Object.freeze(made);
        if (made instanceof Error) made.stack = 'stack';
        return made;
      };
      return Array.from({ length: 5 }, () => value(0));
    };
"""


class Random(Case):
    def test_random_graphs_come_back_as_they_were(self):
        seeds = range(1, 121)
        names = ["v%d_%d" % (seed, at) for seed in seeds for at in range(5)]
        code = "".join("var [%s]=build(%d);" % (",".join(n for n in names if n.startswith("v%d_" % s)), s) for s in seeds)
        _, manifest = self.saved(RANDOM + code)
        self.assertEqual(manifest["lost"], [])
        second, told = self.restored()
        self.assertEqual(told["unavailable"], [])
        again = second.save(self.directory)
        self.assertEqual(self.digests(again), self.digests(manifest))
        self.holds(second, """
            const state=(v) => typeof v === 'object' && v !== null && Object.isFrozen(v);
            for (let seed=1; seed<=120; seed++) { const all=build(seed); const now=all.map((_, at) => globalThis['v'+seed+'_'+at]);
              assert.deepStrictEqual(now, all); assert.deepStrictEqual(now.map(state), all.map(state)); }""")


class Aside(Case):
    def test_it_leaves_nothing_in_the_namespace(self):
        context = self.context(keeper=False)
        context.run("globalThis.before=0; before=Object.getOwnPropertyNames(globalThis).length")
        self.assertEqual(context.aside("const x=1; var y=2; aside.kept.z=3; aside.say('output')"), "output")
        self.assertEqual(context.output["displays"], [])
        context.run("if (typeof x+typeof y !== 'undefinedundefined') throw 1; if (Object.getOwnPropertyNames(globalThis).length !== before) throw 2")
        self.assertEqual(context.aside("aside.say(String(aside.kept.z))"), "3")

    def test_its_value_is_not_shown(self):
        context = self.context(keeper=False)
        context.aside("return {a: 1}")
        self.assertEqual(context.output["displays"], [])
        context.run("({a: 1})")
        self.assertEqual(len(context.output["displays"]), 1)

    def test_its_errors_are_errors(self):
        context = self.context(keeper=False)
        context.aside("throw new TypeError('boo')", expect="error")
        self.assertEqual((context.output["error"]["kind"], context.output["error"]["message"]), ("TypeError", "boo"))
        context.aside("await null; nope()", expect="error")
        self.assertEqual(context.output["error"]["kind"], "ReferenceError")
        context.aside("this is no code", expect="error")
        self.assertEqual(context.output["error"]["kind"], "SyntaxError")
        context.run("1")

    def test_what_code_has_left_goes_on(self):
        context = self.context(keeper=False)
        context.run("let n=0; const t=setInterval(() => { n++; console.log('late', n) }, 5)")
        until = time.monotonic() + 20
        output = ""
        while "late" not in context.late and time.monotonic() < until:
            output += context.aside("await new Promise((r) => aside.require('timers').setTimeout(r, 20))")
        self.assertIn("late", context.late)
        self.assertEqual(output, "")
        context.run("clearInterval(t); if (n === 0) throw n")

    def test_who_reads_standard_input_is_not_told_of_its_end(self):
        context = self.context(keeper=False)
        context.run("let ended=false; process.stdin.on('data', () => {}); process.stdin.on('end', () => { ended=true }); process.stdin.pause(); 0", stdin=True)
        context.run("process.stdin.resume()", aside=True)
        context.aside("await new Promise((r) => aside.require('timers').setTimeout(r, 20))")
        context.aside("aside.say('x')")
        context.run("if (ended) throw new Error('ended')", stdin=True)

    def test_imports_are_what_they_were(self):
        context = self.context(keeper=False)
        context.run("const p=await import('path'); if (p.sep !== '/') throw 1; try { await import('./nope.mjs'); throw 2 } catch (e) { if (e.code !== 'ERR_MODULE_NOT_FOUND') throw e }")
        write(self.home + "/thenable.mjs", "export function then(r) { r(7) }")
        # Before 20, Node itself refuses such a module here.
        if int(context.version.split(".")[0]) >= 20:
            context.run("if (await import('./thenable.mjs') !== 7) throw 1")
        write(self.home + "/esm.mjs", "export const v = 4")
        context.aside(read(KEEPER).decode())
        context.run("const esm=await import('./esm.mjs'); const o={esm}")
        context.save(self.directory)
        second, told = self.restored()
        self.assertEqual(told["unavailable"], [])
        second.run("if (esm.v !== 4 || o.esm !== esm) throw 1")


if __name__ == "__main__":
    if len(sys.argv) > 1 and os.path.exists(sys.argv[1]):
        NODE = os.path.abspath(sys.argv.pop(1))
    unittest.main()

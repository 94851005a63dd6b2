"""The web of a test: HTTP at port 80, the same over TLS at 443, and a server that speaks first.

Below `/git/` are the repositories of the directory `git`, as git's own server gives them out; below
`/locked/` too, to whoever says `me` and the content of the file `token`. Each request is a line in `asked`: at which address, for which host, under which name of TLS."""

import base64, hashlib, http.server, json, os, socket, socketserver, ssl, subprocess, sys, threading, urllib.parse

PLACE = sys.argv[1]
BLOCK = hashlib.shake_256(b"burrow").digest(1 << 20)
asked, lock = open(os.path.join(PLACE, "asked"), "a"), threading.Lock()
TOLD = ["authorization", "token", "origin", "upgrade", "http2-settings"]
TYPES = {".html": "text/html", ".json": "application/json"}


def write_down(**what):
    with lock:
        asked.write(json.dumps(what) + "\n")
        asked.flush()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        self.named = None
        self.is_tls = isinstance(self.request, ssl.SSLSocket)
        if self.is_tls:
            self.request.settimeout(30)
            self.request.do_handshake()
            self.named = getattr(self.request, "named", None)
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().setup()

    def parse_request(self):
        fine = super().parse_request()
        if fine:
            at = self.request.getsockname()[0].removeprefix("::ffff:")
            told = {name: self.headers.get(name) for name in TOLD}
            write_down(**told, at=at, host=self.headers.get("host"), named=self.named, tls=self.is_tls,
                       port=self.request.getsockname()[1], method=self.command, path=self.path)
        return fine

    def handle_expect_100(self):
        if self.path != "/unwanted":
            return super().handle_expect_100()
        self.close_connection = True
        self.answer(b"not that\n", 413)
        return False

    def answer(self, body, status=200, **headers):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path, _, query = self.path.partition("?")
        query = dict(urllib.parse.parse_qsl(query))
        if path == "/hello":
            return self.answer(f"hello from {self.headers['host']}\n".encode())
        if path == "/redirect":
            return self.answer(b"", 302, location=query["to"])
        if path == "/bytes":
            return self.stream(int(query["n"]))
        if path == "/socket":
            return self.socket()
        if path.startswith(("/git/", "/locked/")):
            return self.git()
        file = os.path.join(PLACE, "served", urllib.parse.unquote(path).strip("/"))
        if os.path.isdir(file):
            file = os.path.join(file, "index.html")
        if not os.path.isfile(file):
            return self.answer(b"no such page\n", 404)
        kind = TYPES.get(os.path.splitext(file)[1], "application/octet-stream")
        content = open(file, "rb").read()
        # What a registry has says itself what it is.
        self.answer(content, content_type=json.loads(content)["mediaType"] if "/manifests/" in path else kind)

    do_HEAD = do_GET

    def stream(self, count):
        self.send_response(200)
        self.send_header("content-length", str(count))
        self.end_headers()
        while count > 0:
            self.wfile.write(BLOCK[:count])
            count -= len(BLOCK)

    def socket(self):
        """A WebSocket that greets, and then sends back what comes, frames and all."""
        key = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        head = f"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n" \
               f"sec-websocket-accept: {accept}\r\n\r\n"
        self.wfile.write(head.encode() + b"\x81\x07welcome")
        self.close_connection = True
        while chunk := self.rfile.read1(65536):
            self.wfile.write(chunk)

    def body(self):
        """What a request carries, in pieces."""
        left = int(self.headers.get("content-length", -1 if "transfer-encoding" in self.headers else 0))
        if left < 0:
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        while left > 0:
            chunk = self.rfile.read(min(left, 65536))
            yield chunk
            left -= len(chunk)

    def git(self):
        """What git's own server answers, which is a program that is started for each request."""
        body = b"".join(self.body())
        path, _, query = self.path.partition("?")
        _, place, repository = path.split("/", 2)
        if place == "locked":
            who = "me:" + open(os.path.join(PLACE, "token")).read()
            if self.headers["authorization"] != "Basic " + base64.b64encode(who.encode()).decode():
                return self.answer(b"who are you?\n", 401, www_authenticate='Basic realm="locked"')
        told = {"CONTENT_TYPE": "content-type", "HTTP_CONTENT_ENCODING": "content-encoding", "GIT_PROTOCOL": "git-protocol"}
        told = {variable: self.headers[field] for variable, field in told.items() if field in self.headers}
        own = {"GIT_PROJECT_ROOT": os.path.join(PLACE, "git"), "GIT_HTTP_EXPORT_ALL": "1", "REMOTE_USER": "me",
               "REQUEST_METHOD": self.command, "PATH_INFO": "/" + repository, "QUERY_STRING": query,
               "CONTENT_LENGTH": str(len(body)), "GIT_CONFIG_GLOBAL": "/dev/null"}
        ran = subprocess.run(["git", "http-backend"], input=body, env={**os.environ, **told, **own}, stdout=subprocess.PIPE)
        head, _, answer = ran.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.answer(answer, int(fields.pop("Status", "200").split()[0]), **fields)

    def do_PUT(self):
        digest = hashlib.sha256()
        for chunk in self.body():
            digest.update(chunk)
        self.answer(digest.hexdigest().encode() + b"\n")

    def do_POST(self):
        return self.git() if self.path.startswith(("/git/", "/locked/")) else self.do_PUT()

    def log_message(self, *_):
        pass


class Web(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 512

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, *_):
        pass


class TlsWeb(Web):
    def __init__(self, *args):
        super().__init__(*args)
        self.tls = self.shows("web", "web")
        # Two names whose certificate is no good: it is over, and it is of nobody.
        self.others = {"expired.example.org": self.shows("expired", "web"),
                       "strange.example.org": self.shows("strange", "strange")}
        self.tls.sni_callback = self.is_named

    def shows(self, certificate, key):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(PLACE, certificate + ".pem"), os.path.join(PLACE, key + ".key"))
        return context

    def is_named(self, stream, named, _):
        stream.named = named
        stream.context = self.others.get(named, self.tls)

    def get_request(self):
        stream, peer = super().get_request()
        # The greeting is exchanged by the connection's own thread.
        return self.tls.wrap_socket(stream, server_side=True, do_handshake_on_connect=False), peer


class SpeaksFirst(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"who are you?\n")
        said = self.request.recv(100)
        self.request.sendall(b"you are " + said)


class Speaking(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads = True, True


servers = [Web(("::", 80), Handler), TlsWeb(("::", 443), Handler), Speaking(("", 5432), SpeaksFirst)]
for server in servers:
    threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()

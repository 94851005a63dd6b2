"""Writes what public registries serve, as files: a few packages of PyPI in name only, a page of GitHub's API
and, where there is a BUSYBOX, the image `python:3.12-slim` with this machine's own Python. The files of a directory
WHEELS are packages of PyPI as they are.

    registries.py SERVED AUTHORITIES BUSYBOX WHEELS
"""

import fnmatch, glob, hashlib, importlib.util, io, json, os, re, shutil, subprocess, sys, sysconfig, tarfile, zipfile

SERVED, AUTHORITIES, BUSYBOX, WHEELS = sys.argv[1:]
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
TRUSTED = "/etc/ssl/certs/ca-certificates.crt"
# Parts of Python that no page uses.
LEFT_OUT = ("test", "idlelib", "lib2to3", "tkinter", "ensurepip", "site-packages", "dist-packages", "config-*",
            "*.a", "EXTERNALLY-MANAGED", "*.opt-?.pyc", "pydoc_data", "turtledemo", "_tkinter*")
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}


def write(path, content):
    path = os.path.join(SERVED, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


class Image:
    """An image of one layer, whose files are this machine's."""

    def __init__(self, name):
        self.blobs = f"v2/library/{name}/blobs/"
        write(self.blobs + "layer", b"")
        self.layer = os.path.join(SERVED, self.blobs, "layer")
        self.archive = tarfile.open(self.layer, "w")
        self.linked = []
        self.copy(BUSYBOX, "/bin/busybox")
        for tool in subprocess.check_output([BUSYBOX, "--list"], text=True).split():
            if tool != "busybox":
                self.link("busybox", "/bin/" + tool)
        for directory in ("srv", "tmp", "root", "var"):
            self.add(directory, tarfile.DIRTYPE)
        self.link("/bin/env", "/usr/bin/env")
        self.text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
        self.copy(AUTHORITIES, TRUSTED)

    def add(self, path, kind, content=b"", **more):
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.type, entry.size, entry.mode = kind, len(content), 0o755
        entry.linkname = more.get("linkname", "")
        self.archive.addfile(entry, io.BytesIO(content))

    def text(self, path, text):
        self.add(path, tarfile.REGTYPE, text.encode())

    def link(self, target, path):
        self.add(path, tarfile.SYMTYPE, linkname=target)

    def copy(self, path, to=None):
        # What is linked to is found by its name too, which may be a symlink.
        self.archive.add(os.path.realpath(path), to or path)

    def program(self, path):
        self.copy(path)
        self.linked.append(path)

    def tree(self, path, *left_out):
        def chosen(entry):
            name = os.path.basename(entry.name)
            if any(fnmatch.fnmatch(name, one) for one in left_out):
                return None
            if name.endswith(".so"):
                self.linked.append("/" + entry.name)
            return entry

        self.archive.add(path, filter=chosen)

    def publish(self, tag):
        said = subprocess.run(["ldd", *self.linked], capture_output=True, text=True).stdout
        for library in {word for line in said.splitlines() if line[:1].isspace() for word in line.split() if word[0] == "/"}:
            self.copy(library)
        self.archive.close()
        layer = self.described(LAYER, self.layer)
        config = {"os": "linux", "architecture": MACHINE[os.uname().machine],
                  "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
                  "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}
        write(self.blobs + "config", json.dumps(config))
        config = self.described(CONFIG, os.path.join(SERVED, self.blobs, "config"))
        manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]})
        digest = "sha256:" + hashlib.sha256(manifest.encode()).hexdigest()
        for reference in (tag, digest):
            write(f"{self.blobs}../manifests/{reference}", manifest)

    def described(self, kind, path):
        """Names a blob after its content."""
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
        digest = "sha256:" + digest.hexdigest()
        described = {"mediaType": kind, "digest": digest, "size": os.path.getsize(path)}
        os.rename(path, os.path.join(SERVED, self.blobs, digest))
        return described


def python_image():
    image, program = Image("python"), os.path.realpath(sys.executable)
    pip = os.path.dirname(importlib.util.find_spec("pip").origin)
    image.program(program)
    image.link(program, "/usr/bin/python3")
    image.tree(sysconfig.get_path("stdlib"), *LEFT_OUT)
    image.tree(pip, "__pycache__")
    image.text("/usr/bin/pip", "#!/usr/bin/python3\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n")
    image.text("/etc/pip.conf", f"[global]\ncert = {TRUSTED}\nroot-user-action = ignore\ndisable-pip-version-check = true\n")
    image.publish("3.12-slim")


def python_package(name):
    file = f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info/"
    with zipfile.ZipFile(os.path.join(SERVED, file), "w") as wheel:
        wheel.writestr(f"{name}.py", "__version__ = '1.0'\n")
        wheel.writestr(about + "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(about + "RECORD", f"{name}.py,,\n")
    offer(name, file)


def offer(name, file):
    digest = hashlib.sha256(open(os.path.join(SERVED, file), "rb").read()).hexdigest()
    link = f'<a href="https://files.pythonhosted.org/{file}#sha256={digest}">{file}</a>'
    write(f"simple/{name}/index.html", f"<!DOCTYPE html><html><body>{link}</body></html>")


write("v2/index.html", "{}")
write("user", '{"login":"octocat"}\n')
for name in ("six", "pandas", "matplotlib"):
    python_package(name)
for wheel in glob.glob(os.path.join(WHEELS, "*.whl")) if WHEELS else []:
    file = shutil.copy(wheel, SERVED)
    offer(re.sub("[-_.]+", "-", os.path.basename(file).split("-")[0]).lower(), os.path.basename(file))
if BUSYBOX:
    python_image()

"""Files, directories, watches, signed URLs."""

import io
import time
import urllib.error
import urllib.request

import e2b
from wire import refused, sandbox


def a_file_is_written_and_read():
    with sandbox() as sbx:
        info = sbx.files.write("a/b.txt", "héllo")
        assert info.path == "/home/user/a/b.txt" and info.name == "b.txt", info
        assert sbx.files.read("a/b.txt") == "héllo"
        assert bytes(sbx.files.read("/home/user/a/b.txt", format="bytes")) == "héllo".encode()
        assert b"".join(sbx.files.read("a/b.txt", format="stream")) == "héllo".encode()
        assert sbx.files.read("~/a/b.txt", gzip=True) == "héllo"
        sbx.files.write("empty", "")
        assert sbx.files.read("empty") == ""
        refused(lambda: sbx.files.read("none"), kind=e2b.FileNotFoundException)
        refused(lambda: sbx.files.read("/home/user/a"), kind=e2b.InvalidArgumentException)


def many_files_come_in_one_request():
    with sandbox() as sbx:
        names = [f"many/{n} ä\".txt" for n in range(20)]
        infos = sbx.files.write_files([{"path": name, "data": name} for name in names])
        assert [info.path for info in infos] == [f"/home/user/{name}" for name in names]
        assert all(sbx.files.read(name) == name for name in names)


def uploads_stream_and_are_packed():
    with sandbox() as sbx:
        large = bytes(range(256)) * 40_000
        sbx.files.write("large", io.BytesIO(large))
        assert bytes(sbx.files.read("large", format="bytes")) == large
        sbx.files.write("packed", large, gzip=True)
        assert bytes(sbx.files.read("packed", format="bytes")) == large
        sbx.files.write("form", large, use_octet_stream=False)
        assert bytes(sbx.files.read("form", format="bytes")) == large
        refused(lambda: sbx.files.write("m", "x", metadata={"a": "b"}))


def directories_are_made_listed_moved_and_removed():
    with sandbox() as sbx:
        assert sbx.files.make_dir("d/e") is True
        assert sbx.files.make_dir("d/e") is False
        sbx.files.write("d/e/f", "1")
        sbx.commands.run("ln -s e/f d/link && chmod 640 d/e/f")
        found = {entry.path: entry for entry in sbx.files.list("d", depth=2)}
        assert set(found) == {"/home/user/d/e", "/home/user/d/e/f", "/home/user/d/link"}, found
        assert found["/home/user/d/e"].type == e2b.FileType.DIR
        assert found["/home/user/d/link"].symlink_target == "/home/user/d/e/f"
        assert len(sbx.files.list("d")) == 2
        info = sbx.files.get_info("d/e/f")
        assert (info.size, info.permissions, info.mode) == (1, "-rw-r-----", 0o640), info
        assert sbx.files.exists("d/e/f") and not sbx.files.exists("d/g")
        assert sbx.files.rename("d/e/f", "new/place").path == "/home/user/new/place"
        assert sbx.files.read("new/place") == "1"
        refused(lambda: sbx.files.rename("d/e/f", "x"), kind=e2b.FileNotFoundException)
        refused(lambda: sbx.files.list("new/place"), kind=e2b.InvalidArgumentException)
        sbx.files.remove("d")
        sbx.files.remove("d")
        assert not sbx.files.exists("d")


def a_watch_sees_what_happens():
    with sandbox() as sbx:
        sbx.files.make_dir("w")
        watch = sbx.files.watch_dir("w", recursive=True)
        sbx.commands.run("mkdir w/sub && echo 1 > w/a && mv w/a w/b && rm w/b")
        seen, deadline = [], time.monotonic() + 30
        wanted = {("a", "create"), ("a", "write"), ("a", "rename"), ("b", "create"), ("b", "remove")}
        while not wanted <= set(seen) and time.monotonic() < deadline:
            seen += [(event.name, event.type.value) for event in watch.get_new_events()]
        assert wanted <= set(seen), seen
        watch.stop()
        refused(lambda: sbx.files.watch_dir("none"), kind=e2b.FileNotFoundException)


def signed_urls_need_no_token():
    with sandbox() as sbx:
        sbx.files.write("s.txt", "signed")
        url = sbx.download_url("s.txt", use_signature_expiration=600)
        with urllib.request.urlopen(url) as answer:
            assert answer.read() == b"signed"
        for wrong in [url.replace("s.txt", "t.txt"), sbx.download_url("s.txt", use_signature_expiration=-5)]:
            error = refused(lambda: urllib.request.urlopen(wrong), kind=urllib.error.HTTPError)
            assert error.code == 401, error
        up = urllib.request.Request(sbx.upload_url("u.txt"), data=b"up", method="POST")
        up.add_header("Content-Type", "application/octet-stream")
        urllib.request.urlopen(up).close()
        assert sbx.files.read("u.txt") == "up"

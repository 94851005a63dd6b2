"""Files: listed, looked at, up and down, moved, searched, changed."""

import os

import daytona
from daytona import FileDownloadRequest, FileUpload
from wire import refused, sandbox


def files_go_up_and_down_as_they_are():
    with sandbox() as made:
        fs = made.fs
        large = os.urandom(3_000_000)
        for path, content in [
            ("/tmp/plain", b"a\r\nb"),
            ("/tmp/new/dir/é ü\"'.txt", b"name"),
            ("/tmp/empty", b""),
            ("/tmp/large", large),
            ("/tmp/trap", b"\r\n--x--\r\nContent-Disposition: form-data\r\n\r\n"),
        ]:
            fs.upload_file(content, path)
            assert fs.download_file(path) == content, path
        fs.upload_file(b"relative", "here/it.is")
        assert made.process.exec("cat here/it.is").result == "relative"
        fs.upload_file(b"home", "~/there")
        assert made.process.exec("cat ~/there").result == "home"
        fs.upload_files([FileUpload(b"%d" % n, f"/tmp/many/{n}") for n in range(20)])
        asked = [FileDownloadRequest(f"/tmp/many/{n}") for n in range(20)]
        asked.append(FileDownloadRequest("/tmp/none"))
        found = fs.download_files(asked)
        assert [one.result for one in found[:20]] == [b"%d" % n for n in range(20)]
        assert found[20].result is None and found[20].error_details.status_code == 404, found[20]
        assert found[20].error_details.code == "FILE_NOT_FOUND"
        local = os.path.join(os.getcwd(), "local")
        fs.download_file("/tmp/large", local)
        assert open(local, "rb").read() == large
        fs.upload_file(local, "/tmp/again")
        assert b"".join(fs.download_file_stream("/tmp/again")) == large
        sent = []
        with open(local, "rb") as source:
            fs.upload_file_stream(source, "/tmp/streamed", on_progress=lambda seen: sent.append(seen))
        assert sent[-1].bytes_sent == len(large) and fs.get_file_info("/tmp/streamed").size == len(large)


def what_is_not_there_is_said_so():
    with sandbox() as made:
        fs = made.fs
        fs.create_folder("/tmp/d", "755")
        for call in [
            lambda: fs.download_file("/tmp/none"),
            lambda: fs.get_file_info("/tmp/none"),
            lambda: fs.list_files("/tmp/none"),
            lambda: fs.delete_file("/tmp/none"),
            lambda: fs.move_files("/tmp/none", "/tmp/other"),
            lambda: fs.set_file_permissions("/tmp/none", mode="600"),
            lambda: fs.search_files("/tmp/none", "*"),
            lambda: fs.find_files("/tmp/none", "x"),
        ]:
            refused(call, daytona.DaytonaFileNotFoundError)
        refused(lambda: fs.download_file("/tmp/d"), daytona.DaytonaInvalidFilePathError)
        refused(lambda: fs.delete_file("/tmp/d"), says="recursive")
        for mode in ["888", "rwx", "-1"]:
            refused(lambda: fs.create_folder("/tmp/x", mode), daytona.DaytonaBadRequestError)


def a_directory_is_listed_and_changed():
    with sandbox() as made:
        fs = made.fs
        fs.create_folder("/tmp/d/e", "700")
        fs.upload_file(b"12345", "/tmp/d/file")
        found = {one.name: one for one in fs.list_files("/tmp/d")}
        assert set(found) == {"e", "file"}, found
        assert found["e"].is_dir and not found["file"].is_dir and found["file"].size == 5
        assert found["e"].permissions == "0700" and found["e"].mode == "drwx------", found["e"]
        fs.upload_file(b"", "/tmp/d/e/deep")
        assert {one.name for one in fs.list_files("/tmp/d", depth=2)} == {"e", "file", "deep"}
        fs.set_file_permissions("/tmp/d/file", mode="640")
        info = fs.get_file_info("/tmp/d/file")
        assert (info.name, info.permissions, info.mode) == ("file", "0640", "-rw-r-----"), info
        fs.set_file_permissions("/tmp/d/file", owner=info.owner, group=info.group)
        refused(lambda: fs.set_file_permissions("/tmp/d/file", owner="no-such-user"))
        refused(lambda: fs.set_file_permissions("/tmp/d/file", owner="a:b"), says="account")
        refused(lambda: fs.set_file_permissions("/tmp/d/file"), says="mode")
        fs.move_files("/tmp/d/file", "/tmp/d/moved")
        assert fs.download_file("/tmp/d/moved") == b"12345"
        fs.delete_file("/tmp/d/moved")
        fs.delete_file("/tmp/d", recursive=True)
        refused(lambda: fs.get_file_info("/tmp/d"), daytona.DaytonaFileNotFoundError)


def files_are_searched_and_text_in_them_is_replaced():
    with sandbox() as made:
        fs = made.fs
        fs.upload_files(
            [
                FileUpload(b"one\ntwo TODO: a\nTODO: b\r\n", "/tmp/s/a.py"),
                FileUpload(b"TODO: a:1:b\n", "/tmp/s/sub/b:2:c.py"),
                FileUpload(b"\0TODO", "/tmp/s/binary"),
                FileUpload(b"none", "/tmp/s/c.txt"),
            ]
        )
        made.process.exec("ln -s /tmp/s /tmp/s/loop")
        found = fs.find_files("/tmp/s", "TODO: ")
        assert sorted((one.file, one.line, one.content) for one in found) == [
            ("/tmp/s/a.py", 2, "two TODO: a"),
            ("/tmp/s/a.py", 3, "TODO: b"),
            ("/tmp/s/sub/b:2:c.py", 1, "TODO: a:1:b"),
        ], found
        assert [one.line for one in fs.find_files("/tmp/s/a.py", "one")] == [1]
        assert sorted(fs.search_files("/tmp/s", "*.py").files) == ["/tmp/s/a.py", "/tmp/s/sub/b:2:c.py"]
        assert fs.search_files("/tmp/s", "?.txt").files == ["/tmp/s/c.txt"]
        fs.set_file_permissions("/tmp/s/a.py", mode="755")
        results = fs.replace_in_files(["/tmp/s/a.py", "/tmp/s/none", "/tmp/s"], "TODO", "DONE")
        assert [one.success for one in results] == [True, False, False], results
        assert "none" in results[1].error, results
        assert fs.download_file("/tmp/s/a.py") == b"one\ntwo DONE: a\nDONE: b\r\n"
        assert fs.get_file_info("/tmp/s/a.py").permissions == "0755"
        refused(lambda: fs.replace_in_files(["/tmp/s/a.py"], "", "x"), says="pattern")


def hostile_paths_stay_in_the_sandbox():
    with sandbox() as made:
        fs = made.fs
        made.process.exec("ln -s /etc/passwd /tmp/link; ln -s /proc/self/root /tmp/root")
        outside = "/tmp/../../../../tmp/out"
        fs.upload_file(b"inside", outside)
        assert fs.download_file("/tmp/out") == b"inside"
        assert not os.path.exists("/tmp/out"), "it was written on the host"
        assert fs.download_file("/tmp/link") == made.process.exec("cat /etc/passwd").result.encode()
        for path in ["/proc/self/root/etc/shadow", "/tmp/root/etc/hostname", "/proc/1/mem", "/sys/kernel"]:
            refused(lambda: fs.download_file(path))
        refused(lambda: fs.upload_file(b"x", "/proc/sys/kernel/core_pattern"))
        refused(lambda: fs.download_file("/tmp/a\0b"))
        refused(lambda: fs.upload_file(b"x", "/" + "a" * 5000))
        refused(lambda: fs.upload_file(b"x", "/tmp/" + "a" * 300))
        # A name is a word, and neither an option nor a command.
        fs.upload_file(b"x", "/tmp/-R; touch $(x)")
        fs.set_file_permissions("/tmp/-R; touch $(x)", mode="600")
        assert fs.get_file_info("/tmp/-R; touch $(x)").permissions == "0600"
        assert {one.name for one in fs.list_files("/tmp")} >= {"-R; touch $(x)", "link"}

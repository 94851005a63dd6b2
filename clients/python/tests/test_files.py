"""Files of a sandbox, and archives that are hostile."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

import burrow
from burrow import archive


def test_files_are_written_read_listed_moved_and_removed(box: Any) -> None:
    files = box.files
    assert files.write("/srv/deep/a.txt", "hällo") == 6
    assert files.read_text("/srv/deep/a.txt") == "hällo"
    files.write("/srv/deep/a.txt", b"\xff", append=True)
    assert files.read("/srv/deep/a.txt") == "hällo".encode() + b"\xff"
    files.write("/srv/deep/b", b"", permissions=0o750)
    assert [(one.name, one.size, one.permissions) for one in files.list("/srv/deep")] == [
        ("a.txt", 7, "0644"),
        ("b", 0, "0750"),
    ]
    files.mkdir("/srv/dir/sub")
    assert files.stat("/srv/dir").is_directory
    files.move("/srv/deep/b", "/srv/dir/c")
    assert files.exists("/srv/dir/c")
    assert not files.exists("/srv/deep/b")
    with pytest.raises(burrow.ApiError):
        files.remove("/srv/dir")
    files.remove("/srv/dir", recursive=True)
    with pytest.raises(burrow.NotFound):
        files.read("/srv/dir/c")
    with pytest.raises(burrow.InvalidRequest):
        files.read("relative")


def test_files_of_any_size_go_in_pieces_and_are_bounded_where_they_are_read_whole(box: Any) -> None:
    length = box.files.write("/srv/large", b"x" * (3 * 1024 * 1024))
    pieces = list(box.files.read_stream("/srv/large"))
    assert len(pieces) > 1
    assert sum(map(len, pieces)) == length
    with pytest.raises(burrow.TooLarge):
        box.files.read("/srv/large", bytes_max=length - 1)
    assert len(box.files.read("/srv/large", bytes_max=length)) == length


def test_names_of_any_characters_are_names(box: Any) -> None:
    for name in ("a b", "ä?&=#%2F", "new\nline"):
        box.files.write(f"/srv/{name}", name)
        assert box.files.read_text(f"/srv/{name}") == name


def test_a_directory_goes_in_and_comes_out_the_same(box: Any, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "file").write_bytes(b"x" * 100_000)
    (source / "sub" / "run").write_text("#!/bin/sh\necho ran\n")
    (source / "sub" / "run").chmod(0o755)
    (source / "sub" / "link").symlink_to("../file")
    (source / "away").symlink_to("/etc/passwd")
    box.files.upload(source, "/srv/in")
    assert box.exec("/srv/in/sub/run").stdout == "ran\n"
    transfer = box.files.download("/srv/in", tmp_path / "out")
    assert transfer.skipped == ("away",)
    out = tmp_path / "out"
    found = sorted(os.fspath(path.relative_to(out)) for path in out.rglob("*"))
    assert found == ["file", "sub", "sub/empty", "sub/link", "sub/run"]
    assert (out / "sub" / "link").read_bytes() == b"x" * 100_000
    assert os.access(out / "sub" / "run", os.X_OK)
    box.files.upload(source / "file", "/srv/one")
    assert box.files.stat("/srv/one/file").size == 100_000
    box.files.download("/srv/one/file", tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == b"x" * 100_000


def test_a_download_is_whole_or_not_there_at_all(box: Any, tmp_path: Path) -> None:
    box.shell("mkdir /srv/d; head -c 100000 /dev/zero > /srv/d/a; echo b > /srv/d/b")
    with pytest.raises(burrow.TooLarge):
        box.files.download("/srv/d", tmp_path / "out", bytes_max=99_999)
    with pytest.raises(burrow.TooLarge):
        box.files.download("/srv/d", tmp_path / "out", entries_max=2)
    with pytest.raises(burrow.NotFound):
        box.files.download("/srv/none", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError):
        box.files.download("/srv/d", tmp_path / "out")
    with pytest.raises(FileNotFoundError):
        box.files.upload(tmp_path / "none", "/srv")


def _archive(*entries: tuple[str, Any]) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, what in entries:
            member = tarfile.TarInfo(name)
            if isinstance(what, bytes):
                member.size = len(what)
                tar.addfile(member, io.BytesIO(what))
                continue
            kind, target = what
            member.type, member.linkname = kind, target
            tar.addfile(member)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    "entries",
    [
        [("d/../../out", b"x")],
        [("/out", b"x")],
        [("../out", b"x")],
        [("d/l", (tarfile.SYMTYPE, "../..")), ("d/l/out", b"x")],
        [("d/l", (tarfile.SYMTYPE, "/")), ("d/l/out", b"x")],
        [("d", (tarfile.SYMTYPE, ".."))],
        [("d/a/b", (tarfile.SYMTYPE, "../../.."))],
        [("d/a", (tarfile.SYMTYPE, "x/../../.."))],
        [("d/h", (tarfile.LNKTYPE, "../../secret"))],
        [("d/h", (tarfile.LNKTYPE, "/etc/passwd"))],
        [("d/dev", (tarfile.CHRTYPE, "")), ("d/fifo", (tarfile.FIFOTYPE, ""))],
        [("d/a", (tarfile.SYMTYPE, "b")), ("d/b", (tarfile.SYMTYPE, "../..")), ("d/a/x", b"x")],
    ],
)
def test_a_hostile_archive_writes_nothing_elsewhere_and_leads_nowhere(
    tmp_path: Path, entries: Any
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("secret")
    first = [("d/first", b"fine")] if entries[0][0] != "d" else []
    try:
        archive.unpacked(
            _archive(*first, *entries), inside / "local", bytes_max=1000, entries_max=10
        )
    except burrow.BurrowError:
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside", "secret"]
    assert [path.name for path in inside.iterdir()] in ([], ["local"])
    for path in inside.rglob("*"):
        assert inside.resolve() in path.resolve().parents
        assert path.is_dir() or path.is_symlink() or path.is_file()


def test_a_damaged_archive_is_a_typed_error(tmp_path: Path) -> None:
    for file in (io.BytesIO(b"x" * 1000), io.BytesIO(b"")):
        with pytest.raises(burrow.BurrowError):
            archive.unpacked(file, tmp_path / "out", bytes_max=10, entries_max=10)
    assert list(tmp_path.iterdir()) == []

"""Directories as tar archives: packed on upload, unpacked on download. Archives from a sandbox are
hostile: nothing is written outside a fresh directory, no link is followed, only files, directories
and harmless links are made, and everything is bounded. Uses no network.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from .errors import InvalidRequest, TooLarge
from .limits import ARCHIVE_MEMORY_BYTES, CHUNK_BYTES


@dataclass(frozen=True)
class Transfer:
    """The result of transferring a directory."""

    entries: int
    size: int
    #: Entries that were left out: links that lead elsewhere, devices, names that are invalid here.
    skipped: tuple[str, ...] = ()


def packed(local: Path) -> IO[bytes]:
    """Packs the content of a directory, or one file under its own name. Links stay links."""
    if not local.exists():
        raise FileNotFoundError(f"there is no {os.fspath(local)!r}")
    file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=ARCHIVE_MEMORY_BYTES)  # noqa: SIM115 (handed on)
    try:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            if local.is_dir():
                for child in sorted(local.iterdir()):
                    tar.add(child, arcname=child.name, filter=_packable)
            else:
                tar.add(local, arcname=local.name, filter=_packable)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _packable(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return None
    # The owner here means nothing in the sandbox.
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpacked(file: IO[bytes], local: Path, *, bytes_max: int, entries_max: int) -> Transfer:
    """Unpacks an archive of one path at `local`, which must not exist: completely or not at all."""
    if os.path.lexists(local):
        raise FileExistsError(f"there is a {os.fspath(local)!r} already")
    local.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".burrow-", dir=local.parent))
    try:
        unpacking = _Unpacking(scratch / "root", bytes_max, entries_max)
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                unpacking.take(tar, member)
        if not os.path.lexists(unpacking.root):
            raise InvalidRequest("the archive has nothing that can be written here")
        # Links are made last, so that nothing is written through one.
        unpacking.link()
        os.rename(unpacking.root, local)
    except tarfile.TarError as error:
        raise InvalidRequest(f"the archive is damaged: {error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Transfer(unpacking.entries, unpacking.size, tuple(unpacking.skipped))


class _Unpacking:
    def __init__(self, root: Path, bytes_max: int, entries_max: int) -> None:
        self.root = root
        self.bytes_max = bytes_max
        self.entries_max = entries_max
        self.entries = 0
        self.size = 0
        self.skipped: list[str] = []
        self.links: list[tuple[Path, str, int]] = []
        self.written: dict[tuple[str, ...], Path] = {}

    def take(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self.entries += 1
        if self.entries > self.entries_max:
            raise TooLarge(f"the archive has more than {self.entries_max} entries")
        below = _below(member.name)
        if below is None:
            self.skipped.append(member.name)
            return
        path = self.root.joinpath(*below)
        try:
            self._make(tar, member, below, path)
        except (FileExistsError, NotADirectoryError, FileNotFoundError):
            # The archive contradicts itself.
            self.skipped.append(member.name)

    def _make(
        self, tar: tarfile.TarFile, member: tarfile.TarInfo, below: tuple[str, ...], path: Path
    ) -> None:
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
            os.chmod(path, 0o700 | member.mode & 0o777)
        elif member.isreg():
            source = tar.extractfile(member)
            assert source is not None, "a regular file has content"
            self._write(source, path, member.mode)
            self.written[below] = path
        elif member.islnk():
            other = _below(member.linkname)
            known = None if other is None else self.written.get(other)
            if known is None:
                self.skipped.append(member.name)
                return
            with open(known, "rb") as source:
                self._write(source, path, member.mode)
            self.written[below] = path
        elif member.issym() and below:
            self.links.append((path, member.linkname, len(below) - 1))
        else:
            self.skipped.append(member.name)

    def _write(self, source: IO[bytes], path: Path, mode: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        with open(os.open(path, flags, 0o600 | mode & 0o755), "wb") as file:
            while piece := source.read(CHUNK_BYTES):
                self.size += len(piece)
                if self.size > self.bytes_max:
                    raise TooLarge(f"the archive holds more than {self.bytes_max} bytes")
                file.write(piece)

    def link(self) -> None:
        for path, target, depth in self.links:
            if not _stays(target, depth) or os.path.lexists(path):
                self.skipped.append(os.fspath(path.relative_to(self.root)))
                continue
            try:
                # A parent may be a link from this archive by now.
                if path.parent.resolve() != self.root.resolve().joinpath(
                    *path.parent.relative_to(self.root).parts
                ):
                    raise FileExistsError
                path.parent.mkdir(parents=True, exist_ok=True)
                os.symlink(target, path)
            except OSError:
                self.skipped.append(os.fspath(path.relative_to(self.root)))


def _below(name: str) -> tuple[str, ...] | None:
    """The components after the first, which is the archived path's own; `None` for a name that leads
    elsewhere."""
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in name:
        return None
    return parts[1:]


def _stays(target: str, depth: int) -> bool:
    """Whether a link at this depth stays inside, whatever other links exist: it goes up no further
    than the root, and only at its beginning."""
    parts = PurePosixPath(target).parts
    if not parts or parts[0] == "/" or "\0" in target:
        return False
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    return up <= depth and ".." not in parts[up:]

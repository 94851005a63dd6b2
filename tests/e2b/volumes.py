"""Volumes: made, mounted in sandboxes that share them, and reached from outside with their own token."""

import io
import os
import urllib.error
import urllib.request

import e2b
from wire import refused, sandbox


def _fails(call, status):
    """A refusal of a call about a volume: these exceptions have their status in words alone."""
    error = refused(call, kind=e2b.VolumeException)
    assert str(error).startswith(f"{status}: "), error


def a_volume_is_made_found_and_destroyed():
    volume = e2b.Volume.create("made")
    assert volume.name == "made" and volume.token, volume
    _fails(lambda: e2b.Volume.create("made"), 409)
    _fails(lambda: e2b.Volume.create("not a name"), 400)
    assert (volume.volume_id, "made") in [(one.volume_id, one.name) for one in e2b.Volume.list()]
    info = e2b.Volume.get_info(volume.volume_id)
    assert (info.name, info.token) == ("made", volume.token), info
    volume.write_file("kept", "1")
    again = e2b.Volume.connect(volume.volume_id)
    assert again.name == "made" and again.read_file("kept") == "1"
    assert e2b.Volume.destroy(volume.volume_id) is True
    assert e2b.Volume.destroy(volume.volume_id) is False
    refused(lambda: e2b.Volume.connect(volume.volume_id), kind=e2b.VolumeNotFoundException)
    refused(lambda: e2b.Volume.get_info("none-of-ours"), kind=e2b.VolumeNotFoundException)
    refused(lambda: again.read_file("kept"), kind=e2b.AuthenticationException)


def files_of_a_volume_are_reached_without_a_sandbox():
    missing = e2b.VolumePathNotFoundException
    volume = e2b.Volume.create("files")
    written = volume.write_file("/a.txt", "één")
    assert (written.path, written.name, written.size) == ("/a.txt", "a.txt", 5), written
    assert written.type == e2b.VolumeFileType.FILE and written.mode == 0o644, written
    assert volume.read_file("a.txt") == "één"
    assert volume.read_file("/a.txt", format="bytes") == "één".encode()
    volume.write_file("/a.txt", io.BytesIO(b"x" * 3_000_000), mode=0o600)
    assert b"".join(volume.read_file("/a.txt", format="stream")) == b"x" * 3_000_000
    assert volume.get_info("/a.txt").mode == 0o600
    volume.write_file("/a.txt", io.StringIO("text"))
    assert volume.read_file("/a.txt") == "text"

    refused(lambda: volume.make_dir("/d/e"), kind=missing)
    made = volume.make_dir("/d/e", force=True, mode=0o750)
    assert made.type == e2b.VolumeFileType.DIRECTORY and made.mode == 0o750, made
    _fails(lambda: volume.make_dir("/d/e"), 409)
    volume.make_dir("/d/e", force=True)
    refused(lambda: volume.write_file("/n/f", "1"), kind=missing)
    volume.write_file("/n/f", "1", force=True)
    assert [one.path for one in volume.list("/")] == ["/a.txt", "/d", "/n"]
    assert [one.path for one in volume.list("/", depth=2)] == ["/a.txt", "/d", "/n", "/d/e", "/n/f"]
    assert [one.name for one in volume.list("d")] == ["e"]
    refused(lambda: volume.list("/none"), kind=missing)
    _fails(lambda: volume.list("/a.txt"), 400)

    changed = volume.update_metadata("/a.txt", mode=0o640)
    assert changed.mode == 0o640 and changed.mtime.tzinfo, changed
    _fails(lambda: volume.update_metadata("/a.txt", mode=0o4755), 400)
    refused(lambda: volume.update_metadata("/none", mode=0o600), kind=missing)
    assert volume.exists("/d") and not volume.exists("/d/none")
    refused(lambda: volume.read_file("/none"), kind=missing)
    refused(lambda: list(volume.read_file("/none", format="stream")), kind=missing)
    _fails(lambda: volume.read_file("/d"), 400)
    _fails(lambda: volume.read_file("/../volume.json"), 400)
    volume.remove("/d")
    assert not volume.exists("/d/e")
    refused(lambda: volume.remove("/d"), kind=missing)
    _fails(lambda: volume.remove("/"), 400)
    e2b.Volume.destroy(volume.volume_id)


def sandboxes_share_a_volume_that_outlives_them():
    volume = e2b.Volume.create("shared")
    volume.write_file("/from-outside", "1")
    mounts = {"/mnt/data": volume}
    with sandbox(volume_mounts=mounts) as one, sandbox(volume_mounts={"/srv/d": "shared"}) as two:
        assert one.get_info().volume_mounts == [{"name": "shared", "path": "/mnt/data"}]
        assert one.commands.run("cat /mnt/data/from-outside").stdout == "1"
        one.commands.run("echo here > /mnt/data/f; ln -s /etc/passwd /mnt/data/l; mkfifo /mnt/data/p")
        assert two.commands.run("cat /srv/d/f").stdout == "here\n"
        assert two.files.read("/srv/d/f") == "here\n"
        assert volume.read_file("/f") == "here\n"
        kinds = {entry.name: (entry.type.value, entry.target) for entry in volume.list("/")}
        assert kinds["l"] == ("symlink", "/etc/passwd") and kinds["p"] == ("unknown", None), kinds
        for path in ("/l", "/p"):
            _fails(lambda: volume.read_file(path), 400)
        # A link leads nobody from outside anywhere, and goes alone when it is removed.
        one.commands.run("mkdir /tmp/kept; touch /tmp/kept/x; ln -s /tmp/kept /mnt/data/dir")
        for call in (
            lambda: volume.write_file("/dir/y", "1"),
            lambda: volume.write_file("/dir/y", "1", force=True),
            lambda: volume.make_dir("/dir/d"),
            lambda: volume.list("/dir"),
            lambda: volume.update_metadata("/dir", mode=0o777),
        ):
            _fails(call, 400)
        assert not volume.exists("/dir/x")
        volume.remove("/dir")
        assert one.commands.run("ls /tmp/kept").stdout == "x\n"
        # A tree that is too deep for a path is removed all the same.
        deep = "import os\nos.chdir('/mnt/data')\nfor n in range(3000): os.mkdir('deep'); os.chdir('deep')"
        one.commands.run(f'python3 -c "{deep}"')
        volume.remove("/deep")
        assert [entry.name for entry in volume.list("/") if "deep" in entry.name] == []
        # What comes from outside is there whole, for both.
        volume.write_file("/f", "x" * 1_000_000, uid=0, gid=0)
        assert two.commands.run("wc -c < /srv/d/f").stdout == "1000000\n"
        # Nothing in it has the rights of another user on the host.
        ran = one.commands.run("cp /bin/sleep /mnt/data/s; chmod u+s /mnt/data/s; grep ' /mnt/data ' /proc/mounts")
        assert "nosuid" in ran.stdout and "nodev" in ran.stdout, ran
        _fails(lambda: e2b.Volume.destroy(volume.volume_id), 409)
    assert volume.read_file("/f", format="bytes") == b"x" * 1_000_000
    with sandbox(volume_mounts={"/again": "shared"}) as three:
        assert three.commands.run("wc -c < /again/f").stdout == "1000000\n"
    assert e2b.Volume.destroy(volume.volume_id) is True


def what_cannot_be_mounted_is_refused():
    volume = e2b.Volume.create("refused")
    refused(lambda: e2b.Sandbox.create(volume_mounts={"/data": "none-of-ours"}), 404)
    refused(lambda: e2b.Sandbox.create(volume_mounts={"/data": "/etc"}), 404)
    for path in ("/", "data", "/proc/x", "/dev", "/a/../b"):
        refused(lambda: e2b.Sandbox.create(volume_mounts={path: volume}), 400)
    refused(lambda: e2b.Sandbox.create(volume_mounts={"/a": volume, "/a/b": "refused"}), 400)
    assert e2b.Volume.destroy(volume.volume_id) is True


def the_token_of_a_volume_is_for_its_content_alone():
    one, two = e2b.Volume.create("one"), e2b.Volume.create("two")
    one.write_file("/f", "1")
    url = os.environ["E2B_VOLUME_API_URL"]

    def asked(token, path, method="GET"):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(url + path, method=method, headers=headers)
        try:
            return urllib.request.urlopen(request).status
        except urllib.error.HTTPError as error:
            return error.code

    content = f"/volumecontent/{one.volume_id}"
    assert asked(one.token, f"{content}/file?path=/f") == 200
    for token in (two.token, "", "vol_0", os.environ["E2B_API_KEY"]):
        for method, rest in [
            ("GET", "file"), ("PUT", "file"), ("GET", "dir"), ("POST", "dir"),
            ("GET", "path"), ("PATCH", "path"), ("DELETE", "path"),
        ]:
            assert asked(token, f"{content}/{rest}?path=/f", method) == 401, (token, method, rest)
    assert asked(one.token, "/volumecontent/0123456789ab/file?path=/f") == 401
    assert one.read_file("/f") == "1"
    for volume in (one, two):
        e2b.Volume.destroy(volume.volume_id)


async def volumes_work_without_threads():
    volume = await e2b.AsyncVolume.create("asynchronous")
    assert volume.volume_id in [one.volume_id for one in await e2b.AsyncVolume.list()]
    assert (await e2b.AsyncVolume.get_info(volume.volume_id)).name == "asynchronous"
    volume = await e2b.AsyncVolume.connect(volume.volume_id)
    await volume.make_dir("/d")
    written = await volume.write_file("/d/f", b"bytes")
    assert written.size == 5, written
    assert await volume.read_file("/d/f") == "bytes"
    assert await volume.read_file("/d/f", format="bytes") == b"bytes"
    stream = await volume.read_file("/d/f", format="stream")
    assert b"".join([piece async for piece in stream]) == b"bytes"
    assert [one.path for one in await volume.list("/", depth=2)] == ["/d", "/d/f"]
    assert (await volume.get_info("/d/f")).path == "/d/f"
    assert (await volume.update_metadata("/d/f", mode=0o600)).mode == 0o600
    sbx = await e2b.AsyncSandbox.create(volume_mounts={"/v": volume})
    try:
        assert (await sbx.commands.run("cat /v/d/f")).stdout == "bytes"
    finally:
        await sbx.kill()
    await volume.remove("/d")
    assert not await volume.exists("/d")
    assert await e2b.AsyncVolume.destroy(volume.volume_id) is True
    assert await e2b.AsyncVolume.destroy(volume.volume_id) is False

"""Templates: built from images of this server with files and commands, tagged, used, and refused. The image `small`
is there already."""

import asyncio
import json
import os
import urllib.request
from pathlib import Path

import e2b
from wire import refused

SMALL = "small:latest"


def _context():
    context = Path("context")
    (context / "src" / "deep").mkdir(parents=True, exist_ok=True)
    (context / "src" / "a.txt").write_text("first\n")
    (context / "src" / "deep" / "b.txt").write_text("second\n")
    (context / "one file.txt").write_text("third\n")
    return str(context)


def _served(context):
    return (
        e2b.Template(file_context_path=context)
        .from_image(SMALL)
        .set_user("root")
        .set_workdir("/srv")
        .set_envs({"COLOUR": 'r"e$d', "TWO": "2"})
        .copy("src", "/srv/src", user="app", mode=0o750)
        .copy("one file.txt", "/srv/named.txt")
        .run_cmd('echo "$COLOUR $TWO" > built; id -u >> built')
        .run_cmd("mkdir open; chmod 777 open")
        .run_cmd("id -u > open/as-app", user="app")
        .set_start_cmd("echo begun; echo $COLOUR > /tmp/up; exec sleep 1000", "test -s /tmp/up")
    )


def a_template_is_built_and_its_sandboxes_are_ready():
    said = []
    info = e2b.Template.build(
        _served(_context()), "served", tags=["v1.0", "latest"], cpu_count=1, memory_mb=256,
        on_build_logs=lambda entry: said.append(str(entry.message)),
    )
    assert info.template_id == "served" and set(info.tags) == {"v1.0", "latest"}, info
    assert any("RUN" in line for line in said), said
    sbx = e2b.Sandbox.create("served:v1.0", envs={"OWN": "1"}, timeout=120)
    try:
        ran = sbx.commands.run("cat built open/as-app; pwd; cat /tmp/up; cat named.txt; echo $OWN", user="root", cwd="/srv")
        assert ran.stdout == 'r"e$d 2\n0\n7\n/srv\nr"e$d\nthird\n1\n', ran
        listed = sbx.commands.run("ls -ln /srv/src/a.txt; cat /srv/src/deep/b.txt", user="root").stdout
        assert listed.startswith("-rwxr-x---") and " 7 " in listed and listed.endswith("second\n"), listed
        # Its start command runs.
        assert any("sleep" in " ".join([one.cmd, *one.args]) for one in sbx.commands.list()), sbx.commands.list()
        assert sbx.get_info().template_id == "served:v1.0"
    finally:
        sbx.kill()
    # The same again is done at once, from what was uploaded and built.
    said.clear()
    e2b.Template.build(_served(_context()), "served:v1.0", on_build_logs=lambda entry: said.append(str(entry.message)))
    assert any("done before" in line for line in said), said


def tags_are_given_listed_and_taken():
    e2b.Template.build(e2b.Template().from_image(SMALL).run_cmd("echo 1 > /n"), "tagged:one")
    tagged = e2b.Template.assign_tags("tagged:one", ["two", "three"])
    assert tagged.tags == ["two", "three"], tagged
    found = {tag.tag: tag.build_id for tag in e2b.Template.get_tags("tagged")}
    assert set(found) == {"one", "two", "three"} and set(found.values()) == {tagged.build_id}, found
    e2b.Template.remove_tags("tagged", ["one", "three"])
    assert [tag.tag for tag in e2b.Template.get_tags("tagged")] == ["two"]
    assert e2b.Template.exists("tagged") and e2b.Template.alias_exists("tagged:two")
    assert not e2b.Template.exists("tagged:one")
    with e2b.Sandbox.create("tagged:two") as sbx:
        assert sbx.commands.run("cat /n").stdout == "1\n"
    refused(lambda: e2b.Template.assign_tags("tagged:one", ["x"]))
    refused(lambda: e2b.Template.remove_tags("tagged", ["one"]))
    refused(lambda: e2b.Template.get_tags("none-of-ours"))


def a_build_goes_on_in_the_background_and_says_how_it_ends():
    slow = e2b.Template().from_image(SMALL).run_cmd("echo slow; sleep 1; echo done")
    info = e2b.Template.build_in_background(slow, "behind")
    status = e2b.Template.get_build_status(info)
    assert status.status.value in ("building", "ready"), status
    while status.status.value in ("building", "waiting"):
        status = e2b.Template.get_build_status(info)
    assert status.status.value == "ready" and status.build_id == info.build_id, status
    messages = [entry.message for entry in e2b.Template.get_build_status(info, logs_offset=0).log_entries]
    assert "slow" in messages and "done" in messages, messages
    rest = e2b.Template.get_build_status(info, logs_offset=len(messages))
    assert rest.log_entries == [], rest
    nested = e2b.Template().from_template("behind").run_cmd("echo more > /more")
    e2b.Template.build(nested, "nested")
    with e2b.Sandbox.create("nested") as sbx:
        assert sbx.commands.run("cat /more").stdout == "more\n"


def what_goes_wrong_is_said_with_its_step():
    bad = e2b.Template().from_image(SMALL).run_cmd("true").run_cmd("echo why >&2; exit 3")
    error = refused(lambda: e2b.Template.build(bad, "bad"), kind=e2b.BuildException)
    assert "exit code 3" in str(error), error
    info = e2b.Template.build_in_background(bad, "bad")
    status = e2b.Template.get_build_status(info)
    while status.status.value in ("building", "waiting"):
        status = e2b.Template.get_build_status(info)
    assert status.status.value == "error" and status.reason.step == "2", status
    assert not e2b.Template.exists("bad")
    for template, name in [
        (e2b.Template().from_image("none-of-ours"), "x"),
        (e2b.Template().from_image(SMALL, username="a", password="b"), "x"),
        (e2b.Template().from_base_image(), "x"),
        (e2b.Template().from_template("none-of-ours"), "x"),
        (e2b.Template().from_image(SMALL), "<b>markup</b>"),
        (e2b.Template().from_image(SMALL), "../x"),
        (e2b.Template().from_image(SMALL).set_user("a\nRUN true"), "x"),
        (e2b.Template().from_image(SMALL).set_envs({"A": "1\nRUN true"}), "x"),
    ]:
        refused(lambda: e2b.Template.build(template, name), kind=e2b.BuildException)
    refused(lambda: e2b.Sandbox.create("x"), 404)
    # One that never becomes ready is refused, with its words.
    never = e2b.Template().from_image(SMALL).set_start_cmd("echo loud; exit 4", "echo not yet; false")
    e2b.Template.build(never, "never")
    error = refused(lambda: e2b.Sandbox.create("never"))
    assert "loud" in str(error) and "did not become ready" in str(error), error


def templates_are_listed_and_deleted():
    def ask(method, path):
        request = urllib.request.Request(os.environ["E2B_API_URL"] + path, method=method)
        request.add_header("X-API-KEY", os.environ["E2B_API_KEY"])
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read() or b"null")

    e2b.Template.build(e2b.Template().from_image(SMALL), "gone:a", tags=["b"])
    for path in ("/templates", "/v2/templates"):
        status, listed = ask("GET", path)
        assert status == 200 and {"gone:a"} <= {one["templateID"] for one in listed}, listed
    assert ask("DELETE", "/templates/gone") == (204, None)
    assert not e2b.Template.exists("gone")


async def a_template_is_built_without_threads():
    info = await e2b.AsyncTemplate.build(_served(_context()), "apart")
    assert info.template_id == "apart", info
    assert await e2b.AsyncTemplate.exists("apart")
    behind = await e2b.AsyncTemplate.build_in_background(_served(_context()), "apart")
    status = await e2b.AsyncTemplate.get_build_status(behind)
    while status.status.value in ("building", "waiting"):
        await asyncio.sleep(0.05)
        status = await e2b.AsyncTemplate.get_build_status(behind)
    assert status.status.value == "ready", status
    await e2b.AsyncTemplate.assign_tags("apart", ["next"])
    assert {tag.tag for tag in await e2b.AsyncTemplate.get_tags("apart")} == {"default", "next"}
    await e2b.AsyncTemplate.remove_tags("apart", ["next"])
    sbx = await e2b.AsyncSandbox.create("apart")
    assert (await sbx.commands.run("cat /tmp/up", user="root")).stdout == 'r"e$d\n'
    await sbx.kill()

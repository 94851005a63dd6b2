"""The asynchronous client: the same wire, and what it alone does."""

import asyncio

import daytona
from daytona import AsyncDaytona, CreateSandboxFromSnapshotParams, FileUpload, ListSandboxesQuery
from daytona import SessionExecuteRequest


async def a_sandbox_lives_and_works():
    async with AsyncDaytona() as client:
        made = await client.create(CreateSandboxFromSnapshotParams(labels={"a": "sync"}))
        try:
            assert made.state == "started"
            listed = [one.id async for one in client.list(ListSandboxesQuery(labels={"a": "sync"}))]
            assert listed == [made.id]
            ran = await asyncio.gather(*(made.process.exec(f"echo {n}") for n in range(30)))
            assert [one.result for one in ran] == [f"{n}\n" for n in range(30)]
            assert (await made.process.code_run("print(6 * 7)")).result == "42\n"
            await made.fs.upload_files([FileUpload(b"one", "/tmp/a/one"), FileUpload("é".encode(), "/tmp/a/é")])
            assert await made.fs.download_file("/tmp/a/é") == "é".encode()
            assert {one.name for one in await made.fs.list_files("/tmp/a")} == {"one", "é"}
            pieces = [piece async for piece in await made.fs.download_file_stream("/tmp/a/one")]
            assert b"".join(pieces) == b"one"
            await made.stop()
            assert made.state == "stopped"
            await made.start()
            assert (await made.get_work_dir()).startswith("/")
        finally:
            await made.delete()
        try:
            await client.get(made.id)
            raise AssertionError("it was not refused")
        except daytona.DaytonaNotFoundError:
            pass


async def logs_and_terminals_are_followed():
    async with AsyncDaytona() as client:
        made = await client.create()
        try:
            await made.process.create_session("s")
            request = SessionExecuteRequest(
                command="for i in 1 2 3; do echo $i; sleep 0.1; done; echo end >&2", run_async=True
            )
            ran = await made.process.execute_session_command("s", request)
            out, err = [], []
            await made.process.get_session_command_logs_async("s", ran.cmd_id, out.append, err.append)
            assert ("".join(out), "".join(err)) == ("1\n2\n3\n", "end\n")
            heard = []
            size = daytona.PtySize(rows=24, cols=80)
            handle = await made.process.create_pty_session("t", heard.append, pty_size=size)
            await handle.send_input("echo a$((40 + 2))z; exit 2\n")
            ended = await asyncio.wait_for(handle.wait(), 60)
            assert ended.exit_code == 2 and b"a42z" in b"".join(heard), (ended, heard)
        finally:
            await made.delete()


async def code_and_repositories_work():
    async with AsyncDaytona() as client:
        made = await client.create()
        try:
            code = made.code_interpreter
            context = await code.create_context()
            ran = await code.run_code("x = 2\nprint(x)", context=context)
            assert (ran.stdout, ran.error) == ("2\n", None), ran
            try:
                await code.run_code("while True: pass", context=context, timeout=1)
                raise AssertionError("it was not refused")
            except daytona.DaytonaTimeoutError:
                pass
            assert (await code.run_code("print(x)", context=context)).stdout == "2\n"
            if (await made.process.exec("git --version")).exit_code == 0:
                await made.git.init("/tmp/r", initial_branch="main")
                sha = (await made.git.commit("/tmp/r", "m", "Me", "me@x", allow_empty=True)).sha
                assert len(sha) == 40
                assert (await made.git.branches("/tmp/r")).branches == ["main"]
        finally:
            await made.delete()

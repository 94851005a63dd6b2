"""Commands, streams, files and living Python in a sandbox, with the client of this repository.

    pip install ./clients/python        # or PYTHONPATH=clients/python/src
    host-bridge serve --dev &
    python3 examples/python/sandbox.py

BURROW_URL and BURROW_API_KEY name another server and its key.
"""

from burrow import Exited, Output
from burrow.sync import SandboxClient


def main() -> None:
    with SandboxClient() as client, client.sandbox() as sandbox:
        # A command: an exit code other than 0 is a result; `check()` makes an exception of it.
        listed = sandbox.exec("ls", ["/usr"], timeout=10).check()
        print("directories of /usr:", len(listed.stdout.split()))

        # A stream: output as it comes, then how the command ended.
        for event in sandbox.stream_shell("for n in 1 2 3; do echo $n; sleep 0.1; done; exit 3"):
            if isinstance(event, Output):
                print("output:", event.text.strip())
            elif isinstance(event, Exited):
                print("exit code:", event.result.exit_code)

        # A file in, a file out.
        sandbox.files.write("/srv/numbers.txt", "1\n2\n39\n")

        # Code in a living interpreter: the second run has the variables of the first.
        python = sandbox.context("python")
        python.run("numbers = [int(line) for line in open('/srv/numbers.txt')]").check()
        print("sum:", python.run("sum(numbers)").check().result)


if __name__ == "__main__":
    main()

"""A notebook by nbclient, whose kernel manager asks the gateway itself."""

import asyncio

import nbformat
from jupyter_server.gateway.managers import GatewayKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

CELLS = [
    "import sys\nx = 6\nprint('out')\nprint('err', file=sys.stderr)",
    "x * 7",
    "handle = display('one', display_id='mine')",
    "handle.update('two')",
    "import os\nos.environ['HOME']",
]


class Manager(GatewayKernelManager):
    """nbclient gives the name of the kernel to the class, and the gateway's manager takes it at the start."""

    def __init__(self, *, kernel_name="python3", **options):
        super().__init__(**options)
        self.wanted = kernel_name

    async def start_kernel(self, **options):
        await super().start_kernel(kernel_name=self.wanted)


def client(cells):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    return notebook, NotebookClient(notebook, kernel_manager_class=Manager, timeout=20)


async def main():
    notebook, running = client(CELLS)
    await running.async_execute()
    outputs = [cell.outputs for cell in notebook.cells]
    texts = {output.name: output.text for output in outputs[0]}
    assert texts == {"stdout": "out\n", "stderr": "err\n"}, texts
    assert outputs[1][0].data["text/plain"] == "42", outputs[1]
    assert outputs[1][0].output_type == "execute_result", outputs[1]
    assert "two" in outputs[2][0].data["text/plain"], outputs[2]
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3, 4, 5]

    _, failing = client(["1 / 0"])
    try:
        await failing.async_execute()
    except CellExecutionError as error:
        assert error.ename == "ZeroDivisionError", error
    else:
        raise AssertionError("the cell did not fail")


asyncio.run(main())
